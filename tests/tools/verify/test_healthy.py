"""Verifying finds nothing in tables that nobody damaged: Paimon's own, and ours of every kind."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import verify_tables as made
from fixtures import expected, warehouse
from long import every

import bitlake
from bitlake.table.table import Table


@pytest.fixture(scope="module")
def lake() -> bitlake.Lake:
    return bitlake.connect(str(warehouse()))


def healthy(table: Table) -> None:
    report = table.maintenance.verify()
    assert not report.findings, report.text()
    assert report.ok
    assert report.orphans is not None


@pytest.mark.parametrize("name", every(3, sorted(expected())))
def test_paimons_tables(lake: bitlake.Lake, name: str) -> None:
    healthy(lake.table(name))


@pytest.mark.parametrize(
    "build", [made.append, made.embedded, made.bucketed, made.keyed, made.vectors, made.layered, made.dynamic]
)
def test_tables_of_every_kind(tmp_path: Path, build: Callable[[Path], Table]) -> None:
    table = build(tmp_path)
    healthy(table)
    table.maintenance.compact(full=True)
    healthy(table)


ENGINES: list[dict[str, str]] = [
    {"merge-engine": "partial-update"},
    {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
    {"merge-engine": "first-row", "ignore-delete": "true"},
    {"changelog-producer": "lookup"},
    {"changelog-producer": "full-compaction"},
    {"sequence.field": "n"},
    {"data-file.thin-mode": "true"},
    {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true"},
    {"metadata.stats-mode": "none"},
    {"metadata.stats-mode": "counts"},
    {"bucket": "-2"},
    {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"},
]


@pytest.mark.parametrize("options", every(2, ENGINES), ids=lambda o: "-".join(f"{k}={v}" for k, v in o.items()))
def test_primary_keys_with_every_engine(tmp_path: Path, options: dict[str, str]) -> None:
    table = made.create(tmp_path, made.KEYED, {"bucket": "1", "primary-key": "id", **options})
    for i in range(6):
        table.upsert(made.keyed_rows(range(i * 10, i * 10 + 30), f"round {i}"))
    healthy(table)


@pytest.mark.parametrize("format_", ["orc", "avro"])
@pytest.mark.parametrize("build", [made.append, made.vectors], ids=["append", "keyed"])
def test_other_formats(tmp_path: Path, format_: str, build: Callable[[Path], Table], monkeypatch: Any) -> None:
    monkeypatch.setitem(made.QUICK, "file.format", format_)
    healthy(build(tmp_path))


def test_evolved_schemas_and_a_rewritten_index(tmp_path: Path) -> None:
    table = made.create(tmp_path, made.ROWS, made.SEPARATE)
    table.append(made.rows(0, 30))
    table.add_column("extra", pa.int32())
    table.rename_column("x", "y")
    table.alter_options({"file-index.bitmap.columns": "v,extra", "file-index.bitmap.v.version": "1"})
    more = (
        made.rows(30, 50)
        .rename_columns(["id", "v", "y", "p"])
        .append_column("extra", pa.array([None] * 20, pa.int32()))
    )
    table.append(more)
    table.drop_column("extra")
    table.indexes.rebuild()
    healthy(table)


def test_expired_snapshots_tags_and_branches(tmp_path: Path) -> None:
    table = made.append(tmp_path)
    for i in range(4):
        table.append(made.rows(100 + i, 110 + i))
    table.maintenance.expire_snapshots(retain_max=2, retain_min=1, older_than=2**62)
    healthy(table)
    table.history.rollback(table.history.snapshots()[0].id)
    healthy(table)


def test_a_table_of_nothing_and_of_no_rows(tmp_path: Path) -> None:
    table = made.create(tmp_path, made.ROWS, {})
    healthy(table)
    table.append(made.rows(0, 0))
    table.append(made.rows(0, 5))
    table.truncate()
    healthy(table)


def test_values_at_the_edges_of_statistics(tmp_path: Path) -> None:
    """Cut texts, NaN, zeros of both signs, all NULL, and characters whose bounds are hard to raise."""
    schema = pa.schema(
        [("t", pa.string()), ("b", pa.binary()), ("f", pa.float64()), ("d", pa.decimal128(30, 2)), ("z", pa.int8())]
    )
    table = made.create(tmp_path, schema, {"file-index.bitmap.columns": "t,f", "file-index.range-bitmap.columns": "f"})
    table.append(
        pa.table(
            {
                "t": ["a" * 40, "\ud7ff" * 20, "\U0010ffff" * 20, "", None],
                "b": [b"\xff" * 20, b"", None, b"\0" * 17, b"x"],
                "f": [float("nan"), -0.0, 0.0, float("inf"), None],
                "d": [None, 10**20, -(10**20), 1, 0],
                "z": [None] * 5,
            },
            schema=schema,
        )
    )
    healthy(table)


def test_buckets_by_keys_of_several_types(tmp_path: Path) -> None:
    schema = pa.schema([("s", pa.string()), ("d", pa.decimal128(20, 3)), ("t", pa.timestamp("us")), ("n", pa.int16())])
    table = made.create(tmp_path, schema, {"bucket": "5", "bucket-key": "t,s,d"})
    ids = range(200)
    values = {
        "s": [None if i % 9 == 0 else f"text {i}" * (i % 4) for i in ids],
        "d": [None if i % 7 == 0 else Decimal(i) / 8 for i in ids],
        "t": [None if i % 5 == 0 else i * 1_000_003 - 7 for i in ids],
        "n": list(ids),
    }
    arrays = [pa.array(values["s"]), pa.array(values["d"]).cast(pa.decimal128(20, 3))]
    arrays += [pa.array(values["t"], pa.int64()).cast(pa.timestamp("us")), pa.array(values["n"], pa.int16())]
    table.append(pa.table(arrays, schema=schema))
    healthy(table)


def test_a_shallow_look_reads_no_data(tmp_path: Path) -> None:
    report = made.append(tmp_path).maintenance.verify(deep=False)
    assert report.ok
    assert not report.deep
    assert report.checked["data_files"] == 4
    assert "reads the data" in report.text()


def test_chosen_snapshots_only(tmp_path: Path) -> None:
    table = made.append(tmp_path)
    report = table.maintenance.verify(snapshots=[1])
    assert report.ok
    assert (report.checked["snapshots"], report.checked["tags"], report.checked["branches"]) == (1, 0, 0)
    assert table.maintenance.verify(snapshots=[99]).codes == ("snapshot-missing",)


def test_orphans_are_counted_and_are_no_fault(tmp_path: Path) -> None:
    import os

    table = made.bucketed(tmp_path)
    stray = Path(table.path) / "bucket-0" / "data-stray-0.parquet"
    stray.write_bytes(b"12345")
    os.utime(stray, (0, 0))
    report = table.maintenance.verify()
    assert report.ok
    assert report.orphans == (1, 5)
    assert "Orphans  1 file of 5 B " in report.text()
