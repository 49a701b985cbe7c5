"""Manifests (changes of data files) and manifest lists.

Both are Avro containers (:mod:`bitlake.codec.avro`).  A manifest record has exactly six top-level fields —
``_VERSION`` 2, ``_KIND`` 0 ADD or 1 DELETE, ``_PARTITION``, ``_BUCKET``, ``_TOTAL_BUCKETS``, ``_FILE`` — and inside
``_FILE`` the fields of :data:`_FILE_FIELDS`.  ``_MIN_VALUES`` and friends are BinaryRows with arity.

Manifests whose schema is exactly the known one are decoded by hand (:func:`decode_entries`), several times faster than
by schema.  In Avro's encoding numbers are zigzag varints; strings and bytes are a length and their bytes; a union is
the number of its branch (0 null) and its value; an array is blocks of a count and its items, ended by 0.  Neighbouring
records share most of their bytes (kind, partition and bucket; keys and their statistics; schema and level; the lists of
columns): each such section is compared with the last record's and only decoded when it differs.  Unexpected bytes are
left to the general decoder, which decodes them or reports what is wrong.

Entries are decoded with Python's garbage collector paused (:func:`paused`): it would scan them for cycles repeatedly,
a third of the time for a hundred thousand of them, and they have none.

Source: table-format spec, section 4.
"""

from __future__ import annotations

import enum
import gc
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeVar

from bitlake.codec import avro
from bitlake.codec.avro import MAGIC, SYNC, decompress_zstd, most_bytes
from bitlake.codec.binary_row import EMPTY_ROW
from bitlake.errors import CorruptError, UnsupportedFeature
from bitlake.metadata.paths import are_file_names, check_file_names

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

VERSION = 2
Entry = TypeVar("Entry", bound="InBucket")


class EntryKind(enum.IntEnum):
    """``_KIND`` on disk."""

    ADD = 0
    DELETE = 1


class FileSource(enum.IntEnum):
    """``_FILE_SOURCE`` on disk."""

    APPEND = 0
    COMPACT = 1


@dataclass(frozen=True, slots=True)
class SimpleStats:
    """Bounds and null counts of some columns.

    ``min`` and ``max`` are BinaryRows with arity; ``null_counts`` has one entry per field of them (None: unknown).  It
    is None only in damaged files: Paimon would then prune every file.
    """

    min: bytes
    max: bytes
    null_counts: tuple[int | None, ...] | None


EMPTY_STATS = SimpleStats(EMPTY_ROW, EMPTY_ROW, ())
"""Statistics of no columns; value statistics of this kind need ``value_stats_cols=()``."""


@dataclass(frozen=True, slots=True)
class DataFileMeta:
    """One data file: size, rows, keys, statistics and the files beside it.  Sizes in bytes."""

    file_name: str
    file_size: int
    row_count: int
    min_key: bytes
    max_key: bytes
    key_stats: SimpleStats
    value_stats: SimpleStats
    min_sequence_number: int
    max_sequence_number: int
    schema_id: int
    level: int
    extra_files: tuple[str, ...] = ()
    creation_time: int | None = None
    """The writer's local wall clock as epoch ms as if UTC."""
    delete_row_count: int | None = None
    embedded_index: bytes | None = None
    file_source: int | None = None
    value_stats_cols: tuple[str, ...] | None = None
    """Columns of ``value_stats``: None all of the file's schema, () none."""
    external_path: str | None = None
    first_row_id: int | None = None
    write_cols: tuple[str, ...] | None = None
    write_cols_sequences: tuple[int, ...] | None = None


Identity = tuple[bytes, int, int, str, tuple[str, ...], bytes | None, str | None]


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A change: ``file`` of (partition, bucket) was added or deleted.

    ``partition`` is a BinaryRow with arity; ``total_buckets`` is the bucket count when it was written, -1 without fixed
    buckets, -2 for postpone.
    """

    kind: EntryKind
    partition: bytes
    bucket: int
    total_buckets: int
    file: DataFileMeta

    def __repr__(self) -> str:
        file = self.file
        return f"ManifestEntry({self.kind.name} {file.file_name}: bucket {self.bucket}, {file.row_count:,} rows)"

    @property
    def identity(self) -> Identity:
        """The values that an ADD and its DELETE share, exactly."""
        f = self.file
        return (self.partition, self.bucket, f.level, f.file_name, f.extra_files, f.embedded_index, f.external_path)


class InBucket(Protocol):
    """What belongs to a bucket: a data file's entry, or a table index file's."""

    @property
    def partition(self) -> bytes:
        """The partition, as a BinaryRow with arity."""

    @property
    def bucket(self) -> int:
        """The bucket's number."""


Slot = tuple[bytes, int]
"""A partition, as a BinaryRow with arity, and the number of a bucket in it."""


def by_bucket(entries: Iterable[Entry]) -> dict[Slot, list[Entry]]:
    """Entries by partition and bucket, in their order."""
    buckets: dict[Slot, list[Entry]] = {}
    for entry in entries:
        buckets.setdefault((entry.partition, entry.bucket), []).append(entry)
    return buckets


@dataclass(frozen=True, slots=True)
class ManifestFileMeta:
    """A manifest in a manifest list; partition stats, buckets and levels cover all entries, deletes included."""

    file_name: str
    file_size: int
    num_added_files: int
    num_deleted_files: int
    partition_stats: SimpleStats
    schema_id: int
    min_bucket: int | None = None
    max_bucket: int | None = None
    min_level: int | None = None
    max_level: int | None = None
    min_row_id: int | None = None
    max_row_id: int | None = None

    @property
    def entry_count(self) -> int:
        """The number of its entries, ADD and DELETE."""
        return self.num_added_files + self.num_deleted_files


# --- Avro schemas -----------------------------------------------------------------------------------------------------


def _array_of(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _stats_field(name: str, path: str) -> dict[str, Any]:
    counts = avro.nullable_field("_NULL_COUNTS", _array_of(["null", "long"]))
    fields = [*avro.plain_fields("_MIN_VALUES:bytes", "_MAX_VALUES:bytes"), counts]
    return {"name": name, "type": {"type": "record", "name": f"record_{path}{name}", "fields": fields}}


def _record(fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": "record", "namespace": "org.apache.paimon.avro.generated", "fields": fields}


_FILE_FIELDS = [
    *avro.plain_fields("_FILE_NAME:string", "_FILE_SIZE:long", "_ROW_COUNT:long", "_MIN_KEY:bytes", "_MAX_KEY:bytes"),
    _stats_field("_KEY_STATS", "_FILE_"),
    _stats_field("_VALUE_STATS", "_FILE_"),
    *avro.plain_fields("_MIN_SEQUENCE_NUMBER:long", "_MAX_SEQUENCE_NUMBER:long", "_SCHEMA_ID:long", "_LEVEL:int"),
    {"name": "_EXTRA_FILES", "type": _array_of("string")},
    avro.nullable_field("_CREATION_TIME", {"type": "long", "logicalType": "timestamp-millis"}),
    avro.nullable_field("_DELETE_ROW_COUNT", "long"),
    avro.nullable_field("_EMBEDDED_FILE_INDEX", "bytes"),
    avro.nullable_field("_FILE_SOURCE", "int"),
    avro.nullable_field("_VALUE_STATS_COLS", _array_of("string")),
    avro.nullable_field("_EXTERNAL_PATH", "string"),
    avro.nullable_field("_FIRST_ROW_ID", "long"),
    avro.nullable_field("_WRITE_COLS", _array_of("string")),
    avro.nullable_field("_WRITE_COLS_SEQUENCES", _array_of("long")),
]
_ENTRY_FIELDS = [
    *avro.plain_fields("_VERSION:int", "_KIND:int", "_PARTITION:bytes", "_BUCKET:int", "_TOTAL_BUCKETS:int"),
    {"name": "_FILE", "type": {"type": "record", "name": "record__FILE", "fields": _FILE_FIELDS}},
]
_LIST_FIELDS = [
    *avro.plain_fields("_VERSION:int", "_FILE_NAME:string", "_FILE_SIZE:long"),
    *avro.plain_fields("_NUM_ADDED_FILES:long", "_NUM_DELETED_FILES:long"),
    _stats_field("_PARTITION_STATS", ""),
    *avro.plain_fields("_SCHEMA_ID:long"),
    *(avro.nullable_field(n, "int") for n in ("_MIN_BUCKET", "_MAX_BUCKET", "_MIN_LEVEL", "_MAX_LEVEL")),
    *(avro.nullable_field(n, "long") for n in ("_MIN_ROW_ID", "_MAX_ROW_ID")),
]
_FILE_COLUMNS = [f["name"] for f in _FILE_FIELDS]
_LIST_COLUMNS = [f["name"] for f in _LIST_FIELDS[1:]]
# DataFileMeta and ManifestFileMeta have a field for each column, in their order.
_list_values = attrgetter(*ManifestFileMeta.__slots__)
_UNION_LISTS = ("_VALUE_STATS_COLS", "_WRITE_COLS", "_WRITE_COLS_SEQUENCES")
MANIFEST = avro.AvroFormat(_record(_ENTRY_FIELDS))
MANIFEST_LIST = avro.AvroFormat(_record(_LIST_FIELDS))


# --- encoding and decoding --------------------------------------------------------------------------------------------


def encode_manifest(entries: Sequence[ManifestEntry], level: int = 1) -> bytes:
    """The bytes of one manifest file, entries in the order given; ``level`` is zstd's."""
    return MANIFEST.encode([_entry_record(e) for e in entries], level)


def encode_manifests(
    entries: Sequence[ManifestEntry], target_size: int, level: int = 1
) -> Iterator[tuple[bytes, Sequence[ManifestEntry]]]:
    """Manifest files rolled at ``target_size`` bytes, each with the entries it holds; none for no entries."""
    start = 0
    for data, count in MANIFEST.encode_rolling([_entry_record(e) for e in entries], target_size, level):
        yield data, entries[start : start + count]
        start += count


def decode_manifest(data: bytes, partitions: Collection[bytes] | None = None) -> list[ManifestEntry]:
    """The entries of a manifest file in their order, with ``partitions`` only theirs.

    Raises :class:`CorruptError`, and :class:`UnsupportedFeature` for records of another version.  Partitions, extra
    file lists and column lists that repeat are one object, which makes large tables smaller in memory and comparisons
    of identities quicker.
    """
    with paused():
        quick = decode_entries(data, KNOWN_SCHEMA, _make_stats, DataFileMeta, _EntryMaker(), partitions)
        entries = _decode_any(data) if quick is None else quick
        return entries if partitions is None else [e for e in entries if e.partition in partitions]


def _decode_any(data: bytes) -> list[ManifestEntry]:
    """Decode entries of any writer, field by field: older ones lack some, newer ones may have more."""
    partitions: dict[bytes, bytes] = {}
    names: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    out: list[ManifestEntry] = []
    try:
        for r in avro.decode(data, "the manifest", MANIFEST):
            if r["_VERSION"] != VERSION:
                raise _other_version("entry", r["_VERSION"])
            f, partition = r["_FILE"], r["_PARTITION"]
            f |= {n: _stats(f[n]) for n in ("_KEY_STATS", "_VALUE_STATS")}
            f["_EXTRA_FILES"] = tuple(f["_EXTRA_FILES"])
            f |= {n: _names(f.get(n), names) for n in _UNION_LISTS}
            meta = DataFileMeta(*map(f.__getitem__, _FILE_COLUMNS[:12]), *map(f.get, _FILE_COLUMNS[12:]))
            kind = _KINDS[r["_KIND"]]
            shared = partitions.setdefault(partition, partition)
            out.append(ManifestEntry(kind, shared, r["_BUCKET"], r["_TOTAL_BUCKETS"], meta))
        check_file_names([n for e in out for n in (e.file.file_name, *e.file.extra_files)], "data file")
    except (KeyError, TypeError, AttributeError) as e:
        raise CorruptError(f"a manifest entry lacks or garbles {e}") from e
    return out


_KINDS = {0: EntryKind.ADD, 1: EntryKind.DELETE}
KNOWN_SCHEMA = MANIFEST.text.encode()
"""The schema of manifests in the container's header, as Paimon writes it."""


def _make_stats(low: bytes, high: bytes, counts: tuple[int | None, ...] | None) -> SimpleStats:
    if low == EMPTY_ROW and high == EMPTY_ROW and counts == ():
        return EMPTY_STATS
    return SimpleStats(low, high, counts)


class _EntryMaker:
    """Makes entries that share equal partitions; mutable: it remembers them."""

    def __init__(self) -> None:
        self._partitions: dict[bytes, bytes] = {}

    def __call__(self, head: tuple[int, int, bytes, int, int], file: DataFileMeta) -> ManifestEntry:
        version, kind, partition, bucket, total = head
        known = _KINDS.get(kind)
        if version != VERSION:
            raise _other_version("entry", version)
        if known is None:
            raise CorruptError(f"a manifest entry lacks or garbles {kind}")
        shared = self._partitions.setdefault(partition, partition)
        return ManifestEntry(known, shared, bucket, total, file)


def encode_manifest_list(metas: Sequence[ManifestFileMeta], level: int = 1) -> bytes:
    """The bytes of a manifest list."""
    records = [
        {
            "_VERSION": VERSION,
            **dict(zip(_LIST_COLUMNS, _list_values(m), strict=True)),
            "_PARTITION_STATS": _stats_record(m.partition_stats),
        }
        for m in metas
    ]
    return MANIFEST_LIST.encode(records, level)


def decode_manifest_list(data: bytes) -> list[ManifestFileMeta]:
    """The manifests of a list in their order; raises :class:`CorruptError`."""
    try:
        records = list(avro.decode(data, "the manifest list", MANIFEST_LIST))
        strange = next((r["_VERSION"] for r in records if r["_VERSION"] != VERSION), None)
        if strange is not None:
            raise _other_version("list entry", strange)
        check_file_names([r["_FILE_NAME"] for r in records], "manifest")
        for r in records:
            r["_PARTITION_STATS"] = _stats(r["_PARTITION_STATS"])
        return [
            ManifestFileMeta(*map(r.__getitem__, _LIST_COLUMNS[:6]), *map(r.get, _LIST_COLUMNS[6:])) for r in records
        ]
    except (KeyError, TypeError, AttributeError) as e:
        raise CorruptError(f"a manifest list entry lacks or garbles {e}") from e


def _other_version(what: str, version: int) -> UnsupportedFeature:
    return UnsupportedFeature(f"manifest {what} of version {version}: only version {VERSION} is known")


def _names(found: list[Any] | None, seen: dict[tuple[Any, ...], tuple[Any, ...]]) -> tuple[Any, ...] | None:
    if found is None:
        return None
    made = tuple(found)
    return seen.setdefault(made, made)


def _stats(r: dict[str, Any]) -> SimpleStats:
    low, high, counts = r["_MIN_VALUES"], r["_MAX_VALUES"], r["_NULL_COUNTS"]
    if low == EMPTY_ROW and high == EMPTY_ROW and counts == []:
        return EMPTY_STATS
    return SimpleStats(low, high, None if counts is None else tuple(counts))


def _stats_record(s: SimpleStats) -> dict[str, Any]:
    # Always an array: Paimon prunes a file whose null counts are null (table-format spec, section 4).
    return {"_MIN_VALUES": s.min, "_MAX_VALUES": s.max, "_NULL_COUNTS": list(s.null_counts or ())}


def _list(values: Sequence[Any] | None) -> list[Any] | None:
    # fastavro takes a tuple where a union stands for (branch, value).
    return None if values is None else list(values)


def _entry_record(e: ManifestEntry) -> dict[str, Any]:
    f = e.file
    return {
        "_VERSION": VERSION,
        "_KIND": int(e.kind),
        "_PARTITION": e.partition,
        "_BUCKET": e.bucket,
        "_TOTAL_BUCKETS": e.total_buckets,
        "_FILE": {
            "_FILE_NAME": f.file_name,
            "_FILE_SIZE": f.file_size,
            "_ROW_COUNT": f.row_count,
            "_MIN_KEY": f.min_key,
            "_MAX_KEY": f.max_key,
            "_KEY_STATS": _stats_record(f.key_stats),
            "_VALUE_STATS": _stats_record(f.value_stats),
            "_MIN_SEQUENCE_NUMBER": f.min_sequence_number,
            "_MAX_SEQUENCE_NUMBER": f.max_sequence_number,
            "_SCHEMA_ID": f.schema_id,
            "_LEVEL": f.level,
            "_EXTRA_FILES": f.extra_files,
            "_CREATION_TIME": f.creation_time,
            "_DELETE_ROW_COUNT": f.delete_row_count,
            "_EMBEDDED_FILE_INDEX": f.embedded_index,
            "_FILE_SOURCE": None if f.file_source is None else int(f.file_source),
            "_VALUE_STATS_COLS": _list(f.value_stats_cols),
            "_EXTERNAL_PATH": f.external_path,
            "_FIRST_ROW_ID": f.first_row_id,
            "_WRITE_COLS": _list(f.write_cols),
            "_WRITE_COLS_SEQUENCES": _list(f.write_cols_sequences),
        },
    }


@contextmanager
def paused() -> Iterator[None]:
    """No automatic collections meanwhile, unless another thread that was here leaves first; as before afterwards.

    Freeing what nothing refers to goes on: only cycles wait.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# --- fast decoder for the known schema --------------------------------------------------------------------------------

Make = Callable[..., Any]
_MAX_SHIFT = 63
_FEW = 4
"""Partitions that are looked for one by one in a block."""


class Unexpected(Exception):
    """Bytes that the general decoder must judge."""


NOT_DECODED = (Unexpected, IndexError, UnicodeDecodeError, MemoryError, EOFError, zstd.ZstdError)
"""Errors of the known schema's decoder for bytes that the general decoder must judge."""


def decode_entries(
    data: bytes,
    schema: bytes,
    make_stats: Callable[[bytes, bytes, tuple[int | None, ...] | None], Any],
    make_file: Make,
    make_entry: Callable[[tuple[int, int, bytes, int, int], Any], Any],
    partitions: Collection[bytes] | None = None,
) -> list[Any] | None:
    """The entries of a manifest, or None where this decoder does not apply.

    With ``partitions`` at least the entries of these: a block of a hundred records or so in which none of the rows'
    bytes are is not decoded.  That search takes a hundredth of the time, and of many partitions a tenth.

    ``schema``: the header's text that it applies to.  ``make_file`` takes the fields of ``_FILE`` in their order,
    ``make_entry`` (version, kind, partition, bucket, total buckets) and the file.
    """
    try:
        out: list[Any] = []
        wanted = None if partitions is None else partition_finder(partitions)
        for count, block in _blocks(data, schema):
            if wanted is not None and not wanted(block):
                continue
            out += _records(block, count, make_stats, make_file, make_entry)
        return out
    except NOT_DECODED:
        return None


def partition_finder(partitions: Collection[bytes]) -> Callable[[bytes], bool]:
    """Return a test: whether a block contains the bytes of any of these rows."""
    if len(partitions) <= _FEW:
        return lambda block: any(p in block for p in partitions)
    # Rows of one table begin alike, with their number of columns at least: one search for that finds all candidates.
    low, high = min(partitions), max(partitions)
    prefix = low[: next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))]
    rows = frozenset(partitions)
    lengths = {len(p) for p in rows}

    def holds(block: bytes) -> bool:
        at = block.find(prefix)
        while at >= 0:
            if any(block[at : at + n] in rows for n in lengths):
                return True
            at = block.find(prefix, at + 1)
        return False

    return holds


class StoredBlock(NamedTuple):
    """A block of a container as it is stored: its records, and where its compressed bytes are."""

    records: int
    start: int
    size: int


def stored_blocks(data: bytes, schema: bytes) -> Iterator[StoredBlock]:
    """The blocks of a container that has this schema and zstd; raises :class:`Unexpected` and IndexError for others."""
    if not data.startswith(MAGIC):
        raise Unexpected
    at, meta = len(MAGIC), {}
    while True:
        pairs, at = _long(data, at)
        if pairs == 0:
            break
        if pairs < 0:
            raise Unexpected
        for _ in range(pairs):
            key, at = _bytes(data, at)
            meta[key], at = _bytes(data, at)
    if meta.get(b"avro.schema") != schema or meta.get(b"avro.codec") != b"zstandard":
        raise Unexpected
    sync = data[at : at + SYNC]
    at += SYNC
    if at > len(data):
        raise Unexpected
    while at < len(data):
        count, at = _long(data, at)
        size, at = _long(data, at)
        end = at + size
        if count < 0 or size < 0 or data[end : end + SYNC] != sync:
            raise Unexpected
        yield StoredBlock(count, at, size)
        at = end + SYNC


def stored_records(data: bytes) -> int | None:
    """The entries of a manifest as its blocks record them; None for one of another schema or codec, or damaged."""
    try:
        return sum(block.records for block in stored_blocks(data, KNOWN_SCHEMA))
    except NOT_DECODED:
        return None


def _blocks(data: bytes, schema: bytes) -> Iterator[tuple[int, bytes]]:
    """The blocks of a container as (records, uncompressed bytes)."""
    left = most_bytes(len(data))
    for count, start, size in stored_blocks(data, schema):
        block = decompress_zstd(data[start : start + size], left)
        left -= len(block)
        if left < 0:
            raise Unexpected
        yield count, block


class RecordDecoder:
    """Decodes records of manifests with the known schema; equal partitions are one object.  Mutable: it keeps them."""

    def __init__(self) -> None:
        self._make_entry = _EntryMaker()

    def entries(self, data: bytes, count: int) -> list[ManifestEntry]:
        """The entries that these bytes hold, exactly ``count``; raises one of :data:`NOT_DECODED` for others."""
        return _records(data, count, _make_stats, DataFileMeta, self._make_entry)


def decode_texts(data: bytes) -> tuple[Any, ...] | None:
    """A nullable array of strings that these bytes are; raises one of :data:`NOT_DECODED` for others."""
    texts, stop = _maybe(data, 0, _texts)
    if stop != len(data):
        raise Unexpected
    return None if texts is None else tuple(texts)


def _records(data: bytes, count: int, make_stats: Make, make_file: Make, make_entry: Make) -> list[Any]:
    """The records of one block; a length beyond the end shows in the position, which only grows: slices never raise."""
    at, end, starts = 0, len(data), data.startswith
    # Nothing starts with these, so that the first record decodes every section.
    head_bytes = key_bytes = level_bytes = tail_bytes = counts_bytes = data + b"?"
    undecoded: Any = None
    head = keys = level = tail = counts = undecoded
    out: list[Any] = []
    names: list[str] = []
    for _ in range(count):
        if starts(head_bytes, at):
            at += len(head_bytes)
        else:
            head, stop = _head(data, at)
            head_bytes, at = data[at:stop], stop
        size, at = _long(data, at) if data[at] & 0x81 else (data[at] >> 1, at + 1)
        if size < 0:
            raise Unexpected
        name = data[at : at + size].decode()
        names.append(name)
        file_size, at = _long(data, at + size)
        row_count, at = _long(data, at)
        if starts(key_bytes, at):
            at += len(key_bytes)
        else:
            keys, stop = _keys(data, at, make_stats)
            key_bytes, at = data[at:stop], stop
        # _VALUE_STATS
        low, at = _bytes(data, at)
        high, at = _bytes(data, at)
        if starts(counts_bytes, at):
            at += len(counts_bytes)
        else:
            counts, stop = _maybe(data, at, _null_counts)
            counts_bytes, at = data[at:stop], stop
        first, at = _long(data, at)
        last, at = _long(data, at)
        if starts(level_bytes, at):
            at += len(level_bytes)
        else:
            level, stop = _level(data, at)
            names += level[2]
            level_bytes, at = data[at:stop], stop
        created, at = _maybe(data, at, _long)
        deleted, at = _maybe(data, at, _long)
        index, at = _maybe(data, at, _bytes)
        if starts(tail_bytes, at):
            at += len(tail_bytes)
        else:
            tail, stop = _tail(data, at)
            tail_bytes, at = data[at:stop], stop
        if at > end:
            raise Unexpected
        stats = make_stats(low, high, counts)
        file = make_file(name, file_size, row_count, *keys, stats, first, last, *level, created, deleted, index, *tail)
        out.append(make_entry(head, file))
    if at != end or not are_file_names(names):
        raise Unexpected
    return out


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint, and where it ends."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    value = byte & 0x7F
    shift = 7
    while True:
        byte = data[at]
        at += 1
        if byte < 0x80:
            value |= byte << shift
            break
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > _MAX_SHIFT:
            raise Unexpected
    if value >> 64:
        raise Unexpected
    return (value >> 1) ^ -(value & 1), at


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(data, at)
    if size < 0:
        raise Unexpected
    return data[at : at + size], at + size


def _text(data: bytes, at: int) -> tuple[str, int]:
    raw, at = _bytes(data, at)
    return raw.decode(), at


def _maybe(data: bytes, at: int, read: Callable[[bytes, int], tuple[Any, int]]) -> tuple[Any, int]:
    branch = data[at]
    if branch == 2:
        return read(data, at + 1)
    if branch:
        raise Unexpected
    return None, at + 1


def _read_array(data: bytes, at: int, read: Callable[[bytes, int], tuple[Any, int]]) -> tuple[tuple[Any, ...], int]:
    found: list[Any] = []
    while True:
        count, at = _long(data, at)
        if count == 0:
            return tuple(found), at
        if count < 0:
            raise Unexpected
        for _ in range(count):
            value, at = read(data, at)
            found.append(value)


def _texts(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
    return _read_array(data, at, _text)


def _longs(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
    return _read_array(data, at, _long)


def _null_counts(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
    return _read_array(data, at, lambda d, a: _maybe(d, a, _long))


def _int(data: bytes, at: int) -> tuple[int, int]:
    value, at = _long(data, at)
    if not -(1 << 31) <= value < 1 << 31:
        raise Unexpected
    return value, at


def _within(data: bytes, at: int) -> None:
    """A section that will be compared with must be there as a whole."""
    if at > len(data):
        raise Unexpected


def _head(data: bytes, at: int) -> tuple[tuple[int, int, bytes, int, int], int]:
    """``_VERSION`` … ``_TOTAL_BUCKETS``."""
    version, at = _int(data, at)
    kind, at = _int(data, at)
    partition, at = _bytes(data, at)
    bucket, at = _int(data, at)
    total, at = _int(data, at)
    _within(data, at)
    return (version, kind, partition, bucket, total), at


def _keys(data: bytes, at: int, make_stats: Callable[..., Any]) -> tuple[tuple[bytes, bytes, Any], int]:
    """``_MIN_KEY``, ``_MAX_KEY``, ``_KEY_STATS``."""
    first, at = _bytes(data, at)
    last, at = _bytes(data, at)
    low, at = _bytes(data, at)
    high, at = _bytes(data, at)
    counts, at = _maybe(data, at, _null_counts)
    _within(data, at)
    return (first, last, make_stats(low, high, counts)), at


def _level(data: bytes, at: int) -> tuple[tuple[int, int, tuple[str, ...]], int]:
    """``_SCHEMA_ID``, ``_LEVEL``, ``_EXTRA_FILES``."""
    schema_id, at = _long(data, at)
    level, at = _int(data, at)
    extra, at = _texts(data, at)
    _within(data, at)
    return (schema_id, level, extra), at


def _tail(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
    """``_FILE_SOURCE`` … ``_WRITE_COLS_SEQUENCES``."""
    values = []
    for read in (_int, _texts, _text, _long, _texts, _longs):
        value, at = _maybe(data, at, read)
        values.append(value)
    _within(data, at)
    return tuple(values), at


# --- file indexes of a data file --------------------------------------------------------------------------------------

INDEX_SUFFIX = ".index"


def index_name(file: DataFileMeta) -> str | None:
    """The name of the file's separate index, or None; raises :class:`CorruptError` when the manifest names two."""
    names = [n for n in file.extra_files if n.endswith(INDEX_SUFFIX)]
    if len(names) > 1:
        raise CorruptError(
            f"data file {file.file_name} names {len(names)} index files ({', '.join(names)}); one is allowed"
        )
    return names[0] if names else None


def has_index(file: DataFileMeta) -> bool:
    """Whether the manifest says that the file has an index at all."""
    return file.embedded_index is not None or any(n.endswith(INDEX_SUFFIX) for n in file.extra_files)
