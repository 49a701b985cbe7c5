"""Writers whose table is dropped, created again or renamed while they write: it happens between any two store calls.

A commit to a table that was dropped and created by others was acknowledged, and left the new table unreadable: its
first snapshot named data files that the drop had deleted.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from caches import forget
from faults import Between
from long import exhaustive
from store_wrappers import FaultyStore

import bitlake
from bitlake.errors import AlreadyExists, BitlakeError, CommitConflict, NotFound, StorageUnavailable
from bitlake.io.local import LocalStore
from bitlake.table.table import Table

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
KEYED = {"primary-key": "id", "bucket": "1"}


def rows(*ids: int) -> pa.Table:
    return pa.table([list(ids), [i * 10 for i in ids]], schema=SCHEMA)


def put(table: Table, *ids: int) -> None:
    table.upsert(rows(*ids)) if table.schema.primary_keys else table.append(rows(*ids))


def ids(lake: bitlake.Lake, name: str) -> list[int]:
    forget()
    return sorted(lake.table(name).scan().with_level_0().to_arrow().column("id").to_pylist())


def drop(lake: bitlake.Lake, options: dict[str, str]) -> None:
    lake.drop_table("t")


def recreate(lake: bitlake.Lake, options: dict[str, str]) -> None:
    lake.drop_table("t")
    lake.create_table("t", SCHEMA, options=options)


def recreate_and_write(lake: bitlake.Lake, options: dict[str, str]) -> None:
    recreate(lake, options)
    for i in (7, 8, 9):
        put(lake.table("t"), i)


def rename(lake: bitlake.Lake, options: dict[str, str]) -> None:
    lake.rename_table("t", "u")


def rename_and_create(lake: bitlake.Lake, options: dict[str, str]) -> None:
    rename(lake, options)
    lake.create_table("t", SCHEMA, options=options)
    put(lake.table("t"), 7)


OTHERS = (drop, recreate, recreate_and_write, rename, rename_and_create)
WORK: dict[str, tuple[dict[str, str], Callable[[Table], object]]] = {
    "append": ({}, lambda t: t.append(rows(50))),
    "overwrite": ({}, lambda t: t.overwrite(rows(50))),
    "delete": ({"deletion-vectors.enabled": "true"}, lambda t: t.delete("id = 2")),
    "compact": (KEYED, lambda t: t.maintenance.compact(full=True)),
    "upsert": (KEYED, lambda t: t.upsert(rows(50))),
    "alter": ({}, lambda t: t.alter_options({"target-file-size": "64 mb"})),
    "add a column": ({}, lambda t: t.add_column("more", "INT")),
}


QUICK = {("append", recreate), ("append", rename), ("alter", recreate), ("upsert", rename_and_create)}
ALL = [(n, o) for n in WORK for o in OTHERS]
PAIRS = ALL if "BITLAKE_HISTORY" in os.environ else sorted(QUICK, key=ALL.index)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "other"), PAIRS, ids=lambda p: p if isinstance(p, str) else p.__name__)
def test_no_table_is_damaged_by_a_writer_who_had_another_one_open(
    tmp_path: Path, name: str, other: Callable[..., None]
) -> None:
    options, work = WORK[name]
    template = tmp_path / "template"
    made = bitlake.connect(str(template)).create_table("t", SCHEMA, options=options)
    for i in (1, 2, 3):
        put(made, i)
    shutil.copytree(template, tmp_path / "ideal")
    ideal = bitlake.connect(str(tmp_path / "ideal"))
    other(ideal, options)
    wanted = {n: ids(ideal, n) for n in ideal.tables()}
    at = refused = 0
    while True:
        root = tmp_path / str(at)
        shutil.copytree(template, root)
        forget()
        lake = bitlake.connect(str(root))
        table = lake.table("t")
        store = Between(LocalStore(), at, lambda lake=lake: other(lake, options))
        table._core.store = store  # type: ignore[assignment]
        error: BitlakeError | None = None
        try:
            work(table)
        except (CommitConflict, NotFound, StorageUnavailable) as e:  # the last one: the outcome is unknown
            error = e
        if not store.done:
            break
        found = {n: ids(lake, n) for n in lake.tables()}
        assert set(found) == set(wanted), f"call {at}: {error}"
        for n, seen in found.items():
            # On the new table, or on the old one before it was renamed.
            assert set(wanted[n]) - {2} <= set(seen) <= {*wanted[n], 50} or (name == "overwrite" and seen == [50])
            assert seen == wanted[n] or error is None or isinstance(error, StorageUnavailable), (
                f"call {at}: {n} holds {seen} after {error}"
            )
            put(lake.table(n), 99)
            assert ids(lake, n) == sorted([*seen, 99])
        if "t" not in found:
            lake.create_table("t", SCHEMA, options=options)
            assert ids(lake, "t") == []
        refused += error is not None
        shutil.rmtree(root)
        at += 1
    assert at > 3 and (refused or name != "append")  # what reads rows first is repeated on the new table


@pytest.mark.parametrize("kind", ["filesystem", "jdbc"])
@pytest.mark.parametrize("after", [exhaustive(False), True])
def test_drop_and_rename_die_at_each_call_and_are_repeated(tmp_path: Path, kind: str, after: bool) -> None:
    """A drop that was killed left a table with no rows; a jdbc catalog's killed rename made the table unreachable."""

    def connect(root: Path) -> bitlake.Lake:
        extra: dict[str, Any] = {"catalog": "jdbc", "uri": f"jdbc:sqlite:{root}/names.db"} if kind == "jdbc" else {}
        root.mkdir(exist_ok=True)
        return bitlake.connect(str(root / "lake"), **extra)

    for work, name in ((lambda lake: lake.drop_table("t"), None), (lambda lake: lake.rename_table("t", "u"), "u")):
        at = 0
        while True:
            root = tmp_path / f"{name}-{at}"
            lake = connect(root)
            made = lake.create_table("t", SCHEMA)
            put(made, 1, 2)
            made.add_column("more", "INT")
            made.history.create_tag("x")
            lake._catalog.store = store = FaultyStore(LocalStore(), at, dead=True, after=after)  # type: ignore[assignment]
            died = False
            try:
                work(lake)
            except BitlakeError:
                died = True
            if not store.failed:
                break
            assert died or not store.failed
            forget()
            lake = connect(root)
            there = lake.tables()
            assert there in (["t"], [] if name is None else [name]), at
            if there == ["t"] and (Path(made.path) / "schema").exists():
                assert ids(lake, "t") == [1, 2]
            try:
                work(lake)  # once more
            except NotFound:
                assert there != ["t"]
            assert lake.tables() == ([] if name is None else [name])
            if name is not None:
                assert ids(lake, name) == [1, 2]
            if kind == "jdbc" and (Path(made.path) / "schema").exists():
                with pytest.raises(AlreadyExists, match="move or delete them"):
                    lake.create_table("t", SCHEMA)
            else:
                lake.create_table("t", SCHEMA)
                assert ids(lake, "t") == []
                put(lake.table("t"), 4)
                assert ids(lake, "t") == [4] and lake.table("t").history.tags() == {}
            at += 1
        assert at > 1


def test_a_table_whose_creation_was_killed_is_not_there_and_can_be_created(tmp_path: Path) -> None:
    """Its schema folder with half a file counted as a table: it could be neither read nor created."""
    lake = bitlake.connect(str(tmp_path / "lake"))
    other = lake.create_table("other", SCHEMA)
    half = Path(other.path).parent / "t" / "schema" / ".schema-0.5d4a.tmp"
    half.parent.mkdir(parents=True)
    half.write_bytes(b'{"version": 3, "id"')
    assert lake.tables() == ["other"]
    with pytest.raises(NotFound, match="t"):
        lake.table("t")
    put(lake.create_table("t", SCHEMA), 1)
    assert ids(lake, "t") == [1]
