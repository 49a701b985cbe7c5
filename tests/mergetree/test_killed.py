"""A process that upserts is killed wherever its storage calls find other files: write, APPEND, compaction, COMPACT."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import keyed_tables
import pytest

import bitlake

_KILLED = '''
from bitlake.file_store_table import FileStoreTable
import os, shutil, signal, sys
from pathlib import Path
import bitlake, keyed_tables
from store_wrappers import FaultyStore
from bitlake.io.local import LocalStore
from faults import look

class Killer(FaultyStore):
    """Is killed when a call finds other files than the call before for the ``fail_at``-th time."""
    def __init__(self, root, fail_at):
        super().__init__(LocalStore(), fail_at)
        self.root, self.found = root, None
    def _call(self, name, path, work):
        with self._lock:
            found = look(self.root)
            if found != self.found:
                if self.count == self.fail_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                self.count, self.found = self.count + 1, found
        return work()

template, target = sys.argv[1:]
for number in range(200):
    root = f"{target}/{number}"
    shutil.copytree(template, root)
    # This process only forks: each child starts from the same, untouched state.
    child = os.fork()
    if child == 0:
        store = Killer(Path(root), number)
        table = bitlake.Table(FileStoreTable("default.t", f"{root}/default.db/t", store))
        table.upsert(keyed_tables.rows_of(range(10, 30), "new"))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        sys.exit(os.WEXITSTATUS(status))
    assert os.WTERMSIG(status) == signal.SIGKILL
'''


@pytest.mark.exhaustive
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_each_store_call(tmp_path: Path) -> None:
    template, target = tmp_path / "template", tmp_path / "killed"
    keyed_tables.made(template, **keyed_tables.DV).upsert(keyed_tables.rows_of(range(20), "old"))
    target.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    ran = subprocess.run(
        [sys.executable, "-c", _KILLED, str(template), str(target)],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    roots = sorted(target.iterdir(), key=lambda p: int(p.name))
    assert len(roots) > 10
    old = dict.fromkeys(range(20), "old")
    new = old | dict.fromkeys(range(10, 30), "new")
    seen = set()
    for root in roots:
        table = bitlake.connect(str(root)).table("t")
        found, stored = keyed_tables.read(table), keyed_tables.read(table, level_0=True)
        assert found in (old, new) and stored in (old, new)
        seen.add((found == new, stored == new))
        table.upsert(keyed_tables.rows_of([0, 40], "next"))
        assert keyed_tables.read(table) == stored | {0: "next", 40: "next"}
    # Before the APPEND, between it and the COMPACT, after both.
    assert seen == {(False, False), (False, True), (True, True)}
