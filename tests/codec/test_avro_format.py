"""Whole containers of one record type, as Paimon's metadata files are: written, rolled over, and read again.

fastavro reads what bitlake writes and writes what bitlake reads, as a second implementation.
"""

from __future__ import annotations

import io
import random
from typing import Any

import fastavro
import pytest

from bitlake.codec import avro
from bitlake.codec.avro import AvroFormat, decode, most_bytes, read_blocks, read_header
from bitlake.codec.bytes import zigzag
from bitlake.errors import CorruptError


def record(*fields: tuple[str, Any], name: str = "r") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


SCHEMA = record(
    ("number", "long"),
    ("text", ["null", "string"]),
    ("inner", record(("items", {"type": "array", "items": "int"}), ("blob", ["null", "bytes"]), name="i")),
)
FORMAT = AvroFormat(SCHEMA)
BLOB = AvroFormat(record(("blob", "bytes")))


def rows(count: int) -> list[dict[str, Any]]:
    inner = [{"items": list(range(i % 4)), "blob": None if i % 3 else bytes(i)} for i in range(count)]
    return [{"number": i << 33, "text": f"t{i}" if i % 2 else None, "inner": x} for i, x in enumerate(inner)]


def sizes(data: bytes) -> list[tuple[int, int]]:
    """Records and uncompressed bytes of each block."""
    stream = io.BytesIO(data)
    header = read_header(stream, "it")
    return [(n, len(b)) for n, b in read_blocks(stream, header, len(data), lambda size: 1 << 30, "it")]


@pytest.mark.parametrize("count", [0, 1, 2, 500])
def test_a_container_holds_its_records(count: int) -> None:
    data = FORMAT.encode(rows(count))
    assert list(fastavro.reader(io.BytesIO(data))) == rows(count)
    assert list(decode(data, "it", FORMAT)) == rows(count)
    header = read_header(io.BytesIO(data), "it")
    assert header.codec == "zstandard" and data.endswith(header.sync)
    assert len(data) > 200 and FORMAT.encode(rows(count))[:60] == data[:60]
    assert list(FORMAT.encode_rolling(rows(count), 1 << 30))[:1] == [] or count


def blobs(count: int, size: int) -> list[dict[str, bytes]]:
    """Records that take ``size`` bytes each, of which two are a length, and that do not compress."""
    return [{"blob": random.Random(n).randbytes(size - 2)} for n in range(count)]


def test_a_block_ends_at_64000_bytes() -> None:
    """Avro's own default in Java."""
    assert sizes(BLOB.encode(blobs(1001, 640))) == [(100, 64_000)] * 10 + [(1, 640)]
    assert sizes(BLOB.encode(blobs(300, 641))) == [(100, 64_100)] * 3
    assert sizes(BLOB.encode(blobs(203, 639))) == [(101, 64_539)] * 2 + [(1, 639)]


@pytest.mark.parametrize("target", [1, 640, 641, 20_000, 64_000, 100_000, 1 << 40])
def test_files_end_when_they_have_reached_their_target(target: int) -> None:
    """Against a model: a block ends at 64,000 bytes or at the target, a file at a block's end from the target on."""
    records = blobs(250, 640)
    files = list(BLOB.encode_rolling(records, target))
    left = iter(records)
    for number, (data, count) in enumerate(files):
        assert list(decode(data, "it", BLOB)) == [next(left) for _ in range(count)] and count > 0
        blocks = sizes(data)
        assert sum(n for n, _ in blocks) == count
        full = -(-min(64_000, target) // 640)
        assert all(n == full for n, _ in blocks[:-1]) and blocks[-1][0] <= full
        if number < len(files) - 1:
            assert len(data) >= target and blocks[-1][0] == full
            stored = len(data) - data.rindex(data[-16:], 0, -16) - 16
            assert len(blocks) == 1 or len(data) - stored < target, "before its last block it had not reached it"
    assert next(left, None) is None
    assert len({data[-16:] for data, _ in files}) == len(files), "each file has a sync marker of its own"


def test_a_target_is_reached_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    records = blobs(3, 100)
    size = len(BLOB.encode(records[:1]))
    assert len(BLOB.encode(records[1:2])) == size
    monkeypatch.setattr(avro, "BLOCK_BYTES", 1)
    assert [count for _, count in BLOB.encode_rolling(records, size)] == [1, 1, 1]
    assert [count for _, count in BLOB.encode_rolling(records, size + 1)] == [2, 1]


def test_blocks_carry_a_checksum() -> None:
    """A flipped bit is found even where the frame stays valid."""
    data = FORMAT.encode(rows(3))
    start = len(data) - 16 - 4  # the last bytes of the frame
    for at in range(start, start + 4):
        with pytest.raises(CorruptError, match="damaged block"):
            list(decode(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], "it", FORMAT))


def written(schema: Any, records: list[Any], codec: str = "null") -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec=codec)
    return out.getvalue()


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard", "xz", "bzip2"])
def test_containers_of_another_writer(codec: str) -> None:
    assert list(decode(written(SCHEMA, rows(300), codec), "it", FORMAT)) == rows(300)


def test_timestamps_stay_numbers() -> None:
    made = record(("at", {"type": "long", "logicalType": "timestamp-millis"}))
    data = written(made, [{"at": 1_700_000_000_000}])
    assert list(decode(data, "it", AvroFormat(record(("at", "long"))))) == [{"at": 1_700_000_000_000}]
    data = AvroFormat(made).encode([{"at": 5}])
    assert list(decode(data, "it", AvroFormat(made))) == [{"at": 5}]
    assert b"timestamp-millis" in data, "other readers are shown the type"


@pytest.mark.parametrize("codec", ["null", "zstandard", "snappy"])
def test_blocks_are_copied_into_another_file(codec: str) -> None:
    """Those that have its codec as they are stored, others with its codec; another schema's are not."""
    timed = AvroFormat(record(("at", {"type": "long", "logicalType": "timestamp-millis"}), ("blob", "bytes")))
    held = [{"at": i, "blob": random.Random(i).randbytes(40_000)} for i in range(5)]
    data = timed.encode(held, codec=codec)
    blocks = timed.blocks(data, "it")
    assert blocks is not None and [b.records for b in blocks] == [2, 2, 1] and {b.codec for b in blocks} == {codec}
    for other in ("null", "zstandard", "snappy"):
        copied = timed.encode_blocks(blocks[1:], 1, other)
        assert list(decode(copied, "it", timed)) == held[2:]
        assert read_header(io.BytesIO(copied), "it").codec == other
        again = timed.blocks(copied, "it")
        assert again is not None and [b.data for b in again] == [b.data for b in blocks[1:]]
        assert ([b.stored for b in again] == [b.stored for b in blocks[1:]]) == (other == codec)
    assert BLOB.blocks(data, "it") is None and timed.blocks(BLOB.encode([]), "it") is None
    assert timed.blocks(timed.encode([]), "it") == []


EXPECTED = record(
    ("a", "long"),
    ("b", ["null", "string"]),
    ("c", {"type": "array", "items": "bytes"}),
    ("d", ["null", record(("e", "int"), ("f", {"type": "array", "items": ["null", "long"]}), name="d")]),
)


def changed(**types: Any) -> dict[str, Any]:
    fields = {f["name"]: f["type"] for f in EXPECTED["fields"]} | types
    return record(*((name, made) for name, made in fields.items() if made is not None))


def inner(**types: Any) -> dict[str, Any]:
    fields = {"e": "int", "f": {"type": "array", "items": ["null", "long"]}} | types
    return changed(d=record(*((name, made) for name, made in fields.items() if made is not None), name="d"))


ROW = {"a": 1, "b": "x", "c": [b"y"], "d": {"e": 2, "f": [3]}}


def without(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {k: v for k, v in row.items() if k != name}


@pytest.mark.parametrize(("schema", "row"), [
    (changed(), ROW), (changed(a="int"), ROW), (changed(b="string"), ROW), (changed(b=["string", "null"]), ROW),
    (changed(b=None), without(ROW, "b")), (changed(more=["null", "double", "string"]), {**ROW, "more": 0.5}),
    (changed(c=None, more=record(("x", "int"), name="x")), {**without(ROW, "c"), "more": {"x": 1}}),
    (inner(e="long"), ROW), (inner(f={"type": "array", "items": "int"}), ROW),
    (inner(more="boolean"), {**ROW, "d": {**ROW["d"], "more": True}}), (inner(e=None), {**ROW, "d": {"f": [3]}}),
])  # fmt: skip
def test_schemas_that_differ_in_what_does_not_matter(schema: dict[str, Any], row: dict[str, Any]) -> None:
    """NOT NULL where NULL is allowed, INT for LONG and the reverse, a branch order, and fields more or fewer."""
    assert list(decode(written(schema, [row]), "it", AvroFormat(EXPECTED))) == [row]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (changed(a="string"), "a has type string, and not long"),
        (changed(a=["null", "long"]), "a may be null"),
        (changed(b="bytes"), "b has type bytes, and not string"),
        (changed(b=["null", "string", "bytes"]), "b has type union, and not string"),
        (changed(b=["string", "bytes"]), "b has type union, and not string"),
        (changed(c={"type": "array", "items": "int"}), "an item of c has type int, and not bytes"),
        (changed(c={"type": "array", "items": ["null", "bytes"]}), "an item of c may be null"),
        (changed(c={"type": "map", "values": "bytes"}), "c has type map, and not array"),
        (changed(d="int"), "d has type int, and not record"),
        (inner(e="double"), "e has type double, and not int"),
        (inner(e=["null", "int"]), "e may be null"),
        (inner(f={"type": "array", "items": "string"}), "an item of f has type string, and not long"),
        ({"type": "array", "items": EXPECTED}, "record has type array, and not record"),
        (["null", EXPECTED], "record may be null"),
    ],
)
def test_schemas_that_differ_are_refused(schema: Any, why: str) -> None:
    with pytest.raises(CorruptError, match=f"^it has an unexpected Avro schema: {why}"):
        list(decode(written(schema, []), "it", AvroFormat(EXPECTED)))


def container(*blocks: tuple[int, bytes]) -> bytes:
    """An uncompressed container of records of one number each, with the blocks as they are given."""
    head = written(record(("i", "int")), [])
    return head + b"".join(zigzag(n) + zigzag(len(body)) + body + head[-16:] for n, body in blocks)


NUMBER = AvroFormat(record(("i", "int")))


def test_a_block_holds_as_many_records_as_it_says() -> None:
    assert list(decode(container((2, b"\2\4"), (0, b""), (1, b"\6")), "it", NUMBER)) == [{"i": 1}, {"i": 2}, {"i": 3}]
    for bad in ((1, b"\2\4"), (2, b"\2\x80\1\2"), (0, b"\2"), (2, b"\x80\1"), (1, b"\x80")):
        with pytest.raises(CorruptError, match="whose .* records do not take its|cannot be decoded|claims"):
            list(decode(container((1, b"\2"), bad), "it", NUMBER))


def test_what_a_container_may_decompress_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 MiB and 256 times its size, all blocks together."""
    assert [most_bytes(n) for n in (0, 1, 1000)] == [16 << 20, (16 << 20) + 256, (16 << 20) + 256_000]
    data = BLOB.encode([{"blob": bytes(50_000)} for _ in range(8)])
    total = sum(size for _, size in sizes(data))
    assert len(sizes(data)) == 4
    monkeypatch.setattr(avro, "most_bytes", lambda stored: total)
    assert len(list(decode(data, "it", BLOB))) == 8
    monkeypatch.setattr(avro, "most_bytes", lambda stored: total - 1)
    with pytest.raises(CorruptError, match="decompresses to more than"):
        list(decode(data, "it", BLOB))
