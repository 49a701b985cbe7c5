"""Connecting: what names a lake's folder, and what does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import InvalidRequest, StorageUnavailable

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
