"""Keys are found where the lowest level has them alive: against brute force, for keys of every type and shape."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from caches import forget
from lsm_builders import context_of, put_files, rows_of, state_of

from bitlake.codec.binary_row import EMPTY_ROW
from bitlake.errors import CorruptError, NotFound
from bitlake.merge.keys import group_rows
from bitlake.mergetree import lookup
from bitlake.mergetree.bucket import BucketReader
from bitlake.mergetree.lookup import KeyLookup
from bitlake.metadata.manifest import ManifestEntry
from bitlake.schema.merge_spec import encode_key
from bitlake.snapshot.index_files import read_vectors
from bitlake.snapshot.table_files import TableFiles

START = datetime(2020, 1, 1)
MAKE: dict[str, Any] = {
    "INT": lambda i: i - 200,
    "BIGINT": lambda i: (i - 100) * 2**40,
    "BOOLEAN": lambda i: i % 2 == 1,
    "STRING": lambda i: f"{i:04d}\u00e9"[: 1 + i % 5] + str(i),
    "VARBINARY(20)": lambda i: i.to_bytes(2, "big") * (1 + i % 3),
    "DOUBLE": lambda i: [-0.0, 0.0, float("inf"), -float("inf")][i] if i < 4 else (i - 150) / 7,
    "DECIMAL(20, 2)": lambda i: Decimal(i - 150).scaleb(-2),
    "DATE": lambda i: date(1969, 1, 1) + timedelta(i * 3),
    "TIMESTAMP(3)": lambda i: START - timedelta(milliseconds=i),
    "TIMESTAMP(6)": lambda i: START + timedelta(microseconds=i - 99),
}
N = 2000
PAGES = {"parquet.page.row.count.limit": "64"}


@pytest.fixture(autouse=True)
def any_file_is_worth_its_page_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_WORTH_PAGES", 1)


SEVERAL = [("STRING", "INT"), ("INT", "STRING"), ("BOOLEAN", "BIGINT", "DATE"), ("DECIMAL(20, 2)", "DOUBLE", "STRING")]
CASES = [("parquet", (t,)) for t in MAKE if t != "BOOLEAN"] + [("parquet", types) for types in SEVERAL]
CASES += [(made, types) for made in ("orc", "avro") for types in [("BIGINT",), ("STRING",), SEVERAL[3]]]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("made", "types"), CASES, ids=str)
def test_keys_are_found_where_brute_force_finds_them(made: str, types: tuple[str, ...], tmp_path: Path) -> None:
    names = [f"k{i}" for i in range(len(types))]
    columns = [*((n, f"{t} NOT NULL") for n, t in zip(names, types, strict=True)), ("v", "STRING")]
    options = {"deletion-vectors.enabled": "true", "file.format": made, **PAGES}
    context, store = context_of(tmp_path, columns, names, options)
    chance = random.Random(len(made) + len(types))

    def key(i: int) -> tuple[Any, ...]:
        return tuple(MAKE[t](i if n == len(types) - 1 else i // 300) for n, t in enumerate(types))

    def rows(numbers: list[int]) -> pa.Table:
        made = [dict(zip(names, key(i), strict=True)) for i in numbers]
        table = rows_of(
            context,
            [{**m, "v": "x" * 9, "_SEQUENCE_NUMBER": i, "_VALUE_KIND": 0} for m, i in zip(made, numbers, strict=True)],
        )
        groups = group_rows([table.column(n) for n in names], [np.arange(len(table))], key_order=True)
        return table.take(pa.array(groups.order))

    files: list[ManifestEntry] = []
    vectors: dict[str, list[int]] = {}
    where: dict[int, tuple[str, int]] = {}
    for level in (3, 2, 1, 0):
        table = rows(sorted(chance.sample(range(N), N // 2)))
        cuts = [0, *sorted(chance.sample(range(1, N // 2), 2)), N // 2]
        parts = [table.slice(a, b - a) for a, b in itertools.pairwise(cuts)]
        for part, entry in zip(parts, put_files(context, store, level, *parts), strict=True):
            files.append(entry)
            gone = sorted(chance.sample(range(part.num_rows), part.num_rows // 4)) if level else []
            if gone:
                vectors[entry.file.file_name] = gone
            for at, number in enumerate(part.column("_SEQUENCE_NUMBER").to_pylist()):
                if level and at not in gone:
                    where[number] = (entry.file.file_name, at)
    state = state_of(context, store, files, vectors)
    assert state.vectors is not None
    read = read_vectors(TableFiles(store, context.paths), context.schema, state.vectors)
    reader = BucketReader(context, store, EMPTY_ROW, read)
    chance.shuffle(files)
    for count in (0, 1, 5, 60, N):
        asked = rows(sorted(chance.sample(range(N), count)))
        numbers = asked.column("_SEQUENCE_NUMBER").to_pylist()
        hits = KeyLookup(reader, files, 1).find([asked.column(n).combine_chunks() for n in names])
        found = {
            numbers[k]: (h.entry.file.file_name, p)
            for h in hits
            for k, p in zip(h.keys.tolist(), h.positions.tolist(), strict=True)
        }
        assert sum(len(h.keys) for h in hits) == len(found)
        assert found == {n: where[n] for n in numbers if n in where}
        assert all((np.diff(h.positions) > 0).all() and (np.diff(h.keys) > 0).all() for h in hits)
    above = KeyLookup(reader, files, 3).find([rows(list(range(N))).column(n).combine_chunks() for n in names])
    assert {h.entry.file.level for h in above} == {3}
    assert not KeyLookup(reader, files, 4)


def test_only_pages_that_can_hold_a_key_are_read(tmp_path: Path) -> None:
    columns = [("k", "BIGINT NOT NULL"), ("wide", "STRING")]
    context, store = context_of(tmp_path, columns, ["k"], {**PAGES, "parquet.page.row.count.limit": "100"})
    made = [{"k": 2 * i, "wide": "y" * 50, "_SEQUENCE_NUMBER": i, "_VALUE_KIND": 0} for i in range(20_000)]
    files = put_files(context, store, 5, rows_of(context, made))
    reader = BucketReader(context, store, EMPTY_ROW, {})
    (hit,) = KeyLookup(reader, files, 1).find([pa.array([1, 4444, 4446, 30_001, 30_002])])
    assert hit.positions.tolist() == [2222, 2223, 15_001]
    assert reader.counts.rows_read <= 300 and reader.counts.bytes < files[0].file.file_size / 10
    reader = BucketReader(context, store, EMPTY_ROW, {})
    assert not KeyLookup(reader, files, 1).find([pa.array([-5, 50_000])])
    assert reader.counts.bytes == reader.counts.rows_read == 0


@pytest.mark.parametrize("kind", ["bloom-filter", "bitmap"])
@pytest.mark.parametrize("threshold", ["1 mb", "1 b"])
def test_few_keys_ask_the_indexes_of_a_file(kind: str, threshold: str, tmp_path: Path) -> None:
    columns = [("a", "INT NOT NULL"), ("k", "STRING NOT NULL")]
    options = {f"file-index.{kind}.columns": "k", "file-index.in-manifest-threshold": threshold}
    context, store = context_of(tmp_path, columns, ["a", "k"], options)
    made = [{"a": i // 10, "k": f"k{i}", "_SEQUENCE_NUMBER": i, "_VALUE_KIND": 0} for i in range(1000)]
    table = rows_of(context, made)
    groups = group_rows([table.column("a"), table.column("k")], [np.arange(1000)], key_order=True)
    files = put_files(context, store, 5, table.take(pa.array(groups.order)))
    reader = BucketReader(context, store, EMPTY_ROW, {})
    (hit,) = KeyLookup(reader, files, 1).find([pa.array([50, 50, 51], pa.int32()), pa.array(["k500", "x", "k1"])])
    assert hit.keys.tolist() == [0] and hit.positions.tolist() == [500]
    opened = 0
    for i in range(20):
        reader = BucketReader(context, store, EMPTY_ROW, {})
        assert not KeyLookup(reader, files, 1).find([pa.array([50], pa.int32()), pa.array([f"absent{i}"])])
        opened += reader.counts.bytes > 0
    # A bloom filter lets one in ten pass.
    assert opened <= (6 if kind == "bloom-filter" else 0)
    if threshold == "1 b":
        for path in tmp_path.rglob("*.index"):
            path.unlink()
        forget()
        assert not KeyLookup(reader, files, 1).find([pa.array([50], pa.int32()), pa.array(["absent1"])])
        assert reader.counts.bytes > 0


def test_a_file_that_cannot_be_searched_is_an_error_that_names_it(tmp_path: Path) -> None:
    context, store = context_of(tmp_path, [("k", "INT NOT NULL")], ["k"], {})
    rows = rows_of(context, [{"k": k, "_SEQUENCE_NUMBER": 0, "_VALUE_KIND": 0} for k in (3, 1, 2)])
    (entry,) = put_files(context, store, 1, rows)
    entry = replace(
        entry, file=replace(entry.file, min_key=encode_key(context.schema, rows.slice(1)), max_key=entry.file.min_key)
    )
    reader = BucketReader(context, store, EMPTY_ROW, {})
    keys = [pa.array([1, 2], pa.int32())]
    with pytest.raises(CorruptError, match=rf"order of their keys.*{entry.file.file_name}"):
        KeyLookup(reader, [entry], 1).find(keys)
    missing = replace(entry, file=replace(entry.file, file_name="data-gone-0.parquet"))
    with pytest.raises(NotFound, match="data-gone-0"):
        KeyLookup(reader, [missing], 1).find(keys)
    damaged = replace(entry, file=replace(entry.file, min_key=b"\0\0"))
    with pytest.raises(CorruptError, match=entry.file.file_name):
        KeyLookup(reader, [damaged], 1)
