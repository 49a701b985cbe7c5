"""History under fire: operations in processes of their own, killed at any time, beside a writer, a reader or an expiry.

``python tests/stress/history.py --seconds 300 --seed 7``: round after round, on a copy of a small table, two operations
of :mod:`history_model` run at once in two processes while this one reads; one or both are killed (SIGKILL) after a
random time.  The lake must look as after some serial order of what was acknowledged, and of the first steps of what was
killed.  Then what was killed is repeated, and the lake takes new rows, expires and loses its orphans.  ``--kills N``
goes on until N processes were killed in mid-operation.  The seed is printed; ``--seed`` with ``--rounds`` repeats it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from history_model import BY_NAME, EXPIRY, WRITER, Lake, Operation, judge, look, outcomes, prepared, repeat, seen

import bitlake
from bitlake.errors import AlreadyExists, CommitConflict, InvalidRequest, NotFound, StorageUnavailable

DONE, REFUSED, UNKNOWN, FAILED = 0, 3, 4, 5
SLOWEST = 0.25
"""Seconds after which a process is killed at the latest."""


def start(operation: Operation, root: Path) -> int:
    """Run an operation in a process of its own; returns its id."""
    child = os.fork()
    if child:
        return child
    code = FAILED
    try:
        operation.run(bitlake.connect(str(root)))
        code = DONE
    except StorageUnavailable:  # its folder went
        code = UNKNOWN
    except (CommitConflict, NotFound, AlreadyExists, InvalidRequest):
        code = REFUSED
    finally:
        if code == FAILED:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)


def outcome(status: int, operation: Operation, what: str) -> bool | None:
    """Whether it took place; None if it was killed, or cannot know."""
    if os.WIFSIGNALED(status):
        return None
    code = os.WEXITSTATUS(status)
    assert code != FAILED, f"{what}: {operation.name} failed"
    return {DONE: True, REFUSED: False}.get(code)


@contextlib.contextmanager
def noted(what: str) -> Iterator[None]:
    """Say what was going on when bitlake's own exceptions leave."""
    try:
        yield
    except Exception as e:
        e.add_note(what)
        raise


def read_meanwhile(root: Path, start_lake: Lake, pair: tuple[Operation, ...], what: str) -> int:
    """Read the table's rows once; what was read must be of one of the states on the way."""
    try:
        found = {name: entry[0] for name, entry in look(root).items()}
    except NotFound:
        return 0  # dropped, renamed or expired between two calls
    possible = [
        {name: entry[0] for name, entry in seen(lake).items()}
        for lake in outcomes(start_lake, [(o, None) for o in pair])
    ]
    assert all(any(rows == p.get(name) for p in possible) for name, rows in found.items()), f"{what}: read {found}"
    return 1


def once(
    template: Path, model: Lake, root: Path, rng: random.Random, did: Counter[str], what: str, only: list[Operation]
) -> int:
    """One round; returns how many processes were killed while they worked."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(template, root)
    one = rng.choice(only)
    # Orphan removal beside a writer needs an age that no write takes.
    other = rng.choice([o for o in (WRITER, EXPIRY, *only) if o is not one and o.name != "remove orphans"])
    pair = (one,) if one.name == "remove orphans" or rng.random() < 0.3 else (one, other)
    what = f"{what}: {' beside '.join(o.name for o in pair)}"
    running = {start(o, root): o for o in pair}
    deadlines = {child: time.monotonic() + rng.random() ** 2 * SLOWEST for child in running if rng.random() < 0.8}
    known: list[tuple[Operation, bool | None]] = []
    kills = 0
    reads = rng.random() < 0.3
    try:
        while running:
            for child in list(running):
                if time.monotonic() >= deadlines.get(child, float("inf")):
                    os.kill(child, signal.SIGKILL)
                    deadlines.pop(child)
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    operation = running.pop(child)
                    ended_as = outcome(status, operation, what)
                    if ended_as is False and (operation.partial or operation.several) and len(pair) > 1:
                        ended_as = None  # stopped on the way by a DROP or a rename
                    known.append((operation, ended_as))
                    kills += os.WIFSIGNALED(status)
            if reads and running:
                did["reads"] += read_meanwhile(root, model, pair, what)
            time.sleep(0.001)
    finally:
        for child in running:  # this round failed
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    what = f"{what} ({', '.join(f'{o.name}: {ended}' for o, ended in known)})"
    with noted(what):
        judge(root, model, known, what)
    for operation, ended in known:
        did[operation.name] += 1
        if ended is None:
            with noted(f"{what}, {operation.name} repeated"):
                repeat(root, operation, f"{what}, {operation.name} repeated", alone=len(pair) == 1)
    return kills


def main() -> None:
    """Run rounds until the time is over, or until N processes were killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--kills", type=int, default=0, help="go on until so many processes were killed")
    parser.add_argument("--rounds", type=int, default=0, help="these many rounds at most")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", default=",".join(BY_NAME), help="the operations, by name, with commas between")
    given = parser.parse_args()
    only = [BY_NAME[name.strip()] for name in given.only.split(",")]
    seed = random.SystemRandom().randrange(1 << 30) if given.seed is None else given.seed
    print(f"history under fire: seed {seed}", flush=True)
    did: Counter[str] = Counter()
    kills = rounds = 0
    with tempfile.TemporaryDirectory() as folder:
        template = Path(folder, "template")
        model = prepared(template)
        end = time.monotonic() + given.seconds
        while (kills < given.kills if given.kills else time.monotonic() < end) and rounds != (given.rounds or -1):
            # Of its own seed, so that one round can be repeated.
            rng = random.Random(f"{seed}/{rounds}")
            what = f"seed {seed}, round {rounds}"
            kills += once(template, model, Path(folder, "lake"), rng, did, what, only)
            rounds += 1
    counts = ", ".join(f"{n} {what}" for what, n in sorted(did.items()))
    print(f"history under fire: seed {seed}, {rounds} rounds, {kills} kills: {counts}", flush=True)


if __name__ == "__main__":
    main()
