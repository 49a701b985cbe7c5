"""Keys of every type that a key may have: found again, told apart, in order."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from long import every, halves

import bitlake

Make = Callable[[random.Random], Any]
FLOATS = [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan]
TEXTS = ["", "a", "é", "z" * 30, "\U0001f600", "\x00", "A"]


def _moment(r: random.Random) -> dt.datetime:
    return dt.datetime(r.randrange(1, 9999), 1, 1, 0, 0, 0, r.randrange(3) * 1000)


KEYS: dict[str, tuple[pa.DataType, Make]] = {
    "boolean": (pa.bool_(), lambda r: r.random() < 0.5),
    "tinyint": (pa.int8(), lambda r: r.randrange(-128, 128)),
    "float": (pa.float32(), lambda r: r.choice(FLOATS)),
    "double": (pa.float64(), lambda r: r.choice(FLOATS)),
    "decimal": (pa.decimal128(9, 2), lambda r: decimal.Decimal(r.randrange(-(10**9) + 1, 10**9)) / 100),
    "wide decimal": (pa.decimal128(38, 10), lambda r: decimal.Decimal(r.randrange(-(10**17), 10**17)) / 10**7),
    "string": (pa.string(), lambda r: r.choice(TEXTS) + str(r.randrange(4))),
    "binary": (pa.binary(), lambda r: r.randbytes(r.randrange(3))),
    "date": (pa.date32(), lambda r: dt.date(r.randrange(1, 9999), 1, 1)),
    "timestamp": (pa.timestamp("us"), _moment),
    "timestamp(3)": (pa.timestamp("ms"), _moment),
    "instant": (pa.timestamp("us", "UTC"), lambda r: _moment(r).replace(tzinfo=dt.UTC)),
}


def _place(value: Any) -> Any:
    """A value that equals exactly what is the same key: -0.0 is none of 0.0, NaN is one."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else (value, math.copysign(1.0, value))
    return value


@pytest.mark.parametrize(
    ("options", "kind"),
    every(2, halves([{"deletion-vectors.enabled": "true"}, {"num-sorted-run.compaction-trigger": "2"}], KEYS)),
)
def test_a_table_is_what_a_dictionary_would_be(kind: str, options: dict[str, str], tmp_path: Path) -> None:
    type_, make = KEYS[kind]
    chance = random.Random(len(kind))
    columns = pa.schema([pa.field("k", type_, False), pa.field("j", pa.int32(), False), pa.field("v", pa.int64())])
    options = {"bucket": "2", "primary-key": "k,j", **options}
    table = bitlake.connect(str(tmp_path)).create_table("t", columns, options=options)
    model: dict[Any, int] = {}
    for step in range(4):
        keys = [make(chance) for _ in range(40)]
        rows = pa.table([keys, [chance.randrange(2) for _ in keys], [step] * 40], schema=columns)
        kinds = [chance.choice(["+I", "+I", "-D"]) for _ in keys]
        table.upsert(rows, kinds)
        for k, j, what in zip(rows.column("k").to_pylist(), rows.column("j").to_pylist(), kinds, strict=True):
            model.pop((_place(k), j), None)
            if what == "+I":
                model[_place(k), j] = step
        found = table.scan().to_arrow().to_pylist()
        assert len(found) == len(model)
        assert {(_place(r["k"]), r["j"]): r["v"] for r in found} == model
    table.maintenance.compact(full=True)
    assert table.scan().count() == len(model)
