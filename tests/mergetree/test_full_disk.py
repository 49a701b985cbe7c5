"""No room left in the middle of a write, a compaction or a commit: one clear error, no snapshot, no file left behind.

A process that may not write files beyond a size stands for a full disk: it gets its errors in the middle of a file.
With more and more room, what fails is the first small file, then manifests, then data files, until nothing does.
"""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import keyed_tables
import pyarrow as pa
import pytest
from faults import strays

from bitlake.errors import StorageUnavailable
from bitlake.table.table import Table

resource = pytest.importorskip("resource")

ROOMS = (100, 600, 1500, 2200, 3000, 6000, 30_000, 60_000, 1_000_000)
"""Bytes that a file may have."""
SUM = {"merge-engine": "aggregation"}
LATER = {"write-only": "true"}


def rows_of(ids: range) -> pa.Table:
    """Rows of about a kilobyte each, which do not compress well; the one of key 6 is short."""
    texts = ["short" if i == 6 else random.Random(i).randbytes(1000).hex() for i in ids]
    return pa.table({"id": list(ids), "v": texts}, schema=keyed_tables.COLUMNS)


def many(table: Table) -> None:
    table.upsert(rows_of(range(1, 200)))


def one(table: Table) -> None:
    table.upsert(pa.table({"id": [4], "v": ["new"]}, schema=keyed_tables.COLUMNS))


def delete(table: Table) -> None:
    table.delete("id = 4")


def delete_short(table: Table) -> None:
    table.delete("id = 6")


def compact(table: Table) -> None:
    table.maintenance.compact(full=True)


DATA, COMMIT = {"bucket"}, {"bucket", "manifest"}
# What is done, options of the table, and in which folders of it there is no room.
CASES: dict[str, tuple[Callable[[Table], None], dict[str, str], set[str]]] = {
    "upsert": (many, {}, DATA),
    "upsert of one row": (one, LATER, COMMIT),
    "upsert, vectors": (many, {**keyed_tables.DV, "bucket": "2"}, DATA),
    "upsert of one row, vectors": (one, keyed_tables.DV, COMMIT),
    "upsert, dynamic buckets": (many, {"bucket": "-1"}, DATA),
    "upsert, input changelog": (many, {"changelog-producer": "input"}, DATA),
    "upsert, postponed": (many, {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"}, DATA),
    "upsert, fixed bucket of a postponed table": (many, {"bucket": "-2"}, DATA),
    "compaction": (compact, LATER, DATA),
    "compaction, vectors": (compact, {**LATER, **keyed_tables.DV}, DATA),
    "compaction, lookup": (compact, {**LATER, "changelog-producer": "lookup"}, DATA),
    "files written again": (delete, {**LATER, **SUM}, DATA),
    "-D row, file index": (
        delete_short,
        {"file-index.bloom-filter.columns": "v", "file-index.in-manifest-threshold": "1 b"},
        COMMIT,
    ),
}


@contextlib.contextmanager
def room(limit: int) -> Iterator[None]:
    """Files of this process end at ``limit`` bytes; Python ignores the signal that comes with it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CASES)
def test_one_error_no_snapshot_and_no_strays(tmp_path: Path, name: str) -> None:
    operation, options, folders = CASES[name]
    table, free = (keyed_tables.made(tmp_path / folder, **options) for folder in ("full", "free"))
    for rows in (rows_of(range(0, end, 2)) for end in (20, 40, 60)):
        table.upsert(rows)
        free.upsert(rows)
    operation(free)
    before, wanted = table.snapshot, keyed_tables.read(table, level_0=True)
    failed = set()
    for limit in ROOMS:
        try:
            with room(limit):
                operation(table)
        except StorageUnavailable as e:
            text = str(e)
            assert "File too large" in text, text
            failed |= set(
                re.findall(rf"cannot \w+ {re.escape(str(tmp_path))}\S*/([a-z]+)(?:-[a-z0-9]+)?/[^/]+: ", text)
            )
            assert table.snapshot == before, limit
            assert strays(table) == set(), limit
            assert keyed_tables.read(table, level_0=True) == wanted, limit
        else:
            break
    assert failed == folders, name
    assert keyed_tables.read(table, level_0=True) == keyed_tables.read(free, level_0=True)
    assert strays(table) == set()
    compact(table)
    compact(free)
    assert keyed_tables.read(table, level_0=True) == keyed_tables.read(free, level_0=True)
