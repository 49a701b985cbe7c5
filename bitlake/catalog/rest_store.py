"""The files of a REST catalog's tables: read and written where they are, but committed by the catalog.

Of a table that the catalog opened, creating ``snapshot/snapshot-<n>`` is a request: ``POST …/commit`` with the
snapshot, the uuid of the one it was built on, and what it changes of each partition.  The server says whether it took
it, and makes the file.  Creating ``schema/schema-<n>`` is a request as well (:mod:`bitlake.catalog.rest_store`).  The
hint LATEST is the server's.  What would change history behind its back (tags, branches, rolling back) is refused.
External tables commit by files, as in Paimon: of these the server keeps the schemas only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bitlake import _clock
from bitlake.errors import InvalidRequest, NotFound, StorageUnavailable, UnsupportedFeature
from bitlake.io import Store
from bitlake.io.resolving import ResolvingStore
from bitlake.io.rest import RestClient
from bitlake.metadata.manifest import EntryKind
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot.manifests import read_manifest_list, read_manifests
from bitlake.snapshot.partitions import PartitionReader
from bitlake.snapshot.removal_markers import PREFIX as EXPIRING
from bitlake.snapshot.versions import latest_schema_id, load_schema
from bitlake.types import ArrayType, DataField, DataType, MapType, RowType
from bitlake.types.datatypes import type_to_json

_HISTORY = re.compile(r"^(?P<folder>snapshot|schema|tag|branch)(?:/(?P<rest>.*))?$")
_NUMBERED = re.compile(r"^(?:snapshot|schema)-(\d{1,19})$")


@dataclass(frozen=True, slots=True)
class RestTable:
    """A table as its catalog names it; ``uuid`` tells a table that was dropped from one made anew."""

    database: str
    table: str
    root: str
    uuid: str | None
    external: bool = False
    """Whether its snapshots, tags and branches are files as any table's: the server only knows schemas."""

    @property
    def path(self) -> tuple[str, ...]:
        """The table's path in the catalog's API."""
        return ("databases", self.database, "tables", self.table)


class RestStore(ResolvingStore):
    """The :class:`~bitlake.io.base.Store` of all tables of a REST catalog, wherever their files are."""

    def __init__(
        self, client: RestClient | None, options: Mapping[str, str] | None, configured: Mapping[str, str] | None
    ) -> None:
        super().__init__(options, configured)
        self._client = client
        self._tables: dict[str, RestTable] = {}

    def __repr__(self) -> str:
        return f"RestStore({self._client!r})"

    def __getstate__(self) -> tuple[dict[str, str], dict[str, str], dict[str, RestTable]]:
        """What executors need: they read and write data files, and never commit."""
        return self._options, self._configured, self._tables

    def __setstate__(self, state: tuple[dict[str, str], dict[str, str], dict[str, RestTable]]) -> None:
        RestStore.__init__(self, None, state[0], state[1])
        self._tables = state[2]

    def add(self, table: RestTable) -> None:
        """Know a table: from now on its snapshots are the catalog's."""
        with self._lock:
            self._tables = {**self._tables, table.root: table}

    # --- what the catalog decides ----------------------------------------------------------------------------------

    def create(self, path: str, data: bytes) -> bool:
        """Create a file, or ask the catalog for the snapshot or schema that it would be."""
        table, folder, number = self._history(path)
        if table is None:
            return self._at(path).create(path, data)
        if folder == "snapshot" and number is not None:
            return self._commit(table, path, data, number)
        if folder == "schema" and number is not None:
            return self._alter(table, path, data, number)
        raise self._refusal(table, path)

    def write(self, path: str, data: bytes) -> None:
        """Write a file; the hint of the last snapshot is the server's, and left to it."""
        table, folder, number = self._history(path)
        if table is None or path == TablePaths(table.root).earliest_hint:
            self._at(path).write(path, data)
        elif folder != "snapshot" or number is not None:
            raise self._refusal(table, path)

    def delete(self, path: str) -> None:
        """Delete a file; the last snapshot is not one to delete."""
        table, folder, number = self._history(path)
        if table is not None and (folder != "snapshot" or number is None or self._is_last(table, number)):
            raise self._refusal(table, path)
        self._at(path).delete(path)

    def _commit(self, table: RestTable, path: str, data: bytes, number: int) -> bool:
        client = self._asked()
        snapshot = Snapshot.from_json(data, path)
        paths = TablePaths(table.root)
        body = {
            "tableId": table.uuid,
            "baseSnapshotUuid": self._base_uuid(paths, number),
            "snapshot": json.loads(data),
            "statistics": partition_statistics(self, paths, snapshot),
        }
        done = client.post(body, *table.path, "commit").get("success")
        if done is True:
            return True
        if not self.exists(path) and not self.exists(paths.snapshot(number + 1)):
            raise StorageUnavailable(
                f"the catalog at {client.options.uri} did not take snapshot {number} of table "
                f"'{table.database}.{table.table}', and has no other one instead; was the table dropped or rolled back?"
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
        if number != (latest_schema_id(self, paths) or 0) + 1:
            return False  # somebody else came first
        new = TableSchema.from_json(data, path)
        changes = schema_changes(load_schema(self, paths, number - 1), new)
        if not changes:
            raise UnsupportedFeature(f"table '{table.database}.{table.table}': this is no change a REST catalog knows")
        self._asked().post({"changes": changes}, *table.path)
        made = load_schema(self, paths, number)
        changed = {c["key"] for c in changes if "key" in c}
        # A server may have options and texts of its own, but what rows are read by must be as it was checked here.
        if [(f.id, f.name, f.type) for f in made.fields] != [(f.id, f.name, f.type) for f in new.fields] or any(
            made.options.get(k) != new.options.get(k) for k in changed
        ):
            raise StorageUnavailable(
                f"table '{table.database}.{table.table}': the catalog made schema {number} otherwise than it was asked "
                "to; open the table again and look"
            )
        return True

    def _is_last(self, table: RestTable, number: int) -> bool:
        return not self.exists(TablePaths(table.root).snapshot(number + 1))

    def _history(self, path: str) -> tuple[RestTable | None, str, int | None]:
        """The table whose snapshots, schemas, tags or branches a path is among, which of them, and its number."""
        for root, table in self._tables.items():
            if path.startswith(f"{root}/"):
                found = _HISTORY.match(path[len(root) + 1 :])
                if found is None or (table.external and found["folder"] != "schema"):
                    return None, "", None
                if (found["rest"] or "").startswith(EXPIRING):
                    return None, "", None  # a note of ours beside the snapshots
                number = _NUMBERED.match(found["rest"] or "")
                return table, found["folder"], None if number is None else int(number.group(1))
        return None, "", None

    def _asked(self) -> RestClient:
        if self._client is None:
            raise InvalidRequest("snapshots are committed where the catalog was opened, not on executors")
        return self._client

    def _refusal(self, table: RestTable, path: str) -> UnsupportedFeature:
        return UnsupportedFeature(
            f"table '{table.database}.{table.table}' belongs to a REST catalog: {path[len(table.root) + 1 :]} is for "
            "its server to change (tags, branches and rolling back are not supported here)"
        )

    # --- everything else is as it is where the files are -------------------------------------------------------------

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
        """Delete a folder that is no table's history."""
        table, _, _ = self._history(path)
        if table is not None:
            raise self._refusal(table, path)
        super().delete_dir(path)

    def rename(self, source: str, target: str) -> None:
        """Move a file or folder that is no table's history."""
        table = self._history(source)[0] or self._history(target)[0]
        if table is not None:
            raise self._refusal(table, source)
        super().rename(source, target)


def partition_statistics(store: Store, paths: TablePaths, snapshot: Snapshot) -> list[dict[str, Any]]:
    """What a snapshot adds to and takes from each partition: rows, bytes, files (Paimon's ``PartitionStatistics``)."""
    reader = PartitionReader(load_schema(store, paths, snapshot.schema_id), paths)
    shift = _clock.local_ms() - _clock.now_ms()
    found: dict[bytes, dict[str, Any]] = {}
    for entries in read_manifests(store, paths, read_manifest_list(store, paths, snapshot.delta_manifest_list)):
        for e in entries:
            sign = 1 if e.kind is EntryKind.ADD else -1
            made = found.get(e.partition)
            if made is None:
                made = found[e.partition] = {
                    "spec": reader.spec(e.partition),
                    "recordCount": 0,
                    "fileSizeInBytes": 0,
                    "fileCount": 0,
                    "lastFileCreationTime": 0,
                    "totalBuckets": e.total_buckets,
                }
            made["recordCount"] += sign * e.file.row_count
            made["fileSizeInBytes"] += sign * e.file.file_size
            made["fileCount"] += sign
            created = snapshot.time_millis if e.file.creation_time is None else e.file.creation_time - shift
            made["lastFileCreationTime"] = max(made["lastFileCreationTime"], created)
            made["totalBuckets"] = e.total_buckets
    return [*found.values()]


# --- rest_changes ---
# What makes one schema of another, in the words of a REST catalog: ``AlterTableRequest`` of Paimon's OpenAPI file.
#
# Columns are known by their ids, so that a rename is told from dropping and adding.  The server makes the next schema
# from these changes itself; :mod:`bitlake.catalog.rest_store` compares what it made with what was meant.

Change = dict[str, Any]


def schema_changes(old: TableSchema, new: TableSchema) -> list[Change]:
    """The changes that make ``new`` of ``old``, in an order in which they can be applied one by one.

    Raises :class:`UnsupportedFeature` for what cannot be said: other keys, members of a struct in another order.
    """
    names = {f.name: f.id for f in old.fields}
    renamed = {f.id: f.name for f in new.fields}
    for before, after in ((old.partition_keys, new.partition_keys), (old.primary_keys, new.primary_keys)):
        if tuple(renamed.get(names[k], k) for k in before) != tuple(after):
            raise UnsupportedFeature("a REST catalog cannot give a table other keys; create it anew")
    out = _fields((), old.fields, new.fields)
    out += [{"action": "removeOption", "key": k} for k in old.options if k not in new.options]
    out += [{"action": "setOption", "key": k, "value": v} for k, v in new.options.items() if old.options.get(k) != v]
    if old.comment != new.comment:
        out.append({"action": "updateComment", "comment": new.comment})
    return out


def _fields(parent: tuple[str, ...], old: Sequence[DataField], new: Sequence[DataField]) -> list[Change]:
    out: list[Change] = []
    kept = {f.id: f for f in new}
    known = {f.id: f for f in old}
    order = [f.id for f in old if f.id in kept]
    out += [{"action": "dropColumn", "fieldNames": [*parent, f.name]} for f in old if f.id not in kept]
    for f in old:
        made = kept.get(f.id)
        if made is not None:
            out += _column(parent, f, made)
    for i, f in enumerate(new):
        if f.id not in known:
            last = i == len(new) - 1
            out += _added(parent, f, None if last else new[i - 1].name if i else "")
            order.insert(len(order) if last else order.index(new[i - 1].id) + 1 if i else 0, f.id)
    return out + _moves(parent, order, new)


def _added(parent: tuple[str, ...], field: DataField, after: str | None) -> list[Change]:
    path = [*parent, field.name]
    made: Change = {"action": "addColumn", "fieldNames": path, "dataType": type_to_json(field.type)}
    if field.description is not None:
        made["comment"] = field.description
    if after is not None:
        made["move"] = _move(field.name, after)
    out = [made]
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
        told = type_to_json(replace(new, nullable=old.nullable))
        out.append({"action": "updateColumnType", "fieldNames": [*path], "newDataType": told, "keepNullability": True})
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
