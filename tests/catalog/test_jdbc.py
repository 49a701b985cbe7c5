"""Paimon's jdbc catalog, on SQLite, and on PostgreSQL where its server is installed."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import s3_server
from store_wrappers import FaultyStore

import bitlake
from bitlake.catalog import jdbc as sql_database
from bitlake.catalog.catalog import Identifier
from bitlake.catalog.jdbc import _TABLES, JdbcCatalog, SqlDatabase, open_database
from bitlake.errors import AccessDenied, AlreadyExists, InvalidRequest, NotFound, StorageUnavailable
from bitlake.io.local import LocalStore
from bitlake.lazy_modules import install_command
from bitlake.schema.create import columns_of

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])
ROWS = pa.table({"id": [1, 2, 3], "p": ["a", "b", "a"]}, SCHEMA)


def _tool(name: str) -> str | None:
    found = shutil.which(name) or next(iter(sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)
    return None if found is None else str(found)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URI of a PostgreSQL server on loopback with a password, for this test process."""
    pytest.importorskip("sqlalchemy")
    # Not in pytest's own folder, which every pytest that starts closes to all but root.
    with tempfile.TemporaryDirectory(prefix="bitlake-postgres-") as made:
        yield from _postgres(Path(made))


def _postgres(folder: Path) -> Iterator[str]:
    initdb, server = _tool("initdb"), _tool("postgres")
    if initdb is None or server is None:
        pytest.skip("PostgreSQL is not installed")
    user = _server_user("postgres", folder)
    secret = folder / "password"
    secret.write_text("se/cret+only")
    if user is not None:
        shutil.chown(secret, user)
    data = str(folder / "data")
    made = subprocess.run(
        [initdb, "-D", data, "-U", "lake", "-A", "scram-sha-256", "--pwfile", str(secret), "-N", "--no-instructions"],
        user=user,
        capture_output=True,
        check=False,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
    )
    if made.returncode:
        pytest.skip(f"PostgreSQL cannot make a database here: {made.stderr.decode()[-200:]}")
    port = _free_port()
    command = [server, "-D", data, "-p", str(port), "-k", str(folder), "-h", "127.0.0.1", "-F"]
    with _running(command, user, b"ready to accept connections", {"PATH": os.environ["PATH"], "LC_ALL": "C"}):
        yield f"postgresql://lake:se%2Fcret+only@127.0.0.1:{port}/postgres"


def _server_user(name: str, folder: Path) -> str | None:
    """The user that a database server runs as, who then owns the folder; None: this process's."""
    if os.geteuid() != 0:
        return None
    try:
        user = pwd.getpwnam(name).pw_name
    except KeyError:
        pytest.skip(f"a database server does not run as root, and the user {name} does not exist")
    shutil.chown(folder, user)
    return user


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def _running(command: list[str], user: str | None, ready: bytes, env: dict[str, str] | None = None) -> Iterator[None]:
    """Run a server until the block ends; its standard error says when it is ready."""
    with subprocess.Popen(command, user=user, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if ready in line:
                break
        drain = threading.Thread(target=process.stderr.read, daemon=True)
        drain.start()
        try:
            yield
        finally:
            process.terminate()
            process.wait(20)


@pytest.fixture(scope="session")
def mysql() -> Iterator[str]:
    """The URI of a MySQL server (MariaDB's) on loopback with a password, for this test process."""
    pytest.importorskip("pymysql")
    with tempfile.TemporaryDirectory(prefix="bitlake-mysql-") as made:
        yield from _mysql(Path(made))


def _mysql(folder: Path) -> Iterator[str]:
    install, server = shutil.which("mariadb-install-db"), shutil.which("mariadbd") or shutil.which("mysqld")
    if install is None or server is None:
        pytest.skip("MariaDB is not installed")
    user = _server_user("mysql", folder)
    folder.chmod(0o755)
    first = folder / "first.sql"
    first.write_text(  # a statement a line
        "CREATE DATABASE lake;\n"
        "CREATE USER 'lake'@'%' IDENTIFIED BY 'se/cret+only';\n"
        "GRANT ALL ON lake.* TO 'lake'@'%';\n"
    )
    data = f"--datadir={folder}/data"
    made = subprocess.run(
        [install, "--no-defaults", data, "--auth-root-authentication-method=normal", "--skip-test-db"],
        user=user,
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"MariaDB cannot make a database here: {made.stderr.decode()[-200:]}")
    port = _free_port()
    command = [server, "--no-defaults", data, f"--port={port}", "--bind-address=127.0.0.1", f"--init-file={first}"]
    command += [f"--socket={folder}/socket", f"--pid-file={folder}/pid", "--skip-name-resolve"]
    with _running(command, user, b"ready for connections"):
        yield f"mysql://lake:se%2Fcret+only@127.0.0.1:{port}/lake"


@pytest.fixture(params=["sqlite", "sqlite by SQLAlchemy", "postgresql", "mysql"])
def uri(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "sqlite by SQLAlchemy":
        sqlalchemy = pytest.importorskip("sqlalchemy")

        def by_engine(rest: str) -> sql_database.SqlDatabase:
            arguments = {"isolation_level": None, "timeout": 30}
            engine = sql_database.create_engine(sqlalchemy.make_url(f"sqlite://{rest.removeprefix('//')}"), arguments)
            return sql_database.engine_database(engine, f"sqlite://{rest}")

        monkeypatch.setattr(sql_database, "_sqlite", by_engine)
    if request.param.startswith("sqlite"):
        return f"sqlite:///{tmp_path}/catalog.db"
    return str(request.getfixturevalue("postgres" if request.param == "postgresql" else "mysql"))


@pytest.fixture
def lake(uri: str, tmp_path: Path) -> bitlake.Lake:
    """A lake of its own in the database."""
    return bitlake.connect(
        tmp_path / "wh", catalog="jdbc", uri=uri, catalog_options={"catalog-key": tmp_path.name + tmp_path.parent.name}
    )


@pytest.mark.exhaustive
def test_names_come_and_go(lake: bitlake.Lake) -> None:
    assert lake.databases() == [] and lake.tables("default") == []
    lake.create_database("db")
    lake.create_database("db", if_not_exists=True)
    with pytest.raises(AlreadyExists, match="db"):
        lake.create_database("db")
    assert lake.databases() == ["db"] and lake.tables("db") == []
    table = lake.create_table("db.t", SCHEMA, partition_by=["p"], options={"bucket": "-1"})
    table.append(ROWS)
    lake.create_table("db.t", SCHEMA, if_not_exists=True)
    with pytest.raises(AlreadyExists):
        lake.create_table("db.t", SCHEMA)
    lake.create_table("top", SCHEMA)
    assert lake.databases() == ["db", "default"] and lake.tables("db") == ["t"]
    with pytest.raises(InvalidRequest, match="not empty"):
        lake.drop_database("db")
    moved = lake.rename_table("db.t", "default.u")
    assert moved.scan().count() == 3
    assert lake.tables("db") == [] and lake.tables() == ["top", "u"]
    with pytest.raises(NotFound, match="db.t"):
        lake.table("db.t")
    with pytest.raises(AlreadyExists):
        lake.rename_table("u", "top")
    lake.drop_table("u")
    lake.drop_table("u", if_exists=True)
    with pytest.raises(NotFound):
        lake.drop_table("u")
    assert not Path(lake.path, "default.db", "u").exists()
    lake.drop_database("db")
    assert lake.databases() == ["default"]
    with pytest.raises(NotFound, match="nope"):
        lake.create_table("nope.t", SCHEMA)
    lake.create_database("full")
    lake.create_table("full.t", SCHEMA)
    lake.drop_database("full", cascade=True)
    assert lake.databases() == ["default"]


def test_names_in_other_cases_are_found(lake: bitlake.Lake) -> None:
    lake.create_database("Db")
    lake.create_table("Db.Tt", SCHEMA).append(ROWS)
    assert lake.table("dB.tT").scan().count() == 3


def test_several_lakes_share_one_database(uri: str, tmp_path: Path) -> None:
    def connect(name: str) -> bitlake.Lake:
        key = f"{tmp_path.parent.name}-{tmp_path.name}-{name}"
        return bitlake.connect(tmp_path / name, catalog="jdbc", uri=uri, catalog_options={"catalog-key": key})

    one, two = connect("one"), connect("two")
    one.create_table("t", SCHEMA).append(ROWS)
    assert one.tables() == ["t"] and two.tables() == []
    two.create_table("t", SCHEMA)
    assert two.table("t").scan().count() == 0 and connect("one").table("t").scan().count() == 3


@pytest.mark.exhaustive
def test_of_many_that_want_a_name_one_gets_it(lake: bitlake.Lake) -> None:
    for i in range(6):
        lake.create_table(f"t{i}", SCHEMA).append(ROWS)
    won: list[str] = []
    lost: list[str] = []

    def run(number: int) -> None:
        try:
            if number < 6:
                lake._catalog.rename_table(Identifier("default", f"t{number}"), Identifier("default", "wanted"))
            else:
                lake.create_table("wanted", SCHEMA)
            won.append(str(number))
        except AlreadyExists:
            lost.append(str(number))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(won) == 1 and len(lost) == 7
    tables = lake.tables()
    assert "wanted" in tables and len(tables) == (6 if int(won[0]) < 6 else 7)
    for name in tables:
        assert lake.table(name).scan().count() in (0, 3)


def test_rows_are_as_paimon_writes_them(tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path / "wh", catalog="jdbc", uri=f"jdbc:sqlite:{tmp_path}/c.db")
    lake.create_database("db")
    lake.create_table("db.t", SCHEMA, primary_key=["id", "p"], partition_by=["p"], options={"bucket": "2"})
    with sqlite3.connect(tmp_path / "c.db") as c:
        assert c.execute("SELECT * FROM paimon_tables").fetchall() == [("jdbc", "db", "t")]
        assert sorted(c.execute("SELECT * FROM paimon_database_properties")) == [
            ("jdbc", "db", "exists", "true"),
            ("jdbc", "db", "location", f"{tmp_path}/wh/db.db"),
        ]
        assert sorted(c.execute("SELECT * FROM paimon_table_properties")) == [
            ("jdbc", "db", "t", "bucket", "2"),
            ("jdbc", "db", "t", "partition", "p"),
            ("jdbc", "db", "t", "primary-key", "id,p"),
        ]
    c.close()


def test_a_database_elsewhere(tmp_path: Path) -> None:
    """Paimon lets a database name its folder."""
    lake = bitlake.connect(tmp_path / "wh", catalog="jdbc", uri=f"sqlite:///{tmp_path}/c.db")
    with sqlite3.connect(tmp_path / "c.db") as c:
        c.executemany(
            "INSERT INTO paimon_database_properties VALUES ('jdbc', 'far', ?, ?)",
            [("exists", "true"), ("location", f"{tmp_path}/far-away")],
        )
    c.close()
    lake.create_table("far.t", SCHEMA).append(ROWS)
    assert Path(tmp_path, "far-away", "t", "schema", "schema-0").exists()
    assert lake.table("far.t").scan().count() == 3


def test_tables_in_a_bucket_are_renamed_in_one_step(tmp_path: Path, s3_endpoint: str) -> None:
    uri = f"sqlite:///{tmp_path}/c.db"
    options = s3_server.options(s3_endpoint)
    lake = bitlake.connect("s3://lake/jdbc", storage_options=options, catalog="jdbc", uri=uri)
    lake.create_database("db")
    assert not lake._catalog.store.dir_exists("s3://lake/jdbc/db.db")
    lake.create_table("db.t", SCHEMA).append(ROWS)
    moved = lake.rename_table("db.t", "db.u")
    assert moved.scan().count() == 3 and lake.tables("db") == ["u"]
    assert not lake._catalog.store.dir_exists("s3://lake/jdbc/db.db/t")


@pytest.mark.parametrize("fail_at", range(3))
@pytest.mark.parametrize("after", [False, True])
def test_a_rename_that_fails_leaves_one_whole_table(tmp_path: Path, fail_at: int, after: bool) -> None:
    database = open_database(f"sqlite:///{tmp_path}/c.db")
    whole = JdbcCatalog(LocalStore(), f"{tmp_path}/wh", database)
    lake = bitlake.connect(tmp_path / "wh", catalog="jdbc", uri=f"sqlite:///{tmp_path}/c.db")
    lake.create_table("t", SCHEMA).append(ROWS)
    only = frozenset({"rename", "dir_exists", "copy_dir", "delete_dir"})
    broken = JdbcCatalog(FaultyStore(whole.store, fail_at, after=after, only=only), f"{tmp_path}/wh", database)  # type: ignore[arg-type]
    try:
        broken.rename_table(Identifier("default", "t"), Identifier("default", "u"))
    except StorageUnavailable:
        assert whole.tables("default") == ["t"]
        if not (after and fail_at == 1):  # the file system did it and said that it did not
            assert lake.table("t").scan().count() == 3
    else:
        assert whole.tables("default") == ["u"]
        assert lake.table("u").scan().count() == 3


def failing(database: SqlDatabase, folder: Path, *, after: bool) -> tuple[JdbcCatalog, list[bool]]:
    """A catalog whose first change fails at its commit, or after it, and the failures so far."""
    failures: list[bool] = []

    @contextmanager
    def begin(write: bool) -> Iterator[Any]:
        fails = write and not failures
        with database._begin(write) as execute:
            yield execute
            if fails and not after:
                failures.append(True)
                raise sqlite3.OperationalError("server closed the connection unexpectedly")
        if fails and after:
            failures.append(True)
            raise sqlite3.OperationalError("server closed the connection unexpectedly")

    return JdbcCatalog(LocalStore(), f"{folder}/wh", replace(database, _begin=begin)), failures


def test_a_table_whose_creation_was_not_committed_can_be_created_again(tmp_path: Path) -> None:
    """Bug: its schema stayed, and every later CREATE TABLE was told to move or delete the files."""
    lake = bitlake.connect(tmp_path / "wh", catalog="jdbc", uri=f"sqlite:///{tmp_path}/c.db")
    catalog, _ = failing(open_database(f"sqlite:///{tmp_path}/c.db"), tmp_path, after=False)
    with pytest.raises(StorageUnavailable, match="closed the connection"):
        catalog.create_table(Identifier("default", "t"), columns_of("t", SCHEMA))
    assert lake.tables() == []
    lake.create_table("t", SCHEMA).append(ROWS)
    assert lake.table("t").scan().count() == 3


@pytest.mark.parametrize("column", [None, "another"])
def test_a_creation_whose_clean_up_failed_too(tmp_path: Path, column: str | None) -> None:
    """Bug: its schema stayed, and every later CREATE TABLE was told to move or delete the files."""
    database = open_database(f"sqlite:///{tmp_path}/c.db")
    lake = bitlake.connect(tmp_path / "wh", catalog="jdbc", uri=f"sqlite:///{tmp_path}/c.db")
    fails = False

    @contextmanager
    def begin(write: bool) -> Iterator[Any]:
        nonlocal fails
        if fails:
            raise sqlite3.OperationalError("the server is gone")
        with database._begin(write) as execute:
            yield execute
            if write:
                fails = True
                raise sqlite3.OperationalError("server closed the connection unexpectedly")

    catalog = JdbcCatalog(LocalStore(), f"{tmp_path}/wh", replace(database, _begin=begin))
    with pytest.raises(StorageUnavailable):
        catalog.create_table(Identifier("default", "t"), columns_of("t", SCHEMA))
    assert lake.tables() == [] and (tmp_path / "wh/default.db/t/schema/schema-0").exists()
    if column is None:
        lake.create_table("t", SCHEMA).append(ROWS)
        assert lake.table("t").scan().count() == 3
    else:
        with pytest.raises(AlreadyExists, match="the files of one are in .*move or delete them"):
            lake.create_table("t", SCHEMA.append(pa.field(column, pa.int32())))
        assert lake.tables() == []


def test_commits_whose_responses_are_lost_take_effect(tmp_path: Path) -> None:
    """Bug: a dropped table's files stayed, and its name could not be used again."""
    database = open_database(f"sqlite:///{tmp_path}/c.db")
    lake = bitlake.connect(tmp_path / "wh", catalog="jdbc", uri=f"sqlite:///{tmp_path}/c.db")
    catalog, failures = failing(database, tmp_path, after=True)
    catalog.create_table(Identifier("default", "t"), columns_of("t", SCHEMA))
    assert failures and lake.tables() == ["t"]
    catalog, failures = failing(database, tmp_path, after=True)
    catalog.drop_table(Identifier("default", "t"))
    assert failures and lake.tables() == [] and not (tmp_path / "wh" / "default.db" / "t").exists()
    lake.create_database("db")
    lake.create_table("db.u", SCHEMA)
    catalog, failures = failing(database, tmp_path, after=True)
    catalog.drop_database("db", cascade=True)
    assert failures and "db" not in lake.databases() and not (tmp_path / "wh" / "db.db" / "u").exists()


@pytest.mark.parametrize("cheap", [True, False])
def test_a_rename_whose_transaction_lost_its_response_is_done(
    tmp_path: Path, cheap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files were moved back, or deleted, and the catalog named a table without files."""
    monkeypatch.setattr("bitlake.catalog.jdbc.has_cheap_rename", lambda store, path: cheap)
    database = open_database(f"sqlite:///{tmp_path}/c.db")
    lake = bitlake.connect(tmp_path / "wh", catalog="jdbc", uri=f"sqlite:///{tmp_path}/c.db")
    lake.create_table("t", SCHEMA).append(ROWS)
    catalog, failures = failing(database, tmp_path, after=True)
    catalog.rename_table(Identifier("default", "t"), Identifier("default", "u"))
    assert failures and lake.tables() == ["u"] and lake.table("u").scan().count() == 3


def test_the_same_rename_twice_at_once_in_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that came second deleted the files, of which the first had deleted the originals."""
    monkeypatch.setattr("bitlake.catalog.jdbc.has_cheap_rename", lambda store, path: False)
    lake, other = (bitlake.connect(tmp_path / "wh", catalog="jdbc", uri=f"sqlite:///{tmp_path}/c.db") for _ in range(2))
    lake.create_table("t", SCHEMA).append(ROWS)
    copied, copy_dir = [], LocalStore.copy_dir

    def copy(store: LocalStore, source: str, target: str) -> None:
        copy_dir(store, source, target)
        copied.append(target)
        if len(copied) == 1:
            shutil.rmtree(target)  # as if the other process had looked before whether the folder is free
            other.rename_table("t", "u")

    monkeypatch.setattr(LocalStore, "copy_dir", copy)
    with pytest.raises(AlreadyExists):
        lake.rename_table("t", "u")
    assert len(copied) == 2 and lake.tables() == ["u"] and lake.table("u").scan().count() == 3


def test_failures_of_the_database(tmp_path: Path, uri: str) -> None:
    with pytest.raises(InvalidRequest, match="sqlite:///"):
        bitlake.connect(tmp_path, catalog="jdbc", uri="oracle://u:hidden@h/x")
    with pytest.raises(InvalidRequest, match="takes a uri"):
        bitlake.connect(tmp_path, catalog="jdbc")
    with pytest.raises(InvalidRequest, match="unknown option 'lock' of a jdbc catalog"):
        bitlake.connect(tmp_path, catalog="jdbc", uri=uri, catalog_options={"lock": "x"})
    with pytest.raises(InvalidRequest, match="filesystem catalog takes no uri"):
        bitlake.connect(tmp_path, uri=uri)
    with pytest.raises(InvalidRequest, match="unknown catalog 'hive'"):
        bitlake.connect(tmp_path, catalog="hive", uri=uri)
    with pytest.raises(StorageUnavailable, match="failed"):
        bitlake.connect(tmp_path, catalog="jdbc", uri=f"sqlite:///{tmp_path}/no/such/folder/c.db")
    Path(tmp_path, "garbage.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(StorageUnavailable, match="not a database"):
        bitlake.connect(tmp_path, catalog="jdbc", uri=f"sqlite:///{tmp_path}/garbage.db")


def test_values_that_postgresql_does_not_hold(tmp_path: Path, postgres: str) -> None:
    """Bug: a name that is too long was StorageUnavailable, as if it might pass; a long option's name failed CREATE."""
    lake = bitlake.connect(tmp_path / "wh", catalog="jdbc", uri=postgres, catalog_options={"catalog-key": "long"})
    with pytest.raises(InvalidRequest, match="value too long"):
        lake.create_table("x" * 256, SCHEMA)
    assert not (tmp_path / "wh").exists()
    table = lake.create_table("t", SCHEMA, options={"k" * 300: "v", "v": "x" * 1001})
    assert table.schema.options["k" * 300] == "v"
    lake.drop_table("t")


def test_passwords_are_in_no_text(tmp_path: Path, postgres: str) -> None:
    lake = bitlake.connect(tmp_path, catalog="jdbc", uri=postgres)
    assert "cret" not in repr(lake._catalog) and "cret" not in repr(lake)
    wrong = postgres.replace("se%2Fcret+only", "other-secret")
    with pytest.raises(AccessDenied, match="password") as e:
        bitlake.connect(tmp_path, catalog="jdbc", uri=wrong)
    assert "other-secret" not in str(e.value) and e.value.__cause__ is None
    host = postgres.split("@")[1]
    bitlake.connect(
        tmp_path,
        catalog="jdbc",
        uri=f"jdbc:postgresql://{host}",
        catalog_options={"jdbc.user": "lake", "jdbc.password": "se/cret+only"},
    )
    gone = "postgresql://lake:other-secret@127.0.0.1:9/x"
    with pytest.raises(StorageUnavailable, match="failed") as e2:
        bitlake.connect(tmp_path, catalog="jdbc", uri=gone)
    assert "other-secret" not in str(e2.value)


@pytest.mark.parametrize("uri", ["postgresql://[::1/x", "postgresql://me:se/cret@h/x", "mysql://h:99999/x"])
def test_addresses_that_are_none(uri: str) -> None:
    """Bug: a ValueError, which quoted a part of a password with a slash."""
    with pytest.raises(InvalidRequest, match="is like (postgresql|mysql)://host:port/name") as e:
        open_database(uri)
    assert "se" not in re.findall(r"\w+", str(e.value)) and e.value.__cause__ is None


def test_statements_as_each_dialect_has_them() -> None:
    """Paimon's tables fit into MySQL's keys of 3072 bytes, and its names are told apart by case."""
    sqlalchemy = pytest.importorskip("sqlalchemy")
    from sqlalchemy.dialects import mysql, postgresql

    query, values = sql_database.statement("SELECT 1 FROM t WHERE a = ? AND b = ?", ("x", "y"), "postgresql")
    assert values == {"v0": "x", "v1": "y"}
    assert str(query.compile(dialect=postgresql.psycopg.dialect())).endswith("a = %(v0)s AND b = %(v1)s")
    assert str(query.compile(dialect=mysql.pymysql.dialect())).endswith("a = %s AND b = %s")
    for text in _TABLES:
        assert str(sql_database.statement(text, (), "postgresql")[0]) == text
        made = str(sql_database.statement(text, (), "mysql")[0])
        wide = made.count("VARCHAR(255) COLLATE utf8mb4_bin")
        narrow = made.count("VARCHAR(255) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin")
        assert wide + narrow == text.count("VARCHAR(255)") and 255 * (4 * wide + 3 * narrow) <= 3072
        assert made.endswith("DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    assert isinstance(query, sqlalchemy.TextClause)


def test_a_server_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for uri, module, extra in (
        ("postgresql://h/x", "sqlalchemy", "postgres"),
        ("postgresql://h/x", "psycopg", "postgres"),
        ("jdbc:mysql://h/x?useSSL=false", "pymysql", "mysql"),
    ):
        with monkeypatch.context() as m:
            m.setitem(sys.modules, module, None)
            how = re.escape(install_command(extra))
            with pytest.raises(InvalidRequest, match=f"needs (sqlalchemy|{module}): `{how}`"):
                bitlake.connect(tmp_path, catalog="jdbc", uri=uri)


def test_sqlite_needs_nothing_but_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    lake = bitlake.connect(tmp_path / "wh", catalog="jdbc", uri=f"sqlite:///{tmp_path}/c.db")
    lake.create_table("t", SCHEMA)
    assert lake.tables() == ["t"]


def test_passwords_of_mysql_are_in_no_text(tmp_path: Path, mysql: str) -> None:
    lake = bitlake.connect(tmp_path, catalog="jdbc", uri=mysql)
    assert "cret" not in repr(lake._catalog)
    with pytest.raises(AccessDenied, match="Access denied") as e:
        bitlake.connect(tmp_path, catalog="jdbc", uri=mysql.replace("se%2Fcret+only", "other-secret"))
    assert "other-secret" not in str(e.value) and e.value.__cause__ is None
    host = mysql.split("@")[1]
    options = {"jdbc.user": "lake", "jdbc.password": "se/cret+only"}
    bitlake.connect(tmp_path, catalog="jdbc", uri=f"jdbc:mysql://{host}?useSSL=false", catalog_options=options)
