"""Files that share keys: every pair of small ranges, in one bucket and level, and in others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement, product

import pytest

from bitlake.codec.binary_row import encode_row_with_arity
from bitlake.errors import CommitConflict, CorruptError
from bitlake.merge.interval_partition import KeyRanges, check_level_overlap, check_no_common_keys
from bitlake.metadata.manifest import EMPTY_STATS, DataFileMeta, EntryKind, ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.types import DataField, parse_type

SCHEMA = TableSchema(
    0,
    (DataField(0, "k", parse_type("INT NOT NULL")), DataField(1, "p", parse_type("INT NOT NULL"))),
    1,
    partition_keys=("p",),
    primary_keys=("p", "k"),
)
INT = [parse_type("INT")]


def row(value: int) -> bytes:
    return encode_row_with_arity(INT, [value])


def file(name: str, first: int, last: int, level: int = 1, bucket: int = 0, partition: int = 0) -> ManifestEntry:
    meta = DataFileMeta(name, 1, 1, row(first), row(last), EMPTY_STATS, EMPTY_STATS, 0, 0, 0, level)
    return ManifestEntry(EntryKind.ADD, row(partition), bucket, 2, meta)


@contextlib.contextmanager
def refused(if_: bool, *words: str) -> Iterator[None]:
    if not if_:
        yield
        return
    with pytest.raises(CommitConflict) as e:
        yield
    assert all(word in str(e.value) for word in words)


def test_two_files_of_a_level_have_no_key_in_common() -> None:
    ranges = list(combinations_with_replacement(range(4), 2))
    for (a, b), (c, d) in product(ranges, repeat=2):
        shared = bool(set(range(a, b + 1)) & set(range(c, d + 1)))
        one, two = file("one", a, b), file("two", c, d)
        for rest, adds in (([one], [two]), ([], [one, two]), ([file("zero", 9, 9), two], [one])):
            with refused(shared, "one", "two", "of level 1 in bucket 0 of the-table"):
                check_level_overlap(SCHEMA, "the-table", rest, adds)
        check_level_overlap(SCHEMA, "t", [one, two], [])  # what stays is not looked at without a new file
        check_level_overlap(SCHEMA, "t", [one, two], [file("other", a, b, level=2)])
        for elsewhere in ({"level": 2}, {"level": 0}, {"bucket": 1}, {"partition": 1}):
            check_level_overlap(SCHEMA, "t", [one], [file("two", c, d, **elsewhere)])
        check_level_overlap(SCHEMA, "t", [file("one", a, b, level=0)], [file("two", c, d, level=0)])
        with refused(shared, "data file one was added to bucket 0 of the-table", "two"):
            check_no_common_keys(SCHEMA, "the-table", [one], [two])
        with refused(shared):
            check_no_common_keys(
                SCHEMA, "t", [file("far", 99, 99), file("one", a, b, level=0)], [file("nine", 50, 60), two]
            )
        for elsewhere in ({"bucket": 1}, {"partition": 1}):
            check_no_common_keys(SCHEMA, "t", [one], [file("two", c, d, **elsewhere)])


def test_a_damaged_range_names_its_file() -> None:
    good = file("good", 1, 2)
    assert KeyRanges(SCHEMA)(good) == ((1,), (2,))
    for damage in ({"min_key": b"\0"}, {"max_key": row(1)[:-1]}):
        with pytest.raises(CorruptError, match="the key range of data file good"):
            KeyRanges(SCHEMA)(replace(good, file=replace(good.file, **damage)))
