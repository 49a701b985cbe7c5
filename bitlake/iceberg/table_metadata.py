"""Iceberg table metadata, ``v<n>.metadata.json``, from which an Iceberg reader starts; its folder, and file names.

UTF-8 JSON, Jackson's pretty print, but each snapshot on a line of its own; members in this order::

    format-version, table-uuid, location, last-sequence-number, last-updated-ms, last-column-id,
    schemas, current-schema-id, partition-specs, default-spec-id, last-partition-id,
    sort-orders, default-sort-order-id, snapshots, current-snapshot-id,
    next-row-id (version 3 only), properties, refs

    snapshot: sequence-number, snapshot-id, parent-snapshot-id, timestamp-ms, summary, manifest-list, schema-id,
              first-row-id and added-rows (version 3 only)
    ref:      snapshot-id, type = tag, max-ref-age-ms

A snapshot's summary names the Paimon commit that it shows (:func:`commit_identity`): after a rollback another commit
may have the same id.

Sources: the Iceberg specification, "Table Metadata"; Paimon's ``IcebergMetadata``, ``IcebergSnapshot``, ``IcebergRef``.

``metadata.iceberg.storage = table-location`` keeps it in ``<table>/metadata``; ``hadoop-catalog`` in
``<warehouse>/iceberg/<database>/<table>/metadata``, so that ``<warehouse>/iceberg`` is the warehouse of an Iceberg
Hadoop catalog.  ``metadata.iceberg.storage-location`` chooses one of these folders whatever the storage.

Source: Paimon's ``IcebergCommitCallback.catalogDatabasePath`` and ``IcebergPathFactory``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bitlake.errors import CorruptError, InvalidRequest
from bitlake.metadata.java_json import JsonObject, dumps, load_object
from bitlake.metadata.options import (
    CATALOG_LOCATION,
    HADOOP_CATALOG,
    ICEBERG_STORAGE,
    ICEBERG_STORAGE_LOCATION,
    Options,
)
from bitlake.metadata.snapshot import Snapshot

IDENTITY = "paimon-commit-identity"
"""The member of a snapshot's summary that names the Paimon commit."""
_SNAPSHOTS = "snapshots-of-this-table"
_FOREVER = 2**63 - 1
"""``max-ref-age-ms`` of a tag: Paimon deletes it, and no Iceberg engine."""


def commit_identity(snapshot: Snapshot) -> str:
    """Return a text that tells a Paimon snapshot from others of the same id."""
    return snapshot.uuid or f"{snapshot.commit_user}:{snapshot.commit_identifier}:{snapshot.time_millis}"


@dataclass(frozen=True, slots=True)
class IcebergSnapshot:
    """One snapshot, as its JSON object: a table lists many, of which a commit looks at few."""

    value: Mapping[str, Any]

    @staticmethod
    def of(
        snapshot: Snapshot,
        summary: Mapping[str, str],
        manifest_list: str,
        schema_id: int,
        row_ids: tuple[int, int] | None,
        parent: int | None,
    ) -> IcebergSnapshot:
        """The Iceberg snapshot that shows a Paimon snapshot.

        ``row_ids``: the first, and how many (version 3 only).  ``parent``: the one before it in the metadata.
        """
        out: dict[str, Any] = {"sequence-number": snapshot.id, "snapshot-id": snapshot.id}
        if parent is not None:
            out["parent-snapshot-id"] = parent
        out |= {
            "timestamp-ms": snapshot.time_millis,
            "summary": dict(summary),
            "manifest-list": manifest_list,
            "schema-id": schema_id,
        }
        if row_ids is not None:
            out |= {"first-row-id": row_ids[0], "added-rows": row_ids[1]}
        return IcebergSnapshot(out)

    @staticmethod
    def from_value(value: Mapping[str, Any], path: str) -> IcebergSnapshot:
        """Check a JSON object; raises :class:`CorruptError`."""
        numbers = [type(value.get(name)) is int for name in ("snapshot-id", "sequence-number", "timestamp-ms")]
        if not all(numbers) or not isinstance(value.get("manifest-list"), str):
            raise CorruptError("a snapshot lacks its id, sequence number, time or manifest list", None, path)
        if not isinstance(value.get("summary"), dict):
            raise CorruptError(f"snapshot {value['snapshot-id']} has no summary", None, path)
        return IcebergSnapshot(value)

    @property
    def snapshot_id(self) -> int:
        """The id, which is the Paimon snapshot's."""
        number: int = self.value["snapshot-id"]
        return number

    @property
    def timestamp_ms(self) -> int:
        """The time of the commit."""
        number: int = self.value["timestamp-ms"]
        return number

    @property
    def manifest_list(self) -> str:
        """The path of the manifest list."""
        path: str = self.value["manifest-list"]
        return path

    @property
    def summary(self) -> Mapping[str, str]:
        """Counts, and which commit it shows."""
        summary: Mapping[str, str] = self.value["summary"]
        return summary

    @property
    def row_ids(self) -> tuple[int, int] | None:
        """The first row id of its new rows, and how many it takes; None in version 2."""
        first = self.value.get("first-row-id")
        return None if first is None else (first, self.value.get("added-rows") or 0)

    def shows(self, snapshot: Snapshot) -> bool:
        """Whether it shows this Paimon snapshot; metadata of older Paimon releases does not name the commit."""
        identity = self.summary.get(IDENTITY)
        return self.snapshot_id == snapshot.id and identity in (None, commit_identity(snapshot))

    def total(self, name: str) -> int | None:
        """A count of the summary; None if it is missing."""
        text = self.summary.get(name, "")
        return int(text) if text.isascii() and text.isdigit() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMetadata:
    """A version of the table metadata; schemas and partition specs are JSON objects."""

    format_version: int
    table_uuid: str
    location: str
    last_updated_ms: int
    last_column_id: int
    schemas: tuple[Mapping[str, Any], ...]
    current_schema_id: int
    partition_specs: tuple[Mapping[str, Any], ...]
    last_partition_id: int
    snapshots: tuple[IcebergSnapshot, ...]
    current_snapshot_id: int
    last_sequence_number: int
    next_row_id: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    refs: Mapping[str, int] = field(default_factory=dict)
    """The snapshot ids of tags, by name."""

    @property
    def current(self) -> IcebergSnapshot:
        """The current snapshot."""
        return next(s for s in self.snapshots if s.snapshot_id == self.current_snapshot_id)

    def to_json(self) -> str:
        """The file's text."""
        out: dict[str, Any] = {
            "format-version": self.format_version,
            "table-uuid": self.table_uuid,
            "location": self.location,
            "last-sequence-number": self.last_sequence_number,
            "last-updated-ms": self.last_updated_ms,
            "last-column-id": self.last_column_id,
            "schemas": list(self.schemas),
            "current-schema-id": self.current_schema_id,
            "partition-specs": list(self.partition_specs),
            "default-spec-id": 0,
            "last-partition-id": self.last_partition_id,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "snapshots": _SNAPSHOTS,
            "current-snapshot-id": self.current_snapshot_id,
        }
        if self.next_row_id is not None:
            out["next-row-id"] = self.next_row_id
        out["properties"] = dict(self.properties)
        out["refs"] = {
            name: {"snapshot-id": number, "type": "tag", "max-ref-age-ms": _FOREVER}
            for name, number in self.refs.items()
        }
        snapshots = ",\n    ".join(json.dumps(s.value, ensure_ascii=False) for s in self.snapshots)
        return dumps(out).replace(f'"{_SNAPSHOTS}"', f"[\n    {snapshots}\n  ]", 1)

    @staticmethod
    def from_json(data: bytes, path: str) -> TableMetadata:
        """Parse a table metadata file; raises :class:`CorruptError` naming it."""
        o = load_object(data, path)
        refs = o.value.get("refs") or {}
        if not isinstance(refs, dict) or not all(isinstance(r, dict) for r in refs.values()):
            raise CorruptError("'refs' must be an object of objects", None, path)
        metadata = TableMetadata(
            format_version=o.int("format-version"),
            table_uuid=o.text("table-uuid"),
            location=o.text("location"),
            last_sequence_number=o.int("last-sequence-number"),
            last_updated_ms=o.int("last-updated-ms"),
            last_column_id=o.int("last-column-id"),
            schemas=tuple(_objects(o, "schemas")),
            current_schema_id=o.int("current-schema-id"),
            partition_specs=tuple(_objects(o, "partition-specs")),
            last_partition_id=o.int("last-partition-id"),
            snapshots=tuple(IcebergSnapshot.from_value(s, path) for s in _objects(o, "snapshots")),
            current_snapshot_id=o.int("current-snapshot-id"),
            next_row_id=o.maybe_int("next-row-id"),
            properties=o.mapping("properties"),
            refs={name: JsonObject(ref, path).int("snapshot-id") for name, ref in refs.items()},
        )
        if all(s.snapshot_id != metadata.current_snapshot_id for s in metadata.snapshots):
            raise CorruptError(
                f"'current-snapshot-id' {metadata.current_snapshot_id} is not among the snapshots", None, path
            )
        return metadata


def _objects(o: JsonObject, name: str) -> list[dict[str, Any]]:
    found = o.list(name)
    if not all(isinstance(x, dict) for x in found):
        raise CorruptError(f"'{name}' must be a list of objects", None, o.path)
    return found


VERSION_HINT = "version-hint.text"
"""The file with the current version, in the folder of metadata."""
_DATABASE = ".db"
_VERSION = re.compile(r"^v(\d{1,19})\.metadata\.json$", re.ASCII)
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_LISTED = re.compile(rf"^(?:snap-\d+-{_UUID}\.avro|{_UUID}-m\d+\.avro|{_UUID}-d\d+\.puffin)$", re.ASCII)


def metadata_dir(root: str, options: Options) -> str:
    """The folder of a table's Iceberg metadata; raises :class:`InvalidRequest` where its folder names no database."""
    location = options.of(ICEBERG_STORAGE_LOCATION)
    if location is None and options.of(ICEBERG_STORAGE) == HADOOP_CATALOG:
        location = CATALOG_LOCATION
    if location != CATALOG_LOCATION:
        return f"{root}/metadata"
    database, _, table = root.rpartition("/")
    warehouse, _, name = database.rpartition("/")
    if not name.endswith(_DATABASE) or name == _DATABASE:
        raise InvalidRequest(
            f"table {root}: '{ICEBERG_STORAGE.name}' = '{options.of(ICEBERG_STORAGE)}' puts Iceberg metadata beside "
            f"the databases of a warehouse, and the table's folder is in no folder '<database>{_DATABASE}'; set "
            f"'{ICEBERG_STORAGE_LOCATION.name}' = 'table-location'"
        )
    return f"{warehouse}/iceberg/{name.removesuffix(_DATABASE)}/{table}/metadata"


def metadata_name(version: int) -> str:
    """The name of a version of the table metadata."""
    return f"v{version}.metadata.json"


def parse_version(name: str) -> int | None:
    """The version of a table metadata file; None for any other name."""
    match = _VERSION.match(name)
    return None if match is None else int(match.group(1))


def is_listed_file(name: str) -> bool:
    """Whether a name is that of a manifest list, a manifest or a Puffin file, which table metadata leads to."""
    return _LISTED.match(name) is not None


def is_iceberg_file(name: str) -> bool:
    """Whether a name is one of those that writers of this metadata give their files; others are not touched."""
    return name == VERSION_HINT or is_listed_file(name) or parse_version(name) is not None


def java_uri(path: str) -> str:
    """A path as Paimon (Java) writes it into Iceberg metadata: ``file:/p`` for a local one.

    Paimon finds a removed file by its exact path, so both must write the same.
    """
    for prefix in ("file://localhost/", "file:///", "/"):
        if path.startswith(prefix):
            return f"file:/{path[len(prefix) :]}"
    return path


class PublicationNames:
    """Hands out the names of one publication's manifests, manifest lists and Puffin files.  Mutable, for one thread."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self._manifests = self._lists = self._vectors = 0

    def manifest(self) -> str:
        """The next name of a manifest."""
        self._manifests += 1
        return f"{self._uuid}-m{self._manifests}.avro"

    def puffin(self) -> str:
        """The next name of a Puffin file."""
        self._vectors += 1
        return f"{self._uuid}-d{self._vectors}.puffin"

    def manifest_list(self) -> str:
        """The next name of a manifest list."""
        self._lists += 1
        return f"snap-{self._lists}-{self._uuid}.avro"
