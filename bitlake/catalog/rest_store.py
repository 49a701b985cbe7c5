"""The store of a REST catalog's tables: files are read and written where they are, the server changes the history.

For the tables that the catalog opened:

* creating ``snapshot/snapshot-<n>`` is a request: ``POST …/commit`` with the snapshot, the uuid of the snapshot before
  it, and the change of each partition's statistics.  The server accepts or rejects it, and writes the file;
* creating ``schema/schema-<n>`` is a request, too: the changes from the schema before it (``AlterTableRequest``).
  Columns are matched by their ids, so that a rename differs from a drop and an add.  The server makes the schema from
  the changes itself; its result is compared with the requested schema;
* the server creates, renames, deletes and fast-forwards branches, and rolls back (:class:`_History`).  To it the branch
  ``b`` of table ``t`` is a table ``t$branch_b``, whose snapshots and schemas it commits in the same way;
* the server writes the hint LATEST;
* tags and consumers are files, as in Paimon's own clients;
* if the server's option ``data-token.enabled`` is true, ``GET …/tables/<table>/token`` returns storage options with
  credentials for the table's files, and when they expire: ``{"token": {…}, "expiresAtMillis": …}``.

External tables commit and branch by files, as in Paimon: the server keeps their schemas only, and their files take the
lake's own credentials.

Source: ``docs/static/rest-catalog-open-api.yaml`` in Paimon's repository; what it leaves open is as in Paimon's
clients.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bitlake import _clock
from bitlake.catalog.rest_client import RestClient, as_options
from bitlake.errors import (
    BitlakeError,
    CommitConflict,
    CorruptError,
    InvalidRequest,
    NotFound,
    StorageUnavailable,
    UnsupportedFeature,
)
from bitlake.io import HistoryServer, ResolvingStore, Store
from bitlake.io.object_store_options import options_for
from bitlake.metadata.manifest import EntryKind
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot.manifests import read_manifest_list, read_manifests
from bitlake.snapshot.partitions import PartitionReader
from bitlake.snapshot.removal_markers import BASE, name_of
from bitlake.snapshot.removal_markers import PREFIX as EXPIRING
from bitlake.snapshot.table_files import TableFiles
from bitlake.snapshot.versions import latest_schema_id, load_schema
from bitlake.types import ArrayType, DataField, DataType, MapType, RowType
from bitlake.types.datatypes import type_to_json

_DATA_TOKENS = "data-token.enabled"
_HISTORY = re.compile(
    r"^(?:branch/branch-(?P<branch>[^/]+)/)?(?P<folder>snapshot|schema)(?:/(?P<rest>.*))?$|^branch(?:/[^/]+)?$"
)
_NUMBERED = re.compile(r"^(?:snapshot|schema)-(\d{1,19})$")


@dataclass(frozen=True, slots=True)
class RestTable:
    """A table in the catalog; ``uuid`` differs if it was dropped and created again."""

    database: str
    table: str
    root: str
    uuid: str | None
    external: bool = False
    """Whether the server keeps its schemas only; its snapshots and branches are plain files."""
    branch: str | None = None
    """The branch; None is main."""

    @property
    def path(self) -> tuple[str, ...]:
        """The table's or branch's path in the catalog's API."""
        suffix = "" if self.branch is None else f"$branch_{self.branch}"
        return ("databases", self.database, "tables", self.table + suffix)

    @property
    def paths(self) -> TablePaths:
        """The paths of the table's or branch's files."""
        return TablePaths(self.root).on_branch(self.branch)


@dataclass(frozen=True, slots=True, repr=False)
class _DataToken:
    """Storage options with credentials that the server issued for one table's files.  Its text shows none of them."""

    options: dict[str, str]
    renewal_ms: int
    """When to request a new token, in epoch milliseconds."""
    expires_ms: int


_RENEWED_BEFORE_MS = 3_600_000
"""Credentials are renewed an hour before they expire, as in Paimon, or at half of their life if they live shorter."""


@dataclass(frozen=True, slots=True)
class _History:
    """The :class:`~bitlake.io.base.HistoryServer` of a table or branch."""

    client: RestClient
    table: RestTable

    def create_branch(self, name: str, tag: str | None) -> None:
        """See :meth:`HistoryServer.create_branch`."""
        self.client.post({"branch": name, "fromTag": tag}, *self.table.path, "branches")

    def delete_branch(self, name: str) -> None:
        """See :meth:`HistoryServer.delete_branch`."""
        self.client.delete(*self.table.path, "branches", name)

    def rename_branch(self, name: str, new_name: str) -> None:
        """See :meth:`HistoryServer.rename_branch`."""
        self.client.post({"toBranch": new_name}, *self.table.path, "branches", name, "rename")

    def fast_forward(self, name: str) -> None:
        """See :meth:`HistoryServer.fast_forward`."""
        self.client.post({}, *self.table.path, "branches", name, "forward")

    def roll_back(self, snapshot_id: int, tag: str | None) -> None:
        """See :meth:`HistoryServer.roll_back`."""
        instant = {"type": "snapshot", "snapshotId": snapshot_id} if tag is None else {"type": "tag", "tagName": tag}
        self.client.post({"instant": instant}, *self.table.path, "rollback")


class RestStore(ResolvingStore):
    """The :class:`~bitlake.io.base.Store` of all tables of a REST catalog, in whatever stores their files are."""

    def __init__(
        self, client: RestClient | None, options: Mapping[str, str] | None, configured: Mapping[str, str] | None
    ) -> None:
        super().__init__(options, configured)
        self._client = client
        self._tables: dict[str, RestTable] = {}
        self._branch_ids: dict[tuple[str, str], str | None] = {}
        """The server's ids of branches, by the table's folder and the branch; read again when the table is opened."""
        self._issues_tokens = client is not None and client.settings.get(_DATA_TOKENS, "").lower() == "true"
        self._renewal = threading.Lock()
        self._tokens: dict[str, tuple[_DataToken, ResolvingStore]] = {}
        """By the table's folder: the credentials, and the store that has them."""

    def __repr__(self) -> str:
        return f"RestStore({self._client!r})"

    def __getstate__(self) -> tuple[Any, ...]:
        """Without the client: executors read and write data files with the current credentials."""
        tokens = {}
        for root, (token, _) in self._tokens.items():
            tokens[root] = token
            with contextlib.suppress(BitlakeError):  # a dropped table must not fail jobs that read others
                tokens[root] = self._token_of(self._tables[root])[0]
        return self._options, self._configured, self._tables, tokens

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        RestStore.__init__(self, None, state[0], state[1])
        self._checks_cache = False
        self._tables = state[2]
        self._tokens = {root: (token, self._store_with(root, token)) for root, token in state[3].items()}
        self._issues_tokens = bool(self._tokens)

    @property
    def uncached(self) -> Store:
        """See :attr:`Store.uncached`."""
        other = super().uncached
        assert isinstance(other, RestStore)
        if other is self:
            return self
        other._tokens = {root: (token, other._store_with(root, token)) for root, (token, _) in self._tokens.items()}
        return other

    def add(self, table: RestTable) -> None:
        """Register a table: from now on the server commits its snapshots."""
        with self._lock:
            self._tables = {**self._tables, table.root: table}
            self._branch_ids = {key: i for key, i in self._branch_ids.items() if key[0] != table.root}

    # --- credentials of the tables' files --------------------------------------------------------------------------

    def store_at(self, path: str) -> Store:
        """The store of a path, with the credentials that the server issued for its table."""
        table = self._table_of(path) if self._issues_tokens else None
        if table is None or table.external:  # an external table is reached by the lake's own options, as in Paimon
            return super().store_at(path)
        return self._token_of(table)[1].store_at(path)

    def _token_of(self, table: RestTable) -> tuple[_DataToken, ResolvingStore]:
        current = self._tokens.get(table.root)
        if current is not None and (self._client is None or _clock.now_ms() < current[0].renewal_ms):
            return current
        with self._renewal:  # one of many threads asks, the others wait
            if self._tokens.get(table.root) is current:
                self._tokens = {**self._tokens, table.root: self._renewed(table, current)}
            return self._tokens[table.root]

    def _renewed(
        self, table: RestTable, current: tuple[_DataToken, ResolvingStore] | None
    ) -> tuple[_DataToken, ResolvingStore]:
        """A new token with its store; the current one for a while if the request fails before it expires."""
        try:
            token = self._issued_token(table)
        except BitlakeError:
            now = _clock.now_ms()
            if current is None or current[0].expires_ms <= now:
                raise
            # The server may be down for a moment, or another client may have renamed the table.
            return replace(current[0], renewal_ms=now + (current[0].expires_ms - now) // 2), current[1]
        return token, self._store_with(table.root, token)

    def _issued_token(self, table: RestTable) -> _DataToken:
        response = self._require_client().get(*table.path, "token")
        options, expires = response.get("token"), response.get("expiresAtMillis")
        if not isinstance(options, dict) or not isinstance(expires, int):
            raise CorruptError(
                f"the catalog's token of table '{table.database}.{table.table}' cannot be parsed; the server at "
                f"{self._require_client().options.uri} must send an object 'token' and a number 'expiresAtMillis'",
                0,
            )
        life = max(0, expires - _clock.now_ms())
        renewal = expires - min(_RENEWED_BEFORE_MS, life // 2)
        return _DataToken(as_options(options), renewal, expires)

    def _store_with(self, root: str, token: _DataToken) -> ResolvingStore:
        options = {**self._options, **options_for(root, token.options)}
        return ResolvingStore(options, self._configured, checks_cache=self._checks_cache)

    # --- requests to the server ------------------------------------------------------------------------------------

    def create(self, path: str, data: bytes) -> bool:
        """Create a file; a snapshot or schema is created by a request to the server."""
        table, folder, number = self._history(path)
        if table is None:
            return self.store_at(path).create(path, data)
        if folder == "snapshot" and number is not None:
            return self._commit(table, path, data, number)
        if folder == "schema" and number is not None:
            return self._alter(table, path, data, number)
        raise self._refusal(table, path)

    def write(self, path: str, data: bytes) -> None:
        """Write a file; the server writes the hint of the last snapshot, so that one is not written."""
        table, folder, number = self._history(path)
        if table is None or path == table.paths.earliest_hint:
            self.store_at(path).write(path, data)
        elif folder != "snapshot" or number is not None:
            raise self._refusal(table, path)

    def delete(self, path: str) -> None:
        """Delete a file; the last snapshot cannot be deleted."""
        table, folder, number = self._history(path)
        if table is not None and (folder != "snapshot" or number is None or self._is_last(table, number)):
            raise self._refusal(table, path)
        self.store_at(path).delete(path)

    def history_server(self, folder: str) -> HistoryServer | None:
        """See :meth:`Store.history_server`; none for external tables."""
        table, _, _ = self._history(f"{folder}/snapshot")
        return None if table is None or table.external else _History(self._require_client(), table)

    def keeps_schemas(self, folder: str) -> bool:
        """See :meth:`Store.keeps_schemas`."""
        return self._history(f"{folder}/schema")[0] is not None

    def _commit(self, table: RestTable, path: str, data: bytes, number: int) -> bool:
        client = self._require_client()
        snapshot = Snapshot.from_json(data, path)
        paths = table.paths
        try:
            base = self._base_uuid(paths, number, snapshot) if number > 1 else None
        except NotFound:
            return False  # it was rolled back meanwhile: without a base, a server takes the commit on any snapshot
        statistics = partition_statistics(TableFiles(self, paths), snapshot)
        try:
            body = {
                "tableId": self._id_of(table),
                "baseSnapshotUuid": base,
                "snapshot": json.loads(data),
                "statistics": statistics,
            }
            accepted = client.post(body, *table.path, "commit").get("success") is True
        except NotFound as e:  # sent once, and refused
            raise CommitConflict(f"{_moved(table)} ({e}); no change is visible") from e
        if accepted:
            return True
        with contextlib.suppress(NotFound):  # a proxy may have sent the request twice
            return Snapshot.from_json(self.read(path), path).uuid == snapshot.uuid
        if not self.exists(paths.snapshot(number + 1)):
            raise StorageUnavailable(
                f"the catalog at {client.options.uri} rejected snapshot {number} of table "
                f"'{table.database}.{table.table}', and has no other snapshot {number}; open the table again: was it "
                "dropped or rolled back?"
            )
        return False

    def _id_of(self, table: RestTable) -> str | None:
        """The id of a table or branch; raises :class:`NotFound` for a branch that the server does not have.

        A server may give a branch an id of its own.  Paimon's clients send that id with commits to ``t$branch_b``.
        """
        if table.branch is None:
            return table.uuid
        key = (table.root, table.branch)
        if key not in self._branch_ids:
            self._branch_ids[key] = self._require_client().get(*table.path).get("id")
        return self._branch_ids[key]

    def _base_uuid(self, paths: TablePaths, number: int, snapshot: Snapshot) -> str | None:
        """The uuid of the snapshot before; raises :class:`NotFound` if it is gone, or not the one that was read."""
        path = paths.snapshot(number - 1)
        base = Snapshot.from_json(self.read(path), path)
        if snapshot.properties.get(BASE, name_of(base)) != name_of(base):
            raise NotFound(f"{path} is another snapshot than the one that was read")
        return base.uuid

    def _alter(self, table: RestTable, path: str, data: bytes, number: int) -> bool:
        paths = table.paths
        if number != (latest_schema_id(TableFiles(self, paths)) or 0) + 1:
            return False  # another writer created this schema first
        new = TableSchema.from_json(data, path)
        changes = schema_changes(load_schema(TableFiles(self, paths), number - 1), new)
        if not changes:
            raise UnsupportedFeature(f"table '{table.database}.{table.table}': a REST catalog cannot make this change")
        client = self._require_client()
        # A change names the table only, which may have become another one.
        if table.uuid is not None and client.get(*replace(table, branch=None).path).get("id") != table.uuid:
            raise NotFound(_moved(table))
        client.post({"changes": changes}, *table.path)
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
        return not self.exists(table.paths.snapshot(number + 1))

    def _history(self, path: str) -> tuple[RestTable | None, str, int | None]:
        """Split a path of a table's history: the table, the folder (``snapshot``, ``schema`` …) and the number.

        The table is None for any other path.
        """
        table = self._table_of(path)
        match = None if table is None else _HISTORY.match(path[len(table.root) + 1 :])
        if table is None or match is None or (table.external and (match["branch"] or match["folder"] != "schema")):
            return None, "", None
        if (match["rest"] or "").startswith(EXPIRING):
            return None, "", None  # a removal marker of bitlake beside the snapshots
        number = _NUMBERED.match(match["rest"] or "")
        branch = replace(table, branch=match["branch"])
        return branch, match["folder"] or "branch", None if number is None else int(number.group(1))

    def _table_of(self, path: str) -> RestTable | None:
        """The table in whose folder a path is: the innermost one, where one table's folder is inside another's."""
        while path:
            table = self._tables.get(path)
            if table is not None:
                return table
            path = path.rpartition("/")[0]
        return None

    def _require_client(self) -> RestClient:
        if self._client is None:
            raise InvalidRequest("an executor cannot commit to a REST catalog; commit on the driver")
        return self._client

    def _refusal(self, table: RestTable, path: str) -> UnsupportedFeature:
        return UnsupportedFeature(
            f"table '{table.database}.{table.table}' belongs to a REST catalog: only its server changes "
            f"{path[len(table.root) + 1 :]}"
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


def _moved(table: RestTable) -> str:
    return f"table '{table.database}.{table.table}' was dropped, replaced or renamed after it was opened: open it again"


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


# --- schema changes as requests ---------------------------------------------------------------------------------------

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
    out = _field_changes((), old.fields, new.fields)
    out += [{"action": "removeOption", "key": k} for k in old.options if k not in new.options]
    out += [{"action": "setOption", "key": k, "value": v} for k, v in new.options.items() if old.options.get(k) != v]
    if old.comment != new.comment:
        out.append({"action": "updateComment", "comment": new.comment})
    return out


def _field_changes(parent: tuple[str, ...], old: Sequence[DataField], new: Sequence[DataField]) -> list[Change]:
    out: list[Change] = []
    kept = {f.id: f for f in new}
    old_ids = {f.id for f in old}
    order = [f.id for f in old if f.id in kept]
    out += [{"action": "dropColumn", "fieldNames": [*parent, f.name]} for f in old if f.id not in kept]
    for f in old:
        changed = kept.get(f.id)
        if changed is not None:
            out += _column_changes(parent, f, changed)
    for i, f in enumerate(new):
        if f.id not in old_ids:
            last = i == len(new) - 1
            out += _added_column(parent, f, None if last else new[i - 1].name if i else "")
            order.insert(len(order) if last else order.index(new[i - 1].id) + 1 if i else 0, f.id)
    return out + _column_moves(parent, order, new)


def _added_column(parent: tuple[str, ...], field: DataField, after: str | None) -> list[Change]:
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


def _column_changes(parent: tuple[str, ...], old: DataField, new: DataField) -> list[Change]:
    out: list[Change] = []
    path = (*parent, new.name)
    if old.name != new.name:
        out.append({"action": "renameColumn", "fieldNames": [*parent, old.name], "newName": new.name})
    out += _type_changes(path, old.type, new.type)
    if old.description != new.description:
        out.append({"action": "updateColumnComment", "fieldNames": [*path], "newComment": new.description})
    if old.default_value != new.default_value:
        out.append({"action": "updateColumnDefaultValue", "fieldNames": [*path], "newDefaultValue": new.default_value})
    return out


def _type_changes(path: tuple[str, ...], old: DataType, new: DataType) -> list[Change]:
    out: list[Change] = []
    if isinstance(old, RowType) and isinstance(new, RowType):
        out += _field_changes(path, old.fields, new.fields)
    elif isinstance(old, ArrayType) and isinstance(new, ArrayType):
        out += _type_changes((*path, "element"), old.element, new.element)
    elif isinstance(old, MapType) and isinstance(new, MapType) and old.key == new.key:
        out += _type_changes((*path, "value"), old.value, new.value)
    elif replace(old, nullable=True) != replace(new, nullable=True):
        new_type = type_to_json(replace(new, nullable=old.nullable))
        out.append(
            {"action": "updateColumnType", "fieldNames": [*path], "newDataType": new_type, "keepNullability": True}
        )
    if old.nullable != new.nullable:
        out.append({"action": "updateColumnNullability", "fieldNames": [*path], "newNullability": new.nullable})
    return out


def _column_moves(parent: tuple[str, ...], order: list[int], new: Sequence[DataField]) -> list[Change]:
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
