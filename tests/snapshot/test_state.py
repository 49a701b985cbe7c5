"""Opening a table beside statements that rename, drop or replace it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import bitlake
from bitlake.io import open_store
from bitlake.metadata.paths import TablePaths
from bitlake.metadata.snapshot import Snapshot
from bitlake.snapshot import versions
from bitlake.snapshot.state import load_state
from bitlake.snapshot.table_files import TableFiles


@pytest.mark.parametrize("hint", [True, False])
def test_a_table_that_is_renamed_while_it_is_opened_is_not_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hint: bool
) -> None:
    """Its schema is read under the old name, and no snapshot is there any more."""
    lake = bitlake.connect(str(tmp_path))
    table = lake.create_table("t", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    if not hint:
        Path(table.path, "snapshot", "LATEST").unlink()
    read = versions.latest_snapshot

    def renamed(files: TableFiles) -> Snapshot | None:
        monkeypatch.setattr(versions, "latest_snapshot", read)
        lake.rename_table("t", "u")
        return read(files)

    monkeypatch.setattr(versions, "latest_snapshot", renamed)
    with pytest.raises(bitlake.errors.NotFound, match="'default.t' does not exist"):
        table.to_arrow()
    assert lake.table("u").to_arrow().num_rows == 1


def test_a_table_that_is_replaced_by_an_empty_one_while_it_is_opened_is_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = bitlake.connect(str(tmp_path))
    table = lake.create_table("t", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    read = versions.latest_snapshot

    def replaced(files: TableFiles) -> Snapshot | None:
        monkeypatch.setattr(versions, "latest_snapshot", read)
        lake.drop_table("t")
        lake.create_table("t", pa.schema([("name", pa.string())]))
        return read(files)

    monkeypatch.setattr(versions, "latest_snapshot", replaced)
    assert table.to_arrow().schema.names == ["name"]


@pytest.mark.parametrize("root", ["{}", "memory://remains/lake"])
def test_remains_without_a_schema_are_no_table(tmp_path: Path, root: str) -> None:
    folder = root.format(tmp_path)
    store = open_store(folder)
    paths = TablePaths(f"{folder}/t")
    store.write(paths.latest_hint, b"3")
    store.write(paths.snapshot(3), b"{broken")
    assert load_state("t", TableFiles(store, paths)) is None
