"""What notebooks show: facts of lakes, tables, scans, plans and results, with everything from outside escaped."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake.html import rows_html

EVIL = "<script>alert('x')</script>&\"q\""
VOID = {"br", "hr", "img"}


class Reader(HTMLParser):
    """The text of some HTML, and its elements; fails where they are not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.elements: set[str] = set()
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.add(tag)
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def shown(thing: Any) -> str:
    """What a notebook shows of a thing, as text; it has no script and no style of its own."""
    read = Reader(thing._repr_html_())
    assert not read.elements & {"script", "style", "iframe"}
    return " | ".join(read.text)


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    lake = bitlake.connect(str(tmp_path / "la<k>e"))
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field(EVIL, pa.string()), ("p", pa.int32())])
    table = lake.create_table("orders", schema, partition_by=["p"], options={"file-index.bitmap.columns": "p"})
    table.append(pa.table([[1, 2], [EVIL, None], [1, 2]], schema=schema))
    return lake


def test_a_lake_shows_its_tables(lake: bitlake.Lake) -> None:
    lake.create_table("events", pa.schema([("id", pa.int64())]))
    text = shown(lake)
    assert "la<k>e" in text
    assert "default (current) | 2 | events, orders" in text


def test_a_lake_without_tables_says_so(tmp_path: Path) -> None:
    assert "no tables yet" in shown(bitlake.connect(str(tmp_path)))


def test_a_table_shows_columns_options_and_its_snapshot(lake: bitlake.Lake) -> None:
    text = shown(lake.table("orders"))
    assert f"id | BIGINT | NOT NULL | {EVIL} | STRING | p | INT | partition" in text
    assert "file-index.bitmap.columns | p" in text
    assert "snapshot 1 (APPEND), " in text and "+00:00: 2 rows" in text
    keyed = lake.create_table("k", pa.schema([("id", pa.int64())]), primary_key=["id"])
    assert "primary key" in shown(keyed) and "no snapshot yet: the table is empty" in shown(keyed)
    lake.drop_table("k")
    assert "does not exist" in shown(keyed)


def test_a_scan_shows_what_was_asked_and_reads_nothing(lake: bitlake.Lake) -> None:
    scan = lake.table("orders").scan(columns=["id"], where="p = 1 AND id < 5", limit=3)
    text = shown(scan)
    assert "columns | id | where | " in text and "limit | 3" in text and "snapshot 1" in text
    assert scan._core._planned == []
    assert "Scan of default.orders at snapshot 1" in shown(scan.plan())


def test_rows_are_a_table_of_the_first_ones() -> None:
    rows = pa.table([pa.array([1, None]), pa.array([EVIL, "b"])], names=["n", "n"])
    read = Reader(rows_html(["n", "<n>"], rows))
    assert [t.strip() for t in read.text] == ["n", "<n>", "1", EVIL, "NULL", "b"]
    many = Reader(rows_html(["n"], pa.table({"n": range(25)})))
    assert many.text[-1] == "the first 20 of 25 rows" and many.text[-2] == "19"


def test_explanations_are_shown_too(lake: bitlake.Lake) -> None:
    assert "<script" not in lake.table("orders").scan(where="p = 1").explanation()._repr_html_()
