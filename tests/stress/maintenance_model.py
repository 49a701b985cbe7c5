"""What a table under maintenance must hold: batches that are always the same, and their replay.

Batch ``k`` is of day ``k // PER_DAY``, a partition.  Of a table with a primary key it upserts and deletes some keys of
that day; to a table without one it appends rows, and then deletes some of the batch before.  Either way one row says
``k``, so whoever reads a day knows which batch it saw last, and replays the day up to it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import date, timedelta

import pyarrow as pa

COLUMNS = pa.schema(
    [pa.field("dt", pa.string(), nullable=False), pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())]
)
MARK = -1
"""The id of the row that says which batch was last."""
PER_DAY = 8
FIRST_DAY = date(2020, 1, 1)
Rows = dict[int, int]


def day_of(number: int) -> str:
    """The partition of a batch."""
    return str(FIRST_DAY + timedelta(days=number // PER_DAY))


def batch(number: int) -> tuple[pa.Table, list[str]]:
    """A keyed batch: rows and their kinds."""
    rng = random.Random(number)
    ids = [MARK, *rng.sample(range(400), rng.choice([5, 60]))]
    kinds = ["+I", *(rng.choice(["+I", "+I", "-D"]) for _ in ids[1:])]
    return pa.table([[day_of(number)] * len(ids), ids, [number] * len(ids)], schema=COLUMNS), kinds


def added(number: int) -> pa.Table:
    """A batch of a table without a key."""
    ids = [*range(100 * number, 100 * number + 40)]
    return pa.table([[day_of(number)] * len(ids), ids, [number] * len(ids)], schema=COLUMNS)


def taken(number: int) -> str:
    """The rows that the writer of batch ``number`` deletes after it."""
    return f"dt = '{day_of(number)}' AND id >= {100 * number - 100} AND id < {100 * number - 85}"


@dataclass(frozen=True)
class Seen:
    """Rows of a moment by day, and the last batch among them."""

    days: dict[str, Rows]
    last: int


def replayed(day: str, last: int, keyed: bool) -> list[Rows]:
    """What a day may hold after a batch: of a table without a key before or after the deletion that goes with it."""
    first = (date.fromisoformat(day) - FIRST_DAY).days * PER_DAY
    rows: Rows = {}
    before: Rows = {}
    for number in range(first, last + 1):
        if keyed:
            for (_, key, n), kind in zip(_rows(batch(number)[0]), batch(number)[1], strict=True):
                rows.pop(key, None)
                if kind == "+I":
                    rows[key] = n
            continue
        rows.update((key, n) for _, key, n in _rows(added(number)))
        before = dict(rows)
        if number > first:
            rows = {key: n for key, n in rows.items() if not (100 * number - 100 <= key < 100 * number - 85)}
    return [rows] if keyed else [rows, before]


def read(rows: pa.Table) -> Seen:
    """What was read, by day; raises :class:`AssertionError` if a key is there twice."""
    days: dict[str, Rows] = {}
    for day, key, n in _rows(rows):
        held = days.setdefault(day, {})
        assert key not in held, f"key {key} of {day} is there twice"
        held[key] = n
    return Seen(days, max((n for held in days.values() for n in held.values()), default=-1))


def check(seen: Seen, keyed: bool, expired_before: str) -> None:
    """Raise :class:`AssertionError` unless each day is as after a batch, and none is missing but expired ones."""
    wanted = {day_of(k) for k in range(seen.last + 1)}
    missing = sorted(d for d in wanted - set(seen.days) if d >= expired_before)
    assert not missing, f"no rows of {missing[0]}, and days before {expired_before} expired"
    final = day_of(seen.last)
    for day, held in seen.days.items():
        last = seen.last if day == final else ((date.fromisoformat(day) - FIRST_DAY).days + 1) * PER_DAY - 1
        assert held in replayed(day, last, keyed), f"{day} is not as after batch {last}: {len(held)} rows"


def _rows(rows: pa.Table) -> list[tuple[str, int, int]]:
    return list(zip(*rows.select(["dt", "id", "n"]).to_pydict().values(), strict=True))
