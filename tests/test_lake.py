"""Connecting: what names a lake's folder, and what does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import InvalidRequest, NotFound, StorageUnavailable

SCHEMA = pa.schema([("i", pa.int32())])


@pytest.mark.parametrize("path", ["", " ", None, 5])
def test_what_is_no_folder_is_refused(path: Any) -> None:
    with pytest.raises(InvalidRequest, match="folder"):
        bitlake.connect(path)


@pytest.mark.parametrize("form", ["{0}", "file:{0}", "file://{0}", "file://localhost{0}"])
@pytest.mark.parametrize("name", ["sp ace", "per%cent%20", "ha#sh", "q?", "br{a,c}[e]s*", "ünï日", "a=b"])
def test_any_name_of_a_folder(tmp_path: Path, form: str, name: str) -> None:
    lake = bitlake.connect(form.format(tmp_path / name))
    lake.create_table("t", SCHEMA).append(pa.table({"i": [1, 2]}, schema=SCHEMA))
    assert lake.table("t").scan(where="i = 2").to_arrow().to_pylist() == [{"i": 2}]
    assert (tmp_path / name / "default.db" / "t").is_dir()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageUnavailable, match="not a folder"):
        bitlake.connect(tmp_path / "file").create_table("t", SCHEMA)


def test_looking_makes_nothing(tmp_path: Path) -> None:
    assert bitlake.connect(tmp_path / "none").tables() == []
    assert not (tmp_path / "none").exists()


def test_tables_are_found_as_in_sql(tmp_path: Path) -> None:
    """Backticks are no part of a name, and case tells only tables apart that both are there."""
    lake = bitlake.connect(tmp_path)
    lake.create_database("Db")
    lake.create_table("Db.T", SCHEMA).append(pa.table({"i": [7]}, schema=SCHEMA))
    for name in ("`Db`.`T`", "db.t", "`DB`.t", "Db.T"):
        assert lake.table(name).name == "Db.T"
        assert lake.table(name).scan().to_arrow().to_pylist() == [{"i": 7}]
    lake.create_table("`od.d`", SCHEMA)
    assert lake.table("`OD.d`").name == "default.od.d"
    lake.create_table("Db.t", SCHEMA)
    assert lake.table("Db.T").name == "Db.T" and lake.table("db.t").name == "Db.t"
    lake.create_table("Db.tT", SCHEMA)
    lake.create_table("Db.Tt", SCHEMA)
    with pytest.raises(NotFound, match="tt"):
        lake.table("Db.tt")
    lake.rename_table("DB.Tt", "Db.other")
    lake.drop_table("`db`.`OTHER`")
    assert lake.tables("Db") == ["T", "t", "tT"]
    for wrong in ("`Db.T", "a.b.c", "`elsewhere`.`a`.`b`", "`a`b"):
        with pytest.raises(InvalidRequest):
            lake.table(wrong)
