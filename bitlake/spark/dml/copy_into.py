"""COPY INTO a table from files, and into a folder from a query.

Into a table, Spark reads the files, one job counts each file's errors, and the good rows are written.  Text files are
read as text and then cast, so that a value that is not a number is an error of its row, and not NULL.  The table's
folder remembers loaded files as Paimon does: ``copy-into/history/load-<hash>-<when>``, JSON with filePath, fileSize,
lastModified, loadedAt, snapshotId, rowsLoaded.

Into a folder, Spark writes the rows of a query as CSV, JSON or Parquet files.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from bitlake import _clock
from bitlake.engine.session import Columns, result
from bitlake.errors import AlreadyExists, InvalidRequest, NotFound, UnsupportedFeature
from bitlake.expressions.sql_text import quoted
from bitlake.io import FileInfo, Store, open_store
from bitlake.io.base import scheme_of
from bitlake.metadata.java_json import dumps
from bitlake.metadata.schema import Names
from bitlake.snapshot.state import TableState
from bitlake.spark.context import EngineContext
from bitlake.spark.dml.insert import store
from bitlake.spark.errors import spark_errors
from bitlake.spark.hadoop_path import hadoop_path, hadoop_pattern
from bitlake.spark.read.query import query
from bitlake.spark.types import spark_type
from bitlake.spark.write.insert_cast import by_name, with_defaults
from bitlake.sql import statements as st
from bitlake.sql.parser import parse_statement
from bitlake.sql.statements import CopyIntoFolder, CopyIntoTable, FileFormat
from bitlake.types import DataField

_FILE, _BAD, _CORRUPT = "__bitlake_file", "__bitlake_bad", "__bitlake_corrupt"
_READER = {"FIELD_DELIMITER": "sep", "QUOTE": "quote", "ESCAPE": "escape", "COMPRESSION": "compression"}
_RESULT: Columns = {
    "file_name": str,
    "status": str,
    "rows_loaded": int,
    "rows_parsed": int,
    "errors_seen": int,
    "first_error": str,
}


@dataclass(frozen=True, slots=True)
class _Counted:
    """The counts of one file: rows, rows that cannot be stored, and the reason for the first of these."""

    key: str
    rows: int
    errors: int
    first: str | None


def copy_into_table(context: EngineContext, statement: CopyIntoTable) -> pa.Table:
    """COPY INTO table: one row for each file, with what became of it."""
    table = context.session_table(context.identify_table(statement.table))
    state = table.state()
    table.check_writable(state, keyed=True)
    fields = _targets(state, statement, context.names)
    history = LoadHistory(table.store, table.path)
    chosen = _files(store_of(context, statement.folder), statement)
    fresh = chosen if statement.force else [f for f in chosen if not history.has(_path(statement, f), f)]
    skipped = [(f.name, "SKIPPED", 0, 0, 0, None) for f in chosen if f not in fresh]
    if not fresh:
        return result(_RESULT, sorted(skipped))
    doing = f"reading {statement.folder}"
    with spark_errors(doing):
        frame = _read(context, statement, [_path(statement, f) for f in fresh], fields)
        found = _counted(frame, fields[0].name)
    bad = [c for c in found.values() if c.errors]
    if bad and statement.on_error == "ABORT_STATEMENT":
        first = min(bad, key=lambda c: c.key)
        raise InvalidRequest(
            f"table '{table.name}': {_name(first.key)} has {first.errors} rows that cannot be loaded, nothing was: "
            f"{first.first} (ON_ERROR = CONTINUE leaves such rows out, SKIP_FILE such files)"
        )
    good = frame.filter(F.col(_BAD).isNull())
    if bad and statement.on_error == "SKIP_FILE":
        good = good.filter(~F.col(_FILE).isin([c.key for c in bad]))
    casted = good.select(*[F.col(quoted(f.name)).try_cast(spark_type(f.type)).alias(f.name) for f in fields])
    named = by_name(table.name, casted, state.schema.fields, context.names, nested=False)
    store(context, table, state, with_defaults(table.name, named, state.schema.fields), "WRITE")
    by_file = {_name(key): c for key, c in found.items()}
    rows = [_outcome(f.name, by_file.get(f.name), statement.on_error) for f in fresh]
    snapshot = table.state().snapshot_id or 0
    for f, row in zip(fresh, rows, strict=True):
        if row[1] != "LOAD_FAILED":
            history.add(_path(statement, f), f, snapshot, row[2])
    return result(_RESULT, sorted([*rows, *skipped]))


def store_of(context: EngineContext, folder: str) -> Store:
    """The store in which a folder is."""
    same = scheme_of(folder) == scheme_of(context.catalog.warehouse)
    return context.catalog.store if same else open_store(folder)


def _targets(state: TableState, statement: CopyIntoTable, compared: Names) -> list[DataField]:
    fields = state.schema.fields
    if statement.columns is None:
        return list(fields)
    out = [state.schema.field(name, compared) for name in statement.columns]
    names = [f.name for f in out]
    twice = next((n for i, n in enumerate(names) if n in names[:i]), None)
    if twice is not None:
        raise InvalidRequest(f"table '{state.name}': column '{twice}' is listed twice")
    for f in fields:
        if f.name not in names and not f.type.nullable and f.default_value is None:
            raise InvalidRequest(f"table '{state.name}': column '{f.name}' is NOT NULL and has no default: list it")
    return out


def _files(files: Store, statement: CopyIntoTable) -> list[FileInfo]:
    """The folder's own files whose names match, hidden ones aside."""
    try:
        wanted = re.compile(statement.pattern or ".*")
    except re.error as e:
        raise InvalidRequest(f"PATTERN = '{statement.pattern}' is not a valid regular expression: {e}") from e
    folder = hadoop_path(statement.folder)
    if not files.dir_exists(folder):
        raise NotFound(f"COPY INTO {statement.table}: folder {statement.folder} does not exist")
    data_files = [f for f in files.list(folder) if not f.is_dir and not f.name.startswith(("_", "."))]
    return [f for f in data_files if wanted.fullmatch(f.name)]


def _path(statement: CopyIntoTable, file: FileInfo) -> str:
    """The file's path, as Hadoop writes it."""
    return f"{hadoop_path(statement.folder).rstrip('/')}/{file.name}"


def _name(key: str) -> str:
    return unquote(key.rsplit("/", 1)[-1])


def _read(
    context: EngineContext, statement: CopyIntoTable, paths: Sequence[str], fields: Sequence[DataField]
) -> DataFrame:
    """The files' rows as the columns named, with the file each is from and what is wrong with it."""
    form, reader = statement.format, context.spark.read
    escaped = [hadoop_pattern(p) for p in paths]
    if form.type == "PARQUET":
        frame = _of_parquet(reader.parquet(*escaped), fields, context.names)
        return _judged(frame, fields, None)
    nested = [f for f in fields if isinstance(spark_type(f.type), (T.StructType, T.ArrayType, T.MapType))]
    if nested and form.type == "CSV":
        raise UnsupportedFeature(f"column '{nested[0].name}' is {nested[0].type}: CSV files cannot hold it")
    text = T.StructType([T.StructField(f.name, spark_type(f.type) if f in nested else T.StringType()) for f in fields])
    corrupt = T.StructField(_CORRUPT, T.StringType())
    options = {o: form.options[k] for k, o in _READER.items() if k in form.options}
    options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, "columnPruning": "false"}
    options["header"] = "true" if form.options.get("SKIP_HEADER") == "1" else "false"
    options["enforceSchema"] = "true"
    options["multiLine"] = "true" if form.flag("MULTI_LINE") else "false"
    reader = reader.schema(T.StructType([*text.fields, corrupt])).options(**options)
    frame = reader.json(list(escaped)) if form.type == "JSON" else reader.csv(list(escaped))
    for f in fields:
        if f not in nested:
            frame = frame.withColumn(f.name, _null_texts(F.col(quoted(f.name)), form))
    return _judged(frame, fields, F.col(_CORRUPT))


def _of_parquet(frame: DataFrame, fields: Sequence[DataField], names: Names) -> DataFrame:
    """A frame's columns by name, others left out, and NULL for what it lacks."""
    have = {names.key(name): name for name in frame.columns}
    columns = []
    for f in fields:
        source = have.get(names.key(f.name))
        found = F.lit(None).cast(spark_type(f.type)) if source is None else F.col(quoted(source))
        columns.append(found.alias(f.name))
    return frame.select(*columns)


def _null_texts(column: Column, form: FileFormat) -> Column:
    texts = list(form.null_if) + ([""] if form.flag("EMPTY_FIELD_AS_NULL") else [])
    return F.when(~column.isin(texts), column) if texts else column


def _judged(frame: DataFrame, fields: Sequence[DataField], corrupt: Column | None) -> DataFrame:
    wrong: list[Column] = []
    if corrupt is not None:
        wrong.append(F.when(corrupt.isNotNull(), F.concat(F.lit("malformed record: "), corrupt)))
    for f, source in zip(fields, frame.schema.fields, strict=False):
        wanted = spark_type(f.type)
        if source.dataType == wanted:
            continue
        column = F.col(quoted(f.name))
        shown = column.cast("string") if isinstance(source.dataType, T.AtomicType) else F.lit("its value")
        message = F.concat(F.lit(f"column '{f.name}': "), shown, F.lit(f" is no {f.type}"))
        wrong.append(F.when(column.isNotNull() & column.try_cast(wanted).isNull(), message))
    bad = F.coalesce(*wrong) if wrong else F.lit(None).cast("string")
    return frame.withColumn(_FILE, F.input_file_name()).withColumn(_BAD, bad)


def _counted(frame: DataFrame, column: str) -> dict[str, _Counted]:
    """By file: one small row each comes back.  ``column`` is any: Spark refuses to read malformed records alone."""
    rows: list[Any] = (
        frame.groupBy(_FILE)
        .agg(F.count(F.lit(1)), F.count(_BAD), F.first(_BAD, ignorenulls=True), F.count(quoted(column)))
        .collect()
    )
    return {key: _Counted(key, total, errors, first) for key, total, errors, first, _ in rows}


def _outcome(name: str, found: _Counted | None, on_error: str) -> tuple[str, str, int, int, int, str | None]:
    if found is None:
        return name, "LOADED", 0, 0, 0, None
    loaded = 0 if found.errors and on_error == "SKIP_FILE" else found.rows - found.errors
    status = "LOADED" if not found.errors else "PARTIALLY_LOADED" if loaded else "LOAD_FAILED"
    return name, status, loaded, found.rows, found.errors, found.first


_WRITER = {
    "FIELD_DELIMITER": "sep",
    "HEADER": "header",
    "QUOTE": "quote",
    "ESCAPE": "escape",
    "COMPRESSION": "compression",
    "DATE_FORMAT": "dateFormat",
    "TIMESTAMP_FORMAT": "timestampFormat",
}


def copy_into_folder(context: EngineContext, statement: CopyIntoFolder) -> pa.Table:
    """COPY INTO 'folder': one row, with the folder, how many files it has and how many rows were written.

    The rows are counted by a query of their own, as in Paimon: the numbers agree if the query is deterministic.
    """
    if not isinstance(parse_statement(statement.query), st.Query):
        raise InvalidRequest(f"COPY INTO '{statement.folder}' takes a query, and not: {statement.query[:60]}")
    files = store_of(context, statement.folder)
    folder = hadoop_path(statement.folder)
    if not statement.overwrite and files.list(folder):
        raise AlreadyExists(f"{statement.folder} holds files already; set OVERWRITE = TRUE, or choose another folder")
    frame = query(context, statement.query)
    options = {o: statement.format.options[k] for k, o in _WRITER.items() if k in statement.format.options}
    with spark_errors(f"writing {statement.folder}"):
        rows = frame.count()
        writer = frame.write.mode("overwrite").options(**options)
        writer.format(statement.format.type.lower()).save(folder)
    count = sum(f.name.startswith("part-") for f in files.list(folder) if not f.is_dir)
    columns: Columns = {"output_path": str, "file_count": pa.int32(), "rows_written": int}
    return result(columns, [(statement.folder, count, rows)])


# --- load history: the files that COPY INTO has loaded into a table ---------------------------------------------------

# ``<table>/copy-into/history/load-<16 hex digits of the path's SHA-256>-<when>``: JSON with filePath, fileSize,
# lastModified, loadedAt (ms since the epoch), snapshotId, rowsLoaded.  A file counts as loaded as long as its size and
# its time are the same.  Source: Paimon's CopyLoadHistoryManager.

log = logging.getLogger("bitlake")


class LoadHistory:
    """The history of one table; listed once."""

    def __init__(self, store: Store, table_path: str) -> None:
        self._store = store
        self._folder = f"{table_path}/copy-into/history"
        self._names: list[str] | None = None

    def has(self, path: str, file: FileInfo) -> bool:
        """Whether a file was loaded as it is now; a record that cannot be read says no, as in Paimon."""
        if self._names is None:
            self._names = [f.name for f in self._store.list(self._folder) if not f.is_dir]
        return any(self._says(name, file) for name in self._names if name.startswith(f"load-{_hash(path)}-"))

    def _says(self, name: str, file: FileInfo) -> bool:
        try:
            record = json.loads(self._store.read(f"{self._folder}/{name}"))
            return (int(record["fileSize"]), int(record["lastModified"])) == (file.size, file.mtime_ms)
        except (ValueError, KeyError, TypeError, NotFound) as e:
            log.warning("%s/%s is not a valid load record (%s): the file is loaded again", self._folder, name, e)
            return False

    def add(self, path: str, file: FileInfo, snapshot_id: int, rows: int) -> None:
        """Remember that a file was loaded."""
        now = _clock.now_ms()
        record = {
            "filePath": path,
            "fileSize": file.size,
            "lastModified": file.mtime_ms,
            "loadedAt": now,
            "snapshotId": snapshot_id,
            "rowsLoaded": rows,
        }
        self._store.write(f"{self._folder}/load-{_hash(path)}-{now}", dumps(record).encode())


def _hash(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()[:16]
