"""Blocks of text against Arrow's reading of the whole text."""

from __future__ import annotations

import io
import random

import pyarrow as pa
import pytest
from long import exhaustive
from pyarrow import csv, json

from bitlake.cli import text_files
from bitlake.cli.text_files import csv_blocks, json_blocks

PARTS = ["a", "b", '"', '"', ",", "\n", "\r\n", "\r", '""', '"x\ny"', ',"']


def records(text: bytes) -> tuple[list[dict[str, str]], int]:
    """The records of two values, and how many others there are."""
    others: list[str] = []

    def skip(row: csv.InvalidRow) -> str:
        others.append(row.text)
        return "skip"

    parse = csv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip)
    read = csv.ReadOptions(column_names=["a", "b"], use_threads=False)
    types = dict.fromkeys(("a", "b"), pa.string())
    try:
        table = csv.read_csv(pa.BufferReader(text), read, parse, csv.ConvertOptions(column_types=types))
    except pa.ArrowInvalid as e:
        if "Empty CSV file" not in str(e):
            raise
        return [], len(others)
    return table.to_pylist(), len(others)


@pytest.mark.parametrize("texts", [300, exhaustive(1500)])
def test_blocks_of_csv_hold_the_records_that_arrow_sees(texts: int) -> None:
    """Quotes stand around values, are doubled, are stray, or are not closed; lines end in all three ways."""
    made = random.Random(7)
    blocks = 0
    for _ in range(texts):
        text = "".join(made.choices(PARTS, k=made.randrange(1, 60))).encode()
        try:
            parts = list(csv_blocks(io.BytesIO(text), made.randrange(1, 25), ",", '"'))
        except pa.ArrowInvalid as e:
            if "a quote may not be closed" not in str(e):
                raise
            continue
        blocks += len(parts)
        assert b"".join(parts) == text
        found = [records(part) for part in parts]
        assert ([row for rows, _ in found for row in rows], sum(others for _, others in found)) == records(text)
    assert blocks > 2 * texts


def test_blocks_of_json_end_with_a_line() -> None:
    text = b'{"a": 1}\n\n{"a": 2}\n{"a": 3}'
    assert list(json_blocks(io.BytesIO(text), 12)) == [b'{"a": 1}\n\n', b'{"a": 2}\n', b'{"a": 3}']
    with pytest.raises(pa.ArrowInvalid, match="a row is longer than 20 B"):
        list(json_blocks(io.BytesIO(b"[" * 30), 10))


def test_lines_that_arrow_refuses_get_their_quotes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    quoted: list[bytes] = []
    quote = text_files._with_quotes
    monkeypatch.setattr(text_files, "_with_quotes", lambda text: quoted.append(text) or quote(text))
    parse = json.ParseOptions(explicit_schema=pa.schema([("n", pa.int32()), ("x", pa.float64())]))
    lines = b'{"n": 1, "x": -INF}\n{"n": 2, "x": 1.5}\n'
    assert text_files.read_json(lines, parse).column("x").to_pylist() == [float("-inf"), 1.5] and quoted == [lines]
    with pytest.raises(pa.ArrowInvalid, match="changed from number to string"):
        text_files.read_json(b'{"n": "a", "x": 1}', parse)
    assert len(quoted) == 2
