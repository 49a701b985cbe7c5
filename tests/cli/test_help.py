"""Each command's help page has an example, which the command accepts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from bitlake.cli.app import COMMANDS, cli


def _commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for part in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), part)
            assert found is not None
            yield from _commands(found, f"{name} {part}")


@pytest.mark.parametrize("name", COMMANDS)
def test_examples(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    for words, leaf in _commands(command, f"bitlake {name}"):
        example = re.search(r"Example: (bitlake .*)", leaf.help or "")
        assert example is not None, words
        assert example[1].startswith(words)
        leaf.make_context(words, shlex.split(example[1].removeprefix(words)))  # raises a usage error
