"""Deletion vectors: Paimon's files read and made again byte for byte, every damage found."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from fixtures import warehouse
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from bitlake.codec.roaring import serialize
from bitlake.errors import BitlakeError, CorruptError, InvalidRequest, UnsupportedFeature
from bitlake.metadata.index_manifest import DELETION_VECTORS, IndexFileEntry, decode_index_manifest
from bitlake.tableindex import VectorRange, deletion_vectors
from bitlake.tableindex.deletion_vectors import (
    EMPTY_FILE,
    DeletionVector,
    decode_frame,
    decode_index_file,
    decode_vector,
    encode_index_file,
    encode_index_files,
    encode_vector,
    frame_bytes,
)


def paimons() -> dict[str, tuple[IndexFileEntry, bytes]]:
    """Every deletion vector file of the fixture tables by its path."""
    found = {}
    for manifest in sorted(warehouse().glob("default.db/*/manifest/index-manifest-*")):
        for entry in decode_index_manifest(manifest.read_bytes()):
            if entry.index_type == DELETION_VECTORS:
                path = manifest.parent.parent / "index" / entry.file_name
                found[str(path)] = (entry, path.read_bytes())
    return found


def test_paimons_files_are_made_again_byte_for_byte() -> None:
    files = paimons()
    count = 0
    for entry, data in files.values():
        assert entry.ranges is not None
        vectors = decode_index_file(data, entry.ranges)
        assert encode_index_file(vectors) == (data, entry.ranges)
        assert entry.row_count == len(vectors)
        count += len(vectors)
    assert (len(files), count) == (FILES, VECTORS)
    assert {v.wide for e, d in files.values() for v in decode_index_file(d, e.ranges or ()).values()} == {True, False}


FILES, VECTORS = 65, 96


def test_one_vector_is_read_by_its_range_alone() -> None:
    for entry, data in paimons().values():
        for place in entry.ranges or ():
            part = data[place.offset : place.offset + frame_bytes(place, len(data))]
            vector = decode_frame(part, place)
            assert vector.cardinality == place.cardinality
            last = int(vector.positions()[-1])
            assert decode_frame(part, place, last + 1) == vector
            with pytest.raises(CorruptError, match=f"row {last} of {last} rows"):
                decode_frame(part, place, last)


def vectors() -> st.SearchStrategy[DeletionVector]:
    lists = st.lists(st.integers(0, 200_000), max_size=60)
    spans = st.tuples(st.integers(0, 100_000), st.integers(0, 80_000)).map(lambda p: np.arange(p[0], p[0] + p[1]))
    some = st.one_of(lists.map(lambda v: np.array(v, np.int64)), spans)
    return st.tuples(some, some, st.booleans()).map(lambda t: DeletionVector.of(np.concatenate(t[:2]), t[2]))


@given(st.dictionaries(st.text(min_size=1, max_size=8), vectors(), max_size=4))
def test_what_is_written_is_read(made: dict[str, DeletionVector]) -> None:
    data, places = encode_index_file(made)
    assert decode_index_file(data, places, lambda _: 200_001) == made
    assert not made or places[-1].offset + frame_bytes(places[-1], len(data)) == len(data)


@given(vectors(), st.data())
def test_no_damaged_byte_goes_unnoticed(vector: DeletionVector, data: st.DataObject) -> None:
    file, places = encode_index_file({"a": vector})
    at = data.draw(st.integers(0, len(file) - 1))
    bad = bytearray(file)
    bad[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptError):
        decode_index_file(bytes(bad), places)
    with pytest.raises(CorruptError):
        decode_index_file(file[:at], places)


@given(vectors(), st.binary(max_size=40), st.integers(0, 200))
def test_garbage_under_a_right_checksum_gives_rows_or_an_error(vector: DeletionVector, junk: bytes, at: int) -> None:
    body = bytearray(encode_vector(vector))
    at %= len(body)
    body[at : at + len(junk)] = junk
    frame = len(body).to_bytes(4, "big") + bytes(body) + zlib.crc32(body).to_bytes(4, "big")
    for length in (len(body), len(body) + 8):
        try:
            found = decode_frame(frame, VectorRange("a", 1, length, None), 1 << 20)
        except BitlakeError:
            continue
        assert not found.rows or found.rows.max() < 1 << 20


def test_sparse_and_high_keys_of_wide_vectors() -> None:
    empty = encode_vector(DeletionVector.of(np.zeros(0, np.int64)))[4:]
    one = encode_vector(DeletionVector.of(np.array([7])))[4:]
    magic = (1681511377).to_bytes(4, "little")

    def wide(*parts: tuple[int, bytes]) -> bytes:
        return magic + len(parts).to_bytes(8, "little") + b"".join(k.to_bytes(4, "little") + b for k, b in parts)

    assert list(decode_vector(wide((0, one), (3, empty))).rows) == [7]
    assert decode_vector(wide((5, empty))).cardinality == 0
    assert decode_vector(wide()).wide
    for bad in (wide((1, one)), wide((1, empty), (0, one)), wide((0, one)) + b"x", wide((0, one))[:-1], magic):
        with pytest.raises(CorruptError):
            decode_vector(bad, 1000)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, (1 << 32) - 1)), max_size=40))
def test_positions_above_32_bits(pairs: list[tuple[int, int]]) -> None:
    positions = np.array([(key << 32) + low for key, low in pairs], np.int64)
    vector = DeletionVector.of(positions, wide=True)
    wanted = sorted(set(positions.tolist()))
    data = encode_vector(vector)
    if wanted:  # every key up to the highest, as Java writes them
        assert int.from_bytes(data[4:12], "little") == (wanted[-1] >> 32) + 1
    found = decode_vector(data)
    assert found == vector and found.positions().tolist() == wanted and found.cardinality == len(wanted)
    half = len(positions) // 2
    parts = [DeletionVector.of(p, wide=True) for p in (positions[:half], positions[half:])]
    assert parts[0].merged(parts[1]).positions().tolist() == wanted
    if any(p >= 1 << 32 for p in wanted):
        with pytest.raises(CorruptError):
            decode_vector(data, 1 << 32)
        with pytest.raises(InvalidRequest):
            DeletionVector.of(positions)


def test_data_files_of_more_rows_are_refused() -> None:
    with pytest.raises(UnsupportedFeature, match=r"at most 2\^32"):
        decode_vector(encode_vector(DeletionVector.of(np.array([1 << 33]), wide=True)), 1 << 34)


def test_an_empty_file_has_no_vectors() -> None:
    assert encode_index_file({}) == (EMPTY_FILE, ())
    assert decode_index_file(EMPTY_FILE, ()) == {}
    for data, version in ((b"", "none"), (b"\x02", "2")):
        with pytest.raises(CorruptError, match=f"version {version}, only 1 is known") as e:
            decode_index_file(data, ())
        assert e.value.offset == 0


@pytest.mark.parametrize(("offset", "length"), [(0, 30), (1, 3), (1, 1000), (40, 30), (1, -5), (-1, 20), (1 << 31, 20)])
def test_ranges_outside_of_the_file_are_refused(offset: int, length: int) -> None:
    with pytest.raises(CorruptError, match="said to take"):
        frame_bytes(VectorRange("a", offset, length, 1), 41)


def test_a_wrong_length_or_cardinality_is_refused() -> None:
    file, (place,) = encode_index_file({"a": DeletionVector.of(np.array([1, 2, 3]), wide=True)})
    for wrong in (
        VectorRange("a", place.offset, place.length - 8, 3),
        VectorRange("a", place.offset, place.length, 2),
    ):
        with pytest.raises(CorruptError, match="the index manifest says"):
            decode_index_file(file, [wrong])


def test_vectors_of_both_kinds_merge() -> None:
    both = DeletionVector.of(np.array([1, 5])).merged(DeletionVector.of(np.array([5, 9]), wide=True))
    assert both.wide and list(both.rows) == [1, 5, 9]


@pytest.mark.parametrize("positions", [[-1], [1 << 32]])
def test_positions_that_no_row_has_are_refused(positions: list[int]) -> None:
    with pytest.raises(InvalidRequest):
        DeletionVector.of(np.array(positions))


# --- places of errors, limits -----------------------------------------------------------------------------------------


def _raised(data: bytes, place: VectorRange, row_count: int | None = None) -> CorruptError:
    with pytest.raises(CorruptError) as e:
        decode_frame(data, place, row_count)
    return e.value


def test_errors_of_a_frame_have_offsets_of_the_index_file() -> None:
    for wide in (False, True):
        vector = DeletionVector.of(np.array([1, 5, 70_000]), wide)
        file, (_, place) = encode_index_file({"a": vector, "b": vector})
        start = place.offset
        good = file[start:]
        size = len(good) - 8
        body = good[4 : 4 + size]
        crc = zlib.crc32(body).to_bytes(4, "big")
        assert start > 1 and decode_frame(good, place) == vector

        def framed(data: bytes) -> bytes:
            return len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")

        assert framed(body) == good
        wrong_size = _raised((size + 1).to_bytes(4, "big") + good[4:], place)
        assert wrong_size.offset == start and "the index manifest says" in wrong_size.what
        wrong_crc = _raised(good[:-4] + bytes(b ^ 1 for b in crc), place)
        assert wrong_crc.offset == start + 4 + size and "checksum" in wrong_crc.what
        assert _raised(framed(b"\xff" + body[1:]), place).offset == start + 4
        assert _raised(good[:-1], place).offset == start + 4 + size
        # The bitmap begins after the magic; of wide vectors also after the number of bitmaps and a key.
        head = 4 + (12 if wide else 0)
        assert _raised(framed(body[:head] + b"\xff" * 4 + body[head + 4 :]), place).offset == start + 4 + head
        counted = _raised(good, VectorRange("b", start, place.length, 4))
        assert counted.offset == start and "deletes 3 rows, the index manifest says 4" in counted.what
        kind = _raised(good, VectorRange("b", start, size + (0 if wide else 8), 3))
        assert kind.offset == start and "the index manifest says" in kind.what
        for rows in (70_000, 5, 0):
            assert start + 4 + head <= (_raised(good, place, rows).offset or 0) <= start + 4 + size
        assert decode_frame(good, place, 70_001) == vector


def test_a_wide_vector_names_the_place_of_its_damage() -> None:
    good = encode_vector(DeletionVector.of(np.array([1, (1 << 32) + 2, (2 << 32) + 3]), wide=True))
    one = 4 + len(serialize(BitMap([1])))
    assert len(good) == 12 + 3 * one and decode_vector(good).cardinality == 3

    def patched(at: int, number: int, size: int = 4) -> bytes:
        return good[:at] + number.to_bytes(size, "little", signed=True) + good[at + size :]

    for data, offset in (
        (patched(4, -1, 8), 4),
        (patched(4, (len(good) - 12) // 12 + 1, 8), 4),
        (patched(4, 4, 8), len(good)),
        (patched(4, 2, 8), 12 + 2 * one),
        (patched(12, -1), 12),
        (patched(12 + one, 0), 12 + one),
        (patched(12 + 2 * one, 1), 12 + 2 * one),
        (patched(12 + 2 * one, 2**31 - 1), 12 + 2 * one),
        (good + b"\0", len(good)),
        (good[:11], 4),
        (good[:3], 0),
        (patched(12 + one + 4, -1), 12 + one + 4),
        (patched(4, 4, 8) + b"\3\0\0\0", len(good) + 4),
    ):
        with pytest.raises(CorruptError) as e:
            decode_vector(data)
        assert e.value.offset == offset
    assert decode_vector(patched(12 + 2 * one, 2**31 - 2)).high[2**31 - 2] == BitMap([3])
    assert decode_vector(good).positions().tolist() == [1, (1 << 32) + 2, (2 << 32) + 3]
    for data, what in (
        (patched(4, 4, 8), "ends before a key"),
        (good + b"\0", f"1 bytes follow a deletion vector of {len(good)}"),
        (b"", "cannot start with nothing"),
        (b"\1\2\3\4", "cannot start with 01020304"),
    ):
        with pytest.raises(CorruptError, match=what):
            decode_vector(data)


def test_damage_inside_of_a_bitmap_is_where_it_is_in_the_vector() -> None:
    """The positions of one container come 16 bytes after the bitmap's start."""
    for wide, head in ((False, 4), (True, 16)):
        data = encode_vector(DeletionVector.of(np.array([3, 7]), wide))
        with pytest.raises(CorruptError, match="row 7 of 7 rows") as e:
            decode_vector(data, 7)
        assert e.value.offset == head + 16


def test_a_vector_read_without_runs_is_stored_with_them() -> None:
    rows = BitMap([*range(3000, 9000)], optimize=False)
    plain, runs = rows.serialize(), serialize(BitMap(rows))
    assert len(runs) < len(plain)
    read = decode_vector(encode_vector(DeletionVector.of(np.array([1])))[:4] + plain)
    assert encode_vector(read)[4:] == encode_vector(DeletionVector(rows))[4:] == runs
    assert encode_vector(read.merged(read))[4:] == runs
    assert not DeletionVector(rows).wide, "32 bits are enough, if nothing else is asked for"


def test_the_first_position_of_the_second_bitmap() -> None:
    vector = DeletionVector.of(np.array([1 << 32]), wide=True)
    assert vector.rows == BitMap() and vector.high == {1: BitMap([0])}
    assert decode_vector(encode_vector(vector)) == vector


def test_places_of_frames_have_limits() -> None:
    """A frame needs 12 bytes from offset 1 on, and data of four bytes, the magic."""
    for offset, length, size, want in (
        (1, 4, 13, 12), (1, 4, 12, None), (0, 4, 13, None), (1, 3, 13, None), (1, 12, 13, 12), (1, 13, 13, None),
        (5, 20, 100, 28), (5, 95, 100, 95), (5, 96, 100, None), (5, 90, 100, 95), (5, 87, 100, 95), (5, 86, 100, 94),
    ):  # fmt: skip
        place = VectorRange("f", offset, length, 1)
        if want is None:
            with pytest.raises(CorruptError, match="is said to take") as e:
                frame_bytes(place, size)
            assert e.value.offset == offset
        else:
            assert frame_bytes(place, size) == want


def test_index_files_end_with_the_vector_that_exceeds_the_target() -> None:
    vectors = {f"f{i}": DeletionVector.of(np.array([i])) for i in range(5)}
    frame = 8 + len(encode_vector(vectors["f0"]))
    for target, sizes in (
        (0, [1] * 5),
        (1 + frame - 1, [1] * 5),
        (1 + frame, [2, 2, 1]),
        (1 + 4 * frame, [5]),
        (10**6, [5]),
    ):
        files = list(encode_index_files(vectors, target))
        assert [len(places) for _, places in files] == sizes
        for data, places in files:
            assert len(data) == 1 + frame * len(places) and data[0] == 1
            assert [p.offset for p in places] == [1 + frame * i for i in range(len(places))]
            assert decode_index_file(data, places) == {p.data_file: vectors[p.data_file] for p in places}
    assert list(encode_index_files({}, 0)) == []


def test_positions_have_a_limit_by_kind() -> None:
    assert DeletionVector.of(np.array([2**32 - 1])).positions().tolist() == [2**32 - 1]
    assert DeletionVector.of(np.array([2**52 - 1]), wide=True).positions().tolist() == [2**52 - 1]
    for positions, wide in (([2**32], False), ([2**52], True), ([-1], False), ([-1], True)):
        with pytest.raises(InvalidRequest, match="must be in"):
            DeletionVector.of(np.array(positions), wide)
    assert DeletionVector.of(np.array([], np.int64)).cardinality == 0


def test_an_index_file_that_reaches_the_limit_of_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may be as long as the largest offset; one byte more is refused before it is written."""
    assert np.iinfo(np.int32).max == deletion_vectors._MAX
    vectors = {name: DeletionVector.of(np.array([1, 5], np.int64)) for name in "ab"}
    whole = encode_index_file(vectors)
    monkeypatch.setattr(deletion_vectors, "_MAX", len(whole[0]))
    assert encode_index_file(vectors) == whole
    monkeypatch.setattr(deletion_vectors, "_MAX", len(whole[0]) - 1)
    with pytest.raises(InvalidRequest, match=f"would take {len(whole[0])} bytes"):
        encode_index_file(vectors)
