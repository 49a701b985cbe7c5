from __future__ import annotations

import pytest

from bitlake.errors import InvalidRequest
from bitlake.expressions.tree import Comparison, In, IsNull, Leaf, Like, Op
from bitlake.fileindex.capabilities import memory
from bitlake.fileindex.named_index import name_of_index
from bitlake.fileindex.registry import (
    INDEX_TYPES,
    IndexSpec,
    changed_index_options,
    indexed_type,
    parse_index_options,
)
from bitlake.types import DataField, MapType, parse_type

FIELDS = [
    DataField(0, "id", parse_type("BIGINT")),
    DataField(1, "status", parse_type("STRING")),
    DataField(2, "flag", parse_type("BOOLEAN")),
    DataField(3, "m", MapType(parse_type("STRING NOT NULL"), parse_type("INT"))),
    DataField(4, "n", MapType(parse_type("INT NOT NULL"), parse_type("INT"))),
]


def test_sizes_have_binary_units() -> None:
    sizes = {"7": 7, "7 b": 7, "7kb": 7 << 10, "7 KB": 7 << 10, "7 mb": 7 << 20, "1 gb": 1 << 30}
    assert {text: memory(text) for text in sizes} == sizes
    assert memory(str(2**31 - 1)) == 2**31 - 1
    for text in ("2 gb", str(2**31), "1 tb"):
        with pytest.raises(ValueError, match="below 2 gb"):
            memory(text)


@pytest.mark.parametrize(
    ("leaf", "kind", "ranked"),
    [
        (Comparison("c", Op.EQ, 1), "INT", ["bitmap", "bloom-filter", "range-bitmap"]),
        (In("c", (1, 2)), "DOUBLE", ["bloom-filter", "bitmap"]),
        (Comparison("c", Op.LT, 1), "INT", ["range-bitmap"]),
        (IsNull("c"), "INT", ["bitmap", "range-bitmap"]),
        (Like("c", "a%"), "STRING", ["bitmap"]),
    ],
)
def test_the_most_suitable_index_of_a_condition_comes_first(leaf: Leaf, kind: str, ranked: list[str]) -> None:
    names = ("bitmap", "bloom-filter", "range-bitmap")
    rates = {name: INDEX_TYPES[name].suitability(leaf, parse_type(kind)) for name in names}
    found = sorted((name for name in names if rates[name]), key=lambda name: -rates[name])
    assert found == ranked and len({rates[n] for n in ranked}) == len(ranked)


def test_columns_and_their_options() -> None:
    specs = parse_index_options(
        {
            "bucket": "1",
            "file-index.in-manifest-threshold": "1kb",
            "file-index.bitmap.columns": " status , flag",
            "file-index.bitmap.status.version": "1",
            "file-index.bloom-filter.columns": "id",
            "file-index.bloom-filter.id.items": "100",
            "file-index.bloom-filter.id.fpp": "0.01",
            "file-index.some.more.parts.here": "ignored",
        },
        FIELDS,
    )
    assert specs == [
        IndexSpec("status", "bitmap", {"version": "1"}),
        IndexSpec("flag", "bitmap", {}),
        IndexSpec("id", "bloom-filter", {"items": "100", "fpp": "0.01"}),
    ]
    assert parse_index_options({}, FIELDS) == []


def test_map_keys() -> None:
    specs = parse_index_options(
        {
            "file-index.bitmap.columns": "m[a],m[b]",
            "file-index.bitmap.m.version": "1",
            "file-index.bitmap.m[b].version": "2",
        },
        FIELDS,
    )
    assert specs == [IndexSpec("m[a]", "bitmap", {"version": "1"}), IndexSpec("m[b]", "bitmap", {"version": "2"})]
    found = indexed_type("m[a]", FIELDS)
    assert found is not None and found[1:] == ("a", parse_type("INT"))
    assert indexed_type("m[a]", FIELDS[:2]) is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"file-index.bitmp.columns": "id"}, "unknown index type 'bitmp'; known are bitmap"),
        ({"file-index.bitmap.columns": "stats"}, "no column 'stats'; columns are status"),
        ({"file-index.bitmap.columns": "id,,flag"}, "empty"),
        ({"file-index.bitmap.columns": "m"}, r"m\[key\]"),
        ({"file-index.bitmap.columns": "n[1]"}, "only string keys"),
        ({"file-index.bitmap.columns": "id[a]"}, "not a map column"),
        ({"file-index.bloom-filter.columns": "flag"}, "is of type BOOLEAN; bloom-filter takes"),
        ({"file-index.bitmap.columns": "id", "file-index.bitmap.status.version": "1"}, "list .status. in"),
        ({"file-index.bitmap.columns": "id", "file-index.bitmap.id.versio": "1"}, "no option 'versio'"),
        ({"file-index.bitmap.columns": "id", "file-index.bitmap.id.version": "7"}, "'7': must be a whole number"),
    ],
)
def test_what_is_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        parse_index_options(options, FIELDS)


def test_the_three_nearest_columns_are_named() -> None:
    fields = [DataField(i, f"column{i}", parse_type("INT")) for i in range(5)]
    with pytest.raises(InvalidRequest, match=r"no column 'column'; columns are column\d, column\d, column\d$"):
        parse_index_options({"file-index.bitmap.columns": "column"}, fields)


def test_every_option_is_documented_and_its_default_allowed() -> None:
    for index in INDEX_TYPES.values():
        for option in index.options:
            assert option.doc.endswith(".")
            assert option.default is None or option.parse(str(option.default)) == option.default


def spec(column: str, kind: str, **options: str) -> IndexSpec:
    return IndexSpec(column, kind, {k.replace("_", "-"): v for k, v in options.items()})


@pytest.mark.parametrize(("options", "added", "dropped", "changed", "unset"), [
    ({}, [spec("a", "bitmap")], [], {"file-index.bitmap.columns": "a"}, []),
    ({}, [spec("b", "bitmap", version="1"), spec("a", "bsi")], [],
     {"file-index.bitmap.columns": "b", "file-index.bsi.columns": "a", "file-index.bitmap.b.version": "1"}, []),
    ({"file-index.bitmap.columns": "a, b"}, [spec("c", "bitmap"), spec("a", "bitmap")], [],
     {"file-index.bitmap.columns": "a,b,c"}, []),
    ({"file-index.bitmap.columns": "a"}, [spec("a", "bitmap", version="2")], [],
     {"file-index.bitmap.a.version": "2"}, []),
    ({"file-index.bitmap.columns": "a,b", "file-index.bsi.columns": "a"}, [], [spec("a", "bitmap")],
     {"file-index.bitmap.columns": "b"}, []),
    ({"file-index.bitmap.columns": "a", "file-index.bitmap.a.version": "1", "file-index.bitmap.ab.version": "1",
      "file-index.bsi.a.x": "1"}, [], [spec("a", "bitmap")], {},
     ["file-index.bitmap.columns", "file-index.bitmap.a.version"]),
    ({"file-index.bitmap.columns": "a"}, [], [spec("b", "bitmap"), spec("a", "bsi")], {}, []),
    ({"file-index.bitmap.columns": "a", "file-index.bitmap.a.version": "1"}, [spec("a", "bsi")], [spec("a", "bitmap")],
     {"file-index.bsi.columns": "a"}, ["file-index.bitmap.columns", "file-index.bitmap.a.version"]),
])  # fmt: skip
def test_options_that_declare_indexes_and_end_others(
    options: dict[str, str], added: list[IndexSpec], dropped: list[IndexSpec], changed: dict[str, str], unset: list[str]
) -> None:
    found, gone = changed_index_options(options, added, dropped)
    assert (found, gone) == (changed, unset)
    assert list(found) == sorted(found, key=lambda key: not key.endswith(".columns")), "lists of columns come first"


def test_an_index_is_found_by_its_own_name_before_one_in_another_case() -> None:
    options = {"bitlake.index.Ab": "bitmap(n)", "bitlake.index.ab": "bitmap(s)", "bitlake.index.c": "bitmap(t)"}
    assert [name_of_index(options, name) for name in ("Ab", "ab", "AB", "C", "d")] == ["Ab", "ab", "Ab", "c", None]
