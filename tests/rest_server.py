"""A REST catalog on loopback, written from Paimon's OpenAPI description: databases and tables of a folder on this disk.

It keeps names and the latest schema in memory, writes ``schema-<n>`` and ``snapshot-<n>`` as a server does, takes a
commit only if it was built on the latest snapshot, lists two names a page, and can lose answers.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

TOKEN = "hidden-token"
PREFIX = "of/mine"
WAREHOUSE = "wh & co"
PASS, DROP, LOSE_ANSWER = "pass", "drop before it is done", "done, but the answer is lost"
Plan = Callable[[str, str, int], "str | int | tuple[int, dict[str, str]]"]
"""(method, last part of the path, how many requests came before) → what to do, or a status to answer (and headers)."""


@dataclass
class Table:
    path: str
    id: str
    schema: dict[str, Any]
    schema_id: int = 0
    external: bool = False


@dataclass
class Server:
    root: Path
    uri: str = ""
    settings: dict[str, Any] = field(
        default_factory=lambda: {"defaults": {"prefix": PREFIX, "x": "default"}, "overrides": {}}
    )
    databases: dict[str, dict[str, str]] = field(default_factory=dict)
    tables: dict[tuple[str, str], Table] = field(default_factory=dict)
    commits: list[dict[str, Any]] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)
    seen: list[tuple[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    plan: Plan = lambda method, name, number: PASS
    lock: threading.RLock = field(default_factory=threading.RLock)


class Failure(Exception):
    def __init__(self, status: int, kind: str, name: str, message: str) -> None:
        self.status = status
        self.body = {"message": message, "resourceType": kind, "resourceName": name, "code": status}


@contextmanager
def running(root: Path) -> Iterator[Server]:
    server = Server(root)
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    server.uri = f"http://127.0.0.1:{http.server_address[1]}"
    threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = parts.path.removeprefix("/v1/")
            with server.lock:
                number = len(server.seen)
                server.seen.append((self.command, path))
                server.headers.append(dict(self.headers))
            todo = server.plan(self.command, path.rpartition("/")[2], number)
            if todo == DROP:
                self.connection.close()
                return
            extra: dict[str, str] = {}
            if isinstance(todo, tuple):
                todo, extra = todo
            try:
                if isinstance(todo, int):
                    raise Failure(todo, "", "", f"it failed, {self.headers.get('Authorization')}")
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    raise Failure(401, "", "", "who are you?")
                with server.lock:
                    found = _answer(server, self.command, path, dict(parse_qsl(parts.query)), json.loads(body or b"{}"))
                status, out = 200, json.dumps(found).encode() if found is not None else b""
            except Failure as e:
                status, out = e.status, json.dumps(e.body).encode()
            if todo == LOSE_ANSWER:
                self.connection.close()
                return
            self.send_response(status)
            for name, value in extra.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(out)))
            self.end_headers()
            self.wfile.write(out)

        do_GET = do_POST = do_DELETE = _serve

    return Handler


def _answer(server: Server, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> Any:
    if path == "config":
        if query.get("warehouse") != WAREHOUSE:
            raise Failure(404, "", "", "no such warehouse")
        return server.settings
    assert path.startswith(f"{PREFIX}/"), path
    parts = [unquote(p) for p in path.removeprefix(f"{PREFIX}/").split("/")]
    if parts == ["tables", "rename"]:
        return _rename(server, body)
    assert parts.pop(0) == "databases"
    if not parts:
        return _databases(server, method, query, body)
    database = parts.pop(0)
    if database not in server.databases:
        raise Failure(404, "DATABASE", database, f"Database {database} does not exist")
    if not parts:
        return _database(server, method, database, body)
    assert parts.pop(0) == "tables"
    if not parts:
        if method == "POST":
            return _create(server, database, body)
        return _page("tables", [t for d, t in server.tables if d == database], query)
    key = (database, parts.pop(0))
    if key not in server.tables:
        raise Failure(404, "TABLE", key[1], f"Table {'.'.join(key)} does not exist")
    table = server.tables[key]
    if parts == ["commit"]:
        return _commit(server, table, body)
    if parts == ["snapshot"]:
        return _snapshot(table)
    assert not parts
    if method == "DELETE":
        del server.tables[key]
        return None
    if method == "POST":
        return _alter(server, table, body)
    schema = {k: v for k, v in table.schema.items() if k not in ("version", "id", "highestFieldId", "timeMillis")}
    told = {"id": table.id, "name": key[1], "path": table.path, "isExternal": table.external}
    return {**told, "schemaId": table.schema_id, "schema": schema}


def _databases(server: Server, method: str, query: dict[str, str], body: dict[str, Any]) -> Any:
    if method == "GET":
        return _page("databases", list(server.databases), query)
    if body["name"] in server.databases:
        raise Failure(409, "DATABASE", body["name"], "exists")
    server.databases[body["name"]] = body["options"]
    return {"name": body["name"], "options": body["options"]}


def _database(server: Server, method: str, name: str, body: dict[str, Any]) -> Any:
    if method == "GET":
        return {"name": name, "location": f"file://{server.root}/{name}", "options": server.databases[name]}
    if method == "DELETE":
        del server.databases[name]
        return None
    server.databases[name] |= body["updates"]
    return {"removed": [], "updated": list(body["updates"]), "missing": []}


def _page(member: str, names: list[str], query: dict[str, str]) -> dict[str, Any]:
    after = query.get("pageToken", "")
    left = [n for n in sorted(names) if n > after]
    return {member: left[:2], "nextPageToken": left[1] if len(left) > 2 else None}


def _create(server: Server, database: str, body: dict[str, Any]) -> None:
    name = body["identifier"]["object"]
    assert body["identifier"]["database"] == database
    if (database, name) in server.tables:
        raise Failure(409, "TABLE", name, "exists")
    if body["schema"]["options"].get("bucket") == "9999":
        raise Failure(400, "", "", "too many buckets")
    root = server.root / f"{uuid.uuid4()}"  # a path that no name tells
    highest = max(f["id"] for f in body["schema"]["fields"])
    schema = {"version": 3, "id": 0, "highestFieldId": highest, "timeMillis": 1, **body["schema"]}
    table = Table(f"file://{root}", str(uuid.uuid4()), schema)
    server.tables[database, name] = table
    _write_schema(table)


def _write_schema(table: Table) -> None:
    folder = Path(table.path.removeprefix("file://")) / "schema"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"schema-{table.schema_id}").write_text(
        json.dumps({k: v for k, v in table.schema.items() if v is not None})
    )


def _rename(server: Server, body: dict[str, Any]) -> None:
    old, new = ((body[k]["database"], body[k]["object"]) for k in ("source", "destination"))
    if new in server.tables:
        raise Failure(409, "TABLE", new[1], "exists")
    server.tables[new] = server.tables.pop(old)


def _alter(server: Server, table: Table, body: dict[str, Any]) -> None:
    server.changes += body["changes"]
    schema = json.loads(json.dumps(table.schema))
    fields = schema["fields"]
    for change in body["changes"]:
        action = change["action"]
        at = [i for i, f in enumerate(fields) if f["name"] == change.get("fieldNames", [None])[-1]]
        if action == "setOption":
            schema["options"][change["key"]] = change["value"]
        elif action == "removeOption":
            schema["options"].pop(change["key"], None)
        elif action == "updateComment":
            schema["comment"] = change["comment"]
        elif action == "dropColumn":
            del fields[at[0]]
        elif action == "renameColumn":
            fields[at[0]]["name"] = change["newName"]
        elif action == "updateColumnComment":
            fields[at[0]]["description"] = change["newComment"]
        elif action == "updateColumnType":
            fields[at[0]]["type"] = change["newDataType"]
        elif action == "addColumn":
            schema["highestFieldId"] += 1
            made = {"id": schema["highestFieldId"], "name": change["fieldNames"][0], "type": change["dataType"]}
            fields.append(made | ({"description": change["comment"]} if "comment" in change else {}))
            _place(fields, change.get("move"))
        elif action == "updateColumnPosition":
            _place(fields, change["move"])
        else:
            raise Failure(501, "", "", f"{action} is not implemented")
    table.schema_id += 1
    schema["id"] = table.schema_id
    table.schema = schema
    _write_schema(table)


def _place(fields: list[dict[str, Any]], move: dict[str, str] | None) -> None:
    if move is None:
        return
    moved = next(f for f in fields if f["name"] == move["fieldName"])
    fields.remove(moved)
    names = [f["name"] for f in fields]
    fields.insert(0 if move["type"] == "FIRST" else names.index(move["referenceFieldName"]) + 1, moved)


def _latest(table: Table) -> dict[str, Any]:
    folder = Path(table.path.removeprefix("file://")) / "snapshot"
    ids = [int(p.name.removeprefix("snapshot-")) for p in folder.glob("snapshot-*")]
    return json.loads((folder / f"snapshot-{max(ids)}").read_text()) if ids else {}


def _snapshot(table: Table) -> dict[str, Any]:
    latest = _latest(table)
    if not latest:
        raise Failure(404, "SNAPSHOT", "", "it has no snapshot")
    counts = {"recordCount": 0, "fileSizeInBytes": 0, "fileCount": 0, "lastFileCreationTime": 0}  # nobody asks for them
    return {"snapshot": {"snapshot": latest, **counts}}


def _commit(server: Server, table: Table, body: dict[str, Any]) -> dict[str, bool]:
    if table.external:
        raise Failure(501, "TABLE", "", "external tables commit by their files")
    server.commits.append(body)
    folder = Path(table.path.removeprefix("file://")) / "snapshot"
    folder.mkdir(exist_ok=True)
    latest = _latest(table)
    if body["tableId"] != table.id:
        raise Failure(404, "TABLE", "", "that table is gone")
    # pypaimon tells no base: its snapshot's number alone says what it comes after.
    base = body["baseSnapshotUuid"] or (latest.get("uuid") if body["snapshot"]["id"] > latest.get("id", 0) else None)
    if base != latest.get("uuid"):
        return {"success": False}
    name = folder / f".{uuid.uuid4()}"
    name.write_text(json.dumps(body["snapshot"]))
    name.rename(folder / f"snapshot-{body['snapshot']['id']}")
    (folder / "LATEST").write_text(str(body["snapshot"]["id"]))
    return {"success": True}
