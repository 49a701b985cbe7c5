"""Verify indexes: HASH files, unique keys above level 0, deletion vectors and file indexes.

- A HASH index file must hold the hash of every key in its bucket.  All HASH files of a bucket are checked together, so
  that each data file's keys are read once.  Memory: 4 bytes for each distinct key, and one HASH file.
- Buckets that are read without merging (deletion vectors, ``first-row``) must hold one undeleted row per key above
  level 0.  A lost vector shows as a duplicate key: the old row is back beside the new one.  Memory: 16 bytes for each
  row above level 0 of one bucket.
- Deletion vector files are checked frame by frame against the index manifest and the data files, each vector
  separately, so that a damaged one does not hide the others (:mod:`bitlake.tableindex.deletion_vectors`).
- The file index of a data file: the container is read whole and each stored payload is compared with one rebuilt from
  the column.  Usually the bytes are equal.  If they are not, because another writer orders bitmaps otherwise or used
  other options, a reader that is :class:`~bitlake.fileindex.capabilities.Comparable` compares what they mean.  A writer
  that is a :class:`~bitlake.fileindex.capabilities.PayloadChecker` checks the payload itself: a bloom filter of any
  size is right if it denies no value of the column.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bitlake.codec.binary_row import encode_rows
from bitlake.codec.bucket import row_hash
from bitlake.codec.bytes import Reader
from bitlake.codec.hashing import Int32s, UInt64s, xxh64
from bitlake.errors import (
    BitlakeError,
    CorruptError,
    EvaluationFailed,
    InvalidRequest,
    NotFound,
    UnsupportedFeature,
)
from bitlake.fileindex.capabilities import Comparable, IndexReader, MemberReader, PayloadChecker
from bitlake.fileindex.container import EMPTY, read_header
from bitlake.fileindex.reader import open_index
from bitlake.fileindex.registry import by_column, find_index_type, usable_indexes
from bitlake.fileindex.source import IndexSource, index_source
from bitlake.formats.conform import cast_column
from bitlake.formats.file_format import reader_for
from bitlake.io import Store
from bitlake.metadata.index_manifest import IndexFileEntry
from bitlake.metadata.manifest import DataFileMeta, index_name
from bitlake.metadata.schema import TableSchema
from bitlake.schema.merge_spec import key_fields
from bitlake.tableindex import VectorRange, deletion_vectors
from bitlake.tableindex.hash_index import decode_hashes
from bitlake.tools.verify.findings import Finding, of_error
from bitlake.types import DataField, DataType, arrow_type

# --- HASH files -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A data file whose keys are wanted, and the schema that it was written with."""

    path: str
    schema: TableSchema

    @property
    def fields(self) -> tuple[DataField, ...]:
        """The columns of the key."""
        return key_fields(self.schema)


@dataclass(frozen=True, slots=True)
class HashTask:
    """The HASH files of a bucket by path, and for each the names of the data files that it must have all keys of.

    ``files`` are the data files by name; empty where only the HASH files themselves are looked at.
    """

    indexes: tuple[tuple[str, IndexFileEntry, frozenset[str]], ...]
    files: Mapping[str, KeyFile]


def check_hashes(store: Store, task: HashTask) -> tuple[Finding, ...]:
    """Check the HASH files of one bucket; runs in this process or on an executor."""
    findings: list[Finding] = []
    known: dict[str, Int32s] = {}
    for name, file in task.files.items():
        try:
            known[name] = key_hashes(store, file)
        except (BitlakeError, pa.ArrowException):
            continue  # told by the data file itself
    for path, entry, names in task.indexes:
        try:
            data = store.read(path)
            if len(data) != entry.file_size:
                raise CorruptError(f"the file has {len(data):,} bytes, and the index manifest says {entry.file_size:,}")
            hashes = np.sort(decode_hashes(data, entry.row_count))
        except NotFound:
            findings.append(Finding("hash-missing", path, "the file is not there"))
            continue
        except BitlakeError as e:
            findings.append(of_error("hash-unreadable", path, e))
            continue
        findings += _lacking(path, hashes, {n: known[n] for n in sorted(names) if n in known})
    return tuple(findings)


def _lacking(path: str, hashes: Int32s, known: Mapping[str, Int32s]) -> Sequence[Finding]:
    for name, wanted in known.items():
        missing = wanted[~np.isin(wanted, hashes)]
        if len(missing):
            what = f"it lacks {len(missing):,} of the {len(wanted):,} keys of {name}, such as hash {int(missing[0])}"
            return [Finding("hash-incomplete", path, what)]
    return []


def key_batches(store: Store, file: KeyFile) -> Iterator[list[pa.Array]]:
    """The key columns of a data file, batch by batch, in the types of the key; raises what reading does."""
    with store.open_input(file.path) as source:
        for batch in reader_for(file.path)(source, [f.name for f in file.fields]):
            yield [
                cast_column(c, arrow_type(f.type)) if c.type != arrow_type(f.type) else c
                for c, f in zip(batch.columns, file.fields, strict=True)
            ]


def key_hashes(store: Store, file: KeyFile) -> Int32s:
    """The distinct hashes of the keys of a data file, ascending; raises what reading it does."""
    types, parts = [f.type for f in file.fields], [np.zeros(0, np.int32)]
    for columns in key_batches(store, file):
        parts.append(np.unique(row_hash(types, columns).view(np.int32)))
    hashes: Int32s = np.unique(np.concatenate(parts))
    return hashes


# --- unique keys above level 0 ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file above level 0, and where its deletion vector is: path and size of the index file, and the range."""

    keys: KeyFile
    row_count: int
    vector: tuple[str, int, VectorRange] | None = None


@dataclass(frozen=True, slots=True)
class OnceTask:
    """The files above level 0 of one bucket."""

    files: tuple[LiveFile, ...]


def check_once(store: Store, task: OnceTask) -> tuple[Finding, ...]:
    """Check one bucket; runs in this process or on an executor.  Other checks report what cannot be read."""
    try:
        parts = [_left(store, file) for file in task.files]
    except (BitlakeError, pa.ArrowException):
        return ()
    hashes = np.concatenate([np.zeros(0, np.uint64), *parts])
    owners = np.repeat(np.arange(len(parts)), [len(p) for p in parts])
    order = np.argsort(hashes, kind="stable")
    twice = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
    if not len(twice):
        return ()
    first, second = (task.files[int(owners[order[twice[0] + i]])].keys.path for i in (0, 1))
    name = second.rsplit("/", 1)[1]
    what = f"{len(twice):,} of its bucket's keys have two rows that no vector deletes, one of them also in {name}"
    return (Finding("key-in-two-files", first, what),)


def _left(store: Store, file: LiveFile) -> UInt64s:
    """A 64-bit hash of the key of each row that no vector deletes."""
    types = [f.type for f in file.keys.fields]
    parts: list[UInt64s] = [np.zeros(0, np.uint64)]
    for columns in key_batches(store, file.keys):
        data, offsets = encode_rows(types, columns)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        parts.append(xxh64(pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)))
    hashes: UInt64s = np.concatenate(parts)
    if file.vector is None:
        return hashes
    path, size, place = file.vector
    frame = store.read_range(path, place.offset, deletion_vectors.frame_bytes(place, size))
    deleted = deletion_vectors.decode_frame(frame, place, file.row_count).positions()
    kept: UInt64s = np.delete(hashes, deleted)
    return kept


# --- deletion vectors -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VectorTask:
    """A file of deletion vectors; ``rows`` tells the rows of the data files that are known."""

    path: str
    entry: IndexFileEntry
    rows: Mapping[str, int]


def check_vectors(store: Store, task: VectorTask) -> tuple[Finding, ...]:
    """Check one file of deletion vectors; runs in this process or on an executor."""
    path, entry = task.path, task.entry
    try:
        data = store.read(path)
    except NotFound:
        return (Finding("vectors-missing", path, "the file is not there"),)
    return tuple(_faults(task, data, entry, path))


def _faults(task: VectorTask, data: bytes, entry: IndexFileEntry, path: str) -> Iterator[Finding]:
    if len(data) != entry.file_size:
        what = f"the file has {len(data):,} bytes, and the index manifest says {entry.file_size:,}"
        yield Finding("vectors-size-wrong", path, what)
    if data[:1] != deletion_vectors.EMPTY_FILE:
        version = f"version {data[0]}" if data else "no version"
        yield Finding("vectors-unreadable", path, f"it is of {version}; only version 1 is known", offset=0)
        return
    if entry.ranges is None:
        yield Finding("vectors-unreadable", path, "the index manifest has no list of its vectors")
        return
    if len(entry.ranges) != entry.row_count:
        what = f"the index manifest lists {len(entry.ranges):,} vectors, and says that there are {entry.row_count:,}"
        yield Finding("vectors-count-wrong", path, what)
    end = deletion_vectors.FIRST_OFFSET
    for place in entry.ranges:
        end = max(end, place.offset + place.length)
        yield from _vector(task, data, place)
    if len(data) - end > deletion_vectors.AROUND:  # of a 32-bit vector the length leaves so much out
        what = f"{len(data) - end:,} bytes follow the last vector that the index manifest lists"
        yield Finding("vectors-count-wrong", path, what, offset=end)


def _vector(task: VectorTask, data: bytes, place: VectorRange) -> Iterator[Finding]:
    def fault(code: str, what: str, more: int = 0) -> Finding:
        return Finding(code, task.path, f"the vector of {place.data_file} {what}", offset=place.offset + more)

    reader = Reader(memoryview(data)[max(0, place.offset) :], place.offset)
    try:
        size = reader.i4()
        body = reader.take(size)
        crc = reader.i4() & 0xFFFFFFFF
    except BitlakeError:
        yield fault("vector-unreadable", f"does not lie within the file of {len(data):,} bytes")
        return
    if size not in (place.length, place.length - deletion_vectors.AROUND):
        yield fault("vector-unreadable", f"has {size:,} bytes, and the index manifest says {place.length:,}")
        return
    if zlib.crc32(body) != crc:
        yield fault("vector-checksum-wrong", "does not match its checksum", 4 + size)
        return
    try:
        vector = deletion_vectors.decode_vector(body)
    except BitlakeError as e:
        found = of_error("vector-unreadable", task.path, e)
        yield fault("vector-unreadable", f"cannot be read: {found.what}", 4 + (found.offset or 0))
        return
    if place.cardinality is not None and place.cardinality != vector.cardinality:
        what = f"deletes {vector.cardinality:,} rows, and the index manifest says {place.cardinality:,}"
        yield fault("vector-cardinality-wrong", what)
    rows = task.rows.get(place.data_file)
    positions = vector.positions()
    if rows is not None and len(positions) and int(positions[-1]) >= rows:
        yield fault("vector-out-of-range", f"deletes row {int(positions[-1]):,}, and the file has {rows:,}")


# --- file indexes -----------------------------------------------------------------------------------------------------

Options = Mapping[tuple[str, str], Mapping[str, str]]
"""The options of indexes by (column, index type)."""


class IndexCheck:
    """Checks one payload: ``add`` the column's rows in file order, then call :meth:`finish` once.

    Memory: as much as building the index takes.
    """

    def __init__(self, kind: DataType, index_type: str, options: Mapping[str, str], payload: bytes) -> None:
        """``options``: those that the index was probably written with.

        Raises :class:`InvalidRequest` for an unknown index type, or one that does not take the column's type.
        """
        index = find_index_type(index_type)
        if index is None:
            raise InvalidRequest(f"unknown index type '{index_type}'")
        self._index = index
        self._kind = kind
        self._payload = payload
        self._writer = index.writer(kind, options)
        self._rows = 0
        self._of_members = False

    def add(self, source: IndexSource, column: pa.Array | pa.ChunkedArray) -> None:
        """Append rows; raises :class:`UnsupportedFeature` for a value that no such index can hold."""
        self._rows += len(column)
        self._of_members = source.has_members
        source.add_to(self._writer, column)

    def finish(self) -> str | None:
        """Return what the payload states wrongly.  None if nothing.

        Raises :class:`CorruptError` for a payload that cannot be read.
        """
        if isinstance(self._writer, PayloadChecker):
            return self._writer.check(self._payload)
        rebuilt = self._writer.finish()
        if rebuilt == self._payload:
            return None
        stored = self._reader(self._payload)
        if isinstance(stored, Comparable):
            return stored.difference(self._reader(rebuilt))
        return "its bytes differ from those of an index rebuilt from the rows"

    def _reader(self, payload: bytes) -> IndexReader:
        def fetch(offset: int, length: int) -> bytes:
            return payload[offset : offset + length]

        reader = self._index.reader(self._kind, fetch, len(payload), self._rows)
        if self._of_members and isinstance(reader, MemberReader):
            reader.expect_members()
        return reader


@dataclass(frozen=True, slots=True)
class _Part:
    """One payload that is to be compared with rows."""

    column: str
    index_type: str
    source: IndexSource
    offset: int
    check: IndexCheck

    def take(self, batch: pa.Table) -> None:
        """Add the payload's values of a batch."""
        self.check.add(self.source, self.source.values(batch))


class FileIndexCheck:
    """Checks one container.  ``path``: the index file, or the data file that embeds the container."""

    def __init__(self, path: str, content: bytes, schema: TableSchema, options: Options, rows: int) -> None:
        """``schema``: of the data file; ``rows``: how many it has."""
        self._path = path
        self._parts: list[_Part] = []
        self._fields = schema.fields
        self._rows = rows
        self.findings: list[Finding] = []
        try:
            columns = by_column(read_header(content).columns)
        except BitlakeError as e:
            self.findings.append(of_error("index-unreadable", path, e))
            return
        for column, kinds in columns.items():
            for kind, (start, length) in kinds.items():
                self._begin(content, column, kind, start, length, options)

    @property
    def columns(self) -> set[str]:
        """The columns of the data file that it needs."""
        return {column for p in self._parts for column in p.source.columns}

    def _note(self, code: str, column: str, what: str, offset: int | None = None) -> None:
        self.findings.append(Finding(code, self._path, what, column, offset))

    def _begin(self, content: bytes, column: str, kind: str, start: int, length: int, options: Options) -> None:
        source = index_source(column, self._fields)
        if source is None or find_index_type(kind) is None:
            what = f"unknown index type '{kind}'" if source else f"the data file has no column '{column}'"
            self._note("index-unknown", column, f"index '{kind}': {what}")
            return
        if (start, length) == EMPTY:
            if self._rows:
                self._note("index-wrong", column, f"index '{kind}' says that the file has no row", 0)
            return
        payload = content[start : start + length]
        try:
            index = open_index(lambda at, n: content[at : at + n], len(content), self._fields, self._rows, strict=True)
            index.check(column, kind)
            check = IndexCheck(source.type, kind, options.get((column, kind), {}), payload)
        except CorruptError as e:
            self._note("index-unreadable", column, e.what, start + (e.offset or 0))
        except (InvalidRequest, UnsupportedFeature) as e:
            self._note("index-unknown", column, f"index '{kind}': {e}")
        else:
            self._parts.append(_Part(column, kind, source, start, check))

    def add(self, batch: pa.Table) -> None:
        """Look at the file's rows, in order."""
        for part in list(self._parts):
            try:
                part.take(batch)
            except (UnsupportedFeature, EvaluationFailed) as e:
                self._parts.remove(part)
                self._note(
                    "index-wrong", part.column, f"index '{part.index_type}' cannot hold the column: {e}", part.offset
                )

    def finish(self) -> list[Finding]:
        """After the last row: everything that is wrong with it."""
        for part in self._parts:
            try:
                wrong = part.check.finish()
            except CorruptError as e:
                self._note(
                    "index-unreadable",
                    part.column,
                    f"index '{part.index_type}': {e.what}",
                    part.offset + (e.offset or 0),
                )
                continue
            except BitlakeError as e:
                self._note("index-unreadable", part.column, f"index '{part.index_type}': {e}", part.offset)
                continue
            if wrong is not None:
                self._note("index-wrong", part.column, f"index '{part.index_type}': {wrong}", part.offset)
        return self.findings


def index_content(store: Store, data_path: str, file: DataFileMeta) -> tuple[str, bytes | None, list[Finding]]:
    """Where a data file's index is, its bytes (None: none, or they are not there), and what is wrong with that."""
    if file.embedded_index is not None:
        return data_path, file.embedded_index, []
    try:
        name = index_name(file)
    except CorruptError as e:
        return data_path, None, [Finding("index-twice", data_path, e.what)]
    if name is None:
        return data_path, None, []
    path = f"{data_path.rsplit('/', 1)[0]}/{name}"
    try:
        return path, store.read(path), []
    except NotFound:
        return path, None, [Finding("index-missing", path, "the file is not there")]


def index_options(schemas: Sequence[TableSchema]) -> Options:
    """The options of all indexes that schemas declare, the first schema counting most."""
    out: dict[tuple[str, str], Mapping[str, str]] = {}
    for schema in schemas:
        try:
            specs = usable_indexes(schema.options, schema.fields)
        except InvalidRequest:
            continue  # options that nobody can use: the payloads are compared by what they mean
        for spec in specs:
            out.setdefault((spec.column, spec.index_type), spec.options)
    return out
