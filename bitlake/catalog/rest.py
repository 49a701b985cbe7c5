"""Paimon's ``rest`` catalog: a server keeps the names and folders of tables, and commits their snapshots.

Requests and responses::

    GET /v1/config?warehouse=…   → {"defaults": {…}, "overrides": {…}}: options below and above the client's own; the
                                   option ``prefix`` begins all other paths: /v1/<prefix>/databases/…
    lists                        → {"databases": […], "nextPageToken": …}; ?pageToken=… asks for what follows
    failures                     → {"message", "resourceType", "resourceName", "code"}
    401 403 → AccessDenied   400 → InvalidRequest   404 → NotFound   409 → AlreadyExists   501 → UnsupportedFeature
    anything else → StorageUnavailable

The warehouse is a name that the server defines.  :class:`~bitlake.io.http.HttpClient` retries: reads and deletions
after lost connections, 429 and 503, anything else only where the server cannot have acted on it, both after
``Retry-After`` if the server sends it.

Files of the tables that the catalog opened are read and written directly, but the server commits
(:class:`RestStore`):

* creating ``snapshot/snapshot-<n>`` is a request: ``POST …/commit`` with the snapshot, the uuid of the snapshot before
  it, and the change of each partition's statistics.  The server accepts or rejects it, and writes the file;
* creating ``schema/schema-<n>`` is a request, too: the changes from the schema before it (``AlterTableRequest``).
  Columns are matched by their ids, so that a rename differs from a drop and an add.  The server makes the schema from
  the changes itself; its result is compared with the requested schema;
* the server writes the hint LATEST.  Tags, branches and rollbacks are refused: they would change the history without
  the server.

External tables commit by files, as in Paimon: the server keeps their schemas only.

Source: ``docs/static/rest-catalog-open-api.yaml`` in Paimon's repository; what it leaves open is as in Paimon's
clients.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from bitlake import _clock
from bitlake.catalog.catalog import DEFAULT_DATABASE, Catalog, Identifier, check_name
from bitlake.errors import (
    AccessDenied,
    AlreadyExists,
    BitlakeError,
    CorruptError,
    InvalidRequest,
    NotFound,
    StorageUnavailable,
    UnsupportedFeature,
)
from bitlake.io import ResolvingStore
from bitlake.io.base import MAX_RETRIES, RETRY_SECONDS
from bitlake.io.http import Broken, HttpClient, Response, Unreachable
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
from bitlake.types.datatypes import field_to_json, type_to_json

_HEADER = "header."
_SURELY_A_TOKEN = 12
"""From this length on, a token that occurs in a message is not a word of it by chance."""
_TAKEN = ("token", "token.provider", "prefix")
_LONGEST_REASON = 500
_MOST_PAGES = 100_000


@dataclass(frozen=True, slots=True, repr=False)
class RestOptions:
    """The address of a catalog, and the credentials.  Its text shows neither token nor headers."""

    uri: str
    warehouse: str
    token: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)
    given: Mapping[str, str] = field(default_factory=dict, hash=False)
    max_retries: int = MAX_RETRIES
    retry_seconds: float = RETRY_SECONDS

    def __repr__(self) -> str:
        return f"RestOptions({self.uri!r}, {self.warehouse!r})"


def rest_options(uri: str, warehouse: str, given: Mapping[str, str]) -> RestOptions:
    """Check the options of a catalog: ``token``, ``token.provider`` (``bear``) and ``header.*``.

    Raises :class:`InvalidRequest` and :class:`UnsupportedFeature`, which show no values but a provider's name.
    """
    text = uri.strip().rstrip("/")
    if "://" not in text:
        text = f"http://{text}"
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequest("a REST catalog's uri is like http://host:port or https://host")
    if parts.username or parts.password or parts.query:
        raise InvalidRequest("a REST catalog's uri may hold no credentials: give the catalog option 'token'")
    if not warehouse.strip():
        raise InvalidRequest("a REST catalog takes the name of its warehouse as the path")
    wrong = [k for k in given if k not in _TAKEN and not k.startswith(_HEADER)]
    if wrong:
        raise InvalidRequest(f"unknown rest catalog option '{wrong[0]}'; it takes token, token.provider, header.*")
    provider = given.get("token.provider", "bear")
    if provider not in ("bear", "bearer"):
        raise UnsupportedFeature(f"token.provider '{provider}' is not supported; bear is, with the option 'token'")
    if "token.provider" in given and not given.get("token"):
        raise InvalidRequest("token.provider 'bear' takes the catalog option 'token'")
    headers = {k.removeprefix(_HEADER): v for k, v in given.items() if k.startswith(_HEADER)}
    own = {k: v for k, v in given.items() if k == "prefix"}
    return RestOptions(text, warehouse, given.get("token"), headers, own)


class RestClient:
    """One warehouse of a REST catalog.  Safe to share between threads."""

    def __init__(self, options: RestOptions) -> None:
        self.options = options
        self._http = HttpClient(max_retries=options.max_retries, retry_seconds=options.retry_seconds, proxies=True)
        self._base = f"{options.uri}/v1"
        config = self._call("GET", f"config?{urlencode({'warehouse': options.warehouse}, quote_via=quote)}")
        defaults, overrides = (_texts(config.get(name)) for name in ("defaults", "overrides"))
        self.settings = {**defaults, **options.given, **overrides}
        """The catalog's options: the server's defaults, the client's, the server's overrides."""
        prefix = self.settings.get("prefix", "").strip("/")
        self._base = f"{options.uri}/v1/{quote(prefix)}" if prefix else f"{options.uri}/v1"

    def __repr__(self) -> str:
        return f"RestClient({self.options!r})"

    def get(self, *path: str) -> dict[str, Any]:
        """Get the object at a path, whose parts are names, not yet quoted."""
        return self._call("GET", _joined(path))

    def pages(self, member: str, *path: str) -> list[str]:
        """All names of a list, page by page."""
        out: list[str] = []
        token, seen = "", set()
        for _ in range(_MOST_PAGES):
            query = f"?{urlencode({'pageToken': token}, quote_via=quote)}" if token else ""
            found = self._call("GET", _joined(path) + query)
            names = found.get(member) or []
            if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
                raise self._odd(f"'{member}' is not a list of names")
            out += names
            token = str(found.get("nextPageToken") or "")
            if not token or not names:
                return out
            if token in seen:
                break
            seen.add(token)
        raise self._odd("the same page comes again and again")

    def post(self, body: Mapping[str, Any], *path: str) -> dict[str, Any]:
        """Change something.  The server receives the request at most once, unless it refuses it by 429.

        Raises :class:`StorageUnavailable` if the outcome stays unknown.
        """
        return self._call("POST", _joined(path), json.dumps(body).encode())

    def delete(self, *path: str) -> None:
        """Delete what is at a path; raises :class:`NotFound`."""
        self._call("DELETE", _joined(path))

    # --- one request -----------------------------------------------------------------------------------------------

    def _call(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        options = self.options
        headers = {"Accept": "application/json", **options.headers}
        if options.token:
            headers["Authorization"] = f"Bearer {options.token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            response = self._http.request(method, f"{self._base}/{path}", body, headers)
        except Unreachable as e:
            raise StorageUnavailable(f"the catalog at {options.uri} cannot be reached: {e}") from None
        except Broken as e:
            unknown = "; whether it did what it was asked to is unknown" if method == "POST" else ""
            raise StorageUnavailable(f"the catalog at {options.uri} did not answer: {e}{unknown}") from None
        if response.status < 300:
            return self._parsed(response)
        error = self._meaning(response)
        if method == "DELETE" and response.repeated and isinstance(error, NotFound):
            return {}  # an earlier try, whose response got lost, deleted it
        raise error

    def _parsed(self, response: Response) -> dict[str, Any]:
        if not response.body.strip():
            return {}
        try:
            value = json.loads(response.body)
        except (ValueError, RecursionError):
            raise self._odd("it is not JSON; is this the address of a Paimon REST catalog?") from None
        if not isinstance(value, dict):
            raise self._odd("it is not a JSON object")
        return value

    def _meaning(self, response: Response) -> BitlakeError:
        code, message = _failure(response)[0], self._told(response)
        if code in (401, 403):
            return AccessDenied(f"{message}; check the catalog option 'token', and what it allows")
        kinds = {400: InvalidRequest, 404: NotFound, 409: AlreadyExists, 501: UnsupportedFeature}
        return kinds.get(code, StorageUnavailable)(message)

    def _told(self, response: Response) -> str:
        code, message = _failure(response)
        if self.options.token:
            # A server may quote the header.  The token alone may be a word of the message, unless it is a long one.
            message = message.replace(f"Bearer {self.options.token}", "Bearer ***")
            if len(self.options.token) >= _SURELY_A_TOKEN and self.options.token in message:
                message = ""
        request = response.headers.get("x-request-id")
        return (
            f"the catalog at {self.options.uri} answered {code}"
            + (f": {message[:_LONGEST_REASON]}" if message else "")
            + (f" (request {request[:80]})" if request else "")
        )

    def _odd(self, what: str) -> StorageUnavailable:
        return StorageUnavailable(f"an answer of the catalog at {self.options.uri} makes no sense: {what}")


def _joined(path: tuple[str, ...]) -> str:
    return "/".join(quote(part, safe="") for part in path)


def _failure(response: Response) -> tuple[int, str]:
    """The code and message of a failure; a code in the body is nearer to the cause than a proxy's status."""
    try:
        error = json.loads(response.body)
        code = error.get("code")
        message = str(error.get("message") or "").strip()
    except (ValueError, AttributeError, RecursionError):
        code, message = None, response.body[: 2 * _LONGEST_REASON].decode("utf-8", "replace").strip()
    return (code if isinstance(code, int) and 400 <= code < 600 else response.status), " ".join(message.split())


def _texts(found: object) -> dict[str, str]:
    return {str(k): str(v) for k, v in found.items() if v is not None} if isinstance(found, dict) else {}


# --- the store of the tables ------------------------------------------------------------------------------------------

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


# --- the catalog ------------------------------------------------------------------------------------------------------

_PAIMON_TABLE = (None, "", "table")
"""Values of the option ``type`` of tables in Paimon's own format."""


class RestCatalog(Catalog):
    """Databases and tables named by a server."""

    kind = "rest"

    def __init__(self, client: RestClient, store: RestStore) -> None:
        super().__init__(store, client.options.warehouse)
        if client.settings.get("data-token.enabled", "false").lower() == "true":
            raise UnsupportedFeature(
                f"the catalog at {client.options.uri} issues credentials for each table (data-token.enabled), which is "
                "not supported; set data-token.enabled to false there, and give storage_options"
            )
        self._client = client
        self._rest_store = store

    def __repr__(self) -> str:
        return f"RestCatalog({self._client.options!r})"

    @property
    def location(self) -> str:
        """The server and the warehouse's name, for messages."""
        return f"{self._client.options.uri} (warehouse '{self.warehouse}')"

    # --- databases -------------------------------------------------------------------------------------------------

    def database_path(self, name: str) -> str:
        """The folder of a database, from the server; raises :class:`NotFound`."""
        return str(self._database(name).get("location") or "").rstrip("/")

    def databases(self) -> list[str]:
        """The names of all databases, sorted."""
        return sorted(self._client.pages("databases", "databases"))

    def database_exists(self, name: str) -> bool:
        """Whether the server has the database; ``default`` always exists, or is created with its first table."""
        return name == DEFAULT_DATABASE or self._has_database(name)

    def create_database(
        self, name: str, *, if_not_exists: bool = False, properties: Mapping[str, str] | None = None
    ) -> None:
        """Create a database; raises :class:`AlreadyExists` unless ``if_not_exists``."""
        check_name(name, "database")
        try:
            self._client.post({"name": name, "options": dict(properties or {})}, "databases")
        except AlreadyExists as e:
            if not if_not_exists:
                raise AlreadyExists(f"database '{name}' already exists in {self.location}") from e

    def alter_database(self, name: str, properties: Mapping[str, str]) -> None:
        """Set properties of a database; raises :class:`NotFound`."""
        try:
            self._client.post({"removals": [], "updates": dict(properties)}, "databases", name)
        except NotFound as e:
            raise self._database_not_found(name) from e

    def database_properties(self, name: str) -> dict[str, str]:
        """The properties of a database; raises :class:`NotFound`."""
        properties = self._database(name).get("options") or {}
        return {str(k): str(v) for k, v in properties.items()}

    def drop_database(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Delete a database; see :meth:`Catalog.drop_database`."""
        if not self._has_database(name):
            if if_exists:
                return
            raise self._database_not_found(name)
        tables = self.tables(name)
        if not cascade:
            self._check_empty(name, tables)
        for table in tables:
            self.drop_table(Identifier(name, table), if_exists=True)
        self._client.delete("databases", name)

    # --- tables ----------------------------------------------------------------------------------------------------

    def table_path(self, name: Identifier) -> str:
        """The folder of a table, from the server; raises :class:`NotFound`."""
        return self._table(name).root

    def tables(self, database: str) -> list[str]:
        """The names of a database's tables, sorted; raises :class:`NotFound` for the database."""
        try:
            return sorted(self._client.pages("tables", "databases", database, "tables"))
        except NotFound as e:
            if database == DEFAULT_DATABASE:
                return []
            raise self._database_not_found(database) from e

    def table_exists(self, name: Identifier) -> bool:
        """Whether the server has the table."""
        try:
            self._client.get("databases", name.database, "tables", name.table)
        except NotFound:
            return False
        return True

    def _create_table(self, name: Identifier, schema: TableSchema) -> None:
        """Ask the server to create a table; it writes the first schema."""
        check_name(name.table, "table")
        body = {"identifier": _identifier(name), "schema": _schema_request(schema)}
        path = ("databases", name.database, "tables")
        try:
            try:
                self._client.post(body, *path)
            except NotFound as e:
                if name.database != DEFAULT_DATABASE:
                    raise self._database_not_found(name.database) from e
                self.create_database(DEFAULT_DATABASE, if_not_exists=True)
                self._client.post(body, *path)
        except AlreadyExists as e:
            raise self._table_exists_already(name) from e

    def rename_table(self, old: Identifier, new: Identifier) -> None:
        """Rename a table; also into another database, if the server supports it."""
        # Some servers check neither name.
        self._check_rename(old, new)
        if not self._has_database(new.database):  # ``default``
            raise self._database_not_found(new.database)
        try:
            self._client.post({"source": _identifier(old), "destination": _identifier(new)}, "tables", "rename")
        except AlreadyExists as e:
            raise AlreadyExists(f"table '{new}' already exists; drop it first") from e

    def drop_table(self, name: Identifier, *, if_exists: bool = False) -> None:
        """Ask the server to delete a table with its files; raises :class:`NotFound` unless ``if_exists``."""
        try:
            self._client.delete("databases", name.database, "tables", name.table)
        except NotFound as e:
            if not if_exists:
                raise self._table_not_found(name) from e

    # --- responses -------------------------------------------------------------------------------------------------

    def _has_database(self, name: str) -> bool:
        try:
            self._client.get("databases", name)
        except NotFound:
            return False
        return True

    def _database(self, name: str) -> dict[str, Any]:
        try:
            return self._client.get("databases", name)
        except NotFound as e:
            raise self._database_not_found(name) from e

    def _table(self, name: Identifier) -> RestTable:
        """Get a table from the server, and register it with the store, which commits its snapshots there."""
        try:
            response = self._client.get("databases", name.database, "tables", name.table)
        except NotFound as e:
            raise self._table_not_found(name) from e
        root, uuid, schema = response.get("path"), response.get("id"), response.get("schema")
        if not isinstance(root, str) or not root.strip("/"):
            raise CorruptError(f"the catalog at {self.location} gives no path for table '{name}'")
        table_type = (schema.get("options") or {}).get("type") if isinstance(schema, dict) else None
        if table_type not in _PAIMON_TABLE:
            raise UnsupportedFeature(f"'{name}' is a {table_type}; only tables in Paimon's own format can be opened")
        uuid = uuid if isinstance(uuid, str) else None
        table = RestTable(name.database, name.table, root.rstrip("/"), uuid, response.get("isExternal") is True)
        self._rest_store.add(table)
        return table

    def _schema_not_found(self, name: Identifier, path: str) -> NotFound:
        return NotFound(
            f"the catalog {self.location} has table '{name}' at {path}, where no schema is found; can these files "
            "be reached from here?"
        )


def _identifier(name: Identifier) -> dict[str, str]:
    return {"database": name.database, "object": name.table}


def _schema_request(schema: TableSchema) -> dict[str, Any]:
    """A schema as in requests: without version, id and time, which the server sets."""
    return {
        "fields": [field_to_json(f) for f in schema.fields],
        "partitionKeys": list(schema.partition_keys),
        "primaryKeys": list(schema.primary_keys),
        "options": dict(schema.options),
        "comment": schema.comment,
    }
