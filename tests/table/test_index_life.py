"""Indexes of expressions, members and text through a table's life: changed columns, damage, and every tool."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import bitlake
from bitlake import Lake, Table
from bitlake.errors import EvaluationFailed

TEXTS = ["Alpha request served", "BETA disk failure", "gamma user login"]
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.string()),
        ("n", pa.int32()),
        ("tags", pa.list_(pa.int32())),
        ("m", pa.map_(pa.string(), pa.string())),
        ("addr", pa.struct([("city", pa.string())])),
        ("p", pa.string()),
    ]
)


def part(i: int, schema: pa.Schema = SCHEMA) -> pa.Table:
    rows = [
        {
            "id": 2 * i,
            "s": TEXTS[i],
            "n": i + 10,
            "tags": [i, None],
            "m": [(f"k{i}", f"v{i}")],
            "addr": {"city": f"City{i}"},
            "p": f'{{"a": {{"b": "x{i}"}}}}',
        },
        {"id": 2 * i + 1, "s": TEXTS[i], "n": None, "tags": [], "m": None, "addr": None, "p": "no JSON"},
    ]
    return pa.Table.from_pylist(rows, schema)


def create(lake: Lake, **options: str) -> Table:
    """A table of three files, each with values of its own."""
    table = lake.create_table("t", SCHEMA, options=options)
    for i in range(3):
        table.append(part(i))
    return table


def ids(table: Table, where: str) -> list[int]:
    return sorted(table.scan(["id"], where=where).to_arrow()["id"].to_pylist())


def files_read(table: Table, where: str) -> int:
    return table.scan(where=where).plan().metrics.files_read


RENAMED = [
    ("s", "bitmap(lower(s))", "lower({}) = 'beta disk failure'"),
    ("s", "bloom-filter(upper(s))", "upper({}) = 'BETA DISK FAILURE'"),
    ("s", "range-bitmap(substring(s, 1, 4))", "substring({}, 1, 4) = 'BETA'"),
    ("n", "bsi(n % 7)", "{} % 7 = 4"),
    ("s", "bitmap(pmod(hash(s), 9973))", "pmod(hash({}), 9973) = 20"),
    ("p", "bitmap(get_json_object(p, '$.a.b'))", "get_json_object({}, '$.a.b') = 'x1'"),
    ("addr", "bitmap(addr.city)", "{}.city = 'City1'"),
    ("m", "bitmap(m['k1'])", "{}['k1'] = 'v1'"),
    ("m", "bitmap(keys(m))", "map_contains_key({}, 'k1')"),
    ("tags", "bitmap(element(tags))", "array_contains({}, 1)"),
    ("tags", "bloom-filter(element(tags))", "exists({}, x -> x = 1)"),
    ("s", "ngram(s)", "{} LIKE '%A disk fail%'"),
    ("s", "tokens(s)", "has_token({}, 'disk')"),
]


@pytest.mark.parametrize(("column", "index", "where"), RENAMED, ids=[index for _, index, _ in RENAMED])
def test_a_renamed_column_keeps_an_index_of_each_kind(tmp_path: Path, column: str, index: str, where: str) -> None:
    table = create(bitlake.connect(str(tmp_path)), **{"bitlake.index.i": index})
    expected = ids(table, where.format(column))
    assert expected
    assert files_read(table, where.format(column)) == 1
    table.alter(rename={column: "new name"})
    table.append(part(0).rename_columns(["new name" if name == column else name for name in SCHEMA.names]))
    renamed = where.format("`new name`")
    assert ids(table, renamed) == expected
    assert files_read(table, renamed) == 1
    assert [(c.files, c.files_indexed, c.problem) for c in table.indexes.coverage()] == [(4, 4, None)]
    assert [r.built for r in table.indexes.rebuild()] == [()] * 4
    assert not table.maintenance.verify().findings


@pytest.mark.parametrize(
    ("path", "field", "index", "where"),
    [
        ("n", pa.field("n", pa.int64()), "bitmap(n % 7)", "n % 7 = 4"),
        ("tags.element", pa.field("tags", pa.list_(pa.int64())), "bitmap(element(tags))", "array_contains(tags, 1)"),
    ],
)
def test_files_from_before_a_change_of_type_are_scanned(
    tmp_path: Path, path: str, field: pa.Field, index: str, where: str
) -> None:
    table = create(bitlake.connect(str(tmp_path)), **{"bitlake.index.i": index})
    table.alter_column(path, type="BIGINT")
    table.append(part(1, SCHEMA.set(SCHEMA.get_field_index(field.name), field)))
    table.append(part(2, SCHEMA.set(SCHEMA.get_field_index(field.name), field)))
    assert (ids(table, where), files_read(table, where)) == ([2, 2], 4)  # the last file is skipped
    assert [(c.files, c.files_indexed) for c in table.indexes.coverage()] == [(5, 2)]
    assert "coverage   3 of 5 files without an index" in str(table.scan(where=where).explain())
    bitlake.connect(str(tmp_path)).sql("CALL sys.compact(table => 't', compact_strategy => 'full')", engine="duckdb")
    assert [(c.files, c.files_indexed) for c in table.indexes.coverage()] == [(1, 1)]
    assert ids(table, where) == [2, 2]


ALL = {
    "bitlake.index.low": "bitmap(lower(s))",
    "bitlake.index.tag": "bitmap(element(tags))",
    "bitlake.index.grams": "ngram(s)",
    "bitlake.index.words": "tokens(s)",
}
CONDITIONS = [
    "lower(s) = 'beta disk failure'",
    "array_contains(tags, 1)",
    "s LIKE '%disk fail%'",
    "has_all_tokens(s, array('disk', 'failure'))",
]


@pytest.mark.parametrize("threshold", ["1 mb", "0 b"], ids=["embedded", "file"])
def test_every_tool_shows_them(tmp_path: Path, threshold: str) -> None:
    lake = bitlake.connect(str(tmp_path))
    table = create(lake, **ALL, **{"file-index.in-manifest-threshold": threshold})
    assert len(list(tmp_path.rglob("*.index"))) == (0 if threshold == "1 mb" else 3)
    assert [files_read(table, where) for where in CONDITIONS] == [1] * 4
    sources = {("lower(s)", "bitmap"), ("element(tags)", "bitmap"), ("s", "ngram"), ("s", "tokens")}
    listed = lake.table("t$file_indexes").to_arrow().to_pylist()
    assert len(listed) == 12
    assert {(row["column_name"], row["index_type"]) for row in listed} == sources
    assert {(row["place"] == "embedded", row["problem"]) for row in listed} == {(threshold == "1 mb", None)}
    report = table.maintenance.report()
    assert {(i.column, i.kind) for i in report.indexes} == sources
    assert {(i.files, i.wanted) for i in report.indexes} == {(3, True)}
    assert not table.maintenance.verify().findings


def test_damage_is_a_warning_and_is_repaired(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path))
    create(lake, **ALL, **{"file-index.in-manifest-threshold": "0 b"})
    for path in tmp_path.rglob("*.index"):
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 2] ^= 0xFF
        damaged[-5] ^= 0xFF
        path.write_bytes(damaged)
    table = bitlake.connect(str(tmp_path)).table("t")
    for where in CONDITIONS:
        assert ids(table, where)[0] == 2
        plan = table.scan(where=where).plan()
        assert plan.metrics.files_read == 3
        assert all("cannot read the file index" in problem for problem in plan.problems)
        assert plan.problems
    assert {finding.code for finding in table.maintenance.verify().findings} == {"index-unreadable"}
    assert {c.files_indexed for c in table.indexes.coverage()} <= {0, 3}
    table.maintenance.repair(dry_run=False)
    assert not [finding for finding in table.maintenance.verify().findings if not finding.past]
    assert [files_read(table, where) for where in CONDITIONS] == [1] * 4
    assert {c.files_indexed for c in table.indexes.coverage()} == {3}


def test_datasets_use_what_an_engine_pushes(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path))
    table = create(lake, **ALL)
    for condition in (pc.match_substring(pc.field("s"), "disk fail"), pc.starts_with(pc.field("s"), "BETA disk")):
        narrowed = table.dataset().filter(condition)
        assert len(narrowed.files) == 1
        assert sorted(narrowed.to_table()["id"].to_pylist()) == [2, 3]
    for where in CONDITIONS:  # what no engine pushes goes into the scan
        dataset = table.scan(where=where).dataset()
        assert len(dataset.files) == 1
        assert dataset.to_table()["id"].to_pylist()[0] == 2


def test_a_changed_declaration_is_another_index(tmp_path: Path) -> None:
    table = create(bitlake.connect(str(tmp_path)), **{"bitlake.index.i": "bitmap(lower(s))"})
    bitlake.connect(str(tmp_path)).sql(
        "ALTER TABLE t SET TBLPROPERTIES ('bitlake.index.i' = 'bitmap(upper(s))')", engine="duckdb"
    )
    table = bitlake.connect(str(tmp_path)).table("t")
    where = "upper(s) = 'BETA DISK FAILURE'"
    assert (ids(table, where), files_read(table, where)) == ([2, 3], 3)
    assert files_read(table, "lower(s) = 'beta disk failure'") == 1  # the stored entry names its expression
    assert [(c.spec.column, c.files_indexed) for c in table.indexes.coverage()] == [("upper(s)", 0)]
    table.indexes.rebuild()
    assert [files_read(table, w) for w in (where, "lower(s) = 'beta disk failure'")] == [1, 3]


@pytest.mark.parametrize(
    "where",
    [
        "lower(s) = lower('BETA Disk Failure')",
        "lower('BETA Disk Failure') = lower(s)",
        "lower(s) IN (lower('BETA Disk Failure'))",
        "pmod(hash(s), 9973) = pmod(hash('BETA disk failure'), 9973)",
        "NOT (lower(s) < lower('B') OR lower(s) > lower('C'))",
        "length(s) + id < length('Beta disk failure') + 3 AND lower(s) = lower('beta disk failure')",
        "s = concat('BETA disk ', 'failure')",
    ],
)
def test_constants_that_are_computed_use_indexes(tmp_path: Path, where: str) -> None:
    """Only written constants did: `lower(s) = lower('X')` read all files."""
    options = {"bitlake.index.i": "range-bitmap(lower(s))", "bitlake.index.h": "bitmap(pmod(hash(s), 9973))"}
    lake = bitlake.connect(str(tmp_path))
    table = create(lake, **options)
    expected = [2] if "length" in where else [2, 3]
    assert (ids(table, where), files_read(table, where), table.count(where)) == (expected, 1, len(expected))
    assert sorted(lake.sql(f"SELECT id FROM t WHERE {where}", engine="duckdb").fetchall()) == [(i,) for i in expected]
    assert ids(table, f"NOT ({where})") == [i for i in range(6) if i not in expected]
    assert table.count("lower(s) = lower(CAST(NULL AS STRING))") == 0
    with pytest.raises(EvaluationFailed, match="overflow"):
        table.count("n + 1 = length(lower('A')) + 2147483647")
