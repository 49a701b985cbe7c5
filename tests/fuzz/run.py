"""Fuzz the decoders for long: python tests/fuzz/run.py [--count 100000] [--seconds 300] [format …]

Each format runs in a process of its own with bounded memory, so that a crash of a native decoder is a finding like any
other.  Findings are kept as files in --keep, to be turned into tests.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import multiprocessing
import os
import random
import resource
import struct
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bitlake.errors import BitlakeError
from tests.fuzz.mutate import mutate
from tests.fuzz.targets import TARGETS

SLOW_S = 1.0
_NOTE = struct.Struct("<qq")
_TICKS = os.sysconf("SC_CLK_TCK")
_SHARE = 500
MEMORY = 1 << 30


@dataclass
class Findings:
    """What came of the mutations of one format."""

    done: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    bugs: list[str] = field(default_factory=list)
    examples: list[bytes] = field(default_factory=list)

    def add(self, more: Findings) -> None:
        """Count another run's findings too."""
        self.done += more.done
        self.outcomes += more.outcomes
        self.slowest = max(self.slowest, more.slowest)
        self.bugs += more.bugs
        self.examples += more.examples


def fuzz(
    name: str, count: int, seconds: float, *, seed: int = 0, first: int = 0, last: Path | None = None
) -> Iterator[Findings]:
    """Try mutations ``first`` … ``count`` of a format, or as many as fit in ``seconds``; yields what came of each few.

    ``last``: a file that holds the mutation being tried, for the one that kills the process (see :func:`_noted`).
    """
    target = TARGETS[name]()
    found = Findings()
    pool = [data for data, _ in target.seeds]
    stop = time.monotonic() + seconds
    note = None if last is None else os.open(last, os.O_WRONLY | os.O_CREAT, 0o644)
    for number in range(first, count):
        if time.monotonic() >= stop:
            break
        rng = random.Random(f"{seed}/{name}/{number}")
        data, read = target.seeds[rng.randrange(len(target.seeds))]
        broken = mutate(data, rng, pool)
        if note is not None:
            # Written over what is there: making files, or cutting them, takes longer than most mutations.
            os.pwrite(note, _NOTE.pack(number, len(broken)) + broken, 0)
        start, work = time.perf_counter(), _processor_time()
        outcome = "a result"
        try:
            read(broken)
        except BitlakeError as e:
            outcome = type(e).__name__
        except BaseException as e:  # noqa: BLE001 - that is what we are after
            outcome = f"BUG {type(e).__name__}"
            where = "".join(traceback.format_tb(e.__traceback__)[-3:])
            found.bugs.append(f"{name} #{number}: {type(e).__name__}: {str(e)[:200]}\n{where}")
            found.examples.append(broken)
        # On a busy machine, time passes without anything being done; what waits for something is slow all the same.
        took = max(_processor_time() - work, (time.perf_counter() - start) / 10)
        found.slowest = max(found.slowest, took)
        if took > SLOW_S:
            found.bugs.append(f"{name} #{number}: took {took:.1f} s")
            found.examples.append(broken)
        found.outcomes[outcome] += 1
        found.done += 1
        if found.done == _SHARE or found.bugs:
            yield found
            found = Findings()
    yield found


def _noted(last: Path) -> tuple[int, bytes]:
    """The mutation that was tried last, with its number."""
    data = last.read_bytes()
    number, size = _NOTE.unpack_from(data)
    return number, data[_NOTE.size :][:size]


def _processor_time() -> float:
    """Seconds that this process and its children have used."""
    times = os.times()
    total = times.user + times.system + times.children_user + times.children_system
    for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / _TICKS
    return total


def _bounded(name: str, count: int, seconds: float, seed: int, first: int, last: Path, pipe: Any) -> None:
    faulthandler.enable()
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, now + MEMORY))
    for found in fuzz(name, count, seconds, seed=seed, first=first, last=last):
        pipe.send(found)


def _survive(name: str, count: int, seconds: float, seed: int, keep: Path) -> Findings:
    """Run a format in processes of their own: after one is killed, the next goes on behind the fatal mutation."""
    context = multiprocessing.get_context("spawn")
    last = keep / f"{name}.last"
    last.unlink(missing_ok=True)
    total = Findings()
    stop = time.monotonic() + seconds
    while total.done < count and time.monotonic() < stop:
        here, there = context.Pipe(False)
        left = stop - time.monotonic()
        work = context.Process(target=_bounded, args=(name, count, left, seed, total.done, last, there))
        work.start()
        there.close()
        try:
            while True:
                total.add(here.recv())
        except EOFError:
            work.join()
        if work.exitcode == 0:
            break
        # The mutations since the last report are tried again, one report each, until the fatal one is found.
        fatal = Findings(1, Counter({f"CRASH {work.exitcode}": 1}), bugs=[f"{name}: process ended: {work.exitcode}"])
        number, broken = _noted(last)
        fatal.examples.append(broken)
        fatal.done = max(1, number + 1 - total.done)
        total.add(fatal)
    return total


def main() -> int:
    """Run the formats named, or all, and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", choices=[*TARGETS, []], default=[])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path(".fuzz"))
    args = parser.parse_args()
    args.keep.mkdir(exist_ok=True)
    bugs = 0
    for name in args.formats or TARGETS:
        started = time.monotonic()
        found = _survive(name, args.count, args.seconds, args.seed, args.keep)
        took = time.monotonic() - started
        shown = ", ".join(f"{v:,} {k}" for k, v in found.outcomes.most_common())
        print(
            f"{name:15} {found.done:>9,} in {took:6.1f} s, slowest {found.slowest * 1000:6.0f} ms: {shown}", flush=True
        )
        for i, bug in enumerate(found.bugs[:10]):
            print(f"  {bug}", flush=True)
            if i < len(found.examples):
                (args.keep / f"{name}-{i}.bin").write_bytes(found.examples[i])
        bugs += len(found.bugs)
    return 1 if bugs else 0


if __name__ == "__main__":
    sys.exit(main())
