"""Page indexes of Parquet files: sound ones have no finding, and a damaged one that misleads readers has one."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from long import exhaustive

import bitlake
from bitlake.errors import BitlakeError
from bitlake.formats.parquet.footer import Footer, read_footer
from bitlake.formats.parquet.page_index import decode_pages
from bitlake.scan import page_pruning
from bitlake.table.table import Table
from bitlake.tools.verify import data as data_check
from bitlake.tools.verify import page_indexes
from bitlake.tools.verify.page_indexes import CODE, PageIndexFacts

ROWS = 40_000
DAY = dt.date(2026, 1, 1)
MOMENT = dt.datetime(2026, 1, 1)


def rows() -> pa.Table:
    """Columns in order, so that bounds of pages are narrow; some pages hold NULLs alone."""
    n = np.arange(ROWS)
    some = (n // 5000) % 3 == 1
    return pa.table(
        {
            "id": pa.array(n, pa.int64()),
            "tiny": pa.array((n // 400 - 50).astype(np.int8), pa.int8()),
            "day": pa.array([DAY + dt.timedelta(int(i) // 100) for i in n], pa.date32()),
            "ms": pa.array([MOMENT + dt.timedelta(milliseconds=int(i)) for i in n], pa.timestamp("ms")),
            "us": pa.array([MOMENT + dt.timedelta(microseconds=int(i)) for i in n], pa.timestamp("us", "UTC")),
            "price": pa.array([Decimal(int(i) - 7) / 100 for i in n], pa.decimal128(10, 2)),
            "wide": pa.array([Decimal(int(i)) for i in n], pa.decimal128(30, 0)),
            "text": pa.array([f"{i // 10:08}é" for i in n], pa.string()),
            "gaps": pa.array(n, pa.int32(), mask=some),
            "real": pa.array(n / 7, pa.float64()),
            "list": pa.array([[int(i)] * (i % 3) for i in n], pa.list_(pa.int64())),
            "tag": pa.array([f"t{i % 40}" for i in n], pa.string()),
        }
    )


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages") / "lake"
    options = {"file-index.bitmap.columns": "tag", "parquet.page.row.count.limit": "1024"}
    bitlake.connect(str(folder)).create_table("t", rows(), options=options)
    return folder


def parquet(folder: Path) -> Path:
    (path,) = folder.rglob("*.parquet")
    return path


def footer_of(data: bytes) -> Footer:
    return read_footer(lambda offset, length: data[offset : offset + length], len(data))


def table_of(folder: Path) -> Table:
    return bitlake.connect(str(folder)).table("t")


def found(table: Table) -> list[Any]:
    return table.maintenance.verify().findings


def test_sound_page_indexes_have_no_finding(template: Path) -> None:
    footer = footer_of(parquet(template).read_bytes())
    chunk = footer.row_groups[0].chunks[footer.column("id").leaf]
    assert chunk.index_length and chunk.bounds_length
    assert found(table_of(template)) == ()


@pytest.mark.parametrize("more", [{}, {"data_page_version": "2.0"}, {"use_dictionary": False, "compression": "none"}])
def test_page_indexes_of_arrows_own_writer_have_no_finding(
    template: Path, tmp_path: Path, more: dict[str, Any]
) -> None:
    fields = table_of(template)._core.state().schema.fields
    path = tmp_path / "arrow.parquet"
    pq.write_table(rows(), path, write_page_index=True, data_page_size=4096, row_group_size=15_000, **more)
    data = path.read_bytes()
    facts = PageIndexFacts("file", footer_of(data), lambda ranges: [data[o : o + n] for o, n in ranges], fields)
    for batch in pq.ParquetFile(path).iter_batches(7777):
        facts.add(pa.Table.from_batches([batch]))
    assert list(facts.faults()) == []
    assert facts._bounded.keys() >= {"id", "day", "text", "gaps"} and list(facts._nested) == ["list"]


def test_long_nested_rows_are_compared_some_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_indexes, "_WAITING_BYTES", 20_000)
    monkeypatch.setattr(data_check, "BATCH_ROWS", 500)
    lists = pa.array([list(range(i, i + 500)) for i in range(3000)], pa.list_(pa.int64()))
    table = bitlake.connect(str(tmp_path)).create_table("t", pa.table({"list": lists, "id": range(3000)}))
    held = []
    collect = PageIndexFacts._check_rows

    def watched(self: PageIndexFacts, name: str, nested: Any) -> None:
        held.append(nested.bytes)
        collect(self, name, nested)

    monkeypatch.setattr(PageIndexFacts, "_check_rows", watched)
    assert found(table) == ()
    assert len(held) > 2


def varint_at(data: bytes, value: int, start: int, stop: int) -> int:
    """Where a number is in a Thrift struct, as a zigzag varint of two bytes or more."""
    raw, rest = bytearray(), value << 1
    while rest >= 0x80:
        raw.append(rest & 0x7F | 0x80)
        rest >>= 7
    raw.append(rest)
    at = data.index(bytes(raw), start, stop)
    assert data.find(bytes(raw), at + 1, stop) < 0
    return at


@pytest.mark.parametrize("column", ["id", "text", "real", "gaps", "list"])
def test_a_page_with_other_rows(template: Path, tmp_path: Path, column: str) -> None:
    data = bytearray(parquet(template).read_bytes())
    footer = footer_of(bytes(data))
    chunk = footer.row_groups[0].chunks[footer.column(column).leaf]
    start = chunk.index_offset or 0
    pages = decode_pages(bytes(data[start : start + chunk.index_length]), chunk, ROWS)
    first = int(pages.first_rows[-5])
    at = varint_at(bytes(data), first, start, start + chunk.index_length)
    data[at] -= 2  # a row less: zigzag doubles
    assert damaged(template, tmp_path, bytes(data)) == [(CODE, column)]


@pytest.mark.parametrize(
    ("column", "bound"),
    [
        ("id", (1024 * 3 + 1023).to_bytes(8, "little")),
        ("price", None),
        ("day", None),
        ("text", f"{(1024 * 3 + 1023) // 10:08}é".encode()),
        ("gaps", (1024 * 3 + 1023).to_bytes(4, "little")),
    ],
)
def test_a_bound_that_hides_a_row(template: Path, tmp_path: Path, column: str, bound: bytes | None) -> None:
    data = bytearray(parquet(template).read_bytes())
    footer = footer_of(bytes(data))
    chunk = footer.row_groups[0].chunks[footer.column(column).leaf]
    start = chunk.bounds_offset or 0
    if bound is None:
        value = {"price": 1024 * 3 + 1023 - 7, "day": (DAY - dt.date(1970, 1, 1)).days + (1024 * 3 + 1023) // 100}
        bound = value[column].to_bytes(8 if column == "price" else 4, "little")
    at = data.rindex(bound, start, start + chunk.bounds_length)  # the largest values come last
    place = at + (len(bound) - 3 if column == "text" else 0)
    data[place] -= 1
    assert damaged(template, tmp_path, bytes(data)) == [(CODE, column)]


def damaged(template: Path, folder: Path, data: bytes) -> list[tuple[str, str | None]]:
    """The findings in a copy of the table with other bytes in its data file."""
    table = copied(template, folder)
    parquet(folder).write_bytes(data)
    return [(f.code, f.column) for f in found(table)]


def copied(template: Path, folder: Path) -> Table:
    for file in template.rglob("*"):
        if file.is_file():
            target = folder / file.relative_to(template)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    return table_of(folder)


CONDITIONS = [
    "id BETWEEN 5000 AND 5003",
    "tiny = 3",
    "day = DATE '2026-05-05'",
    "ms = TIMESTAMP_NTZ '2026-01-01 00:00:20.5'",
    "us < TIMESTAMP '2026-01-01 00:00:00.000900'",
    "price = 123.45",
    "text = '00001234é'",
    "gaps > 39000",
    "gaps IS NULL AND id < 6000",
    "tag = 't7'",
]


@pytest.mark.parametrize("seed", [1, exhaustive(2), exhaustive(3), exhaustive(4)])
def test_damage_without_a_finding_misleads_no_reader(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(page_pruning, "WORTH_BYTES", 0)
    copied(template, tmp_path)
    path, whole = parquet(tmp_path), parquet(template).read_bytes()
    chunks = footer_of(whole).row_groups[0].chunks
    places = [p for c in chunks for p in range(c.index_offset or 0, (c.index_offset or 0) + c.index_length)]
    places += [p for c in chunks for p in range(c.bounds_offset or 0, (c.bounds_offset or 0) + c.bounds_length)]
    expected = [table_of(template).scan(where=c).to_arrow() for c in CONDITIONS]
    chance = random.Random(seed)
    caught = 0
    for _ in range(25):
        data = bytearray(whole)
        at = chance.choice(places)
        data[at] ^= 1 << chance.randrange(8)
        path.write_bytes(bytes(data))
        table = table_of(tmp_path)
        findings = found(table)
        assert {f.code for f in findings} <= {CODE}, (at, findings)
        if findings:
            caught += 1
            continue
        for condition, rows in zip(CONDITIONS, expected, strict=True):
            try:
                assert table_of(tmp_path).scan(where=condition).to_arrow() == rows, (at, condition)
            except BitlakeError as e:
                pytest.fail(f"byte {at}, {condition}: verify found nothing, and reading fails: {e}")
    assert caught > 5
