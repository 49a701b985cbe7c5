"""Errors that another try cannot mend end a commit at once."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import AccessDenied, StorageFull, StorageUnavailable
from bitlake.io.local import LocalStore
from bitlake.table.table import Table
from bitlake.write import commit

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int32())})
LASTING = {
    errno.ENOSPC: StorageFull,
    errno.EDQUOT: StorageFull,
    errno.EROFS: AccessDenied,
    errno.EACCES: AccessDenied,
    errno.ENOTDIR: AccessDenied,
    errno.ELOOP: AccessDenied,
}


class Waited(Exception):
    pass


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = bitlake.connect(tmp_path / "lake").create_table("t", ROWS.schema)
    table.append(ROWS)
    return table


def failing(number: int, where: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make writes below a folder fail; returns the list of them."""
    tries: list[str] = []
    real = LocalStore._fill

    def fill(self: LocalStore, fd: int, path: str, data: bytes) -> None:
        if f"/{where}/" in path:
            tries.append(path)
            os.close(fd)
            os.unlink(path)
            raise OSError(number, os.strerror(number))
        real(self, fd, path, data)

    monkeypatch.setattr(LocalStore, "_fill", fill)
    return tries


@pytest.mark.parametrize("where", ["manifest", "snapshot"])
@pytest.mark.parametrize("number", LASTING, ids=errno.errorcode.get)
def test_a_commit_fails_at_once(table: Table, monkeypatch: pytest.MonkeyPatch, number: int, where: str) -> None:
    """Bug: a full disk at a commit was tried again 11 times, for 10 to 12 seconds."""
    root = Path(table.path)
    before = sorted(p for p in root.rglob("*") if p.is_file())
    tries = failing(number, where, monkeypatch)

    caller, real = threading.get_ident(), commit.time.sleep

    def sleep(seconds: float) -> None:
        if threading.get_ident() == caller:  # py4j's threads sleep, too
            raise Waited
        real(seconds)

    monkeypatch.setattr(commit.time, "sleep", sleep)
    with pytest.raises(LASTING[number]) as raised:
        table.append(ROWS)
    assert (type(raised.value) is LASTING[number] and os.strerror(number).lower() in str(raised.value).lower()) or (
        number == errno.ENOTDIR
    )
    assert len(tries) == 1
    assert sorted(p for p in root.rglob("*") if p.is_file()) == before
    monkeypatch.undo()
    table.append(ROWS)
    assert table.scan().to_arrow().num_rows == 6


def test_what_may_pass_is_tried_again(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = failing(errno.EIO, "manifest", monkeypatch)
    monkeypatch.setattr(commit.time, "sleep", lambda seconds: None)
    with pytest.raises(StorageUnavailable, match="failed 11 times"):
        table.append(ROWS)
    assert len(tries) == 11


def test_a_data_file_on_a_full_disk(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    real = LocalStore.open_output

    class Full:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def write(self, data: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    monkeypatch.setattr(LocalStore, "open_output", lambda self, path: Full(real(self, path)))
    with pytest.raises(StorageFull, match="bucket-0.*free space"):
        table.append(ROWS)
