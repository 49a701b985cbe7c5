"""Avro containers read directly: headers, blocks, codecs and schemas at their limits.

What decoders of whole files make of hostile containers is in ``tests/metadata/test_hostile_avro.py``.
"""

from __future__ import annotations

import io
import json
import lzma
import sys
import zlib
from typing import Any

import fastavro
import pytest

from bitlake.codec import avro
from bitlake.codec.avro import PlainContainer, check_schema, decompress_zstd, read_blocks, read_header
from bitlake.codec.bytes import zigzag
from bitlake.errors import CorruptError, UnsupportedFeature
from tests.avro_codecs import COMPRESS, deflate, snappy

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SYNC = b"0123456789abcdef"
NUMBER = {"type": "record", "name": "r", "fields": [{"name": "i", "type": "int"}]}


def head(schema: Any = NUMBER, codec: str | None = "null", negative: bool = False) -> bytes:
    pairs = [b"avro.schema", json.dumps(schema).encode()]
    pairs += [] if codec is None else [b"avro.codec", codec.encode()]
    meta = b"".join(zigzag(len(p)) + p for p in pairs)
    count = len(pairs) // 2
    counts = zigzag(-count) + zigzag(len(meta)) if negative else zigzag(count)
    return b"Obj\x01" + counts + meta + b"\0" + SYNC


def block(count: int, body: bytes, sync: bytes = SYNC) -> bytes:
    return zigzag(count) + zigzag(len(body)) + body + sync


def blocks(data: bytes, most: int = 1 << 20) -> list[tuple[int, bytes]]:
    stream = io.BytesIO(data)
    return list(read_blocks(stream, read_header(stream, "it"), len(data), lambda size: most, "it"))


@pytest.mark.parametrize("codec", [*COMPRESS, None])
def test_blocks_of_each_codec(codec: str | None) -> None:
    """Blocks of no byte to some hundred thousand, whose lengths take one to three bytes; no codec named is null."""
    bodies = [b"\2", bytes(range(64)), bytes(127), bytes(128), b"ab" * 9000, bytes(200_000)]
    compress = COMPRESS[codec or "null"]
    data = head(codec=codec) + b"".join(block(1, compress(b)) for b in bodies)
    assert blocks(data) == [(1, b) for b in bodies]
    assert blocks(head(codec=codec)) == []
    assert blocks(head(codec=codec, negative=True) + block(1, compress(b"\2"))) == [(1, b"\2")]


@pytest.mark.parametrize("codec", COMPRESS)
def test_a_block_of_the_greatest_size(codec: str) -> None:
    body = bytes(range(250)) * 4
    data = head(codec=codec) + block(1, COMPRESS[codec](body))
    assert blocks(data, most=1000) == [(1, body)]
    with pytest.raises(CorruptError, match=r"decompresses to more than 999 bytes|1,000 bytes are claimed"):
        blocks(data, most=999)


@pytest.mark.parametrize("codec", ["zstandard", "bzip2", "xz"])
def test_frames_one_after_the_other(codec: str) -> None:
    parts = [b"abc", b"", b"defgh", b"i"]
    body = b"".join(COMPRESS[codec](p) for p in parts)
    data = head(codec=codec) + block(1, body)
    assert blocks(data, most=9) == [(1, b"abcdefghi")]
    with pytest.raises(CorruptError, match="more than 8 bytes"):
        blocks(data, most=8)
    with pytest.raises(CorruptError, match="cut off"):
        blocks(head(codec=codec) + block(1, body[:-1]))
    if codec == "zstandard":
        assert decompress_zstd(body, 9) == b"abcdefghi" and decompress_zstd(b"", 9) == b""
        assert len(decompress_zstd(body, 4)) == 5, "one byte more than the most, and no frame after that"


def test_a_cut_deflate_block() -> None:
    cut = deflate(bytes(range(200)))[:-3]
    for most in (1 << 20, len(zlib.decompressobj(-15).decompress(cut))):
        with pytest.raises(CorruptError, match="cut off"):
            blocks(head(codec="deflate") + block(1, cut), most)


def test_an_xz_block_takes_128_mib_of_memory_at_most() -> None:
    """A block names the window that decoding it needs: 96 MiB are granted, 128 MiB and a bit are not."""
    made = lzma.compress(b"some text", preset=0)
    start = made.index(b"\x21\x01")  # LZMA2, one byte of properties: the size of the window
    for window, accepted in ((29, True), (30, False)):
        described = made[12 : start + 2] + bytes([window]) + made[start + 3 : 12 + (made[12] + 1) * 4 - 4]
        body = made[:12] + described + zlib.crc32(described).to_bytes(4, "little") + made[12 + len(described) + 4 :]
        data = head(codec="xz") + block(1, body)
        if accepted:
            assert blocks(data) == [(1, b"some text")]
        else:
            with pytest.raises(CorruptError, match="damaged block"):
                blocks(data)


def test_a_snappy_block_has_its_checksum() -> None:
    good = snappy(b"some text, some text")
    with pytest.raises(CorruptError, match="checksum differs"):
        blocks(head(codec="snappy") + block(1, good[:-1] + bytes([good[-1] ^ 1])))
    # 64 bytes of each 3 at most: the most that a block of n bytes can claim is below 32 n.
    for size, found in ((32 * 20, "checksum|Snappy|snappy"), (32 * 20 + 1, "641 bytes are claimed")):
        claimed = bytes([size & 0x7F | 0x80, size >> 7])
        with pytest.raises(CorruptError, match=found):
            blocks(head(codec="snappy") + block(1, claimed + bytes(18)))


def test_what_a_block_may_claim() -> None:
    assert blocks(head() + block(3, b"\2\2\2")) == [(3, b"\2\2\2")]
    assert blocks(head() + block(0, b"")) == [(0, b"")]
    for bad, found in (
        (block(4, b"\2\2\2"), "claims 4 records in 3 bytes"),
        (block(-1, b"\2"), "of -1 records"),
        (block(1, b"\2", SYNC[:-1] + b"!"), "sync marker"),
        (block(1, b"\2")[:-1], "sync marker"),
        (zigzag(1) + zigzag(9) + b"\2" + SYNC[:5], "9 bytes, of which 6 exist"),
        (zigzag(1) + zigzag(-1), "-1 bytes, of which 0 exist"),
        (zigzag(1) + zigzag(1 << 40), "of which 0 exist"),
        (zigzag(1), "ends inside its header or between two blocks"),
        (b"\xff" * 9 + b"\x01", "ends inside"),
        (b"\xff" * 10 + b"\x01", "more than 64 bits"),
    ):
        with pytest.raises(CorruptError, match=found):
            blocks(head() + bad)


def test_headers() -> None:
    header = read_header(io.BytesIO(head(codec="snappy")), "it")
    assert (header.codec, header.sync, header.nodes) == ("snappy", SYNC, 2)
    day = {"type": "int", "logicalType": "date"}
    assert read_header(io.BytesIO(head(day)), "it").schema == day
    assert read_header(io.BytesIO(head(day)), "it", logical=False).schema == "int"
    with pytest.raises(CorruptError, match="not an Avro file"):
        read_header(io.BytesIO(b"Obj\x02" + head()[4:]), "it")
    for start, other in ((b"ORC\x11", "ORC"), (b"PAR1", "Parquet")):  # manifests, with 'manifest.format'
        with pytest.raises(UnsupportedFeature, match=f"the format of it is {other}; only Avro"):
            read_header(io.BytesIO(start + head()[4:]), "it")
    with pytest.raises(UnsupportedFeature, match="'brotli'; expected one of null, deflate"):
        read_header(io.BytesIO(head(codec="brotli")), "it")
    for size in range(4, len(head())):
        with pytest.raises(CorruptError):
            read_header(io.BytesIO(head()[:size]), "it")


def test_a_header_has_a_greatest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and values may take it, and their lengths two bytes a pair."""
    used = len("avro.schema") + len(json.dumps(NUMBER)) + 2 + len("avro.codec") + len("null")
    monkeypatch.setattr(avro, "HEADER_BYTES", used)
    assert read_header(io.BytesIO(head()), "it").codec == "null"
    monkeypatch.setattr(avro, "HEADER_BYTES", used - len("avro.codec") - 1)
    with pytest.raises(CorruptError, match="Avro header of more than"):
        read_header(io.BytesIO(head()), "it")
    # Three pairs of no byte fit into six bytes, a fourth does not fit below zero.
    monkeypatch.setattr(avro, "HEADER_BYTES", 6)
    for pairs, found in ((4, "no valid Avro schema"), (5, "Avro header of more than 6 bytes")):
        with pytest.raises(CorruptError, match=found):
            read_header(io.BytesIO(b"Obj\x01" + zigzag(pairs) + bytes(2 * pairs + 1) + SYNC), "it")


def test_a_header_takes_16_mib_at_most() -> None:
    for size, found in ((16 << 20, "ends inside its header"), ((16 << 20) + 1, "more than 16,777,216 bytes")):
        with pytest.raises(CorruptError, match=found):
            read_header(io.BytesIO(b"Obj\x01" + zigzag(1) + zigzag(size)), "it")


def test_damage_of_a_header_is_where_it_is_said() -> None:
    with pytest.raises(CorruptError) as e:
        read_header(io.BytesIO(b"Orc\x01"), "it")
    assert e.value.offset == 0


@pytest.mark.parametrize("size", [1, 7, 64, 1 << 20])
def test_a_plain_container_is_the_same_without_compression(size: int) -> None:
    parts = [[1, 2, 3], [], [4], list(range(500))]
    data = head(codec="zstandard")
    data += b"".join(block(len(p), zstd.compress(b"".join(zigzag(n) for n in p))) for p in parts)
    stream = io.BytesIO(data)
    header = read_header(stream, "it")
    plain = PlainContainer(header, read_blocks(stream, header, len(data), lambda n: 1 << 20, "it"))
    parts_read = list(iter(lambda: plain.read(size), b""))
    assert all(len(part) == size for part in parts_read[:-1]) and len(parts_read[-1]) <= size
    out = b"".join(parts_read)
    assert [row["i"] for row in fastavro.reader(io.BytesIO(out))] == [n for p in parts for n in p]


# --- schemas ----------------------------------------------------------------------------------------------------------


def checked(schema: Any, logical: bool = True) -> tuple[Any, int]:
    return check_schema(json.dumps(schema).encode(), "it", logical)


def test_logical_types_are_kept_if_asked_for() -> None:
    day, price = {"type": "int", "logicalType": "date"}, {"type": "bytes", "logicalType": "decimal", "precision": 9}
    fixed = {"type": "fixed", "name": "f", "size": 4, "logicalType": "decimal", "precision": 5, "scale": 2}
    for made in (day, price):
        assert checked(made) == check_schema(json.dumps(made).encode(), "it") == (made, 1)
        assert checked(made, logical=False) == (made["type"], 1)
    assert checked(fixed)[0] == {**fixed, "name": "t1"}
    assert checked(fixed, logical=False)[0] == {"type": "fixed", "name": "t1", "size": 4}
    array = {"type": "array", "items": "long", "logicalType": "map"}
    assert checked(array)[0] == array and "logicalType" not in checked(array, logical=False)[0]


def test_nulls_take_no_byte_and_are_in_unions_alone() -> None:
    assert checked(["null", "int"]) == (["null", "int"], 2)
    assert checked([{"type": "null"}, "int", "string"]) == (["null", "int", "string"], 3)
    assert checked(["int", "null"])[0] == ["int", "null"]
    for bad in ("null", {"type": "null"}, {"type": "array", "items": "null"}, [], [["int"]], ["int", ["null"]]):
        with pytest.raises(CorruptError, match="no valid Avro schema"):
            checked(bad)


def test_types_without_bytes_or_names() -> None:
    assert checked({"type": "fixed", "name": "f", "size": 1})[0]["size"] == 1
    assert checked({"type": "enum", "name": "e", "symbols": ["a", "b"]})[0]["symbols"] == ["a", "b"]
    for bad in (
        {"type": "fixed", "name": "f", "size": 0},
        {"type": "fixed", "name": "f", "size": "4"},
        {"type": "record", "name": "r", "fields": []},
        {"type": "record", "fields": [{"name": "i", "type": "int"}]},
        "nothing",
        {"type": "array"},
        7,
    ):
        with pytest.raises(CorruptError, match="no valid Avro schema"):
            checked(bad)


def test_names_are_found_in_their_namespace() -> None:
    inner = {"type": "record", "name": "p", "fields": [{"name": "x", "type": "int"}]}

    def outer(second: Any, **more: str) -> dict[str, Any]:
        fields = [{"name": "a", "type": {**inner, **more}}, {"name": "b", "type": second}]
        return {"type": "record", "name": "o", "namespace": "n", "fields": fields}

    for made in (outer("p"), outer("n.p"), outer("m.p", namespace="m"), outer("q.p", name="q.p"), outer({"type": "p"})):
        first, second = (f["type"] for f in checked(made)[0]["fields"])
        assert first["fields"] == second["fields"] and first["name"] != second["name"]
    for bad in (outer("p", namespace="m"), outer("m.p"), outer({"type": ["q"]})):
        with pytest.raises(CorruptError, match="unknown type"):
            checked(bad)
    with pytest.raises(CorruptError, match="contains itself"):
        checked(outer("n.o"))
    assert checked(outer("p"))[1] == 5, "a type counts wherever it is used, a name does not count besides"
    # A name's own namespace is that of the types inside it, and of no type after it.
    dotted = {"type": "record", "name": "a.b.o", "fields": [{"name": "x", "type": {**inner, "name": "p"}}]}
    for name in ("a.b.p", "p"):
        fields = [{"name": "x", "type": dotted["fields"][0]["type"]}, {"name": "y", "type": name}]
        assert checked({**dotted, "fields": fields})[1] == 5
    for name in ("a.p", "b.p", "o.p"):
        with pytest.raises(CorruptError, match="unknown type"):
            checked({**dotted, "fields": [*dotted["fields"], {"name": "y", "type": name}]})


def test_long_names_are_cut_in_messages() -> None:
    name = "n" * 61
    with pytest.raises(CorruptError, match=f"type '{'n' * 60}' contains itself"):
        checked({"type": "record", "name": name, "fields": [{"name": "x", "type": name}]})
    with pytest.raises(CorruptError, match=f"unknown type '{'n' * 60}'"):
        checked({"type": "record", "name": "r", "fields": [{"name": "x", "type": name}]})


def test_limits_of_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    def nested(levels: int) -> Any:
        made: Any = "int"
        for _ in range(levels):
            made = {"type": "array", "items": made}
        return made

    # Each kind of type is a level above the type inside it.
    for around, most in (
        (lambda made: made, 64),
        (lambda made: {"type": "array", "items": made}, 63),
        (lambda made: {"type": "map", "values": made}, 63),
        (lambda made: ["null", made], 63),
        (lambda made: {"type": made}, 63),
        (lambda made: {"type": "record", "name": "o", "fields": [{"name": "x", "type": made}]}, 63),
    ):
        assert checked(around(nested(most)))
        with pytest.raises(CorruptError, match="64 levels"):
            checked(around(nested(most + 1)))
    # So is a name above what it stands for: q is four levels deep, its name 62.
    deep = {"type": "record", "name": "q", "fields": [{"name": "x", "type": nested(2)}]}

    def named(levels: int) -> Any:
        made: Any = "q"
        for _ in range(levels):
            made = {"type": "array", "items": made}
        return {"type": "record", "name": "o", "fields": [{"name": "a", "type": deep}, {"name": "b", "type": made}]}

    assert checked(named(59))
    with pytest.raises(CorruptError, match="64 levels"):
        checked(named(60))
    assert checked(nested(64))[1] == 65
    wide = {"type": "record", "name": "w", "fields": [{"name": f"c{i}", "type": "int"} for i in range(29_999)]}
    assert checked(wide)[1] == 30_000
    wide["fields"].append({"name": "more", "type": "int"})
    with pytest.raises(CorruptError, match="more than 30,000 types"):
        checked(wide)
    for number, schema in enumerate((nested(3), ["int", nested(1), {"type": "map", "values": nested(0)}])):
        monkeypatch.setattr(avro, "SCHEMA_NODES", 30_000)
        nodes = checked(schema)[1]
        assert nodes == (4, 6)[number]
        avro._cached_schema.cache_clear()
        monkeypatch.setattr(avro, "SCHEMA_NODES", nodes)
        assert checked(schema)[1] == nodes
        avro._cached_schema.cache_clear()
        monkeypatch.setattr(avro, "SCHEMA_NODES", nodes - 1)
        with pytest.raises(CorruptError, match=f"more than {nodes - 1} types"):
            checked(schema)
