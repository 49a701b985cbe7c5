"""Control characters of a table from elsewhere reach a terminal as text, and data as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from cli.conftest import Cli
from long import exhaustive

import bitlake
from bitlake.formatting import printable, printable_json

HOSTILE = "\x1b]0;owned\x07\x9b31m\u202eevil\u2066"
CONTROLS = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), *"\u200e\u200f\u202a\u202e\u2066\u2069\u2028\u061c"]


def raw(text: str) -> list[str]:
    return [c for c in text if c in CONTROLS and c not in "\n\t"]


@pytest.fixture
def hostile(tmp_path: Path) -> str:
    lake = bitlake.connect(tmp_path / "lake")
    schema = pa.schema([pa.field("id", pa.int64()), pa.field(f"c{HOSTILE}", pa.string()), pa.field("p", pa.string())])
    table = lake.create_table("t", schema, partition_by=["p"], comment=f"about {HOSTILE}\nsecond")
    table.append(pa.table([[1, 2], [HOSTILE, "x"], [HOSTILE, "y"]], schema=schema))
    return str(tmp_path / "lake")


@pytest.mark.parametrize(
    "arguments",
    [
        ["tables"],
        ["describe", "t"],
        ["files", "t"],
        ["explain", "t", "-w", "id = 1"],
        exhaustive(["history", "t"]),
        exhaustive(["report", "t"]),
        exhaustive(["verify", "t"]),
        exhaustive(["advise", "t"]),
    ],
)
def test_what_a_table_says_reaches_no_terminal_as_a_command(cli: Cli, hostile: str, arguments: list[str]) -> None:
    """Bug: escapes in comments, partition values and column names were written to the terminal as they are."""
    done = cli(*arguments, at=hostile)
    assert raw(done.out + done.err) == []
    as_json = cli(*arguments, "--json", at=hostile)
    assert raw(as_json.out + as_json.err) == []
    if arguments[0] in ("describe", "files"):
        assert any(HOSTILE in text for text in _texts(as_json.json))


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [t for k, v in value.items() for t in (str(k), *_texts(v))]
    if isinstance(value, list):
        return [t for v in value for t in _texts(v)]
    return [value] if isinstance(value, str) else []


def test_errors_are_escaped(cli: Cli, hostile: str) -> None:
    done = cli("describe", f"no{HOSTILE}", at=hostile, code=1)
    assert raw(done.err) == []
    assert json.loads(cli("describe", f"no{HOSTILE}", "--json", at=hostile, code=1).err)


def test_explain_of_a_script_is_escaped(hostile: str) -> None:
    scan = bitlake.connect(hostile).table("t").scan(where="id = 1")
    assert raw(str(scan.explain())) == []


def test_exports_are_exact(cli: Cli, hostile: str) -> None:
    rows = [json.loads(line) for line in cli("export", "t", "-", "--format", "json", at=hostile).out.splitlines()]
    assert sorted(r["p"] for r in rows) == sorted([HOSTILE, "y"])


def test_printable() -> None:
    text = "".join(CONTROLS) + "grün 漢字 👩\u200d🚀"
    shown = printable(text)
    assert raw(shown) == [] and shown.endswith("grün 漢字 👩\u200d🚀") and "\\x1b" in shown and "\\u202e" in shown
    assert "\n" not in printable("a\nb", one_line=True)
    assert printable("plain") == "plain"
    assert json.loads(printable_json(json.dumps(text, ensure_ascii=False))) == text
