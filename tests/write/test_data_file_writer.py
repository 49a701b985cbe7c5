"""Indexes are built in a thread beside the encoding of rows: the same bytes, and errors of the thread are raised."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bitlake
from bitlake.fileindex.registry import IndexBuilder, parse_index_options
from bitlake.write import data_file_writer

OPTIONS = {
    "bitlake.index.grams": "ngram(s)",
    "bitlake.index.words": "tokens(s)",
    "file-index.bitmap.columns": "k",
    "file-index.in-manifest-threshold": "100 mb",
}
ROWS = 1 << 17


def rows(count: int) -> pa.Table:
    keys, texts = [i % 7 for i in range(count)], [f"request {i:09} of shard {i % 31}" for i in range(count)]
    return pa.table({"k": keys, "s": texts}, schema=pa.schema([("k", pa.int64()), ("s", pa.string())]))


def table(folder: Path, options: dict[str, str]) -> bitlake.Table:
    return bitlake.connect(str(folder)).create_table("t", rows(0).schema, options=OPTIONS | options)


def index_threads(monkeypatch: pytest.MonkeyPatch, fails_at: int | None = None) -> list[str]:
    """The names of the threads that added rows to builders; the given call fails."""
    names: list[str] = []
    add = IndexBuilder.add

    def recorded(self: IndexBuilder, batch: Any) -> None:
        names.append(threading.current_thread().name)
        if len(names) == fails_at:
            raise ZeroDivisionError
        add(self, batch)

    monkeypatch.setattr(data_file_writer.IndexBuilder, "add", recorded)
    return names


@pytest.mark.parametrize("group", ["128 mb", "1 mb"])
def test_a_thread_builds_the_same_indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str) -> None:
    logs = table(tmp_path, {"file.block-size": group})
    data = rows(ROWS)
    with monkeypatch.context() as patch:
        threads = index_threads(patch)
        logs.append(data)
    assert len(threads) > 1
    assert all(name.startswith("bitlake-index") for name in threads)
    (planned,) = logs.scan().plan().files
    schema = logs.schema
    builder = IndexBuilder(parse_index_options(schema.options, schema.fields), schema.fields)
    builder.add(data)
    assert planned.entry.file.embedded_index == builder.finish(checksums=True)
    assert logs.count("s LIKE '%000077777%'") == 1


def test_few_rows_start_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = index_threads(monkeypatch)
    table(tmp_path, {}).append(rows(100))
    assert threads == [threading.current_thread().name]


@pytest.mark.parametrize("call", [1, 2])
def test_an_error_of_the_thread_fails_the_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    logs = table(tmp_path, {})
    index_threads(monkeypatch, fails_at=call)
    with pytest.raises(ZeroDivisionError):
        logs.append(rows(ROWS))
    assert logs.count() == 0
    assert not list(tmp_path.rglob("data-*"))
    assert not [t.name for t in threading.enumerate() if t.name.startswith("bitlake-index")]


DAYS = pa.schema([("id", pa.int64()), ("day", pa.int32())])


def days(count: int, batch: int) -> pa.RecordBatchReader:
    """Rows of ``count`` days in turns, in batches that hold rows of many days."""
    ids = np.arange(6 * count)
    return pa.table([ids, ids * 7 % count], schema=DAYS).to_reader(batch)


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"bucket": "2", "bucket-key": "id"}, marks=pytest.mark.exhaustive),
        pytest.param({"primary_key": "id", "bucket": "-2"}, marks=pytest.mark.exhaustive),
    ],
)
def test_few_files_are_open_at_a_time(tmp_path: Path, options: dict[str, str]) -> None:
    program = f"""
import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
import bitlake, sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_data_file_writer import DAYS, days
options = {options}
key = options.pop("primary_key", None)
table = bitlake.connect({str(tmp_path)!r}).create_table(
    "t", DAYS, partition_by=["day"], primary_key=key and ["day", key], options=options)
(table.upsert if key else table.append)(days(150, 500))
if key: table.maintenance.compact()
print(table.count(), table.scan(where="day = 149").to_arrow().num_rows)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.stdout == "900 6\n", run.stderr


@pytest.mark.parametrize(("held", "files_of_others"), [("1 b", 3), ("256 mb", 1)])
def test_rows_of_a_partition_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: str, files_of_others: int
) -> None:
    monkeypatch.setattr(data_file_writer, "_most_open", lambda: 3)
    lake = bitlake.connect(str(tmp_path))
    table = lake.create_table("t", DAYS, partition_by=["day"], options={"write-buffer-size": held})
    table.append(days(10, 20))
    for day in range(10):
        expected = [i for i in range(60) if i * 7 % 10 == day]
        assert table.scan(where=f"day = {day}").to_arrow()["id"].to_pylist() == expected
    files = Counter(f.partition for f in table.scan().plan().files)
    assert sorted(files.values()) == [1] * 3 + [files_of_others] * 7


def test_an_error_deletes_the_files_of_all_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_file_writer, "_most_open", lambda: 3)
    lake = bitlake.connect(str(tmp_path))
    table = lake.create_table("t", DAYS, partition_by=["day"], options={"write-buffer-size": "1 b"})

    def broken() -> Iterator[pa.RecordBatch]:
        yield from days(10, 20)
        raise ZeroDivisionError

    with pytest.raises(pa.ArrowInvalid, match="ZeroDivisionError"):
        table.append(pa.RecordBatchReader.from_batches(DAYS, broken()))
    assert not list(tmp_path.rglob("*.parquet"))
