"""Footers of many columns: a column chunk is decoded when it is asked for, with the result of decoding all of them."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from long import exhaustive

import bitlake
from bitlake.errors import BitlakeError, CorruptError
from bitlake.formats.parquet import thrift
from bitlake.formats.parquet.decode import narrow_footer, read_columns
from bitlake.formats.parquet.footer import ColumnChunks, Footer, parse_footer, parse_schema
from bitlake.formats.parquet.thrift import ThriftReader
from tests.formats.parquet_files import Source, parquet

ROWS = 40
KINDS = {
    "number": pa.array(range(ROWS), pa.int64()),
    "text": pa.array([f"text {i % 5}" for i in range(ROWS)]),
    "long": pa.array([f"{i:0100d}" for i in range(ROWS)]),  # bounds too long for the pattern
    "time": pa.array([datetime(2026, 1, 1, 0, 0, i, tzinfo=UTC) for i in range(ROWS)], pa.timestamp("us", "UTC")),
    "decimal": pa.array([Decimal(i) for i in range(ROWS)], pa.decimal128(9, 2)),
    "nested": pa.array([{"x": i, "y": [str(i)] * (i % 3)} for i in range(ROWS)]),
    "nulls": pa.array([None] * ROWS, pa.float64()),
    "flag": pa.array([i % 2 == 0 for i in range(ROWS)]),
}
TABLE = pa.table({f"{kind}{i}": values for i in range(12) for kind, values in KINDS.items()})
DATA = parquet(TABLE, row_group_size=25)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Decode all column chunks at once, as those of files with few columns."""
    monkeypatch.setattr(thrift, "MANY_STRUCTS", 10_000)
    return monkeypatch


def values(footer: Footer) -> object:
    """All that a footer holds."""
    groups = [(g.first_row, g.rows, tuple(g.chunks)) for g in footer.row_groups]
    return footer.rows, footer.created_by, footer.nodes, footer.columns, groups, footer.type_ordered, footer.key_values


def test_chunks_are_those_of_a_footer_that_is_decoded_whole(eager: pytest.MonkeyPatch) -> None:
    whole = Source(DATA).footer()
    eager.undo()
    footer = Source(DATA).footer()
    assert isinstance(whole.row_groups[0].chunks, tuple) and isinstance(footer.row_groups[0].chunks, ColumnChunks)
    assert len(footer.leaves) == len(TABLE.columns) + 12 and values(footer) == values(whole)
    with pytest.raises(IndexError):
        footer.row_groups[0].chunks[len(footer.leaves)]
    no_rows = parquet(TABLE.slice(0, 0))
    assert {c.values for c in Source(no_rows).footer().row_groups[0].chunks} == {0}


@pytest.mark.parametrize("count", [40, exhaustive(150)])
def test_damaged_footers_fail_as_those_that_are_decoded_whole(eager: pytest.MonkeyPatch, count: int) -> None:
    raw, chosen = Source(DATA).footer().raw, random.Random(1)

    def outcome(damaged: bytes) -> object:
        try:
            return values(parse_footer(damaged, len(DATA)))
        except BitlakeError:
            return "refused"

    changes = []
    for _ in range(count):
        at = chosen.randrange(len(raw))
        part = chosen.choice([b"", bytes([chosen.randrange(256)]), raw[at : at + 1] * 2, b"\xff" * 11])
        changes.append(raw[:at] + part + raw[at + 1 :])
    changes += [raw[: chosen.randrange(len(raw))] for _ in range(20)]
    whole = [outcome(damaged) for damaged in changes]
    eager.undo()
    assert whole.count("refused") not in (0, len(whole))
    for damaged, expected in zip(changes, whole, strict=True):
        assert outcome(damaged) == expected


def test_what_is_skipped_by_a_pattern_is_one_struct() -> None:
    chosen = random.Random(2)
    pattern = thrift._struct_pattern()
    tokens = [
        bytes([b]) for b in (0, 0, 0, 1, 2, 0x15, 0x16, 0x11, 0x18, 0x19, 0x1C, 0x28, 0x35, 0x2C, 0x7F, 0x80, 0xFF)
    ]
    matched = 0
    for _ in range(20_000):
        data = b"".join(chosen.choices(tokens, k=chosen.randrange(1, 25)))
        usual = pattern(data, 0)
        reader = ThriftReader(data)
        if usual is not None:
            reader.struct()
            assert reader.position == usual.end(), data
            matched += usual.end() > 1
    assert matched > 1000
    starts = ThriftReader(b"\x15\x02\x00" * 99 + b"\x15").skip_structs(99)
    assert starts == list(range(0, 298, 3))
    with pytest.raises(CorruptError, match="past the end"):
        ThriftReader(b"\x15\x02\x00" * 99 + b"\x15").skip_structs(100)


@pytest.mark.parametrize("store_schema", [True, False])
def test_few_columns_are_decoded_by_a_footer_of_their_own(store_schema: bool) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(TABLE, sink, row_group_size=25, store_schema=store_schema)
    data = sink.getvalue().to_pybytes()
    footer = Source(data).footer()
    for names in (["time3"], ["text11", "nested4", "decimal0"], [f"{kind}5" for kind in reversed(KINDS)]):
        narrow = narrow_footer(footer, names)
        assert narrow is narrow_footer(footer, names) and set(narrow.columns) == set(names)
        source = pa.BufferReader(data)
        for numbers in ([0, 1], [1]):
            both = [
                pa.Table.from_batches(list(read_columns(source, names, row_groups=numbers, metadata=metadata)))
                for metadata in (narrow.metadata, footer.metadata)
            ]
            assert both[0].equals(both[1]) and both[0].num_rows == sum(footer.row_groups[n].rows for n in numbers)
            assert both[0].schema.equals(both[1].schema, check_metadata=False)
    assert narrow_footer(footer, TABLE.column_names) is footer and narrow_footer(footer, []) is footer
    few = Source(parquet(TABLE.select(["number0", "text0"]))).footer()
    assert narrow_footer(few, ["text0"]) is few


def test_a_damaged_chunk_is_refused_where_its_column_is_read(tmp_path: Path) -> None:
    rows = pa.table({f"c{i}": np.arange(100) + i for i in range(80)})
    table = bitlake.connect(tmp_path).create_table("t", rows.schema)
    table.append(rows)
    (path,) = tmp_path.rglob("data-*.parquet")
    data = path.read_bytes()
    at = data.rindex(b"\x19\x18\x03c47")  # its path; the type before it
    start = data.rindex(b"\x15\x04", 0, at)
    path.write_bytes(data[:start] + b"\x15\x02" + data[start + 2 :])
    read = bitlake.connect(tmp_path).table("t")
    assert read.scan(columns=["c46", "c48"]).to_arrow().equals(rows.select(["c46", "c48"]))
    for where in (None, "c47 > 5"):
        with pytest.raises(CorruptError, match="differ in physical type") as failed:
            read.scan(columns=["c47"], where=where).to_arrow()
        assert failed.value.path == str(path)


def test_files_of_a_table_share_their_schema() -> None:
    kept: dict[bytes, object] = {}
    footers = [
        parse_footer(raw, len(DATA), schema_of=lambda data: kept.setdefault(data, parse_schema(data)))  # type: ignore[arg-type, return-value]
        for raw in [Source(DATA).footer().raw] * 2
    ]
    assert len(kept) == 1 and footers[0].leaves is footers[1].leaves
