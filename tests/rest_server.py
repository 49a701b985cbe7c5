"""A REST catalog on loopback, written from Paimon's OpenAPI description: databases and tables of a folder on this disk.

It keeps names, views and the latest schema in memory, writes ``schema-<n>`` and ``snapshot-<n>`` as a server does, and
takes a commit only if it was built on the latest snapshot.  It makes branches and rolls back as Paimon's file catalogs
do, lists two names a page, and can lose answers.
"""

from __future__ import annotations

import json
import shutil
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

TOKEN = "hidden-token"
PREFIX = "of/mine"
WAREHOUSE = "wh & co"
PASS, DROP, LOSE_ANSWER, REPEAT = "pass", "drop before it is done", "done, but the answer is lost", "done twice"
Plan = Callable[[str, str, int], "str | int | tuple[int, dict[str, str]]"]
"""(method, last part of the path, how many requests came before) → what to do, or a status to answer (and headers)."""


@dataclass
class Table:
    path: str
    id: str
    schema: dict[str, Any]
    schema_id: int = 0
    external: bool = False
    branch: str = ""

    @property
    def folder(self) -> Path:
        root = Path(self.path.removeprefix("file://"))
        return root / "branch" / f"branch-{self.branch}" if self.branch else root


@dataclass
class Server:
    root: Path
    uri: str = ""
    base: str = ""
    settings: dict[str, Any] = field(
        default_factory=lambda: {"defaults": {"prefix": PREFIX, "x": "default"}, "overrides": {}}
    )
    databases: dict[str, dict[str, str]] = field(default_factory=dict)
    tables: dict[tuple[str, str], Table] = field(default_factory=dict)
    views: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    tokens: list[dict[str, Any]] = field(default_factory=list)
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
def running(root: Path, host: str = "127.0.0.1", base: str = "") -> Iterator[Server]:
    """A server of a host's address, whose paths begin with ``base``."""
    server = Server(root, base=base)

    class Http(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    http = Http((host, 0), _handler(server))
    server.uri = f"http://{f'[{host}]' if ':' in host else host}:{http.server_address[1]}{base}"
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
            path = parts.path.removeprefix(f"{server.base}/v1/")
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
                query = dict(parse_qsl(parts.query))
                with server.lock:
                    if todo == REPEAT:
                        _answer(server, self.command, path, query, json.loads(body))
                    found = _answer(server, self.command, path, query, json.loads(body or b"{}"))
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
    if parts == ["views", "rename"]:
        return _rename_view(server, body)
    assert parts.pop(0) == "databases"
    if not parts:
        return _databases(server, method, query, body)
    database = parts.pop(0)
    if database not in server.databases:
        raise Failure(404, "DATABASE", database, f"Database {database} does not exist")
    if not parts:
        return _database(server, method, database, body)
    kind = parts.pop(0)
    if kind == "views":
        return _views(server, method, database, parts, query, body)
    assert kind == "tables"
    if not parts:
        if method == "POST":
            return _create(server, database, body)
        names = [t for d, t in server.tables if d == database]
        return _page("tables", names, query)
    key = (database, parts.pop(0))
    if key not in server.tables:
        raise Failure(404, "TABLE", key[1], f"Table {'.'.join(key)} does not exist")
    table = server.tables[key]
    if parts == ["commit"]:
        return _commit(server, table, body)
    if parts == ["snapshot"]:
        return _snapshot(table)
    if parts == ["token"]:
        return server.tokens.pop(0) if len(server.tokens) > 1 else server.tokens[0]
    if parts == ["rollback"]:
        return _rollback(table, body["instant"])
    if parts[:1] == ["branches"]:
        return _branches(server, method, key, parts[1:], body)
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
    if (database, name) in server.views:
        raise Failure(409, "VIEW", name, "a view has this name")
    if body["schema"]["options"].get("bucket") == "9999":
        raise Failure(400, "", "", "too many buckets")
    root = server.root / f"{uuid.uuid4()}"  # a path that no name tells
    highest = max(f["id"] for f in body["schema"]["fields"])
    schema = {"version": 3, "id": 0, "highestFieldId": highest, "timeMillis": 1, **body["schema"]}
    table = Table(f"file://{root}", str(uuid.uuid4()), schema)
    server.tables[database, name] = table
    _write_schema(table)


def _write_schema(table: Table) -> None:
    folder = table.folder / "schema"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"schema-{table.schema_id}").write_text(
        json.dumps({k: v for k, v in table.schema.items() if v is not None})
    )


def _rename(server: Server, body: dict[str, Any]) -> None:
    old, new = ((body[k]["database"], body[k]["object"]) for k in ("source", "destination"))
    if new in server.tables or new in server.views:
        raise Failure(409, "TABLE", new[1], "exists")
    server.tables[new] = server.tables.pop(old)


def _rename_view(server: Server, body: dict[str, Any]) -> None:
    old, new = ((body[k]["database"], body[k]["object"]) for k in ("source", "destination"))
    if old not in server.views:
        raise Failure(404, "VIEW", old[1], "missing")
    if new in server.tables or new in server.views:
        raise Failure(409, "VIEW", new[1], "exists")
    server.views[new] = server.views.pop(old)


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
    folder = table.folder / "snapshot"
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
    folder = table.folder / "snapshot"
    folder.mkdir(exist_ok=True)
    latest = _latest(table)
    if body["tableId"] != table.id:
        raise Failure(404, "TABLE", "", "that table is gone")
    # Paimon's clients name no base: the snapshot's number alone says what it comes after.
    base = body.get("baseSnapshotUuid") or (
        latest.get("uuid") if body["snapshot"]["id"] > latest.get("id", 0) else None
    )
    if base != latest.get("uuid"):
        return {"success": False}
    name = folder / f".{uuid.uuid4()}"
    name.write_text(json.dumps(body["snapshot"]))
    name.rename(folder / f"snapshot-{body['snapshot']['id']}")
    (folder / "LATEST").write_text(str(body["snapshot"]["id"]))
    return {"success": True}


# --- branches, rollback, views ----------------------------------------------------------------------------------------


def _branches(server: Server, method: str, key: tuple[str, str], parts: list[str], body: dict[str, Any]) -> Any:
    main = server.tables[key]
    if main.external:
        raise Failure(501, "TABLE", "", "external tables have their branches as files")
    if not parts:
        if method == "POST":
            _make_branch(server, key, body["branch"], body["fromTag"])
        prefix = f"{key[1]}$branch_"
        return {"branches": [t.removeprefix(prefix) for d, t in server.tables if t.startswith(prefix)]}
    branch_key = (key[0], f"{key[1]}$branch_{parts[0]}")
    if branch_key not in server.tables:
        raise Failure(404, "BRANCH", parts[0], f"Branch name '{parts[0]}' doesn't exist.")
    branch = server.tables[branch_key]
    if parts[1:] == ["rename"]:
        new = replace(branch, branch=body["toBranch"])
        branch.folder.rename(new.folder)
        server.tables[key[0], f"{key[1]}$branch_{new.branch}"] = new
    elif parts[1:] == ["forward"]:
        _forward(main, branch)
        return {}
    else:
        assert method == "DELETE"
        shutil.rmtree(branch.folder)
    del server.tables[branch_key]
    return {}


def _make_branch(server: Server, key: tuple[str, str], name: str, tag: str | None) -> None:
    main = server.tables[key]
    branch = replace(main, branch=name, id=str(uuid.uuid4()))
    if branch.folder.exists():
        raise Failure(409, "BRANCH", name, f"Branch name '{name}' already exists.")
    for folder in ("schema", "snapshot", "tag"):
        (branch.folder / folder).mkdir(parents=True)
    if tag is not None:
        text = (main.folder / "tag" / f"tag-{tag}").read_text()
        snapshot = {k: v for k, v in json.loads(text).items() if k not in ("tagCreateTime", "tagTimeRetained")}
        (branch.folder / "tag" / f"tag-{tag}").write_text(text)
        (branch.folder / "snapshot" / f"snapshot-{snapshot['id']}").write_text(json.dumps(snapshot))
        branch.schema_id = snapshot["schemaId"]
    for number in range(branch.schema_id + 1):
        shutil.copy(main.folder / "schema" / f"schema-{number}", branch.folder / "schema")
    branch.schema = json.loads((branch.folder / "schema" / f"schema-{branch.schema_id}").read_text())
    server.tables[key[0], f"{key[1]}$branch_{name}"] = branch


def _forward(main: Table, branch: Table) -> None:
    """Delete main's snapshots, schemas and tags from the branch's first snapshot on, and copy the branch's."""
    snapshots = [int(p.name.removeprefix("snapshot-")) for p in (branch.folder / "snapshot").glob("snapshot-*")]
    if not snapshots:
        raise Failure(400, "BRANCH", branch.branch, "it has no snapshot")
    first = json.loads((branch.folder / "snapshot" / f"snapshot-{min(snapshots)}").read_text())
    _drop_after(main, first["id"] - 1)
    for schema in (main.folder / "schema").glob("schema-*"):
        if int(schema.name.removeprefix("schema-")) >= first["schemaId"]:
            schema.unlink()
    for tag in (main.folder / "tag").glob("tag-*"):
        if json.loads(tag.read_text())["id"] >= first["id"]:
            tag.unlink()
    for folder in ("schema", "snapshot", "tag"):
        (main.folder / folder).mkdir(exist_ok=True)
        for file in (branch.folder / folder).iterdir():
            shutil.copy(file, main.folder / folder)
    (main.folder / "snapshot" / "LATEST").write_text(str(_latest(main)["id"]))
    main.schema, main.schema_id = branch.schema, branch.schema_id


def _drop_after(table: Table, last: int) -> None:
    for file in (table.folder / "snapshot").glob("snapshot-*"):
        if int(file.name.removeprefix("snapshot-")) > last:
            file.unlink()


def _rollback(table: Table, instant: dict[str, Any]) -> None:
    if instant["type"] == "tag":
        tag = table.folder / "tag" / f"tag-{instant['tagName']}"
        if not tag.exists():
            raise Failure(404, "TAG", instant["tagName"], "no such tag")
        snapshot = {k: v for k, v in json.loads(tag.read_text()).items() if not k.startswith("tag")}
        number = snapshot["id"]
        (table.folder / "snapshot" / f"snapshot-{number}").write_text(json.dumps(snapshot))
    else:
        number = instant["snapshotId"]
        if not (table.folder / "snapshot" / f"snapshot-{number}").exists():
            raise Failure(404, "SNAPSHOT", str(number), "no such snapshot")
    _drop_after(table, number)
    (table.folder / "snapshot" / "LATEST").write_text(str(number))


def _views(
    server: Server, method: str, database: str, parts: list[str], query: dict[str, str], body: dict[str, Any]
) -> Any:
    if not parts:
        if method == "GET":
            return _page("views", [v for d, v in server.views if d == database], query)
        key = (body["identifier"]["database"], body["identifier"]["object"])
        if key in server.views or key in server.tables:
            raise Failure(409, "VIEW", key[1], "exists")
        server.views[key] = body["schema"]
        return None
    key = (database, parts[0])
    if key not in server.views:
        raise Failure(404, "VIEW", parts[0], "no such view")
    if method == "DELETE":
        del server.views[key]
        return None
    if method == "GET":
        return {"id": "1", "name": parts[0], "schema": server.views[key]}
    dialects = server.views[key]["dialects"]
    for change in body["changes"]:
        name = change["dialect"]
        if (change["action"] == "addDialect") == (name in dialects):
            found = name in dialects
            raise Failure(409 if found else 404, "DIALECT", name, "exists" if found else "no such dialect")
        if change["action"] == "dropDialect":
            del dialects[name]
        else:
            dialects[name] = change["query"]
    return None
