"""Iceberg manifest lists: the manifests of one Iceberg snapshot.

An Avro container (:mod:`bitlake.codec.avro`) of one record a manifest; numbers in brackets are Iceberg's field ids::

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
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bitlake.codec import avro
from bitlake.codec.avro import AvroFormat
from bitlake.errors import CorruptError
from bitlake.iceberg.manifest import Entry, ManifestContent, Status, optional_field, required_field
from bitlake.iceberg.schema import SPEC_ID
from bitlake.iceberg.values import PartitionField, PartitionSummary

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
    """How many entries are added, existing and deleted."""
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
        """How many files of the manifest are part of the table."""
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
