"""Storage that fails at each of a piece of work's calls in turn, and what it may leave behind."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caches import forget
from store_wrappers import FaultyStore

import bitlake
from bitlake.errors import StorageUnavailable
from bitlake.file_store_table import FileStoreTable
from bitlake.io import Store
from bitlake.io.local import LocalStore
from bitlake.snapshot import manifests, versions
from bitlake.snapshot.manifests import index_entries
from bitlake.snapshot.partitions import PartitionReader, index_path
from bitlake.snapshot.table_files import TableFiles
from bitlake.table.table import Table
from bitlake.write.commit import OutcomeUnknown


@dataclass(frozen=True)
class Attempt:
    """A table after work on it, during which one call failed, or none if there were no more."""

    table: Table
    error: StorageUnavailable | None
    dead: bool
    after: bool

    def check(self, found: Any, old: Any, new: Any) -> None:
        """What was found is the old or the new; the error says which, and a writer that lived cleaned up."""
        assert found in (old, new)
        if self.error is None:
            assert found == new
        elif not isinstance(self.error, OutcomeUnknown):
            assert found == old
            if not self.dead and not (self.after and "delete" in str(self.error)):
                assert strays(self.table) == set(), self.error


def each_call_failing(
    template: Path,
    folder: Path,
    work: Callable[[Table], object],
    *,
    dead: bool,
    after: bool,
    first: int = 0,
    step: int = 1,
) -> Iterator[Attempt]:
    """``work`` on copies of the lake ``template``'s table ``t``, with the first storage call failing, the second, …

    Or only each ``step``-th call from the ``first`` on, which counts from 0.
    """
    number, failures = first, 0
    while True:
        root = folder / str(number)
        shutil.copytree(template, root)
        plain = bitlake.connect(str(root)).table("t")
        forget()
        store = FaultyStore(LocalStore(), 1 << 60, after=after, dead=dead)
        table = Table(FileStoreTable(plain.name, plain.path, store))
        store.fail_at = store.count + number
        error: StorageUnavailable | None = None
        try:
            work(table)
        except StorageUnavailable as e:
            error, failures = e, failures + 1
        yield Attempt(plain, error, dead, after)
        if not store.failed:
            break
        shutil.rmtree(root)
        number += step
    assert failures >= 5


class Between:
    """A store before whose ``at``-th call (from 0) somebody else does ``work``, once."""

    def __init__(self, inner: Store, at: int, work: Callable[[], object]) -> None:
        self._inner, self._left, self._work, self.done = inner, at, work, False
        self.caches = inner.caches

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._inner, name)

        def call(*args: Any, **named: Any) -> Any:
            if name != "local_path":
                self._left -= 1
                if self._left < 0 and not self.done:
                    self.done = True
                    self._work()
                    forget()
            return member(*args, **named)

        return call


def strays(table: Table) -> set[str]:
    """Files that no snapshot names, temporary ones included."""
    forget()
    state, store = table._core.state(), LocalStore()
    paths, partitions = state.paths, PartitionReader(state.schema, state.paths)
    named = {paths.latest_hint, paths.earliest_hint, *(paths.schema(i) for i in range(10))}
    for number in versions.snapshot_ids(TableFiles(store, paths)):
        s = versions.load_snapshot(TableFiles(store, paths), number)
        named.add(paths.snapshot(number))
        entries = list(manifests.live_files(TableFiles(store, paths), s))
        for name in (s.base_manifest_list, s.delta_manifest_list, s.changelog_manifest_list):
            if name is None:
                continue
            named.add(paths.manifest(name))
            metas = manifests.read_manifest_list(TableFiles(store, paths), name)
            named |= {paths.manifest(m.file_name) for m in metas}
            if name == s.changelog_manifest_list:
                entries += [e for m in metas for e in manifests.read_manifest(TableFiles(store, paths), m.file_name)]
        if s.index_manifest is not None:
            named.add(paths.manifest(s.index_manifest))
        named |= {index_path(paths, state.schema, i) for i in index_entries(TableFiles(store, paths), s)}
        for e in entries:
            path = partitions.data_path(e)
            named |= {path, *(f"{path.rsplit('/', 1)[0]}/{x}" for x in e.file.extra_files)}
    return {str(p) for p in Path(table.path).rglob("*") if p.is_file()} - named


def look(root: Path) -> list[tuple[Path, int, str]]:
    """Each file's folder and size below ``root``, and what hints say: a state without names that are new each time."""
    files = [f for f in root.rglob("*") if f.is_file()]
    return sorted(
        (f.parent.relative_to(root), f.stat().st_size, f.read_text() if f.name.isupper() else "") for f in files
    )


def distinct(roots: Sequence[Path]) -> list[Path]:
    """The folders without those that look like the one before: being killed at a read leaves what was there."""
    looks = [look(root) for root in roots]
    return [root for i, root in enumerate(roots) if not i or looks[i] != looks[i - 1]]


def noted_sleep(waits: list[float]) -> Callable[[float], None]:
    """Stands for ``time.sleep``: notes what this thread would wait; threads that other tests left behind sleep."""
    sleep, here = time.sleep, threading.get_ident()

    def note(seconds: float) -> None:
        if threading.get_ident() == here:
            waits.append(seconds)
        else:
            sleep(seconds)

    return note
