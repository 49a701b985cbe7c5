"""The base class of catalogs: a catalog that implements its abstract methods alone is a whole catalog."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from store_wrappers import CountingStore

import bitlake
from bitlake.catalog.catalog import Catalog, Identifier, View, identifier_exists, open_state
from bitlake.catalog.filesystem import FileSystemCatalog, create_first_schema, delete_table
from bitlake.catalog.jdbc import JdbcCatalog
from bitlake.catalog.rest import RestCatalog
from bitlake.errors import AccessDenied, AlreadyExists, CorruptError, InvalidRequest, NotFound, UnsupportedFeature
from bitlake.io.local import LocalStore
from bitlake.metadata.schema import Names, TableSchema
from bitlake.snapshot.state import TableState

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string()})
ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", None]}, schema=SCHEMA)


class DictCatalog(Catalog):
    """Table names in a dict of folders; the folders' names have nothing to do with the tables' names."""

    kind = "dict"

    def __init__(self, root: Path) -> None:
        super().__init__(LocalStore(), str(root))
        self.folders: dict[str, dict[str, str]] = {"default": {}}
        self.created = 0

    def databases(self) -> list[str]:
        return sorted(self.folders)

    def create_database(
        self, name: str, *, if_not_exists: bool = False, properties: Mapping[str, str] | None = None
    ) -> None:
        if name in self.folders and not if_not_exists:
            raise AlreadyExists(f"database '{name}' already exists")
        self.folders.setdefault(name, {})

    def drop_database(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        if name not in self.folders and if_exists:
            return
        tables = self.tables(name)
        if not cascade:
            self._check_empty(name, tables)
        for table in tables:
            self.drop_table(Identifier(name, table))
        del self.folders[name]

    def tables(self, database: str) -> list[str]:
        self._check_database(database)
        return sorted(self.folders[database])

    def table_exists(self, name: Identifier) -> bool:
        return name.table in self.folders.get(name.database, {})

    def table_path(self, name: Identifier) -> str:
        if not self.table_exists(name):
            raise self._table_not_found(name)
        return self.folders[name.database][name.table]

    def _create_table(self, name: Identifier, schema: TableSchema) -> None:
        self._check_database(name.database)
        self.created += 1
        folder = f"{self.warehouse}/folder-{self.created}"
        assert create_first_schema(self.store, folder, schema)
        self.folders[name.database][name.table] = folder

    def rename_table(self, old: Identifier, new: Identifier) -> None:
        self._check_rename(old, new)
        self.folders[new.database][new.table] = self.folders[old.database].pop(old.table)

    def drop_table(self, name: Identifier, *, if_exists: bool = False) -> None:
        if not self.table_exists(name):
            if if_exists:
                return
            raise self._table_not_found(name)
        delete_table(self.store, self.folders[name.database].pop(name.table))


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    lake = bitlake.connect(tmp_path)
    lake._catalog = DictCatalog(tmp_path)
    return lake


def folder(lake: bitlake.Lake, name: str) -> Path:
    return Path(lake.table(name).path)


def state_of(lake: bitlake.Lake, name: str) -> TableState:
    return open_state(lake._catalog, Identifier("default", name))


def test_tables_are_created_written_and_read(lake: bitlake.Lake, tmp_path: Path) -> None:
    table = lake.create_table("t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    table.append(ROWS)
    table.upsert(ROWS.slice(0, 1).set_column(1, "name", pa.array(["z"])))
    assert folder(lake, "t") == tmp_path / "folder-1", "tables are where the catalog says"
    assert lake.table("T").scan().to_arrow().sort_by("id")["name"].to_pylist() == ["z", "b", None]
    assert state_of(lake, "t").snapshot_id == 2 and state_of(lake, "t").schema.primary_keys == ("id",)
    assert lake.verify("t").ok
    with pytest.raises(AlreadyExists, match=r"default\.t"):
        lake.create_table("t", SCHEMA)
    lake.create_table("t", SCHEMA, if_not_exists=True)
    with pytest.raises(NotFound, match="database 'no'"):
        lake.create_table("no.t", SCHEMA)
    assert lake.tables() == ["t"]


def test_a_folder_that_may_not_be_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: one such table kept all of its database from being listed, and others from being made and found."""
    lake = bitlake.connect(tmp_path)
    for name in ("orders", "secret"):
        lake.create_table(name, SCHEMA)
    names = LocalStore.names

    def refuse(store: LocalStore, path: str) -> list[str]:
        if "/secret" in path:
            raise AccessDenied(f"cannot list {path}: Permission denied")
        return names(store, path)

    monkeypatch.setattr(LocalStore, "names", refuse)
    assert lake.tables() == ["orders", "secret"]
    with pytest.raises(NotFound, match=r"default\.ordrs' does not exist; did you mean orders"):
        lake.table("ordrs")
    lake.create_table("more", SCHEMA).append(ROWS)
    assert lake.table("more").count() == ROWS.num_rows
    with pytest.raises(AccessDenied, match="secret"):
        lake.table("secret")
    shown = lake.sql("SHOW TABLE EXTENDED LIKE '*'", engine="duckdb")
    assert shown["tableName"].to_pylist() == ["more", "orders"]
    lake.sql("CALL sys.remove_orphan_files('default.*')", engine="duckdb")


def test_branches_and_system_tables_are_resolved(lake: bitlake.Lake) -> None:
    table = lake.create_table("t", SCHEMA)
    table.append(ROWS)
    table.history.create_tag("one")
    table.history.create_branch("dev", tag="one")
    lake.table("t$branch_dev").append(ROWS)
    assert (
        lake.table("t$branch_dev").scan().to_arrow().num_rows == 6 and lake.table("t").scan().to_arrow().num_rows == 3
    )
    assert state_of(lake, "T$branch_dev").name == "default.t$branch_dev"
    assert lake.table("t$branch_dev$snapshots").scan().to_arrow().num_rows == 2
    with pytest.raises(NotFound, match="no branch 'none'"):
        state_of(lake, "t$branch_none")
    with pytest.raises(InvalidRequest, match="system table"):
        state_of(lake, "t$snapshots")
    with pytest.raises(InvalidRequest, match="invalid table name 't\\$a\\$b'"):
        state_of(lake, "t$a$b")
    for name in ("t$branch_new", "t$files", "u$v"):
        with pytest.raises(InvalidRequest, match="must not contain '.', which begins the name of a branch or system"):
            lake.create_table(name, SCHEMA)
        with pytest.raises(InvalidRequest, match="must not contain '.', which begins the name of a branch or system"):
            lake.rename_table("t", name)
    names = ("t", "t$files", "T$branch_any$files", "u", "u$files", "$files")
    assert [identifier_exists(lake._catalog, Identifier("default", n)) for n in names] == [True] * 3 + [False] * 3


def test_names_are_found_by_case(lake: bitlake.Lake) -> None:
    lake.create_database("Db")
    for name in ("Db.Tt", "Db.same", "Db.SAME"):
        lake.create_table(name, SCHEMA)

    def find(database: str, table: str, names: Names = Names.FOLDED) -> tuple[str, str]:
        found = lake._catalog.find(Identifier(database, table), names)
        return found.database, found.table

    assert find("dB", "tT") == ("Db", "Tt")
    assert find("dB", "tT", Names.EXACT) == ("dB", "tT")
    assert find("Db", "same") == ("Db", "same")
    assert find("db", "Same") == ("Db", "Same"), "two tables match"
    assert find("none", "tt") == ("none", "tt")


def test_names_are_renamed_and_dropped(lake: bitlake.Lake) -> None:
    lake.create_table("t", SCHEMA).append(ROWS)
    lake.create_table("u", SCHEMA)
    lake.create_database("other")
    with pytest.raises(AlreadyExists, match=r"default\.u"):
        lake.rename_table("t", "u")
    with pytest.raises(NotFound, match="database 'no'"):
        lake.rename_table("t", "no.t")
    assert lake.rename_table("t", "other.v").scan().to_arrow().num_rows == 3
    with pytest.raises(InvalidRequest, match=r"'other' is not empty \(1 tables, the first is v\)"):
        lake.drop_database("other")
    kept = folder(lake, "other.v")
    lake.drop_database("other", cascade=True)
    assert not kept.exists() and lake.databases() == ["default"]
    with pytest.raises(NotFound, match="did you mean u"):
        lake.drop_table("uu")


def test_what_a_catalog_does_not_store_is_refused(lake: bitlake.Lake) -> None:
    assert lake._catalog.views("default") == [] and lake._catalog.find_view(Identifier("default", "v")) is None
    assert lake._catalog.database_properties("default") == {}
    with pytest.raises(UnsupportedFeature, match="a dict catalog has no views"):
        lake._catalog.create_view(Identifier("default", "v"), View("SELECT 1"))
    with pytest.raises(UnsupportedFeature, match="a dict catalog stores none"):
        lake._catalog.alter_database("default", {"k": "v"})
    with pytest.raises(NotFound, match="database 'no'"):
        lake._catalog.alter_database("no", {"k": "v"})


def test_a_schema_that_cannot_be_read_does_not_hide_the_table(lake: bitlake.Lake) -> None:
    path = folder(lake, lake.create_table("t", SCHEMA).name)
    (path / "schema" / "schema-0").write_text("{")
    with pytest.raises(CorruptError, match=r"default\.t"):
        state_of(lake, "t")
    with pytest.raises(CorruptError, match=r"default\.t"):
        lake.table("t").scan()
    assert not lake.verify("t").ok


def test_a_schema_is_read_by_what_needs_it_and_not_to_open_the_table(lake: bitlake.Lake) -> None:
    lake.create_table("t", ROWS)
    store = lake._catalog.store = CountingStore(lake._catalog.store)
    table = lake.table("t")
    assert store.calls["read"] == 0
    table.scan()
    assert [path.rpartition("/")[2] for call, path in store.paths if call == "read"].count("schema-0") == 1


def test_catalogs_share_a_base_class_and_no_implementation() -> None:
    for kind in (FileSystemCatalog, JdbcCatalog, RestCatalog):
        assert kind.__bases__ == (Catalog,)
    with pytest.raises(TypeError, match="abstract"):
        Catalog(LocalStore(), "/")  # type: ignore[abstract]


def test_properties_that_a_folder_cannot_store_are_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = FileSystemCatalog(LocalStore(), str(tmp_path))
    with caplog.at_level(logging.WARNING, "bitlake"):
        catalog.create_database("db", properties={"owner": "me"})
    assert "stores no properties; ignored: owner" in caplog.text
