"""Indexes are built in a thread beside the encoding of rows: the same bytes, and errors of the thread are raised."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

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
