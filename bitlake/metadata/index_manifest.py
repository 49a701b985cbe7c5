"""Index manifests: the table index files (deletion vectors, HASH) of a snapshot.

An Avro container (:mod:`bitlake.codec.avro`) of one record an index file: ``_VERSION`` 1, ``_KIND`` (only ADD, 0, is
ever stored), ``_PARTITION`` (BinaryRow with arity), ``_BUCKET``, ``_INDEX_TYPE``, ``_FILE_NAME``, ``_FILE_SIZE``,
``_ROW_COUNT``, ``_DELETIONS_VECTORS_RANGES`` (array of *nullable* records f0 data file, f1 offset, f2 length,
``_CARDINALITY``), ``_EXTERNAL_PATH``, ``_GLOBAL_INDEX``.

Source: table-format spec, section 5; index-format spec, section 8.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bitlake.codec import avro
from bitlake.errors import CorruptError, InvalidRequest, UnsupportedFeature
from bitlake.metadata.manifest import EntryKind
from bitlake.metadata.paths import check_file_names
from bitlake.tableindex import VectorRange

VERSION = 1
DELETION_VECTORS = "DELETION_VECTORS"
HASH = "HASH"


@dataclass(frozen=True, slots=True)
class GlobalIndex:
    """Metadata of an index over row ids; kept as it is, since bitlake does not read such indexes."""

    row_range_start: int
    row_range_end: int
    index_field_id: int
    extra_field_ids: tuple[int, ...] | None = None
    index_meta: bytes | None = None
    source_meta: bytes | None = None


@dataclass(frozen=True, slots=True)
class IndexFileEntry:
    """One index file of (partition, bucket); sizes in bytes.

    ``partition`` is a BinaryRow with arity.  ``row_count``: hashes of a HASH index; data files with a vector of a
    deletion vector file.  ``ranges`` is None for HASH.
    """

    partition: bytes
    bucket: int
    index_type: str
    file_name: str
    file_size: int
    row_count: int
    ranges: tuple[VectorRange, ...] | None = None
    external_path: str | None = None
    global_index: GlobalIndex | None = None


_RANGE = {
    "type": "record",
    "name": "record__DELETIONS_VECTORS_RANGES",
    "fields": [*avro.plain_fields("f0:string", "f1:int", "f2:int"), avro.nullable_field("_CARDINALITY", "long")],
}
_GLOBAL = {
    "type": "record",
    "name": "record__GLOBAL_INDEX",
    "fields": [
        *avro.plain_fields("_ROW_RANGE_START:long", "_ROW_RANGE_END:long", "_INDEX_FIELD_ID:int"),
        avro.nullable_field("_EXTRA_FIELD_IDS", {"type": "array", "items": "int"}),
        avro.nullable_field("_INDEX_META", "bytes"),
        avro.nullable_field("_SOURCE_META", "bytes"),
    ],
}
INDEX_MANIFEST = avro.AvroFormat(
    {
        "type": "record",
        "name": "record",
        "namespace": "org.apache.paimon.avro.generated",
        "fields": [
            *avro.plain_fields("_VERSION:int", "_KIND:int", "_PARTITION:bytes", "_BUCKET:int", "_INDEX_TYPE:string"),
            *avro.plain_fields("_FILE_NAME:string", "_FILE_SIZE:long", "_ROW_COUNT:long"),
            avro.nullable_field("_DELETIONS_VECTORS_RANGES", {"type": "array", "items": ["null", _RANGE]}),
            avro.nullable_field("_EXTERNAL_PATH", "string"),
            avro.nullable_field("_GLOBAL_INDEX", _GLOBAL),
        ],
    }
)


def encode_index_manifest(entries: Sequence[IndexFileEntry], level: int = 1) -> bytes:
    """The bytes of an index manifest, entries in the order given; ``level`` is zstd's."""
    return INDEX_MANIFEST.encode([_record(e) for e in entries], level)


def decode_index_manifest(data: bytes) -> list[IndexFileEntry]:
    """The index files of an index manifest in their order.

    Raises :class:`CorruptError`, and :class:`UnsupportedFeature` for records of another version.
    """
    out = []
    try:
        for r in avro.decode(data, "the index manifest", INDEX_MANIFEST):
            if r["_VERSION"] != VERSION:
                raise UnsupportedFeature(
                    f"index manifest entry of version {r['_VERSION']}: only version {VERSION} is known"
                )
            if r["_KIND"] != EntryKind.ADD:
                raise CorruptError(f"an index manifest holds an entry of kind {r['_KIND']}, and may only hold ADD")
            ranges = r["_DELETIONS_VECTORS_RANGES"]
            if ranges and r["_INDEX_TYPE"] != DELETION_VECTORS:
                raise CorruptError(f"index file {r['_FILE_NAME']} of type {r['_INDEX_TYPE']!r} lists deletion vectors")
            out.append(
                IndexFileEntry(
                    r["_PARTITION"],
                    r["_BUCKET"],
                    r["_INDEX_TYPE"],
                    r["_FILE_NAME"],
                    r["_FILE_SIZE"],
                    r["_ROW_COUNT"],
                    None if ranges is None else tuple(_range(x) for x in ranges if x is not None),
                    r.get("_EXTERNAL_PATH"),
                    _global(r.get("_GLOBAL_INDEX")),
                )
            )
        check_file_names([e.file_name for e in out], "table index file")
        check_file_names([place.data_file for e in out for place in e.ranges or ()], "data file with deletion vectors")
    except (KeyError, TypeError, AttributeError) as e:
        raise CorruptError(f"an index manifest entry lacks or garbles {e}") from e
    return out


def vectors_by_file(entries: Sequence[IndexFileEntry]) -> dict[str, tuple[IndexFileEntry, VectorRange]]:
    """Where the vector of each data file (by name) is; data files without one are not there.

    Raises :class:`CorruptError` if a data file has two, for which one holds cannot be known, or vectors are not listed.
    """
    vectors: dict[str, tuple[IndexFileEntry, VectorRange]] = {}
    for entry in entries:
        if entry.index_type != DELETION_VECTORS:
            continue
        if entry.ranges is None:
            raise CorruptError(f"deletion vector file {entry.file_name} has no list of vectors")
        if len(entry.ranges) != entry.row_count:
            raise CorruptError(
                f"deletion vector file {entry.file_name} holds {entry.row_count:,} vectors, "
                f"and the index manifest lists {len(entry.ranges):,}"
            )
        for place in entry.ranges:
            if place.data_file in vectors:
                other = vectors[place.data_file][0].file_name
                raise CorruptError(
                    f"data file {place.data_file} has two deletion vectors, in {other} and {entry.file_name}"
                )
            vectors[place.data_file] = (entry, place)
    return vectors


def _range(r: dict[str, Any]) -> VectorRange:
    return VectorRange(r["f0"], r["f1"], r["f2"], r.get("_CARDINALITY"))


def _global(r: dict[str, Any] | None) -> GlobalIndex | None:
    if r is None:
        return None
    extra = r.get("_EXTRA_FIELD_IDS")
    return GlobalIndex(
        r["_ROW_RANGE_START"],
        r["_ROW_RANGE_END"],
        r["_INDEX_FIELD_ID"],
        None if extra is None else tuple(extra),
        r.get("_INDEX_META"),
        r.get("_SOURCE_META"),
    )


def _record(e: IndexFileEntry) -> dict[str, Any]:
    if e.index_type == DELETION_VECTORS and e.ranges is None:
        raise InvalidRequest(f"deletion vector file {e.file_name} needs a list of vectors, if an empty one")
    g = e.global_index
    return {
        "_VERSION": VERSION,
        "_KIND": int(EntryKind.ADD),
        "_PARTITION": e.partition,
        "_BUCKET": e.bucket,
        "_INDEX_TYPE": e.index_type,
        "_FILE_NAME": e.file_name,
        "_FILE_SIZE": e.file_size,
        "_ROW_COUNT": e.row_count,
        "_DELETIONS_VECTORS_RANGES": None
        if e.ranges is None
        else [{"f0": x.data_file, "f1": x.offset, "f2": x.length, "_CARDINALITY": x.cardinality} for x in e.ranges],
        "_EXTERNAL_PATH": e.external_path,
        "_GLOBAL_INDEX": None
        if g is None
        else {
            "_ROW_RANGE_START": g.row_range_start,
            "_ROW_RANGE_END": g.row_range_end,
            "_INDEX_FIELD_ID": g.index_field_id,
            "_EXTRA_FIELD_IDS": None if g.extra_field_ids is None else list(g.extra_field_ids),
            "_INDEX_META": g.index_meta,
            "_SOURCE_META": g.source_meta,
        },
    }
