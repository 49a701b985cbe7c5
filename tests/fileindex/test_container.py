from __future__ import annotations

import json
import random
import struct
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from bitlake.codec.hashing import string_hash
from bitlake.errors import BitlakeError, CorruptError, InvalidRequest, UnsupportedFeature
from bitlake.fileindex import bitmap, container, range_bitmap
from bitlake.fileindex.container import FIXED_LENGTH, encode_container, header_length, read_header, split_map_key
from bitlake.fileindex.reader import open_index
from bitlake.types import DataField, parse_type
from tests.fixtures import warehouse

INDEXES = sorted(warehouse().rglob("*.index"))


def test_the_example_of_the_spec() -> None:
    data = encode_container({"status": {"bitmap": bytes(0x2F0)}})
    assert data[:52].hex() == (
        "00054e4ed01a35ae" "00000001" "00000034" "00000001" "0006737461747573" "00000001" "00066269746d6170"
        "00000034" "000002f0" "00000000"
    )  # fmt: skip
    assert header_length(data[:FIXED_LENGTH]) == 52
    assert read_header(data[:52], len(data)).columns == {"status": {"bitmap": (52, 0x2F0)}}


@pytest.mark.parametrize("path", INDEXES, ids=lambda p: f"{p.parts[-3]}-{p.name[5:13]}")
def test_javas_containers_come_out_the_same(path) -> None:
    data = path.read_bytes()
    header = read_header(data)
    payloads = {c: {t: data[s : s + n] for t, (s, n) in inner.items()} for c, inner in header.columns.items()}
    schema = json.loads((path.parents[1] / "schema" / "schema-0").read_text())
    declared = [
        (column.strip(), key.split(".")[1])
        for key, value in schema["options"].items()
        if key.startswith("file-index.") and key.endswith(".columns")
        for column in value.split(",")
    ]
    assert encode_container(payloads, declared) == data


def test_map_keys_and_the_empty_marker() -> None:
    assert split_map_key("m[k]") == ("m", "k")
    assert split_map_key("m[a[b]]") == ("m", "a[b]")
    assert split_map_key("plain") == ("plain", None)
    data = encode_container({"m[a]": {"bitmap": None}, "é😀": {"bsi": b"xy"}})
    header = read_header(data)
    assert header.columns["m[a]"] == {"bitmap": (-1, 0)}
    start, n = header.columns["é😀"]["bsi"]
    assert data[start : start + n] == b"xy"


def test_other_bytes_and_other_versions() -> None:
    good = bytearray(encode_container({"a": {"bitmap": b"1"}}))
    with pytest.raises(CorruptError, match="magic"):
        read_header(b"PAR1" + good[4:])
    with pytest.raises(UnsupportedFeature, match="version 2"):
        read_header(good[:11] + b"\2" + good[12:])
    with pytest.raises(CorruptError):
        read_header(good[:-1])
    with pytest.raises(CorruptError):
        header_length(b"\0\5")


def test_mutated_headers_never_crash() -> None:
    good = encode_container({"a": {"bitmap": b"123", "bsi": b"4"}, "m[k]": {"bloom-filter": b"56"}})
    rng = random.Random(2)
    for _ in range(2000):
        data = bytearray(good)
        data[rng.randrange(12, len(data))] = rng.randrange(256)
        try:
            header = read_header(data[: rng.choice([len(data), rng.randrange(len(data))])], len(data))
        except BitlakeError:
            continue
        for inner in header.columns.values():
            assert all(s == -1 or (s >= 0 and s + n <= len(data)) for s, n in inner.values())


def test_the_shortest_header() -> None:
    """No column: 16 fixed bytes, a count and the redundant length; one byte less is refused where it is read."""
    data = encode_container({})
    assert len(data) == header_length(data[:FIXED_LENGTH]) == 24
    assert read_header(data).columns == {}
    for length in (0, 16, 23):
        with pytest.raises(CorruptError, match=f"cannot have {length} bytes") as e:
            header_length(data[:12] + length.to_bytes(4, "big"))
        assert e.value.offset == 12


def test_limits_of_size_are_those_of_the_offsets_stored() -> None:
    """Offsets are signed 32-bit numbers: the largest is the limit of a payload and of a container."""
    for module in (bitmap, range_bitmap, container):
        assert struct.pack(">i", module._MAX) == b"\x7f\xff\xff\xff"
        with pytest.raises(struct.error):
            struct.pack(">i", module._MAX + 1)


def test_a_container_that_reaches_the_limit_of_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last byte may lie at the limit; one byte more is refused, naming the column at which it happens."""
    indexes = {"a": {"bitmap": bytes(100)}, "b": {"bitmap": bytes(50)}}
    whole = encode_container(indexes)
    monkeypatch.setattr(container, "_MAX", len(whole))
    assert encode_container(indexes) == whole
    for limit, column in ((len(whole) - 1, "b"), (len(whole) - 51, "a"), (0, "a")):
        monkeypatch.setattr(container, "_MAX", limit)
        with pytest.raises(InvalidRequest, match=f"more than 2 GiB at column '{column}'"):
            encode_container(indexes)


def test_an_index_without_a_byte_is_left_out_where_it_is_looked_for() -> None:
    """A column of NULLs alone may have one: every row stays possible, and nothing is wrong."""
    fields = [DataField(0, "a", parse_type("INT")), DataField(1, "b", parse_type("INT"))]
    writer = bitmap.BitmapWriter(fields[1].type, {})
    writer.add(pa.array([1, 2, None], pa.int32()))
    data = encode_container({"a": {"bitmap": None}, "b": {"bitmap": writer.finish()}})
    index = open_index(lambda offset, length: data[offset : offset + length], len(data), fields, 3, True)
    assert index.columns["a"]["bitmap"] == (-1, 0)
    assert index.reader("a", "bitmap") is None and index.reader("b", "bitmap") is not None
    assert index.reader("b", "bsi") is None and index.reader("c", "bitmap") is None and not index.problems


def test_a_header_that_is_cut_or_longer_than_its_members() -> None:
    data = encode_container({"a": {"bitmap": b"xyz"}})
    length = header_length(data)
    for bad in (data[: length - 1], data[: FIXED_LENGTH + 8]):
        with pytest.raises(CorruptError, match=f"header has {length} bytes, {len(bad)} are there") as e:
            read_header(bad)
        assert e.value.offset == 12
    assert read_header(data[:length], len(data)).columns == read_header(data).columns
    none = encode_container({"a": {"bitmap": None}})
    longer = none[:12] + (len(none) + 1).to_bytes(4, "big") + none[16:] + b"x"
    with pytest.raises(CorruptError, match="its members take") as e:
        read_header(longer)
    assert e.value.offset == 12


def test_where_an_index_may_lie() -> None:
    """Behind the header and within the container; -1 with no byte is the empty marker."""
    good = encode_container({"a": {"bitmap": b"xyz"}})
    length, at = header_length(good), good.index(b"bitmap") + 6

    def placed(start: int, n: int) -> bytes:
        return good[:at] + struct.pack(">ii", start, n) + good[at + 8 :]

    for place in ((length, 3), (length, 0), (length + 1, 2), (length + 3, 0), (-1, 0)):
        assert read_header(placed(*place)).columns == {"a": {"bitmap": place}}
    for start, n in ((length - 1, 1), (length, -1), (length, 4), (length + 3, 1), (-1, 1), (-1, -1), (0, 0), (-2, 0)):
        with pytest.raises(CorruptError, match=f"'bitmap' is said to have {n} bytes at {start} of {len(good)}") as e:
            read_header(placed(start, n))
        assert e.value.offset == at


def test_a_column_is_named_once() -> None:
    """The place of the error is where the name comes again."""
    column = b"\0\1a" + bytes(4)
    length = 16 + 4 + 2 * len(column) + 4
    head = struct.pack(">qii", container.MAGIC, 1, length)
    with pytest.raises(CorruptError, match="names a column twice") as e:
        read_header(head + struct.pack(">i", 2) + 2 * column + bytes(4))
    assert e.value.offset == 20 + len(column)


@pytest.mark.parametrize("name", ["a", "status", "\u4e2d\u6587", "m[k]", "map of names[some key]", "m[]", "x[y]z"])
def test_hashes_of_columns_are_those_of_java(name: str) -> None:
    """``Arrays.hashCode`` of column, map key or null, and whether it is one: 31 times what came before, from 1 on."""

    def string(text: str) -> int:
        h = 0
        for i in range(0, 2 * len(text), 2):
            h = h * 31 + int.from_bytes(text.encode("utf-16-be")[i : i + 2], "big")
        return h

    parts = {"m[k]": ("m", "k"), "map of names[some key]": ("map of names", "some key"), "m[]": ("m", "")}
    column, key = parts.get(name, (name, None))
    expected = ((31 + string(column)) * 31 + (0 if key is None else string(key))) * 31 + (1237 if key is None else 1231)
    assert container._column_hash(name) == (expected + 2**31) % 2**32 - 2**31


class JavaMap:
    """A plain model of java.util.HashMap without trees."""

    def __init__(self, hash_of: Callable[[str], int] = string_hash) -> None:
        self.table: list[list[str]] = [[] for _ in range(16)]
        self.hash_of = hash_of

    def order(self) -> list[str]:
        return [key for bucket in self.table for key in bucket]

    def _bucket(self, key: str) -> list[str]:
        h = self.hash_of(key) & 0xFFFFFFFF
        return self.table[(h ^ h >> 16) & (len(self.table) - 1)]

    def _grow(self) -> None:
        keys = self.order()
        if len(keys) > len(self.table) * 0.75:
            self.table = [[] for _ in range(2 * len(self.table))]
            for key in keys:
                self._bucket(key).append(key)

    def put(self, key: str) -> None:
        if key not in self._bucket(key):
            self._bucket(key).append(key)
            self._grow()

    def compute_if_absent(self, key: str) -> None:
        self._grow()
        if key not in self._bucket(key):
            self._bucket(key).insert(0, key)


def modelled(declared: list[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Paimon's options, its writer and the collected payloads each go through maps."""
    columns, kinds = JavaMap(container._column_hash), defaultdict[str, JavaMap](JavaMap)
    for column, kind in declared:
        columns.compute_if_absent(column)
        kinds[column].compute_if_absent(kind)
    types, tops = JavaMap(), defaultdict[str, JavaMap](JavaMap)
    keys, plain = defaultdict[tuple[str, str], JavaMap](JavaMap), set[str]()
    for column in columns.order():
        top, key = split_map_key(column)
        plain |= {top} if key is None else set()
        for kind in kinds[column].order():
            types.compute_if_absent(kind)
            tops[kind].put(top)
            keys[kind, top].put(key or "")
    names, of_names = JavaMap(), defaultdict[str, JavaMap](JavaMap)
    for kind in types.order():
        for top in tops[kind].order():
            for name in [top] if top in plain else [f"{top}[{key}]" for key in keys[kind, top].order()]:
                names.compute_if_absent(name)
                of_names[name].put(kind)
    return [(name, of_names[name].order()) for name in names.order()]


@pytest.mark.parametrize("count", [1, 2, 5, 11, 12, 13, 14, 24, 25, 26, 50])
def test_columns_and_types_in_the_order_of_java_maps(count: int) -> None:
    rng = random.Random(count)
    for again in (False, True) * 4:
        columns = [f"c{rng.randrange(10**6)}" + (f"[k{i}]" if i % 3 == 0 else "") for i in range(count)]
        columns += [f"map[{rng.randrange(10**6)}]" for _ in range(count // 2)]
        kinds = ["bitmap", "bsi", "bloom-filter", "range-bitmap"]
        declared = [(c, k) for c in columns for k in rng.sample(kinds, rng.choice([1, 1, 2]))]
        rng.shuffle(declared)
        declared += [(rng.choice(declared)[0], rng.choice(kinds))] if again else [("last", "bitmap")]
        assert list(container.java_order(declared).items()) == modelled(declared)


@pytest.mark.parametrize("count", [0, 1, 2, 12, 13, 14, 100])
def test_containers_of_any_number_of_columns(count: int) -> None:
    indexes = {f"c{i}": {"bitmap": bytes([i]) * i, "bsi": None} for i in range(count)}
    data = encode_container(indexes)
    found = read_header(data)
    assert set(found.columns) == set(indexes) and found.checksums is None
    for name, inner in indexes.items():
        start, n = found.columns[name]["bitmap"]
        assert data[start : start + n] == inner["bitmap"] and found.columns[name]["bsi"] == (-1, 0)


@pytest.mark.parametrize(("module", "writer"), [
    (bitmap, bitmap.BitmapWriter), (range_bitmap, range_bitmap.RangeBitmapWriter),
])  # fmt: skip
@pytest.mark.parametrize("repeats", [1, 3])
def test_a_payload_that_reaches_the_limit_of_offsets(
    module: Any, writer: Any, repeats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a bitmap both its bitmaps and its blocks of values are limited; of a range-bitmap, the whole."""

    def payload() -> bytes:
        made = writer(parse_type("INT"), {})
        made.add(pa.array([*range(50)] * repeats, pa.int32()))
        return bytes(made.finish())

    whole, blocks = payload(), 4 + 50 * 12
    limit = len(whole) if module is range_bitmap else max(blocks, len(whole) - (10 + 4 + 8 + 4 + blocks))
    monkeypatch.setattr(module, "_MAX", limit)
    assert payload() == whole
    monkeypatch.setattr(module, "_MAX", limit - 1)
    with pytest.raises(UnsupportedFeature, match="of 50 values takes more than 2 GiB"):
        payload()
