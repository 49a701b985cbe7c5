"""Verify one data file: size, footer, statistics, and the facts that metadata states about its rows.

A task is what a runner carries: the path, the manifest entries that name the file, and its schema.  A file has several
entries after it moved to another level or got another index; its rows are read once for all of them.  Gatherers take
batches in file order and keep bounds, NULL counts, keys, order, row kinds and buckets.  Memory holds one batch, and
what building the file's indexes takes.

Statistics in manifest entries are compared with the values in the file, because queries skip files by them.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from bitlake.codec.binary_row import encode_row_with_arity
from bitlake.codec.bucket import bucket_of
from bitlake.errors import BitlakeError, CorruptError, NotFound
from bitlake.expressions.statistics import ColumnStats
from bitlake.formats.conform import cast_column
from bitlake.formats.file_format import format_of, reader_for
from bitlake.formats.parquet.decode import BATCH_ROWS
from bitlake.formats.parquet.footer import PREFETCH, Footer, read_footer
from bitlake.io import Store
from bitlake.lazy_modules import compute as pc
from bitlake.merge.keys import key_columns
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import INDEX_SUFFIX, DataFileMeta, ManifestEntry, SimpleStats
from bitlake.metadata.paths import POSTPONE_BUCKET
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.stats import Bounds, FileStats
from bitlake.schema import merge_spec
from bitlake.tools.verify.findings import Finding, of_error
from bitlake.tools.verify.indexes import FileIndexCheck, Options, index_content
from bitlake.tools.verify.page_indexes import PageIndexFacts
from bitlake.types import DataField, arrow_field
from bitlake.types.arrow import physical_values

_KINDS = 4


class KeyFacts:
    """First and last key of a file, and the first rows that are out of order or repeat a key."""

    def __init__(self, schema: TableSchema) -> None:
        self._fields = merge_spec.key_fields(schema)
        self._last: pa.Table | None = None
        self._rows = 0
        self.first_key = self.last_key = b""
        self.unordered: int | None = None
        self.repeated: int | None = None

    def columns(self, batch: pa.Table) -> list[str]:
        """Return the columns of a file that hold its keys: its own ones, or in thin mode the table's."""
        return [
            merge_spec.KEY_PREFIX + f.name if merge_spec.KEY_PREFIX + f.name in batch.column_names else f.name
            for f in self._fields
        ]

    def add(self, batch: pa.Table) -> None:
        """Look at the keys of a batch."""
        keys = batch.select(self.columns(batch))
        if self._last is None:
            self.first_key = self._encode(keys, 0)
        known = keys if self._last is None else pa.concat_tables([self._last, keys])
        start = self._rows - (self._last is not None)
        falls, same = _compared([c.combine_chunks() for c in known.columns])
        if self.unordered is None and falls.any():
            self.unordered = start + 1 + int(np.argmax(falls))
        if self.repeated is None and same.any():
            self.repeated = start + 1 + int(np.argmax(same))
        self._rows += keys.num_rows
        self._last = keys.slice(keys.num_rows - 1)

    def finish(self) -> None:
        """After the last batch."""
        if self._last is not None:
            self.last_key = self._encode(self._last, 0)

    def _encode(self, keys: pa.Table, at: int) -> bytes:
        values = [physical_values(c.slice(at, 1))[0] for c in keys.columns]
        return encode_row_with_arity([f.type for f in self._fields], values)


def _compared(columns: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Compare each row's key, except the first's, with the one before: masks of smaller and of equal keys."""
    rows = len(columns[0])
    falls, same = np.zeros(max(rows - 1, 0), bool), np.ones(max(rows - 1, 0), bool)
    for column in key_columns(columns):
        if isinstance(column, np.ndarray):
            less, equal = column[1:] < column[:-1], column[1:] == column[:-1]
        else:
            pair = column[1:], column[:-1]
            less, equal = (f(*pair).to_numpy(zero_copy_only=False) for f in (pc.less, pc.equal))
        falls |= same & less
        same &= equal
    return falls, same


class RowFacts:
    """Sequence numbers and kinds of a primary-key file's rows."""

    def __init__(self) -> None:
        self.low: int | None = None
        self.high: int | None = None
        self.deletes = 0
        self.strange: int | None = None
        """A row kind that there is not, or -1 for NULL."""

    def add(self, batch: pa.Table) -> None:
        """Count a batch."""
        ends = pc.min_max(batch.column(merge_spec.SEQUENCE_NUMBER))
        low, high = ends["min"].as_py(), ends["max"].as_py()
        if low is not None:
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)
        kinds = batch.column(merge_spec.VALUE_KIND)
        numbers = kinds.fill_null(-1).to_numpy().astype(np.int64)
        counts = np.bincount(np.clip(numbers, -1, _KINDS) + 1, minlength=_KINDS + 2)
        self.deletes += int(counts[merge_spec.UPDATE_BEFORE + 1] + counts[merge_spec.DELETE + 1])
        if self.strange is None and (counts[0] or counts[-1]):
            self.strange = int(numbers[(numbers < 0) | (numbers >= _KINDS)][0])


class BucketFacts:
    """Finds the first row whose recomputed bucket differs from its file's."""

    def __init__(self, schema: TableSchema, bucket: int, buckets: int) -> None:
        self._fields = schema.bucket_fields
        self._function: str = schema.opts.of(opt.BUCKET_FUNCTION)
        self._bucket = bucket
        self._buckets = buckets
        self._rows = 0
        self.wrong: tuple[int, int] | None = None
        """The row, and the bucket that it belongs to."""

    def add(self, batch: pa.Table) -> None:
        """Look at a batch."""
        if self.wrong is None:
            columns = [batch.column(f.name) for f in self._fields]
            buckets = bucket_of([f.type for f in self._fields], columns, self._buckets, self._function)
            other = np.flatnonzero(buckets != self._bucket)
            if len(other):
                self.wrong = self._rows + int(other[0]), int(buckets[other[0]])
        self._rows += batch.num_rows


def value_stats_faults(
    path: str, file: DataFileMeta, fields: Sequence[DataField], bounds: Mapping[str, Bounds]
) -> Iterator[Finding]:
    """Find wrong statistics of a file's columns; ``fields`` are those of the file's schema."""
    names = {f.name for f in fields}
    strange = [n for n in file.value_stats_cols or () if n not in names]
    if strange:
        yield Finding("stats-unreadable", path, f"they are of a column '{strange[0]}', which the file does not have")
        return
    yield from _faults(path, file.value_stats, fields, file.value_stats_cols, bounds)


def key_stats_faults(
    path: str, file: DataFileMeta, keys: Sequence[DataField], bounds: Mapping[str, Bounds]
) -> Iterator[Finding]:
    """The same of the statistics of a file's key columns."""
    yield from _faults(path, file.key_stats, keys, None, bounds, "statistics of the key")


def _faults(
    path: str,
    stats: SimpleStats,
    fields: Sequence[DataField],
    columns: tuple[str, ...] | None,
    bounds: Mapping[str, Bounds],
    told: str = "statistics",
) -> Iterator[Finding]:
    file_stats = FileStats(stats, tuple(fields), columns)
    if stats.null_counts is None:
        yield Finding("stats-unreadable", path, f"the {told} lack their NULL counts: Paimon would skip the file")
        return
    for name in file_stats:
        seen = bounds.get(name)
        try:
            recorded = file_stats[name]
        except BitlakeError as e:
            yield of_error("stats-unreadable", path, e, name)
            return
        if seen is not None:
            yield from _column(path, name, recorded, seen, told)


def _column(path: str, name: str, recorded: ColumnStats, seen: Bounds, told: str) -> Iterator[Finding]:
    if recorded.null_count is not None and recorded.null_count != seen.nulls:
        what = f"{seen.nulls:,} rows are NULL, and the {told} say {recorded.null_count:,}"
        yield Finding("null-count-wrong", path, what, name)
    for bound, value, outside in ((recorded.min, seen.low, operator.lt), (recorded.max, seen.high, operator.gt)):
        if bound is not None and value is not None and outside(value, bound):
            what = f"it has value {_short(value)}, and the {told} end at {_short(bound)}"
            yield Finding("stats-hide-values", path, what, name)
    if seen.nans and recorded.max is not None:
        what = f"it has NaN, which is greater than any number, and the {told} end at {_short(recorded.max)}"
        yield Finding("stats-hide-values", path, what, name)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"


@dataclass(frozen=True, slots=True)
class DataTask:
    """A data file to check; ``partition`` are its physical values, ``options`` those of the indexes it may have."""

    path: str
    entries: tuple[ManifestEntry, ...]
    schema: TableSchema
    partition: tuple[Any, ...]
    options: Options
    changelog: bool = False
    deep: bool = True


@dataclass(frozen=True, slots=True)
class DataChecked:
    """The result for a data file; ``concerned``: the task's entries that a finding is about, if not all."""

    findings: tuple[Finding, ...]
    rows: int = 0
    size: int = 0
    indexes: int = 0
    concerned: Mapping[Finding, Collection[int]] = dataclasses.field(default_factory=dict)


def check_data_file(store: Store, task: DataTask) -> DataChecked:
    """Check one data file and its index, without caches; runs in this process or on an executor."""
    try:
        end = _FileEnd.read(store, task)
    except NotFound:
        return DataChecked((Finding("data-missing", task.path, "the file is not there"),))
    indexes = _Indexes(store, task)
    checked = _checked(store, task, end, indexes)
    return replace(checked, indexes=len(indexes.checks), concerned=indexes.concerned)


@dataclass(frozen=True, slots=True)
class _FileEnd:
    """A file's size, and the bytes from ``start`` on: of a Parquet file those that a reader of its footer takes."""

    size: int
    start: int = 0
    data: bytes = b""

    @staticmethod
    def read(store: Store, task: DataTask) -> _FileEnd:
        """Read them, in one request if the file has the size in its manifest."""
        if format_of(task.path) != "parquet":
            return _FileEnd(store.size(task.path))
        start = max(0, task.entries[0].file.file_size - PREFETCH)
        data, size = store.read_part(task.path, start, PREFETCH)
        return _FileEnd(size, start, data)

    def footer(self, store: Store, path: str) -> Footer | None:
        """The footer, whose chunks are all decoded and so checked; None for formats without one."""
        if format_of(path) != "parquet":
            return None

        def fetch(offset: int, length: int) -> bytes:
            at = offset - self.start
            known = 0 <= at <= len(self.data) - length
            return self.data[at : at + length] if known else store.read_range(path, offset, length)

        footer = read_footer(fetch, self.size)
        for group in footer.row_groups:
            list(group.chunks)
        return footer


def _checked(store: Store, task: DataTask, end: _FileEnd, indexes: _Indexes) -> DataChecked:
    size = end.size
    findings = [*_size_faults(task, size), *indexes.findings]
    facts = _Facts(task, indexes.checks)
    try:
        footer = end.footer(store, task.path)
        rows = None
        if footer is not None:
            rows = footer.rows
            _check_columns(task, footer.columns)
            findings += _row_faults(task, rows)
        if task.deep:
            if footer is not None:
                fetch = partial(store.read_ranges, task.path)
                facts.pages = PageIndexFacts(task.path, footer, fetch, task.schema.fields)
            read = facts.read(store, size)
            findings += [] if rows is not None else _row_faults(task, read)
            rows = read
            findings += facts.faults()
    except NotFound as e:
        # A column is not there; or the file went meanwhile.
        exists = store.exists(task.path)
        missing = Finding("data-missing", task.path, "the file is not there")
        findings.append(Finding("data-unreadable", task.path, str(e)) if exists else missing)
        return DataChecked(tuple(findings), 0, size)
    except (BitlakeError, pa.ArrowException) as e:
        error = e if isinstance(e, BitlakeError) else CorruptError(f"its bytes cannot be decoded ({e})")
        findings.append(of_error("data-unreadable", task.path, error))
        # What an index says of itself stands, even if the rows cannot be asked.
        findings += indexes.faults(deep=False)
        return DataChecked(tuple(findings), 0, size)
    findings += indexes.faults(task.deep)
    return DataChecked(tuple(dict.fromkeys(findings)), rows or 0, size)


def _size_faults(task: DataTask, size: int) -> Iterator[Finding]:
    for recorded in dict.fromkeys(e.file.file_size for e in task.entries):
        if recorded != size:
            what = f"the file has {size:,} bytes, and its manifest says {recorded:,}"
            yield Finding("data-size-wrong", task.path, what)


def _row_faults(task: DataTask, rows: int) -> list[Finding]:
    wrong = dict.fromkeys(e.file.row_count for e in task.entries if e.file.row_count != rows)
    return [
        Finding("row-count-wrong", task.path, f"the file has {rows:,} rows, and its manifest says {recorded:,}")
        for recorded in wrong
    ]


def _check_columns(task: DataTask, names: Collection[str]) -> None:
    """Raise :class:`CorruptError` for a file that lacks a column of its schema, which readers find by its name.

    The values of partition columns are in the manifest: files that other engines wrote may lack these columns.
    """
    schema = task.schema
    required = [f.name for f in (*schema.fields, *(merge_spec.SYSTEM_FIELDS if schema.primary_keys else ()))]
    lacking = [name for name in required if name not in names and name not in schema.partition_keys]
    if lacking:
        listed = ", ".join(names)
        raise CorruptError(f"it has no column '{lacking[0]}' of schema {schema.id}; its columns are {listed}")


class _Indexes:
    """The distinct indexes of a file's entries, and which entries each fault of them is about.

    A repair gives a file an entry with another index, and those with the old one stay in older snapshots.
    """

    def __init__(self, store: Store, task: DataTask) -> None:
        self._path = task.path
        self.findings: list[Finding] = []
        self.concerned: dict[Finding, list[int]] = {}
        found: dict[tuple[str, bytes], tuple[FileIndexCheck, list[int]]] = {}
        folder = task.path.rsplit("/", 1)[0]
        for number, entry in enumerate(task.entries):
            path, content, wrong = index_content(store, task.path, entry.file)
            for extra in entry.file.extra_files:
                if not extra.endswith(INDEX_SUFFIX) and not store.exists(f"{folder}/{extra}"):
                    wrong.append(Finding("extra-file-missing", f"{folder}/{extra}", f"{entry.file.file_name} names it"))
            self._note(wrong, [number])
            self.findings += wrong
            if content is None:
                continue
            if (path, content) not in found:
                check = FileIndexCheck(path, content, task.schema, task.options, entry.file.row_count)
                found[path, content] = check, []
            found[path, content][1].append(number)
        self._checks = list(found.values())

    @property
    def checks(self) -> list[FileIndexCheck]:
        """The checks that rows are shown to."""
        return [check for check, _ in self._checks]

    def faults(self, deep: bool) -> list[Finding]:
        """Return the faults of the indexes, after the last row if ``deep``."""
        out = []
        for check, entries in self._checks:
            faults = check.finish() if deep else check.findings
            # An embedded index has no path of its own.
            inside = "the index of this file that manifests hold: "
            faults = [replace(f, what=inside + f.what) if f.path == self._path else f for f in faults]
            self._note(faults, entries)
            out += faults
        return out

    def _note(self, findings: Sequence[Finding], entries: Sequence[int]) -> None:
        for finding in findings:
            self.concerned.setdefault(finding, []).extend(entries)


class _Facts:
    """The facts of one pass over a data file, and their comparison with the file's entries."""

    def __init__(self, task: DataTask, indexes: Sequence[FileIndexCheck]) -> None:
        schema = task.schema
        self._task = task
        self._indexes = indexes
        self._keyed = bool(schema.primary_keys)
        first = task.entries[0]
        # Rows that wait for a bucket are as they came: unsorted, without numbers.
        self._postponed = first.bucket == POSTPONE_BUCKET
        self._keys = KeyFacts(schema) if self._keyed and not self._postponed else None
        self._rows = RowFacts() if self._keyed else None
        bucketed = first.total_buckets > 0 and first.bucket >= 0 and schema.bucket_keys
        self._buckets = BucketFacts(schema, first.bucket, first.total_buckets) if bucketed else None
        self._bounds: dict[str, Bounds] = {}
        self.pages: PageIndexFacts | None = None
        """Those of a Parquet file."""

    @cached_property
    def _types(self) -> dict[str, tuple[DataField, pa.DataType]]:
        """The columns of the file that are known, with their Arrow types."""
        fields = [*self._task.schema.fields, *(merge_spec.SYSTEM_FIELDS if self._keyed else ())]
        return {f.name: (f, arrow_field(f).type) for f in fields}

    def read(self, store: Store, size: int) -> int:
        """Read the file from start to end; returns its rows.  Raises what reading does, naming the column."""
        rows = 0
        path = self._task.path
        with store.open_input(path, size) as source:
            for batch in reader_for(path)(source, batch_size=BATCH_ROWS):
                batch.validate(full=True)
                self._add(self._conformed(pa.Table.from_batches([batch])))
                rows += batch.num_rows
        if self._keys is not None:
            self._keys.finish()
        return rows

    def _conformed(self, batch: pa.Table) -> pa.Table:
        """The columns in the Arrow types of the schema that the file was written with."""
        names, columns = [], []
        for name, column in zip(batch.column_names, batch.columns, strict=True):
            known = self._types.get(name) or self._types.get(name.removeprefix("_KEY_"))
            if known is not None and column.type != known[1]:
                try:
                    column = cast_column(column, known[1])
                except (pa.ArrowException, ValueError) as e:
                    raise CorruptError(f"column '{name}' does not hold values of {known[0].type}: {e}") from e
            names.append(name)
            columns.append(column)
        _check_columns(self._task, names)
        return pa.Table.from_arrays(columns, names=names)

    def _add(self, batch: pa.Table) -> None:
        names = set(batch.column_names)
        for field in self._task.schema.fields:
            if field.name in names:
                bounds = self._bounds.setdefault(field.name, Bounds(field))
                bounds.add(batch.column(field.name))
        if self.pages is not None:
            self.pages.add(batch)
        if self._keys is not None:
            self._keys.add(batch)
        if self._rows is not None:
            self._rows.add(batch)
        if self._buckets is not None and all(f.name in names for f in self._task.schema.bucket_fields):
            self._buckets.add(batch)
        for index in self._indexes:
            if index.columns <= names:
                index.add(batch)

    # --- judging ------------------------------------------------------------------------------------------------------

    def faults(self) -> Iterator[Finding]:
        """Everything in which the rows and the file's entries differ."""
        task = self._task
        if self.pages is not None:
            yield from self.pages.faults()
        yield from self._order_faults()
        yield from self._place_faults()
        yield from self._null_faults()
        for entry in task.entries:
            file = entry.file
            yield from value_stats_faults(task.path, file, task.schema.fields, self._bounds)
            if self._keys is not None and self._rows is not None:
                yield from self._key_faults(entry)
                keys = merge_spec.key_fields(task.schema)
                yield from key_stats_faults(task.path, file, keys, self._bounds)

    def _order_faults(self) -> Iterator[Finding]:
        if self._keys is None or self._rows is None:
            return
        path = self._task.path
        if self._keys.unordered is not None:
            what = f"the key of row {self._keys.unordered:,} is below that of the row before"
            yield Finding("key-order-wrong", path, what)
        # A changelog has a key's row before and after a change.
        if self._keys.repeated is not None and not self._task.changelog:
            what = f"row {self._keys.repeated:,} has the key of the row before"
            yield Finding("key-twice", path, what)
        if self._rows.strange is not None:
            kind = "NULL" if self._rows.strange < 0 else str(self._rows.strange)
            yield Finding("row-kind-wrong", path, f"a row is of kind {kind}; there are 0 to 3", merge_spec.VALUE_KIND)

    def _key_faults(self, entry: ManifestEntry) -> Iterator[Finding]:
        file, path = entry.file, self._task.path
        assert self._keys is not None and self._rows is not None
        for end, recorded, right in (
            ("first", file.min_key, self._keys.first_key),
            ("last", file.max_key, self._keys.last_key),
        ):
            if right and recorded != right:
                yield Finding("key-range-wrong", path, f"the {end} key is not the one that its manifest says")
        numbers = (self._rows.low, self._rows.high)
        if numbers[0] is not None and numbers != (file.min_sequence_number, file.max_sequence_number):
            what = (
                f"sequence numbers are {numbers[0]:,} to {numbers[1]:,}, and its manifest says "
                f"{file.min_sequence_number:,} to {file.max_sequence_number:,}"
            )
            yield Finding("sequence-wrong", path, what, merge_spec.SEQUENCE_NUMBER)
        if file.delete_row_count is not None and file.delete_row_count != self._rows.deletes:
            what = f"{self._rows.deletes:,} rows are -U or -D, and its manifest says {file.delete_row_count:,}"
            yield Finding("delete-count-wrong", path, what, merge_spec.VALUE_KIND)

    def _place_faults(self) -> Iterator[Finding]:
        task = self._task
        if self._buckets is not None and self._buckets.wrong is not None:
            row, bucket = self._buckets.wrong
            what = f"row {row:,} belongs to bucket {bucket}, and the file is in bucket {task.entries[0].bucket}"
            yield Finding("bucket-wrong", task.path, what)
        for field, value in zip(task.schema.partition_fields, task.partition, strict=True):
            bounds = self._bounds.get(field.name)
            if bounds is None or bounds.nans:
                continue
            if value is None:
                wrong = bounds.low is not None
            else:
                wrong = bounds.nulls > 0 or (bounds.low is not None and not bounds.low == bounds.high == value)
            if wrong:
                shown = bounds.low if bounds.low != value else "NULL" if bounds.nulls else bounds.high
                what = f"rows have {shown!r}, and the file is in the partition of {value!r}"
                yield Finding("partition-wrong", task.path, what, field.name)

    def _null_faults(self) -> Iterator[Finding]:
        keys = {f.name for f in merge_spec.key_fields(self._task.schema)} if self._keyed else None
        for name, bounds in self._bounds.items():
            if bounds.field.type.nullable or not bounds.nulls or (keys is not None and name not in keys):
                continue
            what = f"{bounds.nulls:,} rows are NULL, and the column is NOT NULL"
            yield Finding("null-not-allowed", self._task.path, what, name)
