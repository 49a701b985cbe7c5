"""Iceberg manifests, manifest lists, and the Puffin files of deletion vectors.

A manifest lists the data files, or the deletion vectors, that a snapshot added, kept or deleted.  It is an Avro
container (:mod:`bitlake.codec.avro`) of one record an entry; numbers in brackets are Iceberg's field ids::

    status [0]                 0 existing, 1 added, 2 deleted
    snapshot_id [1]            the snapshot that added the file; of a deleted one, the snapshot that deleted it
    sequence_number [3]        of the snapshot that added the file
    file_sequence_number [4]   the same
    data_file [2]
        content [134]          0 data, 1 position deletes
        file_path [100], file_format [101]
        partition [102]        a record of the partition values, fields [1000 …]
        record_count [103]     rows; of a deletion vector, deleted rows
        file_size_in_bytes [104]
        null_value_counts [110], lower_bounds [125], upper_bounds [128]   maps by field id, as arrays of key and value
        referenced_data_file [143], content_offset [144], content_size_in_bytes [145]   of a deletion vector
        first_row_id [142]     in format version 3 only

A deletion vector has the format ``puffin``: a blob of a Puffin file (see below).  Paimon lists its index files as such,
which have no Puffin footer.  The header names the schema, the partition spec, the format version and the content.

Sources: the Iceberg specification, "Manifests" and "Deletion Vectors"; Paimon's ``IcebergManifestEntry``,
``IcebergDataFileMeta`` and ``IcebergManifestFile``.

A manifest list names the manifests of one Iceberg snapshot.  It is an Avro container (:mod:`bitlake.codec.avro`) of one
record a manifest; numbers in brackets are Iceberg's field ids::

    manifest_path [500], manifest_length [501], partition_spec_id [502]
    content [517]                                  0 data, 1 deletes
    sequence_number [515], added_snapshot_id [503] of the snapshot that wrote the manifest
    min_sequence_number [516]                      the least sequence number of its entries
    added_files_count [504], existing_files_count [505], deleted_files_count [506]
    added_rows_count [512], existing_rows_count [513], deleted_rows_count [514]
    partitions [507]                               for each partition column: contains_null [509], contains_nan [518],
                                                   lower_bound [510], upper_bound [511]
    first_row_id [520]                             in format version 3 only

``metadata.iceberg.manifest-legacy-version`` names the counts of files ``added_data_files_count`` and so on.

Sources: the Iceberg specification, "Manifest Lists"; Paimon's ``IcebergManifestFileMeta``.

A Puffin file has deletion vectors, and the footer that Iceberg readers need.

::

    "PFA1"
    blobs, back to back: each the frame of a 64-bit deletion vector (bitlake/tableindex/deletion_vectors.py)
    "PFA1" | footer payload, JSON in UTF-8 | i4 LE its size | 4 bytes of flags, 0: not compressed | "PFA1"

The footer lists for each blob its type ``deletion-vector-v1``, offset and length, and in its properties the data file
(``referenced-data-file``) and the number of deleted rows (``cardinality``).

Sources: the Puffin specification; the Iceberg specification, "Deletion Vectors".
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from bitlake.codec import avro
from bitlake.codec.avro import AvroFormat, Block
from bitlake.codec.bytes import zigzag
from bitlake.errors import CorruptError
from bitlake.iceberg.schema import SPEC_ID, PartitionField, PartitionSummary

PUFFIN = "puffin"


class Status(IntEnum):
    """``status`` on disk."""

    EXISTING = 0
    ADDED = 1
    DELETED = 2


class FileContent(IntEnum):
    """``content`` of a file."""

    DATA = 0
    POSITION_DELETES = 1


class ManifestContent(IntEnum):
    """The kind of files that a manifest lists."""

    DATA = 0
    DELETES = 1


Entry = dict[str, Any]
"""An entry as its Avro record, which is carried from manifest to manifest with other statuses only."""


def optional_field(name: str, number: int, kind: Any) -> dict[str, Any]:
    """A nullable field of an Avro record with an Iceberg field id."""
    return {"name": name, "field-id": number, "type": ["null", kind], "default": None}


def required_field(name: str, number: int, kind: Any) -> dict[str, Any]:
    """A field of an Avro record with an Iceberg field id."""
    return {"name": name, "field-id": number, "type": kind}


def _map(key_id: int, value_id: int, value: str) -> dict[str, Any]:
    fields = [required_field("key", key_id, "int"), required_field("value", value_id, value)]
    items = {"type": "record", "name": f"k{key_id}_v{value_id}", "fields": fields}
    return {"type": "array", "items": items, "logicalType": "map"}


@functools.lru_cache(64)
def manifest_format(partition: tuple[PartitionField, ...], version: int) -> AvroFormat:
    """The Avro form of the manifests of tables with these partition columns, in a format version."""
    values = [optional_field(f.name, f.id, f.avro) for f in partition]
    data_file = [
        required_field("content", 134, "int"),
        required_field("file_path", 100, "string"),
        required_field("file_format", 101, "string"),
        required_field("partition", 102, {"type": "record", "name": "r102", "fields": values}),
        required_field("record_count", 103, "long"),
        required_field("file_size_in_bytes", 104, "long"),
        optional_field("null_value_counts", 110, _map(121, 122, "long")),
        optional_field("lower_bounds", 125, _map(126, 127, "bytes")),
        optional_field("upper_bounds", 128, _map(129, 130, "bytes")),
        optional_field("referenced_data_file", 143, "string"),
        optional_field("content_offset", 144, "long"),
        optional_field("content_size_in_bytes", 145, "long"),
    ]
    if version >= 3:
        data_file.append(optional_field("first_row_id", 142, "long"))
    fields = [
        required_field("status", 0, "int"),
        optional_field("snapshot_id", 1, "long"),
        optional_field("sequence_number", 3, "long"),
        optional_field("file_sequence_number", 4, "long"),
        required_field("data_file", 2, {"type": "record", "name": "r2", "fields": data_file}),
    ]
    return AvroFormat({"type": "record", "name": "manifest_entry", "fields": fields})


@dataclass(frozen=True, slots=True)
class ManifestCodec:
    """Encodes and decodes the manifests of one table."""

    partition: tuple[PartitionField, ...]
    version: int
    compression: str
    level: int
    target_size: int
    """Bytes at which a manifest ends and the next begins."""
    schema: Mapping[str, Any]
    """The Iceberg schema and partition spec that headers name."""
    spec: Mapping[str, Any]

    @property
    def format(self) -> AvroFormat:
        """The Avro form of the manifests."""
        return manifest_format(self.partition, self.version)

    def encode(self, entries: Sequence[Entry], content: ManifestContent) -> Iterator[tuple[bytes, Sequence[Entry]]]:
        """Manifests of these entries, each with those that it holds; none for no entries."""
        start = 0
        form, header = self.format, self._header(content)
        records = [_hinted(e) for e in entries]
        for data, count in form.encode_rolling(
            records, self.target_size, self.level, self.compression, header, _BLOCK_BYTES
        ):
            yield data, entries[start : start + count]
            start += count

    def blocks(self, data: bytes) -> list[Block] | None:
        """The blocks of a manifest; None if they cannot be copied into another.  Raises :class:`CorruptError`."""
        return self.format.blocks(data, "the Iceberg manifest")

    def existing_blocks(self, blocks: Sequence[Block], snapshot_id: int) -> list[Block] | None:
        """The blocks of a manifest whose entries a snapshot added, as existing entries; None: they must be decoded.

        The bytes before the path of a file are the same in all added entries, and only the status in them changes.
        In format version 3, existing entries need row ids of their own.
        """
        if self.version >= 3:
            return None
        number = zigzag(1) + zigzag(snapshot_id)  # the second branch of a union with null
        rest = 3 * number + zigzag(FileContent.DATA)
        old, new = zigzag(Status.ADDED) + rest, zigzag(Status.EXISTING) + rest
        if any(not block.data.startswith(old) or block.data.count(old) != block.records for block in blocks):
            return None
        return [Block.plain(block.records, block.data.replace(old, new)) for block in blocks]

    def stored_blocks(self, blocks: Sequence[Block], entries: Sequence[Entry]) -> list[Block]:
        """Blocks as they are, and blocks of entries, as :meth:`encode_blocks` stores them."""
        data = self.format.encode_rolling([_hinted(e) for e in entries], 1 << 62, 1, "null", None, _BLOCK_BYTES)
        new = [block for file, _ in data for block in self.format.blocks(file, "the entries") or ()]
        return [block.compressed(self.compression, self.level) for block in (*blocks, *new)]

    def encode_blocks(self, blocks: Sequence[Block]) -> bytes:
        """A manifest of data files."""
        return self.format.encode_blocks(blocks, self.level, self.compression, self._header(ManifestContent.DATA))

    def block_entries(self, block: Block) -> list[tuple[Entry, bytes]]:
        """The entries of a block, each with its bytes; raises :class:`CorruptError`."""
        records = self.format.records(block, "the Iceberg manifest")
        return [(entry, raw) for entry, (_, raw) in zip(_checked(r for r, _ in records), records, strict=True)]

    def decode_blocks(self, blocks: Sequence[Block]) -> list[Entry]:
        """The entries of blocks; raises :class:`CorruptError`."""
        return self.decode(self.format.encode_blocks(blocks, 1, "null"))

    def _header(self, content: ManifestContent) -> dict[str, str]:
        return {
            "schema": json.dumps(self.schema, separators=(",", ":")),
            "schema-id": str(self.schema["schema-id"]),
            "partition-spec": json.dumps(self.spec["fields"], separators=(",", ":")),
            "partition-spec-id": str(self.spec["spec-id"]),
            "format-version": str(self.version),
            "content": content.name.lower(),
        }

    def decode(self, data: bytes) -> list[Entry]:
        """The entries of a manifest; raises :class:`CorruptError`."""
        return _checked(avro.decode(data, "the Iceberg manifest", self.format))


_BLOCK_BYTES = 16_000
"""Smaller than Avro's default: when a file is removed, its block alone is encoded again."""
_MAPS = ("null_value_counts", "lower_bounds", "upper_bounds")
_FILE_MEMBERS = (
    *("content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes"),
    *_MAPS,
    *("referenced_data_file", "content_offset", "content_size_in_bytes", "first_row_id"),
)


def _checked(records: Iterable[dict[str, Any]]) -> list[Entry]:
    """Decoded records with all members of a file; raises :class:`CorruptError`."""
    out = []
    try:
        for entry in records:
            Status(entry["status"])
            file = entry["data_file"]
            file.setdefault("partition", {})
            entry["data_file"] = {name: file.get(name) for name in _FILE_MEMBERS}
            out.append(entry)
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise CorruptError(f"an entry of an Iceberg manifest lacks or garbles {e}") from e
    return out


def listed_paths(data: bytes) -> Iterator[str]:
    """The paths of a manifest's files, whatever the partition columns are; raises :class:`CorruptError`."""
    for entry in avro.decode(data, "the Iceberg manifest", manifest_format((), 3)):
        yield entry["data_file"]["file_path"]


def _hinted(entry: Entry) -> Entry:
    """The record with the branches of its unions that fastavro would look for item by item."""
    file = entry["data_file"]
    maps = {name: None if file[name] is None else ("array", file[name]) for name in _MAPS}
    return {**entry, "data_file": {**file, **maps}}


def added(file: Mapping[str, Any], snapshot_id: int) -> Entry:
    """The entry of a file that a snapshot adds; ``file``: members of its record, absent ones are null."""
    return {
        "status": int(Status.ADDED),
        "snapshot_id": snapshot_id,
        "sequence_number": snapshot_id,
        "file_sequence_number": snapshot_id,
        "data_file": {**dict.fromkeys(_FILE_MEMBERS), **file},
    }


def is_live(entry: Entry) -> bool:
    """Whether the entry's file is part of the table."""
    return bool(entry["status"] != Status.DELETED)


def kept(entry: Entry) -> Entry:
    """The entry of a file that a later snapshot keeps."""
    return {**entry, "status": int(Status.EXISTING)}


def deleted(entry: Entry, snapshot_id: int) -> Entry:
    """The entry of a file that a snapshot deletes; it keeps its sequence numbers."""
    return {**entry, "status": int(Status.DELETED), "snapshot_id": snapshot_id}


def with_row_ids(entries: Sequence[Entry], first_row_id: int | None) -> list[Entry]:
    """The entries with the row ids that they inherit from their manifest, which begins at ``first_row_id``.

    An entry must have its own ids once it is in another manifest.  Source: the Iceberg specification, "First Row ID
    Inheritance".
    """
    out = []
    for entry in entries:
        file = entry["data_file"]
        if first_row_id is not None and is_live(entry) and file["first_row_id"] is None:
            entry = {**entry, "data_file": {**file, "first_row_id": first_row_id}}
            first_row_id += file["record_count"]
        out.append(entry)
    return out


_COUNTED = ("added", "existing", "deleted")


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A manifest in a manifest list."""

    path: str
    length: int
    content: ManifestContent
    sequence_number: int
    min_sequence_number: int
    added_snapshot_id: int
    files: tuple[int, int, int]
    """Numbers of entries that are added, existing and deleted."""
    rows: tuple[int, int, int]
    """Their rows."""
    partitions: tuple[PartitionSummary, ...]
    first_row_id: int | None = None

    @staticmethod
    def of(
        path: str,
        length: int,
        entries: Sequence[Entry],
        content: ManifestContent,
        snapshot_id: int,
        partition: Sequence[PartitionField],
    ) -> ManifestFile:
        """Describe a manifest that a snapshot writes."""
        order = (Status.ADDED, Status.EXISTING, Status.DELETED)
        rows = {s: [e["data_file"]["record_count"] for e in entries if e["status"] == s] for s in order}
        files = (len(rows[order[0]]), len(rows[order[1]]), len(rows[order[2]]))
        values = [e["data_file"]["partition"] for e in entries]
        return ManifestFile(
            path=path,
            length=length,
            content=content,
            sequence_number=snapshot_id,
            min_sequence_number=min(e["sequence_number"] for e in entries),
            added_snapshot_id=snapshot_id,
            files=files,
            rows=(sum(rows[order[0]]), sum(rows[order[1]]), sum(rows[order[2]])),
            partitions=tuple(PartitionSummary.of(f, (v[f.name] for v in values)) for f in partition),
        )

    @staticmethod
    def of_existing(
        path: str, length: int, parts: Sequence[ManifestFile], snapshot_id: int, partition: Sequence[PartitionField]
    ) -> ManifestFile:
        """Describe a manifest of the live entries of others, as existing ones; its summaries are not recomputed."""
        return ManifestFile(
            path=path,
            length=length,
            content=ManifestContent.DATA,
            sequence_number=snapshot_id,
            min_sequence_number=min(m.min_sequence_number for m in parts),
            added_snapshot_id=snapshot_id,
            files=(0, sum(m.live_files for m in parts), 0),
            rows=(0, sum(m.live_rows for m in parts), 0),
            partitions=tuple(
                PartitionSummary.union(f, [m.partitions[i] for m in parts]) for i, f in enumerate(partition)
            ),
        )

    def without(self, entries: Sequence[Entry]) -> ManifestFile:
        """The counts of a manifest without some of its live entries, as existing ones."""
        rows = sum(e["data_file"]["record_count"] for e in entries)
        return replace(self, files=(0, self.live_files - len(entries), 0), rows=(0, self.live_rows - rows, 0))

    @property
    def is_existing(self) -> bool:
        """Whether all its entries are existing ones, so that its blocks can be copied into another manifest."""
        return self.files[0] == self.files[2] == 0

    @property
    def is_added(self) -> bool:
        """Whether all its entries are files that its snapshot added."""
        return self.files[1] == self.files[2] == 0

    @property
    def live_files(self) -> int:
        """The number of files of the manifest that are part of the table."""
        return self.files[0] + self.files[1]

    @property
    def live_rows(self) -> int:
        """The rows of these files."""
        return self.rows[0] + self.rows[1]

    def may_hold(self, partition: Sequence[PartitionField], values: Sequence[Any]) -> bool:
        """Whether a file of the manifest may be of a partition; ``values`` are in Iceberg's unit."""
        if len(self.partitions) != len(partition):
            return True
        return all(s.may_hold(f, v) for s, f, v in zip(self.partitions, partition, values, strict=True))


@functools.lru_cache(4)
def _format(version: int, legacy: bool) -> AvroFormat:
    summary = [
        required_field("contains_null", 509, "boolean"),
        optional_field("contains_nan", 518, "boolean"),
        optional_field("lower_bound", 510, "bytes"),
        optional_field("upper_bound", 511, "bytes"),
    ]
    items = {"type": "record", "name": "r508", "fields": summary}
    kind = "data_files" if legacy else "files"
    fields = [
        required_field("manifest_path", 500, "string"),
        required_field("manifest_length", 501, "long"),
        required_field("partition_spec_id", 502, "int"),
        required_field("content", 517, "int"),
        required_field("sequence_number", 515, "long"),
        required_field("min_sequence_number", 516, "long"),
        optional_field("added_snapshot_id", 503, "long"),
        *(required_field(f"{word}_{kind}_count", 504 + i, "int") for i, word in enumerate(_COUNTED)),
        *(required_field(f"{word}_rows_count", 512 + i, "long") for i, word in enumerate(_COUNTED)),
        optional_field("partitions", 507, {"type": "array", "items": items, "element-id": 508}),
    ]
    if version >= 3:
        fields.append(optional_field("first_row_id", 520, "long"))
    return AvroFormat({"type": "record", "name": "manifest_file", "fields": fields})


def encode_manifest_list(
    manifests: Sequence[ManifestFile], version: int, compression: str, level: int, meta: Mapping[str, str], legacy: bool
) -> bytes:
    """The bytes of a manifest list; ``meta``: entries of its header."""
    kind = "data_files" if legacy else "files"
    records = [
        {
            "manifest_path": m.path,
            "manifest_length": m.length,
            "partition_spec_id": SPEC_ID,
            "content": int(m.content),
            "sequence_number": m.sequence_number,
            "min_sequence_number": m.min_sequence_number,
            "added_snapshot_id": m.added_snapshot_id,
            **{f"{word}_{kind}_count": n for word, n in zip(_COUNTED, m.files, strict=True)},
            **{f"{word}_rows_count": n for word, n in zip(_COUNTED, m.rows, strict=True)},
            "partitions": [
                {
                    "contains_null": p.contains_null,
                    "contains_nan": p.contains_nan,
                    "lower_bound": p.low,
                    "upper_bound": p.high,
                }
                for p in m.partitions
            ],
            "first_row_id": m.first_row_id,
        }
        for m in manifests
    ]
    return _format(version, legacy).encode(records, level, compression, meta)


def decode_manifest_list(data: bytes) -> list[ManifestFile]:
    """The manifests of a list of any version in their order; raises :class:`CorruptError`."""
    out = []
    try:
        for r in avro.decode(data, "the Iceberg manifest list", _format(3, False)):
            kind = "files" if "added_files_count" in r else "data_files"
            files = (r[f"added_{kind}_count"], r[f"existing_{kind}_count"], r[f"deleted_{kind}_count"])
            summaries = tuple(
                PartitionSummary(p["contains_null"], bool(p.get("contains_nan")), p["lower_bound"], p["upper_bound"])
                for p in r["partitions"] or ()
            )
            out.append(
                ManifestFile(
                    path=r["manifest_path"],
                    length=r["manifest_length"],
                    content=ManifestContent(r["content"]),
                    sequence_number=r["sequence_number"],
                    min_sequence_number=r["min_sequence_number"],
                    added_snapshot_id=r["added_snapshot_id"],
                    files=files,
                    rows=(r["added_rows_count"], r["existing_rows_count"], r["deleted_rows_count"]),
                    partitions=summaries,
                    first_row_id=r.get("first_row_id"),
                )
            )
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise CorruptError(f"a record of an Iceberg manifest list lacks or garbles {e}") from e
    return out


def with_first_row_ids(manifests: Sequence[ManifestFile], first: int) -> tuple[list[ManifestFile], int]:
    """The manifests with row ids from ``first`` on where data manifests have none, and how many ids that takes.

    Entries that have ids of their own take none of these, which leaves gaps, as the specification allows.
    """
    out, following = [], first
    for m in manifests:
        if m.content is ManifestContent.DATA and m.first_row_id is None:
            m = replace(m, first_row_id=following)
            following += m.live_rows
        out.append(m)
    return out, following - first


MAGIC = b"PFA1"
_ROW_POSITION = 2147483645
"""The field id of a row's position, which a deletion vector is about."""


def encode_puffin(vectors: Sequence[tuple[str, int, bytes]]) -> tuple[bytes, list[int]]:
    """A Puffin file of deletion vectors, and the offset of each; a vector is a data file, deleted rows and a frame."""
    out = bytearray(MAGIC)
    blobs, offsets = [], []
    for data_file, cardinality, frame in vectors:
        offsets.append(len(out))
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [_ROW_POSITION],
                "snapshot-id": -1,  # inherited from the manifest entry
                "sequence-number": -1,
                "offset": len(out),
                "length": len(frame),
                "properties": {"referenced-data-file": data_file, "cardinality": str(cardinality)},
            }
        )
        out += frame
    footer = json.dumps({"blobs": blobs, "properties": {"created-by": "bitlake"}}, ensure_ascii=False).encode()
    out += MAGIC + footer + len(footer).to_bytes(4, "little") + bytes(4) + MAGIC
    return bytes(out), offsets
