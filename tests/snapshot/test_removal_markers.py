"""A writer that pauses while history is replaced, and dies right after it created its snapshot.

What it left once was taken for the latest snapshot, by an expiry or when later commits reached its id: commits that
were acknowledged since were deleted.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from builders import terms
from caches import forget
from faults import Between
from history_model import ALL, BY_NAME, EVER, SCHEMA, Lake, judge, look, prepared
from long import halves, long

import bitlake
from bitlake import _clock
from bitlake.errors import BitlakeError, CorruptError
from bitlake.file_store_table import FileStoreTable
from bitlake.io import Store
from bitlake.io.local import LocalStore
from bitlake.snapshot.removal_markers import BASE, REMOVED, find_strays, load_line
from bitlake.snapshot.table_files import TableFiles
from bitlake.table.table import Table

EACH = (1, 1) if "BITLAKE_HISTORY" in os.environ else (7, 4)
"""Every how many-th call of the command that replaces history, and of the writer, is a place to pause."""


class Killed(BaseException):
    """The process is gone."""


class DyingStore:
    """A store whose process does ``before`` right before it creates a snapshot, and dies right after that."""

    def __init__(self, inner: Store, before: Callable[[], object] = lambda: None) -> None:
        self._inner, self._before, self.died = inner, before, False
        self.caches = inner.caches

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._inner, name)

        def call(*args: Any, **named: Any) -> Any:
            if self.died:
                raise Killed("dead")
            if name != "create" or "/snapshot-" not in args[0]:
                return member(*args, **named)
            self._before()
            if member(*args, **named):
                self.died = True
                raise Killed("dead")
            return False

        return call


class Waits(BaseException):
    """A commit waits for a process that deletes a stray, which is paused here."""


class Impatient:
    """A store whose writer does not wait."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._inner, name)

        def create(path: str, data: bytes) -> bool:
            made: bool = member(path, data)
            if not made and "/.stray-" in path:
                raise Waits
            return made

        return create if name == "create" else member


class BeforeFile:
    """A store that does ``action`` once, right before a method's first call for a file of this name."""

    def __init__(self, method: str, file: str, action: Callable[[], object]) -> None:
        self._inner, self._method, self._file, self._action, self.done = LocalStore(), method, file, action, False
        self.caches = self._inner.caches

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._inner, name)

        def call(path: str, *args: Any) -> Any:
            if not self.done and path.endswith(f"/{self._file}"):
                self.done = True
                self._action()
            return member(path, *args)

        return call if name == self._method else member


class Paused:
    """Work in a thread that stops before its ``at``-th call of the store, until it is told to go on.

    ``at`` may also be a method and the name of a file: before its first call for that file.
    """

    def __init__(self, work: Callable[[Store], object], at: int | tuple[str, str]) -> None:
        self._stopped, self._go, self.ended = threading.Event(), threading.Event(), False
        self.error: BaseException | None = None
        store = BeforeFile(*at, self._stop) if isinstance(at, tuple) else Between(LocalStore(), at, self._stop)
        self._thread = threading.Thread(target=self._run, args=(work, store))
        self._thread.start()
        self._stopped.wait()

    def _run(self, work: Callable[[Store], object], store: Any) -> None:
        try:
            work(store)
        except BitlakeError as e:
            self.error = e
        finally:
            self.ended = not store.done
            self._stopped.set()

    def _stop(self) -> None:
        self._stopped.set()
        self._go.wait()

    def finish(self) -> None:
        self._go.set()
        self._thread.join()
        if self.error is not None:
            raise self.error


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Lake]:
    root = tmp_path_factory.mktemp("template") / "lake"
    return root, prepared(root)


def opened(root: Path, store: Any) -> bitlake.Lake:
    forget()
    lake = bitlake.connect(str(root))
    lake._catalog.store = store
    return lake


def check_later(root: Path, what: str) -> None:
    """Ten commits, past the id of whatever was left, then an expiry and an orphan removal: no row of them goes."""
    rows = look(root)["t"][0]
    table = bitlake.connect(str(root)).table("t")
    for i in range(100, 110):
        table.append(pa.table([[i]], schema=SCHEMA))
        rows |= {i}
        assert look(root)["t"][0] == rows, f"{what}, and then an append"
        if i == 101:
            (Path(table.path) / "snapshot" / "LATEST").unlink(missing_ok=True)
            assert look(root)["t"][0] == rows, f"{what}, and then no hint"
    assert not [f for f in table.maintenance.verify().findings if f.severity == "error"], what
    table.maintenance.expire_snapshots(**terms(ALL))
    table.maintenance.remove_orphan_files(EVER)
    assert look(root)["t"][0] == rows, f"{what}, and then an expiry"
    table.append(pa.table([[200]], schema=SCHEMA))
    assert look(root)["t"][0] == rows | {200}, what


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "dies", "steps"),
    [
        *halves(["rollback", "fast-forward"], ["dies", "lives"], [(23, 9)]),
        *(long(name, dies, EACH) for name in ("rollback", "fast-forward") for dies in ("dies", "lives")),
    ],
)
def test_a_writer_that_history_was_replaced_under(
    template: tuple[Path, Lake], tmp_path: Path, name: str, dies: str, steps: tuple[int, int]
) -> None:
    """The writer starts when the command has made ``at`` calls; the command ends when the writer has made ``until``."""
    operation, writer, root = BY_NAME[name], BY_NAME["append"], tmp_path / "lake"
    seen: set[Any] = set()
    for at in range(0, 1000, steps[0]):
        until = -steps[1]
        while True:
            until += steps[1]
            what = f"append before call {at} of {name}, which ended before call {until} of the append"
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(template[0], root)
            paused = Paused(lambda store: operation.run(opened(root, store)), at)
            if paused.ended:
                return
            store = Between(DyingStore(LocalStore()) if dies == "dies" else LocalStore(), until, paused.finish)
            known: bool | None = True
            try:
                writer.run(opened(root, store))
            except Killed:
                known = None
            if not store.done:
                paused.finish()
            judge(root, template[1], [(operation, True), (writer, known)], what)
            names = frozenset(n for n in os.listdir(root / "default.db" / "t" / "snapshot") if n.startswith("snap"))
            state = (names, look(root)["t"][0])
            if state not in seen:
                seen.add(state)
                check_later(root, what)
            if not store.done:
                break
    raise AssertionError("it never ends")


def test_a_commit_that_saw_its_base_before_a_rollback_removed_it(tmp_path: Path) -> None:
    """It is rolled back as well: it stayed behind a gap in the ids, and the hint named it."""
    table = bitlake.connect(str(tmp_path)).create_table("t", SCHEMA)
    for i in range(1, 5):
        table.append(pa.table([[i]], schema=SCHEMA))
    appends: list[Paused] = []

    def append() -> None:
        work = lambda store: opened(tmp_path, store).table("t").append(pa.table([[50]], schema=SCHEMA))  # noqa: E731
        appends.append(Paused(work, ("write", "LATEST")))

    opened(tmp_path, BeforeFile("delete", "snapshot-5", append)).table("t").history.rollback(2)
    appends[0].finish()
    assert not appends[0].ended and look(tmp_path)["t"][0] == {1, 2}
    names = os.listdir(Path(table.path, "snapshot"))
    assert sorted(n for n in names if n.startswith("snapshot-")) == ["snapshot-1", "snapshot-2"]
    assert bitlake.connect(str(tmp_path)).table("t").snapshot.id == 2  # type: ignore[union-attr]
    check_later(tmp_path, "a rollback under a commit")


def left_behind(root: Path) -> Table:
    """Four snapshots, and a fifth one that came back to 2: its writer read snapshot 4, then died."""
    table = bitlake.connect(str(root)).create_table("t", SCHEMA)
    for i in range(1, 5):
        table.append(pa.table([[i]], schema=SCHEMA))
    dying = DyingStore(table._core.store, lambda: table.history.rollback(2))
    with pytest.raises(Killed):
        Table(FileStoreTable(table.name, table.path, dying)).append(pa.table([[50]], schema=SCHEMA))
    assert Path(table.path, "snapshot", "snapshot-5").exists()
    forget()
    return table


def test_a_stray_is_no_part_of_the_table(tmp_path: Path) -> None:
    table = left_behind(tmp_path)
    paths = table._core.state().paths
    assert load_line(TableFiles(table._core.store, paths)).ids == (1, 2)
    assert [s.id for s in table.history.snapshots()] == [1, 2]
    assert not [f for f in table.maintenance.verify().findings if f.severity == "error"]
    check_later(tmp_path, "a stray")
    assert not [n for n in os.listdir(Path(table.path, "snapshot")) if n.startswith((REMOVED, ".stray-"))]


@pytest.mark.exhaustive
def test_a_second_deletion_of_a_stray(tmp_path: Path) -> None:
    """Who looked at the stray before it was deleted must not delete the commit that took its id."""
    waited = 0
    first = left_behind(tmp_path / "template")
    for i in (10, 11):
        first.append(pa.table([[i]], schema=SCHEMA))
    for at in range(1000):
        shutil.copytree(tmp_path / "template", tmp_path / str(at))
        forget()
        table = bitlake.connect(str(tmp_path / str(at))).table("t")

        rows = {1, 2, 10, 11, 13}

        def another(table: Table = table, rows: set[int] = rows) -> None:
            with contextlib.suppress(Waits):
                Table(FileStoreTable(table.name, table.path, Impatient(table._core.store))).append(
                    pa.table([[12]], schema=SCHEMA)
                )
                rows.add(12)

        store = Between(table._core.store, at, another)
        Table(FileStoreTable(table.name, table.path, store)).append(pa.table([[13]], schema=SCHEMA))
        assert look(tmp_path / str(at))["t"][0] == rows, at
        waited += store.done and 12 not in rows
        if not store.done:
            assert 0 < waited < 6, "between the first step of the deletion and the commit"
            return


def test_who_began_to_delete_a_stray_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = left_behind(tmp_path)
    paths = table._core.state().paths

    class NoDelete:
        def __getattr__(self, name: str) -> Any:
            if name == "delete":
                raise Killed("dead")
            return getattr(table._core.store, name)

    with pytest.raises(Killed):
        Table(FileStoreTable(table.name, table.path, NoDelete())).maintenance.expire_snapshots()  # type: ignore[arg-type]
    table.maintenance.expire_snapshots()
    assert Path(paths.snapshot(5)).exists(), "who deletes it may be alive"
    now = _clock.now_ms()
    monkeypatch.setattr(_clock, "now_ms", lambda: now + 700_000)
    table.maintenance.expire_snapshots()
    table.maintenance.expire_snapshots()
    assert not Path(paths.snapshot(5)).exists()


def branched_at_four(root: Path) -> Table:
    """Five snapshots, and branch ``b`` of the fourth, which no tag holds."""
    table = bitlake.connect(str(root)).create_table("t", SCHEMA)
    for i in range(1, 6):
        table.append(pa.table([[i]], schema=SCHEMA))
    table.history.create_tag("four", 4)
    table.history.create_branch("b", "four")
    table.history.delete_tag("four")
    return table


def test_a_snapshot_that_a_branch_kept_is_no_stray(tmp_path: Path) -> None:
    """It was rolled back with its base, and came back with a fast-forward to a branch that had been made of it."""
    table = branched_at_four(tmp_path)
    bitlake.connect(str(tmp_path)).table("t$branch_b").append(pa.table([[40]], schema=SCHEMA))
    table.history.rollback(2)
    table.history.fast_forward("b")
    assert look(tmp_path)["t"][0] == {1, 2, 3, 4, 40}
    assert load_line(table._core.state().table_files).ids == (1, 2, 3, 4, 5)
    check_later(tmp_path, "a branch")


@pytest.mark.exhaustive
@pytest.mark.parametrize("step", [3, long(1)])
def test_a_writer_beside_a_fast_forward_to_a_branch_that_begins_later(tmp_path: Path, step: int) -> None:
    """Ids between main's last snapshot and the branch's first one were free: a commit there was never seen."""
    table = branched_at_four(tmp_path)
    table.history.rollback(1)
    template, seen = tmp_path / "default.db", set()
    for at in range(0, 1000, step):
        root = tmp_path / str(at)
        shutil.copytree(template, root / "default.db")
        plain = bitlake.connect(str(root)).table("t")
        store = Between(plain._core.store, at, lambda: plain.history.fast_forward("b"))  # noqa: B023
        Table(FileStoreTable(plain.name, plain.path, store)).append(pa.table([[50]], schema=SCHEMA))
        if not store.done:
            return
        assert look(root)["t"][0] in ({1, 2, 3, 4, 50}, {1, 2, 3, 4}), at
        line = load_line(plain._core.state().table_files).ids
        assert line == tuple(range(1, len(line) + 1))
        # The append was told that it took place: it did so before the fast-forward, or after.
        assert 50 in look(root)["t"][0] or "snapshot-2" in os.listdir(Path(plain.path, "snapshot"))
        if line not in seen:
            seen.add(line)
            check_later(root, f"call {at}")


def test_a_record_that_cannot_be_read(tmp_path: Path) -> None:
    table = left_behind(tmp_path)
    folder = Path(table.path, "snapshot")
    record = next(p for p in folder.iterdir() if p.name.startswith(REMOVED))
    record.write_text('{"by": "x", "snapshots": [["1", 2]]}')
    with pytest.raises(CorruptError, match=rf"'snapshots' must be ids, each with a name.*{REMOVED}"):
        table.history.snapshots()


def test_snapshots_without_a_base_are_no_strays(tmp_path: Path) -> None:
    """Those of Paimon, and those that bitlake made earlier."""
    table = left_behind(tmp_path)
    path = Path(table.path, "snapshot", "snapshot-5")
    names = os.listdir(path.parent)
    paths = table._core.state().paths
    assert list(find_strays(TableFiles(table._core.store, paths), names, [1, 2, 5], 0)) == [5]
    assert find_strays(TableFiles(table._core.store, paths), names, [1, 2, 5], 5) == {}, "its base expires"
    path.write_text(path.read_text().replace(BASE, "other"))
    assert find_strays(TableFiles(table._core.store, paths), names, [1, 2, 5], 0) == {}
