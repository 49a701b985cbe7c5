"""Indexes of array elements and map keys: scans find what full scans find, and read less."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

import bitlake
from bitlake import Lake, Table
from bitlake.errors import InvalidRequest
from tests.long import long
from tests.member_predicates import INDEXES, SCHEMA, predicate, rows


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return bitlake.connect(str(tmp_path_factory.mktemp("warehouse")))


def ids(table: Table, where: str) -> list[int]:
    return sorted(table.scan(["id"], where=where).to_arrow()["id"].to_pylist())


@pytest.mark.exhaustive
@pytest.mark.parametrize("count", [60, long(600)])
def test_random_predicates_find_what_a_full_scan_finds(lake: Lake, count: int) -> None:
    tables = [lake.create_table(f"t{count}{i}", SCHEMA, options=o) for i, o in enumerate((INDEXES, {}))]
    for number in range(3):
        part = rows(random.Random(number), number * 60, 60)
        for table in tables:
            table.append(part)
    with_indexes, without = tables
    draw, used = random.Random(17), set()
    for _ in range(count):
        where = predicate(draw)
        expected = ids(without, where)
        assert ids(with_indexes, where) == expected, where
        assert with_indexes.scan(where=where).count() == len(expected), where
        used.update(name for f in with_indexes.scan(where=where).plan().files for name in f.pruned_by)
    assert used == {value for key, value in INDEXES.items() if not key.endswith("version")}
    assert not with_indexes.maintenance.verify().findings


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("array_contains(tags, 'a') = true", [0, 2]),
        ("array_contains(tags, 'a') = false", [1, 4]),
        ("array_contains(tags, 'a') <> true", [1, 4]),
        ("NOT array_contains(tags, 'a')", [1, 4]),
        ("array_contains(tags, 'a') IS NULL", [3, 5]),
        ("array_contains(tags, 'a') IS NOT NULL", [0, 1, 2, 4]),
        ("arrays_overlap(tags, array('a', 'z')) IN (true, false)", [0, 1, 2, 4]),
    ],
)
def test_only_a_test_for_true_is_one_of_members(lake: Lake, where: str, expected: list[int]) -> None:
    name = "three_values_" + "".join(c if c.isalnum() else "_" for c in where)
    schema = pa.schema([SCHEMA.field("id"), SCHEMA.field("tags")])
    table = lake.create_table(name, schema, options={"bitlake.index.i": "bitmap(element(tags))"})
    table.append(pa.table({"id": range(6), "tags": [["a"], ["b"], ["a", None], ["b", None], [], None]}, schema))
    assert ids(table, where) == expected
    assert table.count(where) == len(expected)


@pytest.mark.parametrize("version", ["1", "2"])
def test_there_may_be_more_elements_than_rows(lake: Lake, version: str) -> None:
    options = {
        "bitlake.index.i": "bitmap(element(tags))",
        "bitlake.index.i.version": version,
        "file-index.on-unreadable": "fail",
    }
    table = lake.create_table(f"many{version}", pa.schema([SCHEMA.field("id"), SCHEMA.field("tags")]), options=options)
    for first in (0, 1000):
        tags = [[f"w{first + 100 * row + i}" for i in range(100)] for row in range(3)]
        table.append(pa.table({"id": range(first, first + 3), "tags": tags}))
    assert ids(table, "array_contains(tags, 'w1150')") == [1001]
    assert table.scan(where="array_contains(tags, 'w1150')").plan().metrics.files_read == 1
    assert not table.maintenance.verify().findings


@pytest.mark.parametrize(
    ("index", "where"),
    [
        ("bitmap(element(tags))", "array_contains(tags, 'b')"),
        ("bitmap(element(tags))", "arrays_overlap(tags, array('b', 'z'))"),
        ("bitmap(element(tags))", "exists(tags, x -> x = 'b')"),
        ("bitmap(element(tags))", "size(tags) > 0 AND array_contains(tags, 'b')"),
        ("bloom-filter(element(tags))", "array_contains(tags, 'b')"),
        ("bitmap(keys(m))", "map_contains_key(m, 'b')"),
        ("bloom-filter(keys(m))", "map_contains_key(m, 'b')"),
    ],
)
def test_each_kind_skips_files(lake: Lake, index: str, where: str) -> None:
    name = "skips_" + "".join(c if c.isalnum() else "_" for c in index + where)
    schema = pa.schema([SCHEMA.field("tags"), SCHEMA.field("m")])
    table = lake.create_table(name, schema, options={"bitlake.index.i": index})
    for word in ("a", "b", "c"):
        table.append(pa.table({"tags": [[word, word, None], []], "m": [[(word, 1)], []]}, schema))
    table.append(pa.table({"tags": [None, []], "m": [None, []]}, schema))
    plan = table.scan(where=where).plan()
    assert (plan.metrics.files_read, plan.metrics.files) == (1, 4)
    assert table.scan(where=where).count() == 1
    assert table.delete(where) == 1
    assert table.scan(where=f"NOT ({where})").count() == (6 if "keys" in index else 4)
    assert [r.built for r in table.indexes.rebuild()] == [()] * len(table.scan().plan().files)


@pytest.mark.parametrize(
    ("index", "says"),
    [
        ("range-bitmap(element(tags))", "range-bitmap has one value for each row, and not its members"),
        ("bsi(element(n))", "bsi has one value for each row, and not its members"),
        ("bitmap(element(m))", "element takes an array"),
        ("bitmap(keys(tags))", "keys takes a map"),
        ("bitmap(lower(element(tags)))", "it has no function 'element'"),
        ("bitmap(tags)", "is of type ARRAY"),
        ("bitmap(array_contains(tags, 'a'))", "'array_contains' cannot be indexed"),
    ],
)
def test_what_is_refused(lake: Lake, index: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        lake.create_table("refused", SCHEMA, options={"bitlake.index.i": index})


def test_rows_of_a_rare_element_are_read_by_page(tmp_path: Path) -> None:
    count, rare = 60_000, [30_000, 30_001]
    tags = [[f"t{i % 50}", None][: i % 3] for i in range(count)]
    for row in rare:
        tags[row] = ["t1", "rare"]
    entries = [[(f"k{i % 20}", i)] for i in range(count)]
    m = pa.array(entries, pa.map_(pa.string(), pa.int64()))
    rows = pa.table({"id": range(count), "tags": tags, "m": m, "s": [{"a": i, "b": f"b{i % 9}"} for i in range(count)]})
    lake = bitlake.connect(str(tmp_path))
    table = lake.create_table("t", rows.schema, options={"bitlake.index.i": "bitmap(element(tags))"})
    table.append(rows)
    for columns in (["id", "tags"], ["id", "m", "s"], ["id"]):
        scan = table.scan(columns, where="array_contains(tags, 'rare')")
        assert scan.to_arrow().equals(rows.take(pa.array(rare)).select(columns).cast(scan.to_arrow().schema))
        metrics = scan.plan().metrics
        assert 0 < metrics.data_bytes_read < metrics.data_bytes / 4


def test_words_of_a_text_are_members(lake: Lake) -> None:
    options = {"bitlake.index.words": "bitmap(element(split(v, ' ')))"}
    table = lake.create_table("words", pa.schema([("v", pa.string())]), options=options)
    for text in ("a b", "b  c", None):
        table.append(pa.table({"v": pa.array([text, text], pa.string()).dictionary_encode()}))
    for word, count in (("a", 2), ("b", 4), ("", 2), ("b c", 0)):
        scan = table.scan(where=f"array_contains(split(v, ' '), '{word}')")
        assert (scan.count(), scan.plan().metrics.files_read) == (count, count // 2)
    assert table.scan(where="array_contains(split(v, ','), 'a b')").count() == 2
