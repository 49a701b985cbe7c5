"""Shell completion: the script that a shell reads, and its installation for the current user."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from bitlake.cli.failures import Usage

_SHELLS = ("bash", "zsh", "fish")


def completion_script(command: click.Command, variable: str) -> str:
    """The completion script for the shell in ``SHELL``.

    The script runs ``bitlake`` with the environment variable ``variable`` to ask for completions.
    """
    return _script(command, variable, _shell())


def install_completion(command: click.Command, variable: str) -> str:
    """Write the script where the shell in ``SHELL`` reads it at its start; return a message that says where."""
    shell = _shell()
    script = _script(command, variable, shell)
    if shell == "fish":
        config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        _write(config / "fish" / "completions" / "bitlake.fish", script)
    else:
        data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
        file = data / "bitlake" / f"completion.{shell}"
        _write(file, script)
        _append_line(Path.home() / f".{shell}rc", f"source '{file}'")
    return f"installed completion for {shell}: it works in shells that you start from now on"


def _shell() -> str:
    name = os.path.basename(os.environ.get("SHELL", ""))
    if name not in _SHELLS:
        raise Usage(f"completion supports {', '.join(_SHELLS)}; set SHELL to the path of one of them")
    return name


def _script(command: click.Command, variable: str, shell: str) -> str:
    completion = get_completion_class(shell)
    assert completion is not None  # click has all of _SHELLS
    return completion(command, {}, "bitlake", variable).source()


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def _append_line(file: Path, line: str) -> None:
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    if line not in text.splitlines():
        with file.open("a", encoding="utf-8") as f:
            f.write(("" if not text or text.endswith("\n") else "\n") + line + "\n")
