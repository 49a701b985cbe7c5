"""Key-value files: made again from the rows of Paimon's, they are told of in manifests as Paimon tells of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import fixtures
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from long import every
from lsm_builders import row_schema
from store_wrappers import FaultyStore

from bitlake.codec.binary_row import EMPTY_ROW, decode_row
from bitlake.errors import StorageUnavailable
from bitlake.formats.file_format import reader_for
from bitlake.io.local import LocalStore
from bitlake.mergetree.bucket import MergeTreeContext
from bitlake.mergetree.key_value_file import KeyValueWriter
from bitlake.metadata.manifest import FileSource, ManifestEntry
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.schema.merge_spec import KEY_PREFIX, file_fields
from bitlake.snapshot.manifests import read_manifest, read_manifest_list
from bitlake.snapshot.partitions import PartitionReader
from bitlake.snapshot.state import TableState, load_state
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.versions import load_snapshot, snapshot_ids
from bitlake.types import arrow_schema

STORE = LocalStore()
TABLES = sorted(p.name for p in (fixtures.warehouse() / "default.db").iterdir() if p.name.startswith("pk_"))


def opened(table: str) -> TableState:
    state = load_state(table, TableFiles(STORE, TablePaths(str(fixtures.warehouse() / "default.db" / table))))
    assert state is not None
    return state


def entries_ever(state: TableState) -> Iterator[ManifestEntry]:
    """Every ADD entry of every snapshot still there whose file is."""
    partitions, seen = PartitionReader(state.schema, state.paths), set()
    for snapshot_id in snapshot_ids(TableFiles(STORE, state.paths)):
        snapshot = load_snapshot(TableFiles(STORE, state.paths), snapshot_id)
        for meta in read_manifest_list(TableFiles(STORE, state.paths), snapshot.delta_manifest_list):
            for entry in read_manifest(TableFiles(STORE, state.paths), meta.file_name):
                if entry.kind == 0 and entry.identity not in seen and os.path.exists(partitions.data_path(entry)):
                    seen.add(entry.identity)
                    yield entry


def rows_of(state: TableState, entry: ManifestEntry) -> pa.Table:
    """A file's rows as they come to a writer."""
    wanted = row_schema(state.schema)
    path = PartitionReader(state.schema, state.paths).data_path(entry)
    with STORE.open_input(path) as source:
        batches = [pa.table(b) for b in reader_for(path)(source, wanted.names, batch_size=1 << 16)]
    table = pa.concat_tables(batches)
    return pa.Table.from_arrays([table.column(f.name).cast(f.type) for f in wanted], schema=wanted)


def context_of(state: TableState, root: Path) -> MergeTreeContext:
    return MergeTreeContext(state.name, TablePaths(str(root)), state.schema, {state.schema.id: state.schema})


@pytest.mark.parametrize("table", every(3, TABLES))
def test_a_files_entry_is_as_paimon_made_it(table: str, tmp_path: Path) -> None:
    state = opened(table)
    context, tried = context_of(state, tmp_path), 0
    for entry in entries_ever(state):
        file = entry.file
        if file.schema_id != state.schema.id:
            continue
        source = FileSource(file.file_source or 0)
        writer = KeyValueWriter(context, STORE, entry.partition, entry.bucket, file.level, source=source)
        rows = rows_of(state, entry)
        writer.write(rows)
        (made,) = writer.finish()
        kept = {
            "file_name": file.file_name,
            "file_size": file.file_size,
            "creation_time": file.creation_time,
            # Ours carry checksums; compared in tests/fileindex.
            "embedded_index": file.embedded_index,
            "extra_files": file.extra_files,
        }
        assert replace(made.file, **kept) == file
        assert (made.partition, made.bucket, made.total_buckets) == (entry.partition, entry.bucket, entry.total_buckets)
        assert (made.file.embedded_index is None) == (file.embedded_index is None)
        folder = os.path.relpath(PartitionReader(state.schema, state.paths).data_path(entry), state.paths.root)
        assert os.path.exists(tmp_path / os.path.dirname(folder) / made.file.file_name)
        assert made.file.file_name.rsplit(".", 1)[1] == file.file_name.rsplit(".", 1)[1]
        tried += 1
    assert tried


@pytest.mark.parametrize("table", [t for t in TABLES if "orc" not in t and "avro" not in t])
def test_parquet_columns_are_as_paimon_made_them(table: str, tmp_path: Path) -> None:
    state = opened(table)
    entry = next(e for e in entries_ever(state) if e.file.schema_id == state.schema.id)
    theirs = pq.ParquetFile(PartitionReader(state.schema, state.paths).data_path(entry))
    writer = KeyValueWriter(context_of(state, tmp_path), STORE, entry.partition, entry.bucket, 0)
    writer.write(rows_of(state, entry))
    (made,) = writer.finish()
    ours = pq.ParquetFile(next(tmp_path.rglob(made.file.file_name)))
    assert ours.schema_arrow.equals(theirs.schema_arrow, check_metadata=True)
    assert [str(ours.schema.column(i)) for i in range(len(ours.schema))] == [
        str(theirs.schema.column(i)) for i in range(len(theirs.schema))
    ]
    assert ours.read().equals(theirs.read())


# --- one table of our own, all ways ----------------------------------------------------------------------------------


def made_schema(**options: str) -> TableSchema:
    """Columns a, k (the key, text), v, in another order than the key's."""
    fields = opened("pk_mor").schema.fields[:3]
    return TableSchema(0, fields, 2, (), (fields[2].name, fields[0].name), {"bucket": "1", **options})


def made_rows(schema: TableSchema, count: int) -> pa.Table:
    numbers = np.arange(count)
    columns = {
        "_SEQUENCE_NUMBER": pa.array(numbers[::-1] + 7),
        "_VALUE_KIND": pa.array((numbers % 4).astype(np.int8)),
        schema.fields[0].name: pa.array(numbers % 10),
        schema.fields[1].name: pa.array(numbers * 3),
        schema.fields[2].name: pa.array([f"{n // 10:040d}" for n in numbers]),
    }
    return pa.table([columns[f.name] for f in row_schema(schema)], schema=row_schema(schema))


def writer_of(schema: TableSchema, root: Path, level: int = 0, **more: object) -> KeyValueWriter:
    context = MergeTreeContext("t", TablePaths(str(root)), schema, {})
    return KeyValueWriter(context, more.pop("store", STORE), EMPTY_ROW, 0, level, **more)  # type: ignore[arg-type]


def test_a_key_of_several_columns(tmp_path: Path) -> None:
    schema = made_schema()
    assert [f.name for f in file_fields(schema)[:2]] == [KEY_PREFIX + k for k in schema.primary_keys]
    writer = writer_of(schema, tmp_path)
    writer.write(made_rows(schema, 40))
    (entry,) = writer.finish()
    types = [schema.field(k).type for k in schema.primary_keys]
    assert decode_row(types, entry.file.min_key) == ("0" * 40, 0)
    assert decode_row(types, entry.file.max_key) == ("0" * 39 + "3", 9)
    assert decode_row(types, entry.file.key_stats.max) == ("0" * 39 + "3", 9)
    assert (entry.file.min_sequence_number, entry.file.max_sequence_number) == (7, 46)
    assert entry.file.delete_row_count == 20
    assert len(entry.file.value_stats.max) < len(entry.file.key_stats.max) + 40


def test_files_roll_and_follow_each_other(tmp_path: Path) -> None:
    schema = made_schema(**{"target-file-row-num": "25"})
    writer = writer_of(schema, tmp_path)
    for start in range(0, 100, 10):
        writer.write(made_rows(schema, 100).slice(start, 10))
    entries = writer.finish()
    assert [e.file.row_count for e in entries] == [25] * 4
    assert [e.file.delete_row_count for e in entries] == [12, 13, 12, 13]
    keys = [end for e in entries for end in (e.file.min_key, e.file.max_key)]
    types = [schema.field(k).type for k in schema.primary_keys]
    assert [decode_row(types, k) for k in keys] == sorted(decode_row(types, k) for k in keys)
    compacted = writer_of(schema, tmp_path, 5, source=FileSource.COMPACT)
    compacted.write(made_rows(schema, 100))
    assert len(compacted.finish()) == 1


def test_format_compression_and_statistics_by_level(tmp_path: Path) -> None:
    schema = made_schema(
        **{
            "file.format.per.level": "0:avro,2:orc",
            "file.compression.per.level": "3:snappy",
            "metadata.stats-mode.per.level": "3:none",
            "changelog-file.format": "parquet",
            "changelog-file.compression": "gzip",
            "changelog-file.stats-mode": "counts",
            "changelog-file.prefix": "log-",
            "file-index.bitmap.columns": "user_id",
            "file.suffix.include.compression": "true",
        }
    )
    made = {}
    for level in (0, 2, 3):
        writer = writer_of(schema, tmp_path, level)
        writer.write(made_rows(schema, 20))
        (made[level],) = writer.finish()
    assert [made[n].file.file_name.split(".", 1)[1] for n in made] == ["zstd.avro", "zstd.orc", "snappy.parquet"]
    assert made[3].file.value_stats_cols == () and made[0].file.value_stats_cols is None
    assert made[3].file.key_stats.min != EMPTY_ROW
    assert all(e.file.embedded_index for e in made.values())
    writer = writer_of(schema, tmp_path, changelog=True)
    writer.write(made_rows(schema, 20))
    (log,) = writer.finish()
    assert log.file.file_name.startswith("log-") and log.file.file_name.endswith(".gzip.parquet")
    assert log.file.embedded_index is None
    assert decode_row([f.type for f in schema.fields], log.file.value_stats.min) == (None, None, None)
    assert log.file.value_stats.null_counts == (0, 0, 0)


def kept_stats(schema: TableSchema, root: Path, level: int = 0) -> tuple[int, int]:
    """How many columns of a new file have value statistics (the first ones), and how many of its key have bounds."""
    writer = writer_of(schema, root, level)
    writer.write(made_rows(schema, 20))
    (entry,) = writer.finish()
    columns = schema.field_names if entry.file.value_stats_cols is None else entry.file.value_stats_cols
    assert columns == schema.field_names[: len(columns)]
    keys = decode_row([schema.field(k).type for k in schema.primary_keys], entry.file.key_stats.max)
    return len(columns), sum(k is not None for k in keys)


@pytest.mark.parametrize(
    ("first", "parquet", "avro"),
    [(-1, 3, (3, 2)), (0, 0, (0, 0)), (1, 1, (0, 1)), (2, 2, (0, 2)), (3, 3, (0, 2)), (4, 3, (0, 2)), (5, 3, (1, 2))],
)
def test_the_first_columns_keep_statistics(first: int, parquet: int, avro: tuple[int, int], tmp_path: Path) -> None:
    """As Paimon's ``createStatsFactories``: keys and system columns count in Avro files, and in no other."""
    options = {"metadata.stats-keep-first-n-columns": str(first)}
    assert kept_stats(made_schema(**options), tmp_path) == (parquet, 2)
    assert kept_stats(made_schema(**options, **{"file.format": "avro"}), tmp_path) == avro


def test_statistics_by_level(tmp_path: Path) -> None:
    schema = made_schema(**{"metadata.stats-mode": "none", "metadata.stats-mode.per.level": "1:full"})
    assert [kept_stats(schema, tmp_path, level) for level in (0, 1, 2)] == [(0, 2), (3, 2), (0, 2)]
    assert kept_stats(made_schema(**{"changelog-file.stats-mode": "none"}), tmp_path) == (3, 2)


def test_a_columns_own_statistics_mode_counts_as_one_of_the_first(tmp_path: Path) -> None:
    names = made_schema().field_names
    for own, keep, expected in (
        (2, "1", (names[0], names[2])),
        (0, "1", (names[0],)),
        (0, "0", (names[0],)),
        (1, "2", (names[0], names[1])),
    ):
        options = {f"fields.{names[own]}.stats-mode": "full", "metadata.stats-keep-first-n-columns": keep}
        schema = made_schema(**options)
        writer = writer_of(schema, tmp_path)
        writer.write(made_rows(schema, 20))
        (entry,) = writer.finish()
        assert entry.file.value_stats_cols == expected


def test_thin_files_have_the_key_once(tmp_path: Path) -> None:
    schema = made_schema(**{"data-file.thin-mode": "true", "metadata.stats-mode": "none"})
    writer = writer_of(schema, tmp_path)
    writer.write(made_rows(schema, 20))
    (entry,) = writer.finish()
    path = next(tmp_path.rglob(entry.file.file_name))
    assert pq.read_schema(path).names == arrow_schema(file_fields(schema)).names
    assert not any(n.startswith(KEY_PREFIX) for n in pq.read_schema(path).names)
    types = [schema.field(k).type for k in schema.primary_keys]
    assert decode_row(types, entry.file.key_stats.max) == ("0" * 39 + "1", 9)
    assert entry.file.value_stats_cols == (schema.fields[0].name, schema.fields[2].name)


def test_what_a_failed_writer_made_is_deleted(tmp_path: Path) -> None:
    schema = made_schema(**{"target-file-row-num": "5", "file-index.bitmap.columns": "user_id"})
    store = FaultyStore(STORE, fail_at=3)
    with pytest.raises(StorageUnavailable), writer_of(schema, tmp_path, store=store) as writer:
        writer.write(made_rows(schema, 40))
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


@pytest.mark.parametrize("kinds", [[0], [1], [2], [3], [0, 2], [0, 1], [1, 3, 3], [2, 2, 1], [0, 1, 2, 3]], ids=str)
def test_rows_that_take_back_are_counted(kinds: list[int], tmp_path: Path) -> None:
    schema = made_schema()
    rows = made_rows(schema, len(kinds))
    at = rows.column_names.index("_VALUE_KIND")
    writer = writer_of(schema, tmp_path)
    writer.write(rows.set_column(at, rows.schema.field(at), pa.array(kinds, pa.int8())))
    (entry,) = writer.finish()
    assert entry.file.delete_row_count == sum(k in (1, 3) for k in kinds)
