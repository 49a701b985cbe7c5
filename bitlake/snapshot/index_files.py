"""Table index files of a snapshot (deletion vectors, HASH): read and written whole, and changed by commits.

:mod:`bitlake.tableindex` knows their bytes.  The index manifest names those of a snapshot (index-format spec, sections
7.1 and 8; :func:`bitlake.snapshot.manifests.index_entries`).

A commit applies its changes to the index files of the snapshot before it.

A *slot* is what a change replaces.  Primary-key and bucketed tables have one index file of a type in each bucket;
append tables without buckets have many, and a change is about those that it names and those that hold vectors of the
same data files.  If a slot is no longer what a change was computed on, another writer came first:

* deletion vectors are merged three-way, file by file: what both deleted in one data file must not overlap, since then
  both have replaced the same row.  The result is a new index file, which is written here;
* a HASH index is a conflict: the other writer may have given the same key another bucket.  Rows of known keys change no
  index; they conflict with a newer index that lacks some of the hashes, since it may lack their keys.

A vector must be for a live data file, and a writer that replaces a data file must know its vector: else deleted rows
would come back.  Source: index-format spec, sections 7.3, 8.3 and 9.8; table-format spec, section 9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pyroaring import BitMap

from bitlake import _clock
from bitlake.codec.hashing import Int32s
from bitlake.errors import (
    CommitConflict,
    CorruptError,
    InvalidRequest,
    NotFound,
    StorageUnavailable,
    UnsupportedFeature,
)
from bitlake.io import Store
from bitlake.metadata import options as opt
from bitlake.metadata.index_manifest import DELETION_VECTORS, HASH, IndexFileEntry
from bitlake.metadata.manifest import Slot
from bitlake.metadata.paths import TablePaths, table_index_name
from bitlake.metadata.schema import TableSchema
from bitlake.snapshot.partitions import index_path, new_index_file
from bitlake.snapshot.table_files import TableFiles, discard_files
from bitlake.tableindex import VectorRange
from bitlake.tableindex.deletion_vectors import (
    DeletionVector,
    decode_index_file,
    encode_index_file,
    encode_index_files,
)
from bitlake.tableindex.hash_index import decode_hashes, encode_hashes

# --- deletion vectors -------------------------------------------------------------------------------------------------


def write_vectors(
    table: TableFiles,
    schema: TableSchema,
    partition: bytes,
    bucket: int,
    vectors: Mapping[str, DeletionVector],
) -> IndexFileEntry:
    """Write all vectors of a bucket, by data file name, into one new index file; no vectors, a file of one byte.

    Vectors that delete nothing are left out; all others get the width that ``deletion-vectors.bitmap64`` asks for.
    """
    data, places = encode_index_file(_as_written(schema, vectors))
    name = table_index_name(_clock.new_uuid(), 0)
    return _put_vectors(table, schema, partition, bucket, name, data, places)


def write_vectors_rolling(
    table: TableFiles,
    schema: TableSchema,
    partition: bytes,
    bucket: int,
    vectors: Mapping[str, DeletionVector],
) -> tuple[IndexFileEntry, ...]:
    """Write vectors into new index files, rolled at ``deletion-vector.index-file.target-size``; no vectors, no files.

    For append tables without buckets only: in other tables a bucket has one file.
    """
    target, writer = schema.opts.of(opt.DV_TARGET_SIZE), _clock.new_uuid()
    return tuple(
        _put_vectors(table, schema, partition, bucket, table_index_name(writer, i), data, places)
        for i, (data, places) in enumerate(encode_index_files(_as_written(schema, vectors), target))
    )


def _as_written(schema: TableSchema, vectors: Mapping[str, DeletionVector]) -> dict[str, DeletionVector]:
    """One width for all: Paimon refuses to merge a new vector of one width into an old one of the other."""
    wide = schema.opts.of(opt.DV_BITMAP64)
    return {n: v if v.wide == wide else replace(v, wide=wide) for n, v in vectors.items() if v.rows}


def _put_vectors(
    table: TableFiles,
    schema: TableSchema,
    partition: bytes,
    bucket: int,
    name: str,
    data: bytes,
    places: tuple[VectorRange, ...],
) -> IndexFileEntry:
    path, external = new_index_file(table.paths, schema, partition, bucket, name)
    _write_whole(table.store, path, data)
    return IndexFileEntry(partition, bucket, DELETION_VECTORS, name, len(data), len(places), places, external)


def _write_whole(store: Store, path: str, data: bytes) -> None:
    try:
        store.write(path, data)
    except StorageUnavailable:
        # The file may exist nevertheless, and nothing else refers to it.
        discard_files(store, [path])
        raise


def read_vectors(
    table: TableFiles,
    schema: TableSchema,
    entry: IndexFileEntry,
    row_counts: Mapping[str, int] | None = None,
) -> dict[str, DeletionVector]:
    """All vectors of an index file by data file name, of either width.

    ``row_counts`` are rows by data file, as far as known; positions are checked against them.  Raises
    :class:`CorruptError` naming the file, and :class:`bitlake.errors.NotFound`.
    """
    path = index_path(table.paths, schema, entry)
    _check_type(entry, DELETION_VECTORS)
    known = row_counts or {}
    data = table.store.read(path)
    try:
        if len(data) != entry.file_size:
            raise CorruptError(f"the file has {len(data)} bytes; the index manifest expects {entry.file_size}")
        vectors_of_file = decode_index_file(data, entry.ranges or (), known.get)
    except CorruptError as e:
        table.store.drop_cached(path)
        raise e if e.path else e.within(path) from e
    high = next((name for name, vector in vectors_of_file.items() if vector.high), None)
    if high is not None:
        raise UnsupportedFeature(
            f"{path}: the vector of {high} has positions of 2^32 and more, which are not supported"
        )
    return vectors_of_file


# --- hashes -----------------------------------------------------------------------------------------------------------


def write_hashes(
    table: TableFiles, schema: TableSchema, partition: bytes, bucket: int, hashes: Int32s
) -> IndexFileEntry:
    """Write a new HASH index file of a bucket: the distinct int32 hashes of its keys, in the given order."""
    data = encode_hashes(hashes)
    name = table_index_name(_clock.new_uuid(), 0)
    path, external = new_index_file(table.paths, schema, partition, bucket, name)
    _write_whole(table.store, path, data)
    return IndexFileEntry(partition, bucket, HASH, name, len(data), len(hashes), None, external)


def read_hashes(table: TableFiles, schema: TableSchema, entry: IndexFileEntry) -> Int32s:
    """The int32 hashes of a HASH index file, in its order.

    Raises :class:`CorruptError` naming the file (a wrong length, a duplicate hash), and
    :class:`bitlake.errors.NotFound`.
    """
    path = index_path(table.paths, schema, entry)
    _check_type(entry, HASH)
    try:
        return np.asarray(decode_hashes(table.store.read(path), entry.row_count), np.int32)
    except CorruptError as e:
        table.store.drop_cached(path)
        raise e if e.path else e.within(path) from e


def _check_type(entry: IndexFileEntry, wanted: str) -> None:
    if entry.index_type != wanted:
        raise InvalidRequest(f"index file {entry.file_name} is of type {entry.index_type}; expected {wanted}")


Live = Mapping[Slot, Mapping[str, int]]
"""Rows of each live data file by name, of the buckets that a commit touches."""


@dataclass(frozen=True, slots=True)
class IndexChange:
    """The change of the table index files of one type in one bucket.

    ``base`` are the snapshot's entries that the change was computed from; ``new`` replace them.
    """

    partition: bytes
    bucket: int
    index_type: str
    base: tuple[IndexFileEntry, ...]
    new: tuple[IndexFileEntry, ...]

    @property
    def slot(self) -> Slot:
        """The partition and bucket."""
        return self.partition, self.bucket


@dataclass(slots=True)
class IndexUpdate:
    """The index files of the next snapshot; mutable while it is built.

    ``written`` are files to delete if this is not committed; ``superseded`` are files of changes that merged files
    replace, to delete after the commit.  ``changed``: whether the entries differ from those of the latest snapshot.
    """

    entries: list[IndexFileEntry]
    changed: bool = False
    written: list[IndexFileEntry] = field(default_factory=list)
    superseded: list[IndexFileEntry] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class IndexFiles:
    """The index files of one table, as commits change them."""

    store: Store
    paths: TablePaths
    schema: TableSchema

    @property
    def one_per_bucket(self) -> bool:
        """Whether a bucket has one index file of a type; else an append table without buckets."""
        return bool(self.schema.primary_keys) or self.schema.num_buckets != -1

    def apply(
        self,
        latest: Sequence[IndexFileEntry],
        changes: Sequence[IndexChange],
        live: Live,
        gone: Mapping[Slot, frozenset[str]],
        overwritten: Callable[[bytes], bool],
    ) -> IndexUpdate:
        """The index files after ``changes`` on top of ``latest``.

        ``live``: the data files of every bucket in ``changes`` and ``gone``, after the commit.  ``gone``: names of the
        data files that the commit removes individually, by bucket.  ``overwritten``: whether the commit overwrites a
        partition, with its index files.  Raises :class:`CommitConflict`.
        """
        update = IndexUpdate([e for e in latest if not overwritten(e.partition)])
        update.changed = len(update.entries) != len(latest)
        try:
            for change in changes:
                self._change(update, change, live[change.slot], gone.get(change.slot, frozenset()), overwritten)
            self._check_gone(update.entries, gone)
        except BaseException:
            self.discard(update.written)
            raise
        return update

    def check_hashes_kept(self, latest: Sequence[IndexFileEntry], used: Iterable[IndexFileEntry]) -> None:
        """Raise :class:`CommitConflict` if the latest HASH index of a bucket lacks hashes of the one that a plan used.

        An overwrite, for example, removes hashes.
        """
        table = TableFiles(self.store, self.paths)
        current = {(e.partition, e.bucket): e for e in latest if e.index_type == HASH}
        for before in used:
            after = current.get((before.partition, before.bucket))
            if after is not None and after.file_name == before.file_name:
                continue
            try:
                lost = (
                    after is None
                    or not np.isin(
                        read_hashes(table, self.schema, before), read_hashes(table, self.schema, after)
                    ).all()
                )
            except NotFound:
                lost = True  # it has expired
            if lost:
                raise CommitConflict(
                    f"keys of the {HASH} index of bucket {before.bucket} in {self.paths.root} were removed meanwhile; "
                    "read the table again and retry"
                )

    def _change(
        self,
        update: IndexUpdate,
        change: IndexChange,
        live: Mapping[str, int],
        gone: frozenset[str],
        overwritten: Callable[[bytes], bool],
    ) -> None:
        base = () if overwritten(change.partition) else change.base
        current = self._current(update.entries, change)
        new: tuple[IndexFileEntry, ...] = change.new
        if _names(current) != _names(base):
            if change.index_type != DELETION_VECTORS:
                raise CommitConflict(
                    f"the {change.index_type} index of bucket {change.bucket} in {self.paths.root} was changed "
                    "meanwhile; read the table again and retry"
                )
            new = self._merged(update, change, current, live, gone)
        elif change.index_type == DELETION_VECTORS:
            self._check_live(base, new, live)
            new = tuple(_without(e, gone) for e in new)
        taken = _names(current)
        update.entries = [e for e in update.entries if e.file_name not in taken]
        update.entries += new
        update.changed |= taken != _names(new)

    def _current(self, entries: Sequence[IndexFileEntry], change: IndexChange) -> list[IndexFileEntry]:
        slot = [e for e in entries if (e.partition, e.bucket, e.index_type) == (*change.slot, change.index_type)]
        if self.one_per_bucket:
            return slot
        named, about = _names(change.base), {*_data_files(change.base), *_data_files(change.new)}
        return [e for e in slot if e.file_name in named or not about.isdisjoint(_data_files([e]))]

    # --- merging vectors ---------------------------------------------------------------------------------------------

    def _merged(
        self,
        update: IndexUpdate,
        change: IndexChange,
        current: Sequence[IndexFileEntry],
        live: Mapping[str, int],
        gone: frozenset[str],
    ) -> tuple[IndexFileEntry, ...]:
        """Apply the difference between ``base`` and ``new`` to the current vectors, in new index files."""
        try:
            base, new, now = (self._read(entries, live) for entries in (change.base, change.new, current))
        except NotFound as e:
            raise CommitConflict(
                f"deletion vectors of bucket {change.bucket} in {self.paths.root} were changed meanwhile, and those "
                f"read before have expired ({e}); read the table again and retry"
            ) from e
        merged = {}
        for name in dict.fromkeys((*now, *base, *new)):
            before, after, there = (m[name].rows if name in m else BitMap() for m in (base, new, now))
            rows = self._merge(name, before, after, there, gone)
            if name in live and rows:
                merged[name] = DeletionVector(rows)
            elif name not in live and after - before:
                raise self._not_live(name)
        arguments = (TableFiles(self.store, self.paths), self.schema, change.partition, change.bucket, merged)
        entries = (write_vectors(*arguments),) if self.one_per_bucket else write_vectors_rolling(*arguments)
        update.written += entries
        update.superseded += change.new
        return entries

    def _merge(self, name: str, base: BitMap, new: BitMap, now: BitMap, gone: frozenset[str]) -> BitMap:
        added, other = new - base, now - base
        twice = added & other
        if twice:
            raise CommitConflict(
                f"row {twice.min()} of data file {name} in {self.paths.root} was deleted by another commit too "
                f"({len(twice)} rows in all); read the table again and retry"
            )
        if other and name in gone:
            raise CommitConflict(
                f"another commit deleted {len(other)} rows of data file {name} in {self.paths.root}, which this one "
                "replaces; read the table again and retry"
            )
        return (now - (base - new)) | added

    def _read(self, entries: Iterable[IndexFileEntry], live: Mapping[str, int]) -> dict[str, DeletionVector]:
        out: dict[str, DeletionVector] = {}
        for entry in entries:
            out |= read_vectors(TableFiles(self.store, self.paths), self.schema, entry, live)
        return out

    # --- checks ------------------------------------------------------------------------------------------------------

    def _check_live(
        self, base: Sequence[IndexFileEntry], new: Sequence[IndexFileEntry], live: Mapping[str, int]
    ) -> None:
        # A vector carried over for a file that is long gone does no harm (index-format spec, trap 26).
        before = {r.data_file: r.cardinality for e in base for r in e.ranges or ()}
        for entry in new:
            for place in entry.ranges or ():
                known = before.get(place.data_file)
                if place.data_file not in live and (known is None or known != place.cardinality):
                    raise self._not_live(place.data_file)

    def _not_live(self, name: str) -> CommitConflict:
        return CommitConflict(
            f"data file {name}, of which rows are to be deleted, is no longer live in {self.paths.root}: another "
            "commit replaced it; read the table again and retry"
        )

    def _check_gone(self, entries: Sequence[IndexFileEntry], gone: Mapping[Slot, frozenset[str]]) -> None:
        """Refuse a replaced data file that still has a vector: its rewrite did not apply the deleted rows."""
        if not gone or not self.schema.opts.of(opt.DV_ENABLED):
            return
        for entry in entries:
            lost = gone.get((entry.partition, entry.bucket), frozenset()).intersection(_data_files([entry]))
            if lost and entry.index_type == DELETION_VECTORS:
                raise CommitConflict(
                    f"data file {min(lost)} in {self.paths.root} has deleted rows that the commit replacing it does "
                    "not know of; read the table again and retry"
                )

    def discard(self, entries: Iterable[IndexFileEntry]) -> None:
        """Delete uncommitted index files; those that cannot be deleted become orphan files."""
        for entry in entries:
            try:
                self.store.delete(index_path(self.paths, self.schema, entry))
            except StorageUnavailable:
                continue


def _without(entry: IndexFileEntry, gone: frozenset[str]) -> IndexFileEntry:
    """The entry without the vectors of data files that go with the same commit; the file itself keeps them."""
    left = tuple(r for r in entry.ranges or () if r.data_file not in gone)
    return entry if len(left) == len(entry.ranges or ()) else replace(entry, ranges=left, row_count=len(left))


def _names(entries: Iterable[IndexFileEntry]) -> frozenset[str]:
    return frozenset(e.file_name for e in entries)


def _data_files(entries: Iterable[IndexFileEntry]) -> Iterable[str]:
    return [r.data_file for e in entries for r in e.ranges or ()]
