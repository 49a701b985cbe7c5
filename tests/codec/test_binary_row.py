from __future__ import annotations

import contextlib
import random
import struct
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bitlake.codec.binary_row import (
    EMPTY_ROW,
    MAX_ARITY,
    decode_arity,
    decode_field,
    decode_row,
    encode_row,
    encode_row_with_arity,
    encode_rows,
    field_decoder,
    is_fine_timestamp,
    is_wide_decimal,
    to_column,
    to_texts,
    units_per_milli,
)
from bitlake.errors import BitlakeError, CorruptError, InvalidRequest, UnsupportedFeature
from bitlake.types import ArrayType, Root, arrow_type, parse_type
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
    with pytest.raises(CorruptError, match="2 fields stands where 1") as e:
        decode_row(types_of("INT"), encode_row_with_arity(types_of("INT,INT"), [1, 2]))
    assert e.value.offset == 0


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


# --- every place, every limit -----------------------------------------------------------------------------------------

LIMITS: list[tuple[str, list[Any]]] = [
    ("BOOLEAN", [False, True]),
    ("TINYINT", [-(2**7), 2**7 - 1]),
    ("SMALLINT", [-(2**15), 2**15 - 1]),
    ("INT", [-(2**31), 2**31 - 1]),
    ("BIGINT", [-(2**63), 2**63 - 1]),
    ("FLOAT", [1.5]),
    ("DOUBLE", [-1.5]),
    ("DATE", [-1]),
    ("TIME(3)", [86399999]),
    ("STRING", ["x" * n for n in range(18)]),
    ("VARBINARY(99)", [b"y" * n for n in (0, 7, 8, 9, 16)]),
    ("DECIMAL(18,2)", [-(10**18) + 1, 10**18 - 1]),
    ("DECIMAL(38,2)", [v for n in range(1, 16) for v in (2 ** (8 * n - 1) - 1, 2 ** (8 * n - 1), -(2 ** (8 * n - 1)))]),
    ("DECIMAL(19,0)", [0, -1, 1 - 10**38, 10**38 - 1]),
    ("TIMESTAMP(0)", [-1, 5]),
    ("TIMESTAMP(3)", [-1001, 1001]),
    ("TIMESTAMP(4)", [-1, 999, 1000, 1001]),
    ("TIMESTAMP(6)", [-1, 999, 1000, 1001]),
    ("TIMESTAMP(7)", [-1, 999999, 1000000]),
    ("TIMESTAMP(9)", [-1, 999999, 1000000]),
]


def _modelled(made: AtomicType, value: Any, at: int) -> tuple[bytes, bytes]:
    """Slot and piece of one value as the table of the module describes them; ``at``: where a piece would begin."""
    text = str(made).split(" ")[0].split("(")[0]
    if text in ("STRING", "VARBINARY"):
        data = value.encode() if text == "STRING" else value
        if len(data) < 8:
            return data + bytes(7 - len(data)) + bytes([128 + len(data)]), b""
        return struct.pack("<II", len(data), at), data + bytes((8 - len(data) % 8) % 8)
    if text == "DECIMAL" and made.precision > 18:
        size = next(n for n in range(1, 17) if -(256**n) // 2 <= value < 256**n // 2)
        return struct.pack("<II", size, at), value.to_bytes(size, "big", signed=True) + bytes(16 - size)
    if text == "TIMESTAMP" and made.precision > 3:
        to_nanos = 1000 if made.precision < 7 else 1
        return struct.pack("<II", value * to_nanos % 10**6, at), struct.pack("<q", value * to_nanos // 10**6)
    form = {"BOOLEAN": "<?7x", "FLOAT": "<f4x", "DOUBLE": "<d"}.get(text)
    return (value.to_bytes(8, "little", signed=True), b"") if form is None else (struct.pack(form, value), b"")


@pytest.mark.parametrize(("kind", "values"), LIMITS, ids=[k for k, _ in LIMITS])
def test_limits_of_every_type_are_laid_out_as_specified(kind: str, values: list[Any]) -> None:
    made = parse_type(kind)
    small = kind in ("TINYINT", "SMALLINT", "INT", "DATE", "TIME(3)")
    width = {"TINYINT": 1, "SMALLINT": 2}.get(kind, 4)
    for value in values:
        # Text before it moves its piece; the field after it shows where its piece ends.
        types = [parse_type("STRING"), made, parse_type("STRING")]
        slot, piece = _modelled(made, value, 8 + 24 + 16)
        if small:
            slot = slot[:width] + bytes(8 - width)
        last = struct.pack("<II", 8, 8 + 24 + 16 + len(piece))
        row = bytes(8) + struct.pack("<II", 9, 32) + slot + last + b"a long te" + bytes(7) + piece + b"the next"
        assert encode_row(types, ["a long te", value, "the next"]) == row
        assert decode_row(types, b"\0\0\0\3" + row) == ("a long te", value, "the next")


@pytest.mark.parametrize(("kind", "over"), [
    ("TINYINT", 128), ("SMALLINT", -(2**15) - 1), ("INT", 2**31), ("BIGINT", 2**63), ("DECIMAL(38,0)", 2**127),
    ("DECIMAL(38,0)", -(2**127) - 1), ("TIMESTAMP(3)", 2**63), ("DOUBLE", "x"),
])  # fmt: skip
def test_values_beyond_their_type_are_refused(kind: str, over: Any) -> None:
    with pytest.raises(InvalidRequest, match="is not a value of type"):
        encode_row([parse_type(kind)], [over])


@pytest.mark.parametrize("arity", [1, 7, 8, 55, 56, 57, 120, 121])
def test_a_field_is_found_at_every_place_of_rows_of_every_size(arity: int) -> None:
    types = [parse_type(LIMITS[i % len(LIMITS)][0]) for i in range(arity)]
    values = [LIMITS[i % len(LIMITS)][1][-1] for i in range(arity)]
    for gaps in (set(), set(range(arity)), set(range(0, arity, 2)), set(range(1, arity, 3))):
        row = [None if i in gaps else v for i, v in enumerate(values)]
        data = encode_row_with_arity(types, row)
        marks = int.from_bytes(data[4 : 4 + -(-(arity + 8) // 64) * 8], "little")
        assert marks == sum(1 << (i + 8) for i in gaps)
        assert decode_arity(data) == arity
        assert [decode_field(t, data, arity, i) for i, t in enumerate(types)] == row
        assert [field_decoder(t, arity, i)(data) for i, t in enumerate(types)] == row


def test_a_piece_may_begin_beyond_16_mib() -> None:
    """Its offset then has a bit in the byte that holds the length of an inline value."""
    types, values = types_of("BYTES,STRING"), (bytes(1 << 24), "long enough text")
    assert decode_row(types, encode_row_with_arity(types, values)) == values


def test_an_arity_has_a_limit_and_needs_its_bytes() -> None:
    for arity, size in ((0, 12), (1, 20), (56, 12 + 8 * 56), (57, 20 + 8 * 57), (MAX_ARITY, 4 + 8200 + 8 * MAX_ARITY)):
        head = struct.pack(">i", arity)
        assert decode_arity(head + bytes(size - 4)) == arity
        with pytest.raises(CorruptError) as e:
            decode_arity(head + bytes(size - 5))
        assert e.value.offset == 0
    for arity in (-1, MAX_ARITY + 1):
        with pytest.raises(CorruptError, match=f"cannot have {arity} fields"):
            decode_arity(struct.pack(">i", arity) + bytes(9 * MAX_ARITY))


@pytest.mark.parametrize(("kind", "slot", "why"), [
    ("STRING", b"abcdefg\x88", "inline value of 8 bytes"),
    ("STRING", b"\xff\0\0\0\0\0\0\x81", "not UTF-8"),
    ("STRING", struct.pack("<II", 9, 24), "lies outside its row"),
    ("STRING", struct.pack("<II", 8, 23), "lies outside its row"),
    ("STRING", struct.pack("<II", 8, 25), "lies outside its row"),
    ("DECIMAL(38,0)", struct.pack("<II", 0, 24), "a decimal of 0 bytes"),
    ("DECIMAL(38,0)", struct.pack("<II", 17, 24), "a decimal of 17 bytes"),
    ("TIMESTAMP(9)", struct.pack("<II", 1000000, 24), "1000000 nanoseconds"),
])  # fmt: skip
def test_a_damaged_field_is_named_with_its_place(kind: str, slot: bytes, why: str) -> None:
    """Its offset is that of the slot; the byte that holds an inline length is the last of the slot."""
    data = struct.pack(">i", 2) + bytes(16) + slot + b"12345678"
    for read in (
        lambda: decode_field(parse_type(kind), data, 2, 1),
        lambda: field_decoder(parse_type(kind), 2, 1)(data),
    ):
        with pytest.raises(CorruptError, match=why) as e:
            read()
        assert e.value.offset == (27 if "inline" in why else 20)


def test_what_a_row_cannot_hold_is_refused_by_the_reader_of_fields() -> None:
    for made in (ArrayType(parse_type("INT")), parse_type("VARIANT")):
        with pytest.raises(UnsupportedFeature, match="cannot be read"):
            field_decoder(made, 1, 0)
        with pytest.raises(UnsupportedFeature, match="cannot be read"):
            decode_field(made, bytes(20), 1, 0)


def test_columns_at_the_limits_of_their_types_encode_as_rows_do() -> None:
    for kind, values in LIMITS:
        types = [parse_type("STRING"), parse_type(kind), parse_type("BYTES")]
        if kind.startswith("DECIMAL"):  # Arrow takes no more digits than the type has
            values = [v for v in values if abs(v) < 10 ** types[1].precision]
        rows = [["a long te", v, b"the next one"] for v in [*values, None]]
        arrays = [to_arrow(t, [None, *(r[i] for r in rows)]).slice(1) for i, t in enumerate(types)]
        data, offsets = encode_rows(types, arrays)
        assert [data[a:b].tobytes() for a, b in pairwise(offsets)] == [encode_row(types, r) for r in rows]


def test_columns_without_rows_or_bytes() -> None:
    for kind in ALL.split(","):
        made = parse_type(kind.replace(";", ","))
        data, offsets = encode_rows([made], [pa.array([], arrow_type(made))])
        assert len(data) == 0 and offsets.tolist() == [0]
        assert len(to_texts(pa.array([], pa.large_binary())).lengths) == 0
    assert [len(part) for part in encode_rows([], [])] == [0, 1]
    for text in ("", "x" * 8):
        one = encode_rows(types_of("STRING,STRING"), [pa.array([""]), pa.array([text])])[0]
        assert one.tobytes() == encode_row(types_of("STRING,STRING"), ["", text])
    with pytest.raises(ValueError, match="zip"):
        encode_rows(types_of("INT,INT"), [pa.array([1], pa.int32())])


def test_one_chunk_and_several_are_one_column() -> None:
    parts = [pa.array(["a", "long enough text"]), pa.array([None, "b"])]
    want = [encode_row(types_of("STRING"), [v]) for part in parts for v in part.to_pylist()]
    for chunks in (parts, parts[:1], [*parts, pa.array([], pa.string())]):
        data, offsets = encode_rows(types_of("STRING"), [pa.chunked_array(chunks)])
        got = [data[a:b].tobytes() for a, b in pairwise(offsets)]
        assert got == want[: len(got)] and len(got) == sum(map(len, chunks))


def test_types_without_a_place_in_keys_are_refused() -> None:
    for made in (ArrayType(parse_type("INT")), parse_type("VARIANT")):
        with pytest.raises(UnsupportedFeature, match="cannot be used in a key, partition or bucket"):
            to_column(made, pa.array([[1]]))


def test_units_of_timestamps_of_each_precision() -> None:
    kinds = [parse_type(f"TIMESTAMP({p}){zone}") for zone in ("", " WITH LOCAL TIME ZONE") for p in range(10)]
    assert [units_per_milli(k) for k in kinds] == ([1] * 4 + [1000] * 3 + [1_000_000] * 3) * 2
    assert [is_fine_timestamp(k) for k in kinds] == ([False] * 4 + [True] * 6) * 2
    assert [is_wide_decimal(parse_type(f"DECIMAL({p})")) for p in (1, 18, 19, 38)] == [False, False, True, True]
    assert units_per_milli(AtomicType(Root.TIMESTAMP)) == 1000, "six digits, if none are named"
