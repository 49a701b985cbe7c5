"""The store of a REST catalog's tables: files are read and written directly, but the server commits.

For a table that the catalog opened, creating ``snapshot/snapshot-<n>`` is a request: ``POST …/commit`` with the
snapshot, the uuid of the snapshot before it, and the change of each partition's statistics.  The server accepts or
rejects it, and writes the file.

Creating ``schema/schema-<n>`` is a request, too: the changes from the schema before it, as in ``AlterTableRequest`` of
Paimon's OpenAPI file.  Columns are matched by their ids, so that a rename differs from a drop and an add.  The server
makes the schema from the changes itself; what it made is compared with what was asked for.

The server writes the hint LATEST.  Tags, branches and rollbacks, which would change the history without the server, are
refused.  External tables commit by files, as in Paimon: the server keeps their schemas only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bitlake import _clock
from bitlake.errors import InvalidRequest, NotFound, StorageUnavailable, UnsupportedFeature
from bitlake.io.resolving import ResolvingStore
from bitlake.io.rest import RestClient
from bitlake.metadata.manifest import EntryKind
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot.manifests import read_manifest_list, read_manifests
from bitlake.snapshot.partitions import PartitionReader
from bitlake.snapshot.removal_markers import PREFIX as EXPIRING
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.versions import latest_schema_id, load_schema
from bitlake.types import ArrayType, DataField, DataType, MapType, RowType
from bitlake.types.datatypes import type_to_json

_HISTORY = re.compile(r"^(?P<folder>snapshot|schema|tag|branch)(?:/(?P<rest>.*))?$")
_NUMBERED = re.compile(r"^(?:snapshot|schema)-(\d{1,19})$")


@dataclass(frozen=True, slots=True)
class RestTable:
    """A table in the catalog; ``uuid`` differs if it was dropped and created again."""

    database: str
    table: str
    root: str
    uuid: str | None
    external: bool = False
    """Whether the server keeps its schemas only; its snapshots, tags and branches are plain files."""

    @property
    def path(self) -> tuple[str, ...]:
        """The table's path in the catalog's API."""
        return ("databases", self.database, "tables", self.table)


class RestStore(ResolvingStore):
    """The :class:`~bitlake.io.base.Store` of all tables of a REST catalog, in whatever stores their files are."""

    def __init__(
        self, client: RestClient | None, options: Mapping[str, str] | None, configured: Mapping[str, str] | None
    ) -> None:
        super().__init__(options, configured)
        self._client = client
        self._tables: dict[str, RestTable] = {}

    def __repr__(self) -> str:
        return f"RestStore({self._client!r})"

    def __getstate__(self) -> tuple[dict[str, str], dict[str, str], dict[str, RestTable]]:
        """Without the client: executors read and write data files, and never commit."""
        return self._options, self._configured, self._tables

    def __setstate__(self, state: tuple[dict[str, str], dict[str, str], dict[str, RestTable]]) -> None:
        RestStore.__init__(self, None, state[0], state[1])
        self._tables = state[2]

    def add(self, table: RestTable) -> None:
        """Register a table: from now on the server commits its snapshots."""
        with self._lock:
            self._tables = {**self._tables, table.root: table}

    # --- requests to the server ------------------------------------------------------------------------------------

    def create(self, path: str, data: bytes) -> bool:
        """Create a file; a snapshot or schema is created by a request to the server."""
        table, folder, number = self._history(path)
        if table is None:
            return self._at(path).create(path, data)
        if folder == "snapshot" and number is not None:
            return self._commit(table, path, data, number)
        if folder == "schema" and number is not None:
            return self._alter(table, path, data, number)
        raise self._refusal(table, path)

    def write(self, path: str, data: bytes) -> None:
        """Write a file; the server writes the hint of the last snapshot, so that one is not written."""
        table, folder, number = self._history(path)
        if table is None or path == TablePaths(table.root).earliest_hint:
            self._at(path).write(path, data)
        elif folder != "snapshot" or number is not None:
            raise self._refusal(table, path)

    def delete(self, path: str) -> None:
        """Delete a file; the last snapshot cannot be deleted."""
        table, folder, number = self._history(path)
        if table is not None and (folder != "snapshot" or number is None or self._is_last(table, number)):
            raise self._refusal(table, path)
        self._at(path).delete(path)

    def _commit(self, table: RestTable, path: str, data: bytes, number: int) -> bool:
        client = self._require_client()
        snapshot = Snapshot.from_json(data, path)
        paths = TablePaths(table.root)
        body = {
            "tableId": table.uuid,
            "baseSnapshotUuid": self._base_uuid(paths, number),
            "snapshot": json.loads(data),
            "statistics": partition_statistics(TableFiles(self, paths), snapshot),
        }
        if client.post(body, *table.path, "commit").get("success") is True:
            return True
        if not self.exists(path) and not self.exists(paths.snapshot(number + 1)):
            raise StorageUnavailable(
                f"the catalog at {client.options.uri} rejected snapshot {number} of table "
                f"'{table.database}.{table.table}', and has no other snapshot {number}; open the table again: was it "
                "dropped or rolled back?"
            )
        return False

    def _base_uuid(self, paths: TablePaths, number: int) -> str | None:
        if number <= 1:
            return None
        path = paths.snapshot(number - 1)
        try:
            return Snapshot.from_json(self.read(path), path).uuid
        except NotFound:
            return None

    def _alter(self, table: RestTable, path: str, data: bytes, number: int) -> bool:
        paths = TablePaths(table.root)
        if number != (latest_schema_id(TableFiles(self, paths)) or 0) + 1:
            return False  # another writer created this schema first
        new = TableSchema.from_json(data, path)
        changes = schema_changes(load_schema(TableFiles(self, paths), number - 1), new)
        if not changes:
            raise UnsupportedFeature(f"table '{table.database}.{table.table}': a REST catalog cannot make this change")
        self._require_client().post({"changes": changes}, *table.path)
        actual = load_schema(TableFiles(self, paths), number)
        changed = {c["key"] for c in changes if "key" in c}
        # A server may add options and comments, but the columns and the changed options must be those validated here.
        if [(f.id, f.name, f.type) for f in actual.fields] != [(f.id, f.name, f.type) for f in new.fields] or any(
            actual.options.get(k) != new.options.get(k) for k in changed
        ):
            raise StorageUnavailable(
                f"table '{table.database}.{table.table}': schema {number} that the catalog created differs from the "
                "one requested; open the table again and check its schema"
            )
        return True

    def _is_last(self, table: RestTable, number: int) -> bool:
        return not self.exists(TablePaths(table.root).snapshot(number + 1))

    def _history(self, path: str) -> tuple[RestTable | None, str, int | None]:
        """Split a path of a table's history: the table, the folder (``snapshot``, ``schema`` …) and the number.

        The table is None for any other path.
        """
        for root, table in self._tables.items():
            if path.startswith(f"{root}/"):
                match = _HISTORY.match(path[len(root) + 1 :])
                if match is None or (table.external and match["folder"] != "schema"):
                    return None, "", None
                if (match["rest"] or "").startswith(EXPIRING):
                    return None, "", None  # a removal marker of bitlake beside the snapshots
                number = _NUMBERED.match(match["rest"] or "")
                return table, match["folder"], None if number is None else int(number.group(1))
        return None, "", None

    def _require_client(self) -> RestClient:
        if self._client is None:
            raise InvalidRequest("an executor cannot commit to a REST catalog; commit on the driver")
        return self._client

    def _refusal(self, table: RestTable, path: str) -> UnsupportedFeature:
        return UnsupportedFeature(
            f"table '{table.database}.{table.table}' belongs to a REST catalog: only its server changes "
            f"{path[len(table.root) + 1 :]} (tags, branches and rollback are not supported)"
        )

    # --- other files -----------------------------------------------------------------------------------------------

    def delete_all(self, paths: Sequence[str]) -> None:
        """Delete many files."""
        rest = []
        for path in paths:
            if self._history(path)[0] is None:
                rest.append(path)
            else:
                self.delete(path)
        super().delete_all(rest)

    def delete_dir(self, path: str) -> None:
        """Delete a folder outside the tables' histories."""
        table, _, _ = self._history(path)
        if table is not None:
            raise self._refusal(table, path)
        super().delete_dir(path)

    def rename(self, source: str, target: str) -> None:
        """Move a file or folder outside the tables' histories."""
        table = self._history(source)[0] or self._history(target)[0]
        if table is not None:
            raise self._refusal(table, source)
        super().rename(source, target)


def partition_statistics(table: TableFiles, snapshot: Snapshot) -> list[dict[str, Any]]:
    """The rows, bytes and files that a snapshot adds to each partition (Paimon's ``PartitionStatistics``)."""
    reader = PartitionReader(load_schema(table, snapshot.schema_id), table.paths)
    shift = _clock.local_ms() - _clock.now_ms()
    statistics: dict[bytes, dict[str, Any]] = {}
    for entries in read_manifests(table, read_manifest_list(table, snapshot.delta_manifest_list)):
        for e in entries:
            sign = 1 if e.kind is EntryKind.ADD else -1
            partition = statistics.get(e.partition)
            if partition is None:
                partition = statistics[e.partition] = {
                    "spec": reader.spec(e.partition),
                    "recordCount": 0,
                    "fileSizeInBytes": 0,
                    "fileCount": 0,
                    "lastFileCreationTime": 0,
                    "totalBuckets": e.total_buckets,
                }
            partition["recordCount"] += sign * e.file.row_count
            partition["fileSizeInBytes"] += sign * e.file.file_size
            partition["fileCount"] += sign
            created = snapshot.time_millis if e.file.creation_time is None else e.file.creation_time - shift
            partition["lastFileCreationTime"] = max(partition["lastFileCreationTime"], created)
            partition["totalBuckets"] = e.total_buckets
    return [*statistics.values()]


# --- schema changes ---------------------------------------------------------------------------------------------------

Change = dict[str, Any]


def schema_changes(old: TableSchema, new: TableSchema) -> list[Change]:
    """The changes from ``old`` to ``new``, in an order in which they can be applied one by one.

    Raises :class:`UnsupportedFeature` for changes without a request: other keys, struct members in another order.
    """
    names = {f.name: f.id for f in old.fields}
    renamed = {f.id: f.name for f in new.fields}
    for before, after in ((old.partition_keys, new.partition_keys), (old.primary_keys, new.primary_keys)):
        if tuple(renamed.get(names[k], k) for k in before) != tuple(after):
            raise UnsupportedFeature(
                "a REST catalog cannot change the keys of a table; create a new table and copy the rows"
            )
    out = _fields((), old.fields, new.fields)
    out += [{"action": "removeOption", "key": k} for k in old.options if k not in new.options]
    out += [{"action": "setOption", "key": k, "value": v} for k, v in new.options.items() if old.options.get(k) != v]
    if old.comment != new.comment:
        out.append({"action": "updateComment", "comment": new.comment})
    return out


def _fields(parent: tuple[str, ...], old: Sequence[DataField], new: Sequence[DataField]) -> list[Change]:
    out: list[Change] = []
    kept = {f.id: f for f in new}
    old_ids = {f.id for f in old}
    order = [f.id for f in old if f.id in kept]
    out += [{"action": "dropColumn", "fieldNames": [*parent, f.name]} for f in old if f.id not in kept]
    for f in old:
        changed = kept.get(f.id)
        if changed is not None:
            out += _column(parent, f, changed)
    for i, f in enumerate(new):
        if f.id not in old_ids:
            last = i == len(new) - 1
            out += _added(parent, f, None if last else new[i - 1].name if i else "")
            order.insert(len(order) if last else order.index(new[i - 1].id) + 1 if i else 0, f.id)
    return out + _moves(parent, order, new)


def _added(parent: tuple[str, ...], field: DataField, after: str | None) -> list[Change]:
    path = [*parent, field.name]
    add: Change = {"action": "addColumn", "fieldNames": path, "dataType": type_to_json(field.type)}
    if field.description is not None:
        add["comment"] = field.description
    if after is not None:
        add["move"] = _move(field.name, after)
    out = [add]
    if field.default_value is not None:
        out.append({"action": "updateColumnDefaultValue", "fieldNames": path, "newDefaultValue": field.default_value})
    return out


def _column(parent: tuple[str, ...], old: DataField, new: DataField) -> list[Change]:
    out: list[Change] = []
    path = (*parent, new.name)
    if old.name != new.name:
        out.append({"action": "renameColumn", "fieldNames": [*parent, old.name], "newName": new.name})
    out += _type(path, old.type, new.type)
    if old.description != new.description:
        out.append({"action": "updateColumnComment", "fieldNames": [*path], "newComment": new.description})
    if old.default_value != new.default_value:
        out.append({"action": "updateColumnDefaultValue", "fieldNames": [*path], "newDefaultValue": new.default_value})
    return out


def _type(path: tuple[str, ...], old: DataType, new: DataType) -> list[Change]:
    out: list[Change] = []
    if isinstance(old, RowType) and isinstance(new, RowType):
        out += _fields(path, old.fields, new.fields)
    elif isinstance(old, ArrayType) and isinstance(new, ArrayType):
        out += _type((*path, "element"), old.element, new.element)
    elif isinstance(old, MapType) and isinstance(new, MapType) and old.key == new.key:
        out += _type((*path, "value"), old.value, new.value)
    elif replace(old, nullable=True) != replace(new, nullable=True):
        new_type = type_to_json(replace(new, nullable=old.nullable))
        out.append(
            {"action": "updateColumnType", "fieldNames": [*path], "newDataType": new_type, "keepNullability": True}
        )
    if old.nullable != new.nullable:
        out.append({"action": "updateColumnNullability", "fieldNames": [*path], "newNullability": new.nullable})
    return out


def _moves(parent: tuple[str, ...], order: list[int], new: Sequence[DataField]) -> list[Change]:
    out: list[Change] = []
    for i, f in enumerate(new):
        if order[i] != f.id:
            if parent:
                raise UnsupportedFeature(
                    f"a REST catalog cannot move '{'.'.join((*parent, f.name))}' inside its struct"
                )
            order.remove(f.id)
            order.insert(i, f.id)
            out.append({"action": "updateColumnPosition", "move": _move(f.name, new[i - 1].name if i else "")})
    return out


def _move(name: str, after: str) -> Change:
    if not after:
        return {"fieldName": name, "referenceFieldName": None, "type": "FIRST"}
    return {"fieldName": name, "referenceFieldName": after, "type": "AFTER"}
