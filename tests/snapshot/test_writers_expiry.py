"""Writers whose base expires: another commit comes and everything before it goes, at each call of the store."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from builders import terms
from caches import forget
from long import long

import bitlake
from bitlake.errors import CommitConflict
from bitlake.io import Store
from bitlake.snapshot.expiry import Retention
from bitlake.table.table import Table

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
ALL = Retention(1, 1, 1 << 60, 1000)
KEYED = {"primary-key": "id", "bucket": "1", "changelog-producer": "lookup", "deletion-vectors.enabled": "true"}
DYNAMIC = {"primary-key": "id", "bucket": "-1"}
MARKED = {"deletion-vectors.enabled": "true"}


class Between:
    """A store that does something else before the ``at``-th call of it, once."""

    def __init__(self, inner: Store, at: int, work: Callable[[], object]) -> None:
        self._inner, self._left, self._work, self.done = inner, at, work, False
        self.caches = inner.caches

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._inner, name)

        def call(*args: Any, **named: Any) -> Any:
            self._left -= 1
            # Not between a writer's last look and the creation of its snapshot: there, nothing could tell.
            last_step = name == "create" and "/snapshot/snapshot-" in str(args[0])
            if self._left < 0 and not self.done and name != "local_path" and not last_step:
                self.done = True
                self._work()
                forget()
            return member(*args, **named)

        return call


def rows(*ids: int) -> pa.Table:
    return pa.table([list(ids), [i * 10 for i in ids]], schema=SCHEMA)


def put(table: Table, *ids: int) -> None:
    table.upsert(rows(*ids)) if table.schema.primary_keys else table.append(rows(*ids))


WORK: dict[str, tuple[dict[str, str], Callable[[Table], object], list[int]]] = {
    "append": ({}, lambda t: t.append(rows(50)), [1, 2, 3, 50, 99]),
    "delete": (MARKED, lambda t: t.delete("id = 2"), [1, 3, 99]),
    "delete by writing anew": ({}, lambda t: t.delete("id = 2"), [1, 3, 99]),
    "compact": (MARKED, lambda t: t.maintenance.compact(full=True), [1, 2, 3, 99]),
    "upsert": (KEYED, lambda t: t.upsert(rows(2, 50)), [1, 2, 3, 50, 99]),
    "upsert, dynamic buckets": (DYNAMIC, lambda t: t.upsert(rows(2, 50)), [1, 2, 3, 50, 99]),
    "compact keys": (DYNAMIC, lambda t: t.maintenance.compact(full=True), [1, 2, 3, 99]),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", WORK)
@pytest.mark.parametrize("step", [5, long(1)])
def test_a_writer_whose_base_expires_at_any_moment_goes_on(tmp_path: Path, name: str, step: int) -> None:
    options, work, wanted = WORK[name]
    root = str(tmp_path / "lake")
    made = bitlake.connect(root).create_table("t", SCHEMA, options=options)
    for i in (1, 2, 3):
        put(made, i)
    whole = tmp_path / "whole"
    shutil.copytree(made.path, whole)

    def other() -> None:
        forget()
        table = bitlake.connect(root).table("t")
        put(table, 99)
        if "compact" in name or "delete" in name:
            table.maintenance.compact()
        table.maintenance.expire_snapshots(**terms(ALL))

    for at in range(0, 1000, step):
        shutil.rmtree(made.path)
        shutil.copytree(whole, made.path)
        forget()
        table = bitlake.connect(root).table("t")
        store = table._core.store = Between(table._core.store, at, other)  # type: ignore[assignment]
        given_up = False
        try:
            work(table)
        except CommitConflict:
            given_up = True
        forget()
        if not store.done:
            assert at > 5
            return
        found = bitlake.connect(root).table("t").scan().with_level_0().to_arrow()
        assert given_up or sorted(found.column("id").to_pylist()) == wanted, f"at call {at}"
