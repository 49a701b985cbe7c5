"""JSON made column by column, against Python's own, value by value."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from bitlake.cli.output import Screen
from bitlake.cli.result import Result, cells, json_lines, show_table

WHEN = dt.datetime(2026, 1, 2, 3, 4, 5, 6)
CASES = {
    "texts": (pa.array(['a"b\\c', "\n\r\t\b\f\x00\x1f", "日本 \u2028", "", None]), lambda v: v),
    "numbers": (pa.array([1, -(2**63), None], pa.int64()), lambda v: v),
    "floats": (pa.array([1.5, -0.0, 1e300, None]), lambda v: v),
    "unusual": (pa.array([float("nan"), float("inf"), float("-inf")]), str),
    "decimals": (pa.array([Decimal("12345678901234567890.10"), None], pa.decimal128(38, 2)), lambda v: v and str(v)),
    "booleans": (pa.array([True, False, None]), lambda v: v),
    "binary": (pa.array([b"\x00\xff", b"", None]), lambda v: None if v is None else v.hex()),
    "dates": (pa.array([dt.date(1969, 12, 31), None]), lambda v: v and v.isoformat()),
    "times": (pa.array([WHEN, None], pa.timestamp("us")), lambda v: v and v.isoformat()),
    "instants": (
        pa.array([WHEN, None], pa.timestamp("us", "Europe/Rome")),
        lambda v: v and "2026-01-02T03:04:05.000006Z",
    ),
    "nulls": (pa.nulls(2), lambda v: v),
    "lists": (pa.array([[1, None], [], None, [3]]), lambda v: v),
    "structs": (pa.array([{"x": 1, "y": ["a"]}, {"x": None, "y": None}, None]), lambda v: v),
    "maps": (pa.array([[("k", 1), ("l", None)], [], None], pa.map_(pa.string(), pa.int64())), lambda v: v and dict(v)),
    "coded": (pa.array(["a", None, "a"]).dictionary_encode(), lambda v: v),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("cut", [0, 1])
def test_values(name: str, cut: int) -> None:
    column, plain = CASES[name]
    column = column.slice(cut)
    lines = json_lines(pa.record_batch({"a": column, 'b"': column})).decode().split("\n")
    assert lines.pop() == ""
    wanted = [plain(v) if v is not None else None for v in column.to_pylist()]
    if name == "maps":
        wanted = [None if v is None else dict(v) for v in column.to_pylist()]
    assert [json.loads(line) for line in lines] == [{"a": v, 'b"': v} for v in wanted]


def test_dates_that_python_does_not_have_are_shown() -> None:
    rows = pa.table({"d": pa.array([0, 2_932_896 + 100_000, None], pa.int32()).cast(pa.date32())})
    assert cells(rows) == [["1970-01-01"], ["10273-10-15"], ["NULL"]]


def test_tables_of_several_batches_and_of_no_rows() -> None:
    table = pa.concat_tables([pa.table({"a": [1]}), pa.table({"a": [2, 3]})])
    assert json_lines(table) == b'{"a":1}\n{"a":2}\n{"a":3}\n'
    assert json_lines(table.slice(3)) == b""


def test_one_text_of_several_lines_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """EXPLAIN and SHOW CREATE TABLE answer so; a terminal's escapes stay visible."""
    plan = pa.table({"plan": ["Scan of t\n  files  2 of 3 \x1b[31m"]})
    show_table(Screen(80, False, False), Result("EXPLAIN …", plan, False, 0.1))
    assert capsys.readouterr().out == "Scan of t\n  files  2 of 3 \\x1b[31m\n"
    two = pa.table({"v": ["a\nb", "c"]})
    show_table(Screen(80, False, False), Result("SELECT v …", two, False, 0.1))
    assert "a\\nb" in capsys.readouterr().out


ROWS = [
    [1, "日本語", None, "x" * 40, "", 1234567],
    [22, "e\u0301 😀", True, "a\nb\x1b[31m", "", -1],
    [None, "", False, "", "", 0],
]


def test_a_pipe_has_the_table_of_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = [">n", "wïde", "flag", "~long", "?none", "number"]
    piped = Screen(1_000_000, False, False)
    with monkeypatch.context() as patched:
        patched.setattr(Screen, "_console", None)  # rich draws 1,700 rows a second, and is not used
        piped.table(columns, ROWS)
        piped.table(columns, [], empty="no rows")
    drawn = capsys.readouterr().out
    with monkeypatch.context() as patched:
        patched.setattr(Screen, "_plain_table", lambda *_: False)
        piped.table(columns, ROWS)
        piped.table(columns, [], empty="no rows")
    assert capsys.readouterr().out == drawn
    assert len(drawn.splitlines()) == 5


def test_rows_wider_than_a_line_are_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    Screen(30, False, False).table(["a", "*b"], [["x", "word " * 20]])
    assert len(capsys.readouterr().out.splitlines()) > 3
