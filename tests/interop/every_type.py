"""Rows of every type Spark has, with the values that break readers, and the indexes Paimon allows on them."""

from __future__ import annotations

import datetime
import decimal
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

UTC = datetime.UTC
EPOCH = datetime.datetime(1970, 1, 1)

ATOMIC = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("c_bool", pa.bool_()),
        pa.field("c_tiny", pa.int8()),
        pa.field("c_small", pa.int16()),
        pa.field("c_int", pa.int32()),
        pa.field("c_big", pa.int64()),
        pa.field("c_float", pa.float32()),
        pa.field("c_double", pa.float64()),
        pa.field("c_dec9", pa.decimal128(9, 2)),
        pa.field("c_dec18", pa.decimal128(18, 4)),
        pa.field("c_dec38", pa.decimal128(38, 10)),
        pa.field("c_str", pa.string()),
        pa.field("c_bin", pa.binary()),
        pa.field("c_date", pa.date32()),
        pa.field("c_ts", pa.timestamp("us", "UTC")),
        pa.field("c_ntz", pa.timestamp("us")),
    ]
)
NESTED = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("ints", pa.list_(pa.int32())),
        pa.field("names", pa.map_(pa.string(), pa.int64())),
        pa.field(
            "deep",
            pa.struct(
                [
                    pa.field("at", pa.timestamp("us")),
                    pa.field("price", pa.decimal128(12, 3)),
                    pa.field("tags", pa.list_(pa.struct([pa.field("k", pa.string()), pa.field("v", pa.binary())]))),
                ]
            ),
        ),
    ]
)
_BOTH = ["c_tiny", "c_small", "c_int", "c_big", "c_float", "c_double", "c_str", "c_date", "c_ts", "c_ntz"]
BITMAP_COLUMNS = ["c_bool", *_BOTH]
BLOOM_COLUMNS = ["c_bin", *_BOTH]

EDGES: dict[str, list[Any]] = {
    "c_bool": [True, False],
    "c_tiny": [-128, -1, 0, 127],
    "c_small": [-32768, 0, 32767],
    "c_int": [-(2**31), 0, 42, 2**31 - 1],
    "c_big": [-(2**63), 0, 2**40, 2**63 - 1],
    "c_float": [0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), -3.4028234663852886e38],
    "c_double": [0.0, -0.0, 0.1, float("nan"), float("inf"), float("-inf"), 5e-324],
    "c_dec9": ["-9999999.99", "0.00", "0.01", "9999999.99"],
    "c_dec18": ["-99999999999999.9999", "0.0000", "12345678.9000"],
    "c_dec38": ["-9999999999999999999999999999.9999999999", "0.0000000001", "1.0000000000"],
    # Longer than the 16 characters statistics keep; supplementary characters, U+FFFF and NUL for the orders of strings.
    "c_str": [
        "",
        " ",
        "PENDING",
        "a\tb\nc\\",
        "日本語",
        "😀" * 20,
        "\uffff" * 20,
        "x" * 17 + "y",
        "\x00nul",
        "z" * 240,
    ],
    "c_bin": [b"", b"\x00", b"\xff" * 20, b"ab", bytes(range(40))],
    "c_date": [
        datetime.date(1, 1, 1),
        datetime.date(1969, 12, 31),
        datetime.date(2024, 2, 29),
        datetime.date(9999, 12, 31),
    ],
    "c_ntz": [
        EPOCH,
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
        datetime.datetime(2024, 2, 29, 1, 2, 3, 456789),
    ],
}


def atomic_rows(count: int, seed: int = 1, distinct: int = 6) -> pa.Table:
    """``count`` rows of every atomic type: each edge value, NULLs, and about ``distinct`` random values besides."""
    rng = random.Random(seed)
    pools: dict[str, list[Any]] = {name: [None, *values] for name, values in EDGES.items()}
    pools["c_tiny"] += [rng.randrange(-128, 128) for _ in range(distinct)]
    pools["c_int"] += [rng.randrange(-(2**31), 2**31) for _ in range(distinct)]
    pools["c_big"] += [rng.randrange(-(2**63), 2**63) for _ in range(distinct)]
    pools["c_double"] += [rng.gauss(0, 1e6) for _ in range(distinct)]
    pools["c_str"] += [f"word-{rng.randrange(10**6)}" for _ in range(distinct)]
    pools["c_date"] += [datetime.date(2000, 1, 1) + datetime.timedelta(rng.randrange(9000)) for _ in range(distinct)]
    pools["c_ntz"] += [EPOCH + datetime.timedelta(microseconds=rng.randrange(2**51)) for _ in range(distinct)]
    pools["c_ts"] = [None if v is None else v.replace(tzinfo=UTC) for v in pools["c_ntz"]]
    for name in ("c_dec9", "c_dec18", "c_dec38"):
        pools[name] = [None if v is None else decimal.Decimal(v) for v in pools[name]]
    columns: list[Sequence[Any]] = [range(count)]
    for field in list(ATOMIC)[1:]:
        pool = pools[field.name]
        # Every value of the pool once, then at random.
        columns.append((pool + rng.choices(pool, k=count))[:count])
    return pa.table(
        [pa.array(list(c), f.type) for c, f in zip(columns, ATOMIC, strict=True)],
        schema=ATOMIC,
    )


def nested_rows(count: int) -> pa.Table:
    """``count`` rows of collections within collections, empty ones and NULLs at every depth."""
    ints = [None, [], [1, None, -(2**31)]]
    names = [None, [], [("a", 1), ("", None)], [("日", 2**63 - 1)]]
    tag_lists = [None, [], [None, {"k": None, "v": b""}, {"k": "k", "v": b"\xff"}]]
    deep = [
        None,
        {"at": None, "price": None, "tags": None},
        *({"at": EPOCH, "price": decimal.Decimal("-1.500"), "tags": tags} for tags in tag_lists),
    ]
    pick = [{"id": i, "ints": ints[i % 3], "names": names[i % 4], "deep": deep[i % 5]} for i in range(count)]
    return pa.Table.from_pylist(pick, NESTED)
