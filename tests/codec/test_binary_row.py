from __future__ import annotations

import contextlib
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bitlake.codec.binary_row import EMPTY_ROW, decode_row, encode_row, encode_row_with_arity
from bitlake.codec.row_kernel import encode_rows
from bitlake.errors import BitlakeError, CorruptError, InvalidRequest, UnsupportedFeature
from bitlake.types import ArrayType, arrow_type, parse_type
from bitlake.types.datatypes import AtomicType

# Rows Paimon (Java) wrote: table-format spec, section 6.
REAL = [
    ("DATE,INT,STRING", (19724, 1, "a/b=c"),
     "00000003 00000000 00000000 0c4d0000 00000000 "
     "01000000 00000000 612f623d 63000085"),
    ("DATE,INT,STRING", (19724, 0, None),
     "00000003 00040000 00000000 0c4d0000 00000000 "
     "00000000 00000000 00000000 00000000"),
    ("INT,STRING", (1, "a much longer ke"),
     "00000002 00000000 00000000 01000000 00000000 10000000 "
     "18000000 61206d75 6368206c 6f6e6765 72206b65"),
    ("INT,STRING", (76, "k75"),
     "00000002 00000000 00000000 4c000000 "
     "00000000 6b373500 00000083"),
    ("INT,DECIMAL(20;3)", (21, -1135802376),
     "00000002 00000000 00000000 15000000 00000000 04000000 "
     "18000000 bc4d07f8 00000000 00000000 00000000"),
    ("INT,DECIMAL(20;3)", (1000, None),
     "00000002 00020000 00000000 e8030000 00000000 00000000 "
     "18000000 00000000 00000000 00000000 00000000"),
    ("INT,TIMESTAMP(6)", (3, 296296296298),
     "00000002 00000000 00000000 03000000 00000000 "
     "108c0400 18000000 681fa911 00000000"),
    ("INT,TINYINT", (20, -108),
     "00000002 00000000 00000000 14000000 "
     "00000000 94000000 00000000"),
]  # fmt: skip


def types_of(text: str) -> list[AtomicType]:
    return [parse_type(t.replace(";", ",")) for t in text.split(",")]


@pytest.mark.parametrize(("types", "values", "hexed"), REAL)
def test_rows_paimon_wrote(types: str, values: tuple[Any, ...], hexed: str) -> None:
    data = bytes.fromhex(hexed.replace(" ", ""))
    assert encode_row_with_arity(types_of(types), values) == data
    assert decode_row(types_of(types), data) == values


def test_empty_row() -> None:
    assert encode_row_with_arity([], []) == EMPTY_ROW
    assert decode_row([], EMPTY_ROW) == ()


ALL = (
    "BOOLEAN,TINYINT,SMALLINT,INT,BIGINT,FLOAT,DOUBLE,DECIMAL(9;2),DECIMAL(18;0),DECIMAL(38;5),CHAR(3),STRING,BYTES,"
    "BINARY(20),DATE,TIME(3),TIMESTAMP(3),TIMESTAMP(6),TIMESTAMP(9),TIMESTAMP(0) WITH LOCAL TIME ZONE,"
    "TIMESTAMP(6) WITH LOCAL TIME ZONE,TIMESTAMP(9) WITH LOCAL TIME ZONE"
)


def random_value(rng: random.Random, made: AtomicType) -> Any:
    name = made.root.name
    if rng.random() < 0.2:
        return None
    if name == "BOOLEAN":
        return rng.random() < 0.5
    if name in ("FLOAT", "DOUBLE"):
        return float(np.float32(rng.choice([0.0, -0.0, 1.5, -1e10, float("inf"), rng.random()])))
    if name == "DECIMAL":
        top = 10**made.precision - 1  # type: ignore[operator]
        return rng.choice([0, -1, 127, 128, -128, -129, 255, top, -top, rng.randint(-top, top)])
    if name in ("CHAR", "VARCHAR"):
        return "".join(rng.choice("aé😀z") for _ in range(rng.randint(0, 12)))
    if name in ("BINARY", "VARBINARY"):
        return rng.randbytes(rng.choice([0, 1, 7, 8, 9, 16, 33]))
    if name == "TIME":
        return rng.randint(0, 86399999)
    bits = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "DATE": 31}.get(name, 62)
    return rng.choice([0, -1, rng.randint(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)])


def to_arrow(made: AtomicType, values: list[Any]) -> pa.Array:
    kind = arrow_type(made)
    if pa.types.is_decimal(kind):
        from decimal import Context, Decimal

        ctx = Context(prec=60)
        exact = [None if v is None else ctx.scaleb(Decimal(v), -kind.scale) for v in values]
        return pa.array(exact, kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return pa.array(values, pa.int32()).cast(kind)
    return pa.array(values, kind)


def test_columns_encode_as_rows_do() -> None:
    rng = random.Random(7)
    types = types_of(ALL) * 3  # 66 fields: a second word of null bits
    rows = [[random_value(rng, t) for t in types] for _ in range(300)]
    # A slice of each array, so that buffer offsets are not 0.
    arrays = [to_arrow(t, [None] * 3 + [r[i] for r in rows]).slice(3) for i, t in enumerate(types)]
    data, offsets = encode_rows(types, arrays)
    for i, row in enumerate(rows):
        expected = encode_row(types, row)
        assert data[offsets[i] : offsets[i + 1]].tobytes() == expected
        assert decode_row(types, len(types).to_bytes(4, "big") + expected) == tuple(row)


def test_columns_take_other_arrow_types() -> None:
    types = types_of("STRING,INT,TIMESTAMP(6)")
    arrays = [
        pa.chunked_array(
            [pa.array(["a", None]).dictionary_encode(), pa.array(["long enough text"]).dictionary_encode()]
        ),
        pa.array([1, 2, None], pa.int64()),
        pa.array([1, None, 3], pa.timestamp("ms")),
    ]
    data, offsets = encode_rows(types, arrays)
    assert data[offsets[2] :].tobytes() == encode_row(types, ["long enough text", None, 3000])
    with pytest.raises(InvalidRequest, match="does not fit"):
        encode_rows(types_of("INT"), [pa.array([2**40])])
    assert len(encode_rows(types_of("STRING,INT"), [pa.array([], pa.string()), pa.array([], pa.int32())])[0]) == 0


def test_refusals() -> None:
    with pytest.raises(InvalidRequest, match="not a value of type"):
        encode_row(types_of("INT"), ["x"])
    with pytest.raises(InvalidRequest, match="2 values"):
        encode_row(types_of("INT"), [1, 2])
    with pytest.raises(UnsupportedFeature):
        encode_row([ArrayType(parse_type("INT"))], [[1]])
    assert encode_row([ArrayType(parse_type("INT"))], [None])[1] == 1
    with pytest.raises(CorruptError, match="2 fields stands where 1"):
        decode_row(types_of("INT"), encode_row_with_arity(types_of("INT,INT"), [1, 2]))


def test_damaged_rows_never_escape_as_other_errors() -> None:
    rng = random.Random(3)
    types = types_of(ALL)
    good = encode_row_with_arity(types, [random_value(rng, t) or None for t in types])
    for at in range(len(good)):
        for value in (0, 0x7F, 0x80, 0xFF):
            bad = bytearray(good)
            bad[at] = value
            with contextlib.suppress(BitlakeError):
                decode_row(types, bytes(bad))
    for cut in range(len(good)):
        with contextlib.suppress(CorruptError):  # reserved bytes of a null at the end may be missing unnoticed
            decode_row(types, good[:cut])
    for cut in range(4 + 8 + 8 * len(types)):
        with pytest.raises(CorruptError):
            decode_row(types, good[:cut])
