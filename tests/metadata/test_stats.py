from __future__ import annotations

from dataclasses import replace
from decimal import Context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fixtures import warehouse

from bitlake.codec.binary_row import decode_row, encode_row_with_arity
from bitlake.errors import CorruptError
from bitlake.metadata.manifest import EMPTY_STATS, DataFileMeta, SimpleStats, decode_manifest
from bitlake.metadata.option_types import StatsMode
from bitlake.metadata.options import Options
from bitlake.metadata.paths import TablePaths, partition_path
from bitlake.metadata.schema import TableSchema, assign_ids
from bitlake.metadata.stats import StatsPlan, build_stats, column_stats, stats_modes, truncate_bounds
from bitlake.types import ArrayType, AtomicType, DataField, parse_type


def physical(column: pa.ChunkedArray, field: DataField) -> tuple[Any, Any, int]:
    """(min, max, nulls) of a column by sorting it: the slow plain version."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_date(kind):
        column = column.cast(pa.int32())
    values = column.drop_null().to_pylist()
    if pa.types.is_decimal(kind):
        exact = Context(prec=80)  # the default context rounds 38 digits to 28
        values = [int(exact.scaleb(v, kind.scale)) for v in values]
    assert field.name
    return (min(values), max(values), column.null_count) if values else (None, None, column.null_count)


TABLES = ["append_plain", "append_bucketed", "partitioned", "bitmap_v2", "nested_types", "bucket_key_dec",
          "bucket_key_ts", "bucket_key_bin", "bucket_key_double", "bucket_key_bool",
          "every_index_embedded"]  # fmt: skip


@pytest.mark.parametrize("table", TABLES)
def test_statistics_recomputed_from_the_data_equal_paimons_bytes(table: str) -> None:
    root = warehouse() / "default.db" / table
    seen = 0
    for f in sorted(root.glob("manifest/manifest-*")):
        if f.name.startswith("manifest-list"):
            continue
        for e in decode_manifest(f.read_bytes()):
            schema = TableSchema.from_json((root / f"schema/schema-{e.file.schema_id}").read_bytes())
            folder = partition_path(
                schema.partition_fields, decode_row([p.type for p in schema.partition_fields], e.partition)
            )
            path = Path(TablePaths(str(root)).data_file(folder, e.bucket, e.file.file_name))
            data = pq.read_table(path, partitioning=None)
            found = [
                physical(data[c.name], c) if isinstance(c.type, AtomicType) else (None, None, None)
                for c in schema.fields
            ]
            mins, maxs, nulls = zip(*found, strict=True)
            stats, columns = build_stats(schema.fields, mins, maxs, nulls, stats_modes(schema))
            assert (stats, columns) == (e.file.value_stats, e.file.value_stats_cols)
            known = column_stats(e.file, schema.fields)
            for c, (low, high, count) in zip(schema.fields, found, strict=True):
                if not isinstance(c.type, AtomicType):
                    assert c.name not in known
                    continue
                got = known[c.name]
                assert got.null_count == count
                if not got.truncated:
                    assert (got.min, got.max) == (low, high)
                elif low is not None:
                    assert got.min <= low
                    assert got.max >= high
            seen += 1
    assert seen


@pytest.mark.parametrize(
    ("low", "high", "n", "want"),
    [
        ("abc", "abd", 16, ("abc", "abd")),
        ("abcdef", "abcdef", 3, ("abc", "abd")),
        ("ab😀d", "ab😀d", 3, ("ab😀", "ab😁")),
        ("x", "a\U0010ffffb", 2, ("x", "b")),
        ("x", "\U0010ffff\U0010ffffb", 2, (None, None)),
        ("x", "a\ud7ffz", 2, ("x", "a\ue000")),
        (b"\x01\x02\x03", b"\x01\xff\xff", 2, (b"\x01\x02", b"\x02")),
        (b"a", b"\xff\xff\xff", 2, (None, None)),
        (b"abcz", b"abcd", 3, (b"abc", b"abd")),
        (b"", b"ab\xff\xffz", 4, (b"", b"ac")),
        ("", "ab\U0010ffff\U0010ffffz", 4, ("", "ac")),
        (5, 10**20, 2, (5, 10**20)),
        (None, None, 2, (None, None)),
    ],
)
def test_truncation(low: Any, high: Any, n: int, want: tuple[Any, Any]) -> None:
    assert truncate_bounds(low, high, n) == want


def meta(stats: SimpleStats, columns: tuple[str, ...] | None) -> DataFileMeta:
    return DataFileMeta("f", 1, 3, b"", b"", EMPTY_STATS, stats, 0, 2, 0, 0, value_stats_cols=columns)


def test_modes_and_dense_lists() -> None:
    fields, highest = assign_ids(
        [("a", parse_type("INT"), None), ("s", parse_type("STRING"), None), ("l", ArrayType(parse_type("INT")), None)]
    )
    values = ((1, "aaaa", None), (2, "bbbb", None), (0, 1, None))

    def run(options: dict[str, str]) -> tuple[tuple[str, ...] | None, dict[str, Any]]:
        schema = TableSchema(0, fields, highest, options=options)
        stats, columns = build_stats(fields, *values, stats_modes(schema))
        known = column_stats(meta(stats, columns), fields)
        return columns, {n: (s.min, s.max, s.null_count) for n, s in known.items()}

    assert run({}) == (("a", "s"), {"a": (1, 2, 0), "s": ("aaaa", "bbbb", 1)})
    assert run({"metadata.stats-mode": "none"}) == ((), {})
    assert run({"metadata.stats-mode": "counts"})[1] == {"a": (None, None, 0), "s": (None, None, 1)}
    assert run({"metadata.stats-mode": "truncate(2)"})[1]["s"] == ("aa", "bc", 1)
    assert run({"metadata.stats-keep-first-n-columns": "1"})[0] == ("a",)
    assert run({"metadata.stats-mode": "none", "fields.s.stats-mode": "full"})[1] == {"s": ("aaaa", "bbbb", 1)}
    columns, known = run({"metadata.stats-dense-store": "false"})
    assert columns is None
    assert known["l"] == (None, None, None)
    assert build_stats(fields[:1], (1,), (1,), (0,), [StatsMode("full")])[1] is None
    assert build_stats((), (), (), (), StatsPlan(())) == (EMPTY_STATS, None)
    assert str(Options({}).stats_mode("a")) == "truncate(16)"


def test_what_reading_distrusts() -> None:
    fields, _ = assign_ids([("d", parse_type("DOUBLE"), None), ("s", parse_type("STRING"), None)])
    full = [StatsMode("full")] * 2
    stats, columns = build_stats(fields, (1.0, "a"), (float("nan"), "zz?"), (0, 0), full)
    known = column_stats(meta(stats, columns), fields)
    assert (known["d"].min, known["d"].max) == (1.0, None)
    assert known["s"].max == "zz\ue000"
    assert known["s"].truncated
    assert known.get("nope") is None
    with pytest.raises(CorruptError, match="statistics of 2 columns"):
        column_stats(meta(stats, ("d",)), fields)["d"]
    with pytest.raises(CorruptError):
        column_stats(meta(SimpleStats(b"", b"", ()), None), fields)["d"]


@pytest.mark.parametrize(("keep", "kept"), [(-1, "abc"), (0, ""), (1, "a"), (2, "ab"), (3, "abc")])
def test_statistics_of_the_first_columns(keep: int, kept: str) -> None:
    fields, highest = assign_ids([(n, parse_type("INT"), None) for n in "abc"])
    options = {"metadata.stats-keep-first-n-columns": str(keep)}
    _, columns = build_stats(
        fields, [1] * 3, [2] * 3, [0] * 3, stats_modes(TableSchema(0, fields, highest, (), (), options))
    )
    assert (tuple("abc") if columns is None else columns) == tuple(kept)


def test_bounds_of_just_the_greatest_length_stay() -> None:
    assert truncate_bounds("abcd", "abcd", 4) == ("abcd", "abcd") and truncate_bounds(b"ab", b"\xff\xff", 2) == (
        b"ab",
        b"\xff\xff",
    )
    assert truncate_bounds("abcde", "abcde", 4) == ("abcd", "abce") and truncate_bounds(b"a", b"\xff\xff\xff", 2) == (
        None,
        None,
    )


@pytest.mark.parametrize("columns", [0, 1, 2, 56, 57])
def test_rows_of_statistics_that_are_too_short(columns: int) -> None:
    fields = [DataField(i, f"c{i}", parse_type("INT")) for i in range(columns)]
    row = encode_row_with_arity([f.type for f in fields], [7] * columns)
    file = DataFileMeta("f", 1, 3, b"", b"", EMPTY_STATS, SimpleStats(row, row, None), 0, 0, 0, 0)
    assert [column_stats(file, fields)[f.name].max for f in fields] == [7] * columns
    for low, high in ((row[:-1], row), (row, row[:-1]), (row, row[:3] + bytes([columns + 1]) + row[4:])):
        if fields:
            with pytest.raises(CorruptError):
                column_stats(replace(file, value_stats=SimpleStats(low, high, None)), fields)["c0"]


def test_each_column_has_its_bounds_and_its_mode() -> None:
    fields = [DataField(i, name, parse_type("INT")) for i, name in enumerate("ab")]
    full = StatsMode("full")
    assert build_stats(fields, [1, 2], [3, 4], [0, 0], [full, full])[1] is None
    for mins, modes in (([1], [full, full]), ([1, 2], [full])):
        with pytest.raises(ValueError, match="zip"):
            build_stats(fields, mins, [3, 4], [0, 0], modes)
