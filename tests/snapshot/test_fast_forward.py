"""Fast-forward that dies at each store call, and beside writers: readers see the old main or the branch.

It deleted main's snapshots before it copied the branch's: killed at 15 of 35 calls it left neither, at 3 no snapshot.
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
from faults import Between, each_call_failing
from long import exhaustive, long
from store_wrappers import WRITES, FaultyStore, RequestsRepeated

import bitlake
from bitlake import _clock
from bitlake.errors import CommitConflict, InvalidRequest, NotFound, StorageUnavailable
from bitlake.file_store_table import FileStoreTable
from bitlake.io.local import LocalStore
from bitlake.snapshot.removal_markers import REMOVED
from bitlake.snapshot.versions import JOURNAL
from bitlake.table.table import Table

SCHEMA = pa.schema([("id", pa.int64())])


def rows(*ids: int) -> pa.Table:
    return pa.table([list(ids)], schema=SCHEMA)


QUICK = {"commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "1 ms"}
"""A process that dies does not wait for the store to come back."""


def ids(table: Table) -> list[int]:
    forget()
    return sorted(table.scan().to_arrow().column("id").to_pylist())


def prepared(root: Path, main: int, branch: int) -> Table:
    """Branch ``b`` of tag ``start`` at snapshot 2; ``main`` and ``branch`` commits came after that."""
    table = bitlake.connect(str(root)).create_table("t", SCHEMA, options=QUICK)
    table.append(rows(1))
    table.append(rows(2))
    table.history.create_tag("start")
    table.history.create_branch("b", "start")
    for i in range(main):
        table.append(rows(10 + i))
        table.history.create_tag(f"main-{i}")
    other = bitlake.connect(str(root)).table("t$branch_b")
    for i in range(branch):
        other.append(rows(20 + i))
        other.history.create_tag(f"branch-{i}")
    return table


def files(table: Table, folder: str) -> dict[str, bytes]:
    """What is in a folder of main, or for ``branch`` of the branch, without hints and the record of a day."""
    found = Path(table.path, folder).iterdir()
    return {p.name: p.read_bytes() for p in found if not p.name.isupper() and not p.name.startswith(REMOVED)}


def check_complete(table: Table, main: int, branch: int) -> None:
    """Main has the branch's snapshots, tags and schemas, as Paimon's fastForward leaves them."""
    for folder in ("snapshot", "tag", "schema"):
        new = files(table, f"branch/branch-b/{folder}")
        kept = {"snapshot-1": b""} if folder == "snapshot" else {}
        found = files(table, folder)
        assert found.keys() == {**new, **kept}.keys()
        assert all(found[name] == text for name, text in new.items())
    assert Path(table.path, "snapshot", "LATEST").read_text() == str(2 + branch)


def check_verified(table: Table) -> None:
    """``verify`` took a snapshot that an interrupted fast-forward made, and gaps before it, for damage."""
    left = Path(table.path, "snapshot", JOURNAL).exists()
    report = bitlake.connect(str(Path(table.path).parents[1])).table("t").maintenance.verify(deep=False)
    # A commit after the switch may have the number of one of the branch's snapshots, which a tag holds.
    assert set(report.codes) - {"tag-differs"} == ({"fast-forward-unfinished"} if left else set()), report.text()


FULL = "BITLAKE_HISTORY" in os.environ  # make history
CALLS = [(0, 1)] if FULL else [(0, 4), long((0, 2)), long((1, 2))]
"""The first call of the store that fails, and how many later the next: each call in ``make long``."""
CASES = [(0, 1), (2, 0), (2, 1), (1, 3), (2, 2), (3, 1), (1, 2)]


@pytest.mark.parametrize(("main", "branch"), CASES)
def test_main_is_what_the_branch_is(tmp_path: Path, main: int, branch: int) -> None:
    table = prepared(tmp_path, main, branch)
    table.history.fast_forward("b")
    assert ids(table) == [1, 2, *range(20, 20 + branch)]
    check_complete(table, main, branch)
    names = {p.name for p in Path(table.path, "manifest").iterdir()}
    table.history.fast_forward("b")
    check_complete(table, main, branch)
    assert {p.name for p in Path(table.path, "manifest").iterdir()} == names  # nothing is left over
    table.append(rows(99))
    assert table.snapshot is not None and table.snapshot.id == 3 + branch


@pytest.mark.exhaustive
@pytest.mark.parametrize("after", [False, True] if FULL else [False])
@pytest.mark.parametrize(("main", "branch"), [(2, 1), (1, 3), (1, 2)] if FULL else [(1, 2)])
@pytest.mark.parametrize("calls", CALLS)
def test_it_dies_at_each_call_and_is_called_again(
    tmp_path: Path, main: int, branch: int, after: bool, calls: tuple[int, int]
) -> None:
    template = tmp_path / "template"
    old = ids(prepared(template, main, branch))
    new = [1, 2, *range(20, 20 + branch)]
    seen = []
    kind: Any = {"dead": True, "after": after, "first": calls[0], "step": calls[1]}
    for done in each_call_failing(template, tmp_path, lambda t: t.history.fast_forward("b"), **kind):
        table = done.table
        found = ids(table)
        assert found in (old, new)
        seen.append(found == new)
        checked = FULL or len(seen) % 3 == 0
        if not checked:
            continue
        check_verified(table)
        if done.error is None or not Path(table.path, "snapshot", JOURNAL).exists():
            continue
        root = Path(table.path).parents[1]
        with pytest.raises(InvalidRequest, match=r"call fast_forward\('b'\) to complete it"):
            table.history.delete_branch("b")
        with pytest.raises(InvalidRequest, match=r"call fast_forward\('b'\) to complete it"):
            table.history.rollback(1)
        shutil.copytree(root, root.with_name("resumed"))
        resumed = bitlake.connect(str(root.with_name("resumed"))).table("t")
        resumed.history.fast_forward("b")
        check_complete(resumed, main, branch)
        shutil.rmtree(root.with_name("resumed"))
        # A commit is on top of what readers see, and stays if the switch was before it.
        table.append(rows(77))
        assert ids(table) == sorted([*found, 77])
        table.history.fast_forward("b")
        if checked:
            check_verified(table)
        assert ids(table) == (sorted([*new, 77]) if found == new else new)
        table.maintenance.expire_snapshots(retain_max=1, retain_min=1, older_than=1 << 60, max_deletes=1 << 30)
        for tag in table.history.tags():
            table.history.delete_tag(tag)
        table.history.delete_branch("b")
        table.append(rows(78))
        table.maintenance.expire_snapshots(retain_max=1, retain_min=1, older_than=1 << 60, max_deletes=1 << 30)
        table.maintenance.remove_orphan_files(1 << 60)
        assert ids(table) == sorted([*new, *([77] if found == new else []), 78])
    assert seen == sorted(seen) and not seen[0] and seen[-1]


def test_requests_that_arrive_twice(tmp_path: Path) -> None:
    plain = prepared(tmp_path, 2, 2)
    Table(FileStoreTable(plain.name, plain.path, RequestsRepeated())).history.fast_forward("b")
    check_complete(plain, 2, 2)
    check_verified(plain)


def schemas_differ(table: Table) -> None:
    """Main and branch have other columns of the same schema id."""
    table.add_column("main_only", "INT")
    bitlake.connect(str(Path(table.path).parents[1])).table("t$branch_b").add_column("branch_only", "STRING")


def main_has_more(table: Table) -> None:
    """Main has schemas that the branch lacks, and rows written with them."""
    table.add_column("x", "INT")
    table.append(pa.table({"id": [30], "x": [1]}, schema=pa.schema([("id", pa.int64()), ("x", pa.int32())])))


@pytest.mark.parametrize("change", [schemas_differ, main_has_more] if FULL else [main_has_more])
@pytest.mark.parametrize("calls", CALLS if FULL else [(1, 12), exhaustive((0, 4)), *CALLS[1:]])
def test_schemas_are_the_branchs(tmp_path: Path, change: Callable[[Table], None], calls: tuple[int, int]) -> None:
    template = tmp_path / "template"
    table = prepared(template, 1, 2)
    change(table)
    old, new = ids(table), [1, 2, 20, 21]
    columns = bitlake.connect(str(template)).table("t$branch_b").schema.field_names
    kind: Any = {"dead": True, "after": False, "first": calls[0], "step": calls[1]}
    for done in each_call_failing(template, tmp_path, lambda t: t.history.fast_forward("b"), **kind):
        # Where both have columns of their own, reading fails rather than mixing them up, until it is called again.
        try:
            assert ids(done.table) in (old, new)
        except NotFound:
            assert change is schemas_differ
        done.table.history.fast_forward("b")
        assert ids(done.table) == new and done.table.schema.field_names == columns
        check_complete(done.table, 1, 2)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("main", "branch"), [(2, 1), (1, 3)] if FULL else [(2, 1)])
@pytest.mark.parametrize("calls", CALLS)
def test_a_commit_beside_it_is_before_or_after(tmp_path: Path, main: int, branch: int, calls: tuple[int, int]) -> None:
    template = tmp_path / "template"
    prepared(template, main, branch)
    new = [1, 2, *range(20, 20 + branch)]

    def nested(at: int, outer: Callable[[Table], object], inner: Callable[[Table], object]) -> tuple[Table, bool, Any]:
        root = tmp_path / "now"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(template, root)
        forget()
        table = bitlake.connect(str(root)).table("t")
        error = None
        between = Between(LocalStore(), at, lambda: inner(bitlake.connect(str(root)).table("t")))
        table._core.store = between  # type: ignore[assignment]
        try:
            outer(table)
        except CommitConflict as e:
            error = e
        return bitlake.connect(str(root)).table("t"), between.done, error

    def append(table: Table) -> None:
        table.append(rows(77))

    def forward(table: Table) -> None:
        table.history.fast_forward("b")

    for outer, inner in ((append, forward), (forward, append)):
        at, kept = calls[0], []
        while True:
            table, done, error = nested(at, outer, inner)
            if not done:
                break
            assert error is None
            found = ids(table)
            assert found in (new, sorted([*new, 77])), at
            kept.append(found != new)
            assert not Path(table.path, "snapshot", JOURNAL).exists()
            table.append(rows(88))
            assert ids(table) == sorted([*found, 88])
            at += calls[1]
        # A commit that begins before the switch is lost with main's others; one that begins after it stays.
        assert True in kept and kept == sorted(kept, reverse=outer is append), kept


@pytest.mark.exhaustive
@pytest.mark.parametrize("step", [1] if FULL else [2, long(1)])
def test_another_branch_waits_until_it_is_complete(tmp_path: Path, step: int) -> None:
    template = tmp_path / "template"
    prepared(template, 1, 1).history.create_branch("c", "start")
    refused = 0
    kind: Any = {"dead": True, "after": False, "step": step}
    for done in each_call_failing(template, tmp_path, lambda t: t.history.fast_forward("b"), **kind):
        try:
            done.table.history.fast_forward("c")
        except InvalidRequest as e:
            refused += 1
            assert "call fast_forward('b') to complete it" in str(e)  # noqa: PT017
            done.table.history.fast_forward("b")
            check_complete(done.table, 1, 1)
        else:
            assert ids(done.table) == [1, 2]
    assert refused > 3


@pytest.mark.exhaustive
def test_it_is_refused_while_a_rollback_runs(tmp_path: Path) -> None:
    """A rollback that published its fence before the journal removed the switch afterwards: both had returned."""
    template = tmp_path / "template"
    prepared(template, 3, 1).history.delete_tag("main-2")
    done = []
    for at in range(100):
        root = tmp_path / "lake"
        shutil.copytree(template, root)
        forget()
        table = bitlake.connect(str(root)).table("t")
        outcomes: list[str] = []

        def fast_forward(table: Table = table, outcomes: list[str] = outcomes) -> None:
            try:
                table.history.fast_forward("b")
                outcomes.append("done")
            except CommitConflict as e:
                assert "while a rollback runs; nothing was changed" in str(e)  # noqa: PT017
                outcomes.append("refused")

        store = Between(LocalStore(), at, fast_forward)
        try:
            Table(FileStoreTable(table.name, table.path, store)).history.rollback(4)
            outcomes.append("rolled back")
        except (InvalidRequest, NotFound):
            outcomes.append("no rollback")
        if not store.done:
            break
        assert not Path(table.path, "snapshot", JOURNAL).exists()
        assert ids(table) == ([1, 2, 10, 11] if outcomes[0] == "refused" else [1, 2, 20])
        done.append(outcomes)
        shutil.rmtree(root)
    kinds = [outcome for outcome, _ in done]
    assert kinds.count("refused") > 10, done
    # Only before the hold is created, and after it is deleted.
    running = kinds[kinds.index("refused") : len(kinds) - kinds[::-1].index("refused")]
    assert set(running) == {"refused"}, done


def test_a_killed_rollback_delays_it_for_ten_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = prepared(tmp_path, 2, 1)
    table.history.delete_tag("main-1")
    dying = Table(FileStoreTable(table.name, table.path, FaultyStore(table._core.store, 3, dead=True, only=WRITES)))
    with pytest.raises(StorageUnavailable):
        dying.history.rollback(3)
    with pytest.raises(CommitConflict, match="or 10 minutes later if the rollback was killed"):
        table.history.fast_forward("b")
    assert not Path(table.path, "snapshot", JOURNAL).exists()
    now = _clock.now_ms()
    monkeypatch.setattr(_clock, "now_ms", lambda: now + 600_001)
    table.history.fast_forward("b")
    assert ids(table) == [1, 2, 20]
