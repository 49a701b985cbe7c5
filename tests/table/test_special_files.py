"""FIFOs, devices and huge files in a table's place: each is refused at once, or ignored where it is only a hint."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from caches import forget

import bitlake
from bitlake.errors import BitlakeError, CorruptError
from bitlake.io.local import LocalStore
from bitlake.metadata.java_json import JSON_BYTES


@pytest.fixture(autouse=True)
def never_waits() -> Iterator[None]:
    """Opening a FIFO waits for a writer: the alarm interrupts it, which fails the test."""

    def stop(*_: object) -> None:
        raise TimeoutError("waited for a file")

    old = signal.signal(signal.SIGALRM, stop)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old)


@pytest.fixture
def table(tmp_path: Path) -> bitlake.Table:
    lake = bitlake.connect(tmp_path)
    options = {
        "deletion-vectors.enabled": "true",
        "file-index.bitmap.columns": "s",
        "file-index.in-manifest-threshold": "1 b",
        "bucket": "-1",
    }
    rows = pa.table({"i": range(5000), "s": [f"s{n % 7}" for n in range(5000)]})
    made = lake.create_table("t", rows.schema, options=options)
    made.append(rows)
    made.delete("i < 10")
    return made


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    with path.open("wb") as f:
        f.truncate(1 << 40)


PLACES = ("snapshot/snapshot-2", "schema/schema-0", "manifest/manifest-*", "manifest/index-manifest-*", "index/index-*")


@pytest.mark.parametrize("make", [fifo, device, sparse])
@pytest.mark.parametrize("place", [*PLACES, "bucket-0/*.parquet"])
def test_a_file_that_is_not_one_is_an_error(table: bitlake.Table, place: str, make: Callable[[Path], None]) -> None:
    # A FIFO as a snapshot or manifest waited for ever; a device, and a sparse file of 1 TB, exhausted memory.
    for path in Path(table.path).glob(place):
        make(path)
    forget()
    with pytest.raises(BitlakeError) as caught:
        bitlake.connect(Path(table.path).parents[1]).table("t").scan().to_arrow()
    if make is not sparse or not place.endswith("parquet"):
        assert isinstance(caught.value, CorruptError), caught.value


@pytest.mark.parametrize("make", [fifo, device, sparse])
@pytest.mark.parametrize("hint", ["LATEST", "EARLIEST"])
def test_a_hint_that_is_not_a_file_is_ignored(table: bitlake.Table, hint: str, make: Callable[[Path], None]) -> None:
    make(Path(table.path, "snapshot", hint))
    again = bitlake.connect(Path(table.path).parents[1]).table("t")
    assert again.scan().to_arrow().num_rows == 4990
    assert [s.id for s in again.history.snapshots()] == [1, 2]


@pytest.mark.parametrize("make", [fifo, device, sparse])
def test_an_index_that_is_not_a_file_is_not_asked(table: bitlake.Table, make: Callable[[Path], None]) -> None:
    (path,) = Path(table.path).glob("bucket-0/*.index")
    make(path)
    forget()
    scan = table.scan(where="s = 's3'")
    (problem,) = scan.plan().problems
    assert path.name.removesuffix(".index") in problem
    assert scan.to_arrow().num_rows == sum(n % 7 == 3 for n in range(10, 5000))


def test_a_file_of_json_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "snapshot-1"
    path.write_bytes(b"[" + b"{}," * (JSON_BYTES // 3) + b"{}]")
    with pytest.raises(CorruptError, match="files of its kind are read up to 16,777,216 bytes"):
        LocalStore().read(str(path), JSON_BYTES)
