"""A folder of Parquet files, partitioned as Hive and Spark do (``k=v/…``), becomes a table; no data is rewritten.

Files are moved into the table's folders and named by its first snapshot, with statistics from their footers.  They do
not hold the partition columns, so their statistics do not either: that is how readers tell them from files that do.
If anything fails before the commit, the files go back to where they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from bitlake import _clock
from bitlake.catalog.catalog import Catalog, Identifier
from bitlake.codec.binary_row import encode_row_with_arity
from bitlake.errors import CorruptError, InvalidRequest, NotFound, UnsupportedFeature
from bitlake.file_store_table import FileStoreTable
from bitlake.formats.parquet.footer import footer_stats, read_footer
from bitlake.formats.parquet.write import WrittenFile
from bitlake.io import Store
from bitlake.lazy_modules import parquet as pq
from bitlake.metadata.manifest import ManifestEntry, SimpleStats
from bitlake.metadata.paths import data_file_name
from bitlake.metadata.schema import TableSchema
from bitlake.progress import job, of_items
from bitlake.runtime import REQUESTS, LocalRunner, Runner
from bitlake.schema.create import ColumnSpec
from bitlake.table import open_table
from bitlake.types import AtomicType, NextId, arrow_type, from_arrow
from bitlake.types.arrow import physical_values
from bitlake.write.commit import OutcomeUnknown, commit
from bitlake.write.commit_plan import CommitPlan
from bitlake.write.data_file_writer import DataFileFactory

_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class _Found:
    """A Parquet file of the folder: where it is, its size, its partition's values as text."""

    path: str
    size: int
    partition: tuple[tuple[str, str | None], ...]


def migrate_folder(
    catalog: Catalog,
    folder: str,
    target: Identifier,
    options: Mapping[str, str] | None = None,
    runner: Runner | None = None,
) -> FileStoreTable:
    """Make a table of a folder's Parquet files, which are moved out of it.

    Columns are those of the files, which must agree; partition columns are INT where all values are, else STRING.
    ``runner`` reads footers and moves files, in this process; default: threads.
    Raises :class:`NotFound` for a folder without files, :class:`AlreadyExists`, and :class:`InvalidRequest` or
    :class:`UnsupportedFeature` for files that no table could have, naming the first; then nothing was moved.
    """
    with job(f"making {target} of {folder}", catalog.runtime.shows_progress):
        return _migrate(catalog, folder, target, options, runner)


def _migrate(
    catalog: Catalog,
    folder: str,
    target: Identifier,
    options: Mapping[str, str] | None,
    runner: Runner | None,
) -> FileStoreTable:
    store, root = catalog.store, folder.rstrip("/")
    runner = runner or LocalRunner(REQUESTS)
    files = list(_walk(store, root, ()))
    if not files:
        raise NotFound(f"folder {root} has no files to make a table of")
    keys = [k for k, _ in files[0].partition]
    odd = next((f for f in files if [k for k, _ in f.partition] != keys), None)
    if odd is not None:
        raise InvalidRequest(f"{odd.path} is not partitioned by {', '.join(keys) or 'nothing'} as {files[0].path} is")
    schema = _common_schema(store, files, runner)
    twice = next((k for k in keys if k in schema.names), None)
    if twice is not None:
        raise UnsupportedFeature(f"files in {root} hold their partition column '{twice}' themselves; leave it out")
    ids = NextId(-1)
    columns = [ColumnSpec(f.name, from_arrow(f.type, f.nullable, next_id=ids)) for f in schema]
    columns += [ColumnSpec(k, from_arrow(_partition_type(files, i), next_id=ids)) for i, k in enumerate(keys)]
    given = {"bucket": "-1", "file.format": "parquet", **(options or {})}
    if given["bucket"] != "-1" or given["file.format"] != "parquet" or "primary-key" in given:
        raise InvalidRequest(
            "a folder's files become an append table of Parquet files without buckets, 'bucket' = '-1'"
        )
    catalog.create_table(target, columns, partition_keys=keys, options=given)
    try:
        table = open_table(catalog, target)
        _adopt(table, files, runner)
    except OutcomeUnknown:
        raise
    except BaseException:
        catalog.drop_table(target, if_exists=True)
        raise
    return table


def _walk(store: Store, folder: str, partition: tuple[tuple[str, str | None], ...]) -> list[_Found]:
    out: list[_Found] = []
    for f in store.list(folder):
        if f.name.startswith((".", "_")):
            continue
        path = f"{folder}/{f.name}"
        if not f.is_dir:
            out.append(_Found(path, f.size, partition))
            continue
        key, sign, value = f.name.partition("=")
        if not sign or not key:
            raise InvalidRequest(f"folder {path} is not a partition; expected a name of the form column=value")
        text = unquote(value)
        out += _walk(store, path, (*partition, (unquote(key), None if text == _NULL else text)))
    return out


def _common_schema(store: Store, files: list[_Found], runner: Runner) -> pa.Schema:
    of_items("files looked at")
    first, *others = runner.run([f.path for f in files], partial(_schema, store))
    for file, found in zip(files[1:], others, strict=True):
        if not found.equals(first):
            raise InvalidRequest(f"{file.path} has other columns than {files[0].path}: {found} and {first}")
    if not any(isinstance(from_arrow(f.type), AtomicType) for f in first):
        raise UnsupportedFeature(f"{files[0].path} has no column of a plain type")
    return first


def _schema(store: Store, path: str) -> pa.Schema:
    try:
        with store.open_input(path) as source:
            parquet = pq.ParquetFile(source)
            schema = parquet.schema_arrow.remove_metadata()
            kinds = [parquet.schema.column(i).physical_type for i in range(len(parquet.schema))]
    except pa.ArrowException as e:
        raise CorruptError(f"not a Parquet file: {e}", None, path) from e
    if "INT96" in kinds:
        raise UnsupportedFeature(
            f"{path} holds timestamps as INT96, which does not record their time zone; rewrite the file with "
            "spark.sql.parquet.outputTimestampType = TIMESTAMP_MICROS"
        )
    return pa.schema([f.remove_metadata() for f in schema])


def _partition_type(files: list[_Found], at: int) -> pa.DataType:
    values = {f.partition[at][1] for f in files} - {None}
    # Text such as 007 must come back as it is.
    whole = all(v is not None and v.lstrip("-").isdigit() and str(int(v)) == v and abs(int(v)) < 2**31 for v in values)
    return pa.int32() if values and whole else pa.string()


def _adopt(table: FileStoreTable, files: list[_Found], runner: Runner) -> None:
    state = table.state()
    store, schema = state.store, state.schema
    maker = DataFileFactory(state.paths, schema, store)
    writer = _clock.new_uuid()

    def entry(numbered: tuple[int, _Found]) -> tuple[ManifestEntry | None, str]:
        number, file = numbered
        return _entry(store, maker, schema, file, data_file_name("data-", writer, number, "parquet"))

    of_items("footers read", size=lambda numbered: numbered[1].size)
    pairs = zip(files, runner.run(list(enumerate(files)), entry), strict=True)
    full = [(file.path, path, found) for file, (found, path) in pairs if found is not None]
    moved: list[tuple[str, str]] = []

    def move(file: tuple[str, str, ManifestEntry]) -> None:
        old, new, _ = file
        store.rename(old, new)
        moved.append((old, new))

    of_items("files moved")
    try:
        runner.run(full, move)
        # Not by the table's own way to commit: on failure that deletes the files, which here are the caller's.
        plan = CommitPlan("APPEND", adds=tuple(found for _, _, found in full))
        commit(store, state.paths, plan, schema, table.commit_user(), operation="WRITE")
    except OutcomeUnknown:
        raise  # the snapshot may be there, and name the files where they are now
    except BaseException:
        for old, new in reversed(moved):
            store.rename(new, old)
        raise


def _entry(
    store: Store, maker: DataFileFactory, schema: TableSchema, file: _Found, name: str
) -> tuple[ManifestEntry | None, str]:
    try:
        footer = read_footer(lambda offset, length: store.read_range(file.path, offset, length), file.size)
    except CorruptError as e:
        raise e.within(file.path) from e
    partition = tuple(_physical(schema, key, text) for key, text in file.partition)
    path = maker.path(partition, 0, name)
    if footer.rows == 0:
        return None, path
    nothing: tuple[Any, ...] = (None,) * len(schema.fields)
    entry = maker.entry(partition, 0, name, WrittenFile(file.size, footer.rows, nothing, nothing, nothing), b"")
    stored = [f for f in schema.fields if f.name not in schema.partition_keys and isinstance(f.type, AtomicType)]
    mins, maxs, nulls = footer_stats(footer, stored)
    types = [f.type for f in stored]
    stats = SimpleStats(encode_row_with_arity(types, mins), encode_row_with_arity(types, maxs), tuple(nulls))
    names = tuple(f.name for f in stored)
    return replace(entry, file=replace(entry.file, value_stats=stats, value_stats_cols=names)), path


def _physical(schema: TableSchema, key: str, text: str | None) -> Any:
    field = schema.field(key)
    array = pa.array([text], pa.string()).cast(arrow_type(field.type))
    return physical_values(array)[0]
