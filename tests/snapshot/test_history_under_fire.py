"""Operations on history that die at each of their changes, or meet another one between any two store calls.

``make history`` runs them all, in processes that are killed (:mod:`tests.stress.history`).
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from caches import forget
from faults import Between
from history_model import BY_NAME, EXPIRY, OPERATIONS, WRITER, Lake, Operation, judge, prepared, repeat
from long import long
from store_wrappers import WRITES, FaultyStore

import bitlake
from bitlake.errors import AlreadyExists, CommitConflict, InvalidRequest, NotFound, StorageUnavailable
from bitlake.io.local import LocalStore

FULL = "BITLAKE_HISTORY" in os.environ
SEED = int(os.environ.get("BITLAKE_HISTORY_SEED", "1"))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Lake]:
    root = tmp_path_factory.mktemp("template") / "lake"
    return root, prepared(root)


def opened(template: Path, root: Path, store: object) -> bitlake.Lake:
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(template, root)
    forget()
    lake = bitlake.connect(str(root))
    lake._catalog.store = store  # type: ignore[assignment]
    return lake


@pytest.mark.exhaustive
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
def test_each_change_a_death(template: tuple[Path, Lake], tmp_path: Path, operation: Operation) -> None:
    at, root = 0, tmp_path / "lake"
    while True:
        what = f"{operation.name} died after change {at}"
        store = FaultyStore(LocalStore(), at, dead=True, after=True, only=WRITES)
        lake = opened(template[0], root, store)
        died: bool | None = True
        try:
            operation.run(lake)
        except StorageUnavailable:
            died = None
        judge(root, template[1], [(operation, None if store.failed else died)], what)
        if not store.failed:
            break
        if FULL or at % 2 == SEED % 2:
            repeat(root, operation, what)
        at += 1
    assert at > 0 or not operation.steps


def beside(template: tuple[Path, Lake], root: Path, outer: Operation, inner: Operation, at: int) -> bool:
    """Run ``inner`` before the call ``at`` of ``outer``; False if ``outer`` makes fewer calls."""
    known: dict[str, bool | None] = {}

    def run(operation: Operation, lake: bitlake.Lake, name: str) -> None:
        try:
            operation.run(lake)
            known[name] = True
        except StorageUnavailable:  # the outcome is unknown
            known[name] = None
        except (CommitConflict, NotFound, AlreadyExists, InvalidRequest):
            known[name] = None if operation.several else False

    store = Between(LocalStore(), at, lambda: run(inner, bitlake.connect(str(root)), "inner"))
    lake = opened(template[0], root, store)
    run(outer, lake, "outer")
    if not store.done:
        return False
    what = f"{inner.name} before call {at} of {outer.name} (seed {SEED})"
    try:
        judge(root, template[1], [(outer, known["outer"]), (inner, known["inner"])], what)
    except Exception as e:
        e.add_note(f"{what}: {known}")
        raise
    return True


def pairs() -> list[tuple[str, str]]:
    found = []
    for o in OPERATIONS:
        for other in (WRITER, EXPIRY, *(OPERATIONS if FULL else ())):
            for one, two in ((o, other), (other, o)):
                # Orphan removal beside a writer needs an age that no write takes.
                if one is not two and "remove orphans" not in (one.name, two.name):
                    found.append((one.name, two.name))
    found += [("fast-forward", "recreate"), ("recreate", "fast-forward"), ("fast-forward", "create tag")]
    found += [(o.name, "rename table") for o in OPERATIONS if o.name not in ("rename table", "remove orphans")]
    return sorted(set(found))


EACH_CALL = {("alter", "rename table"), ("create branch", "rename table")}
"""Both once said that they had failed, and the renamed table had the change."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("outer", sorted({one for one, _ in pairs()}))
@pytest.mark.parametrize("count", [2] if FULL else [1, long(2)])
def test_another_operation_between_any_two_calls(
    template: tuple[Path, Lake], tmp_path: Path, outer: str, count: int
) -> None:
    """``count``: the calls of the outer operation that are tried."""
    rng = random.Random(f"{SEED}/{outer}")
    for inner in sorted(two for one, two in pairs() if one == outer):
        places = range(1000) if FULL or (outer, inner) in EACH_CALL else sorted(rng.sample(range(25), 2)[:count])
        for at in places:
            if not beside(template, tmp_path / "lake", BY_NAME[outer], BY_NAME[inner], at):
                break
