"""Indexes of expressions: scans that use them return what scans without indexes return, and read less."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path

import pyarrow as pa
import pytest

import bitlake
from bitlake import Lake, Table
from bitlake.errors import AlreadyExists, EvaluationFailed, InvalidRequest, NotFound
from bitlake.expressions import indexed
from bitlake.scan.plan import Plan
from bitlake.sql.duckdb_engine import fetch
from tests.expression_predicates import INDEXES, SCHEMA, predicate, rows
from tests.long import long


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return bitlake.connect(str(tmp_path_factory.mktemp("warehouse")), timezone="Europe/Berlin")


@pytest.fixture(scope="module")
def pair(lake: Lake) -> tuple[Table, Table]:
    """The same rows in files with indexes and without."""
    with_indexes = lake.create_table("indexed", SCHEMA, options=INDEXES)
    without = lake.create_table("plain", SCHEMA)
    for number in range(4):
        part = rows(random.Random(number), number * 100, 100)
        with_indexes.append(part)
        without.append(part)
    return with_indexes, without


def ids(table: Table, where: str) -> list[int]:
    return sorted(table.scan(["id"], where=where).to_arrow()["id"].to_pylist())


def plan_of(table: Table, where: str) -> Plan:
    return table.scan(where=where).plan()


@pytest.mark.exhaustive
@pytest.mark.parametrize("count", [60, long(1_000)])
def test_random_predicates_find_what_a_full_scan_finds(pair: tuple[Table, Table], count: int) -> None:
    with_indexes, without = pair
    draw = random.Random(17)
    used = set()
    for _ in range(count):
        where = predicate(draw)
        assert ids(with_indexes, where) == ids(without, where), where
        assert with_indexes.scan(where=where).count() == len(ids(without, where)), where
        for file in plan_of(with_indexes, where).files:
            used.update(file.pruned_by)
    assert len(used) == len([k for k in INDEXES if not k.endswith("timezone")])


def one_file_each(lake: Lake, name: str, index: str, column: pa.Array, **options: str) -> Table:
    """A table with an index named ``i``, whose values are in files of their own."""
    declared = {"bitlake.index.i": index, **{f"bitlake.index.i.{k}": v for k, v in options.items()}}
    table = lake.create_table(name, pa.schema([("v", column.type)]), options=declared)
    for i in range(len(column)):
        table.append(pa.table({"v": column.slice(i, 1)}))
    return table


@pytest.mark.parametrize("kind", ["bitmap", "bloom-filter", "range-bitmap"])
def test_each_kind_skips_files_by_text(lake: Lake, kind: str) -> None:
    name = f"skips_{kind.replace('-', '_')}"
    table = one_file_each(lake, name, f"{kind}(lower(v))", pa.array(["Ada", "BOB", "eve"]))
    plan = plan_of(table, "lower(v) = 'bob'")
    assert (plan.metrics.files_read, plan.metrics.files) == (1, 3)
    assert f"skipped by file index: {kind}(lower(v))" in str(table.scan(where="lower(v) = 'bob'").explain())
    assert table.count("lower(v) = 'bob'") == 1


@pytest.mark.parametrize("kind", ["bitmap", "range-bitmap", "bsi"])
def test_each_kind_skips_files_by_numbers(lake: Lake, kind: str) -> None:
    table = one_file_each(lake, f"numbers_{kind.replace('-', '_')}", f"{kind}(v % 10)", pa.array([11, 22, 33]))
    if kind != "bitmap":
        assert plan_of(table, "v % 10 >= 3").metrics.files_read == 1
    assert plan_of(table, "v % 10 = 2").metrics.files_read == 1


def test_an_exact_index_answers_a_count_without_data(lake: Lake) -> None:
    table = one_file_each(lake, "counted", "bitmap(lower(v))", pa.array(["Ada", "BOB", None]))
    plan = table.scan(where="lower(v) <> 'bob'").plan()
    assert [f.selection.exact for f in plan.files] == [True]
    assert table.count("lower(v) IS NULL") == 1


def test_a_zone_is_part_of_the_index(lake: Lake) -> None:
    moments = pa.array([dt.datetime(2026, 1, 1, h, tzinfo=dt.UTC) for h in (0, 12, 23)], pa.timestamp("us", "UTC"))
    table = one_file_each(lake, "zoned", "bitmap(hour(v))", moments, timezone="Europe/Berlin")
    assert plan_of(table, "hour(v) = 0").metrics.files_read == 1
    same = bitlake.connect(lake.path, timezone="UTC").table("zoned")
    assert plan_of(same, "hour(v) = 0").metrics.files_read == 3  # other values: the index is not asked
    assert same.count("hour(v) = 0") == 1


def test_an_index_of_another_version_is_not_asked(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = one_file_each(lake, "versions", "bitmap(lower(v))", pa.array(["Ada", "BOB"]))
    assert plan_of(table, "lower(v) = 'bob'").metrics.files_read == 1
    monkeypatch.setitem(indexed.VERSIONS, "lower", 2)
    assert plan_of(table, "lower(v) = 'bob'").metrics.files_read == 2
    assert table.count("lower(v) = 'bob'") == 1
    table.indexes.rebuild()
    assert plan_of(table, "lower(v) = 'bob'").metrics.files_read == 1


def test_rows_without_a_value_leave_their_file_without_the_index(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    table = one_file_each(lake, "failing", "bitmap(CAST(v AS INT))", pa.array(["1", "x", "2"]))
    assert "index 'bitmap' of column 'CAST(v AS INT)' is not written" in caplog.text
    plan = plan_of(table, "CAST(v AS INT) = 2 AND v <> 'x'")
    assert plan.metrics.files_read == 2  # the file without the index, and the one with the value
    assert table.count("v <> 'x' AND CAST(v AS INT) = 2") == 1


def test_an_index_that_no_file_can_have_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each file of each commit was logged."""
    lake = bitlake.connect(str(tmp_path))
    options = {"bitlake.index.i": "bitmap(v % 0)", "bitlake.index.j": "bitmap(v % 2)", "bitlake.index.l": "bsi(v % 0)"}
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
    append = lake.create_table("t", schema, options=options)
    keyed = lake.create_table("keyed", schema, primary_key=["k"], options={**options, "bucket": "1"})
    for i in range(3):
        part = pa.table({"k": [i], "v": [i]}, schema)
        append.append(part)
        keyed.upsert(part)
    for table in (append, keyed):
        for kind in ("bitmap", "bsi"):
            about = [
                r
                for r in caplog.records
                if f"index '{kind}' of column '(v % 0)' is not written" in r.message and table.path in r.message
            ]
            assert len(about) == 1
        assert [c.files_indexed for c in table.indexes.coverage()] == [0, 3, 0]
    caplog.clear()
    problems = [str(problem) for rewritten in append.indexes.rebuild() for problem in rewritten.problems]
    assert len(problems) == 6
    assert len(caplog.records) == 2  # what is called by hand says it again


def test_json_that_only_spark_can_tell_leaves_its_file_without_the_index(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    texts = pa.array(['{"a": {"b": "x"}}', '{"a": {"b": 0.5}}', '{"a": {"b": "z"}}', "not json"])
    table = one_file_each(lake, "json", "bitmap(get_json_object(v, '$.a.b'))", texts)
    assert "index 'bitmap' of column 'get_json_object(v, '$.a.b')' is not written" in caplog.text
    where = "get_json_object(v, '$.a.b') = 'z' AND v <> '{\"a\": {\"b\": 0.5}}'"
    assert plan_of(table, where).metrics.files_read == 2  # the file without the index, and the one with the value
    assert table.count(where) == 1
    found = lake.sql(f"SELECT v FROM json WHERE {where}", engine="duckdb").fetchall()
    assert found == [(texts[2].as_py(),)]
    with pytest.raises(EvaluationFailed, match="only Spark can tell"):
        fetch(lake.sql("SELECT get_json_object(v, '$.a.b') FROM json", engine="duckdb"))


@pytest.mark.parametrize(
    ("expression", "fails"),
    [
        ("lower(v)", True),
        ("trim(v)", True),
        ("substring(v, 1, 2)", True),
        ("right(v, 1)", True),
        ("length(v)", True),
        ("instr(v, 'é')", True),
        ("octet_length(v)", False),
    ],
)
def test_text_that_is_not_utf8_leaves_its_file_without_the_index(lake: Lake, expression: str, fails: bool) -> None:
    name = f"not_utf8_{expression[:4]}"
    table = lake.create_table(
        name, pa.schema([("v", pa.string())]), options={"bitlake.index.i": f"bitmap({expression})"}
    )
    table.append(pa.table({"v": pa.array([b"\xff a"], pa.binary()).view(pa.string())}))
    table.append(pa.table({"v": ["ab"]}))
    assert table.count() == 2
    where = f"{expression} = {9 if 'length' in expression or 'instr' in expression else repr('9')}"
    assert plan_of(table, where).metrics.files_read == 1  # the file without the index
    if fails:
        with pytest.raises(InvalidRequest, match=expression[:4]):
            table.count(where)


def test_rebuild_and_compaction_build_it(lake: Lake) -> None:
    table = lake.create_table("later", pa.schema([("v", pa.string())]))
    for word in ("Ada", "BOB"):
        table.append(pa.table({"v": [word]}))
    table.indexes.create("lower(v)", "bitmap", name="by_v")
    assert plan_of(table, "lower(v) = 'bob'").metrics.files_read == 2
    assert [r.built for r in table.indexes.rebuild()] == [("bitmap(lower(v))",)] * 2
    assert [r.built for r in table.indexes.rebuild()] == [()] * 2
    assert plan_of(table, "lower(v) = 'bob'").metrics.files_read == 1
    table.maintenance.compact()
    assert plan_of(table, "lower(v) = 'cy'").metrics.files_read == 0
    assert not table.maintenance.verify().findings


def test_upserts_and_deletes_use_it(lake: Lake) -> None:
    options = {"bitlake.index.by_v": "bitmap(lower(v))", "bucket": "1", "deletion-vectors.enabled": "true"}
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
    table = lake.create_table("keyed", schema, primary_key=["k"], options=options)
    table.upsert(pa.table({"k": [1, 2], "v": ["Ada", "BOB"]}, schema))
    table.upsert(pa.table({"k": [2, 3], "v": ["Bob", "Eve"]}, schema))
    table.maintenance.compact()
    assert table.count("lower(v) = 'bob'") == 1
    table.delete("lower(v) = 'bob'")
    assert table.scan().to_arrow().sort_by("k").to_pylist() == [{"k": 1, "v": "Ada"}, {"k": 3, "v": "Eve"}]


# --- evolution --------------------------------------------------------------------------------------------------------


def test_a_renamed_column_keeps_its_indexes(lake: Lake) -> None:
    table = one_file_each(lake, "renamed", "bitmap(lower(v))", pa.array(["Ada", "BOB"]))
    table.alter(rename={"v": "full name"})
    assert table.schema.options["bitlake.index.i"] == "bitmap(lower(`full name`))"
    table.append(pa.table({"full name": ["Cy"]}))
    plan = plan_of(table, "lower(`full name`) = 'bob'")
    assert (plan.metrics.files_read, plan.metrics.files) == (1, 3)
    assert [r.built for r in table.indexes.rebuild()] == [()] * 3


@pytest.mark.parametrize(
    "declared", ["bitmap(lower(gone))", "bitmap(new_function(v))", "newer(v)", "bitmap(", "bitmap(datediff(v, now()))"]
)
def test_a_declaration_that_means_nothing_here_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, declared: str
) -> None:
    """Of another engine that dropped the column, or of another version: writing failed, and so did DROP INDEX."""
    before = {"bitlake.index.i": "bitmap(lower(v))", "bitlake.index.j": "bitmap(upper(v))"}
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    bitlake.connect(str(tmp_path)).create_table("t", schema, options=before).append(
        pa.table({"id": [1, 2], "v": ["Ada", "BOB"]})
    )
    (stored,) = tmp_path.glob("*/t/schema/schema-*")
    stored.write_text(stored.read_text().replace("bitmap(lower(v))", declared).replace("bitmap(upper(v))", declared))
    lake = bitlake.connect(str(tmp_path))
    table = lake.table("t")
    where = "lower(v) = 'bob'"
    table.append(pa.table({"id": [3, 4], "v": ["BOB", "Eve"]}))
    assert f"'bitlake.index.i' = '{declared}'" in caplog.text
    assert caplog.text.count("index 'i' is neither built nor used") == 1
    assert plan_of(table, where).metrics.files_read == 2  # the older file's index names its expression
    assert ids(table, where) == [2, 3]
    assert sorted(lake.sql(f"SELECT id FROM t WHERE {where}", engine="duckdb").fetchall()) == [(2,), (3,)]
    assert (table.delete("id = 3"), table.indexes.list()) == (1, [])
    for coverage, name in zip(table.indexes.coverage(), "ij", strict=True):
        assert (coverage.spec.name, coverage.files_indexed, coverage.rows_indexed) == (name, 0, 0)
        assert f"'bitlake.index.{name}' = '{declared}'" in str(coverage.problem)
    table.maintenance.compact()
    assert not table.maintenance.verify().findings
    table.alter(rename={"id": "number"})
    lake.sql("DROP INDEX i ON t", engine="duckdb")
    table.indexes.drop("J")
    table.indexes.create("lower(v)", "bitmap", name="i")
    table.indexes.rebuild()
    assert plan_of(table, "lower(v) = 'cy'").metrics.files_read == 0


def test_a_dropped_column_takes_its_indexes_along(lake: Lake) -> None:
    table = lake.create_table(
        "dropped", pa.schema([("v", pa.string()), ("w", pa.string())]), options={"bitlake.index.i": "bitmap(lower(v))"}
    )
    table.append(pa.table({"v": ["Ada"], "w": ["x"]}))
    table.drop_column("v")
    assert not [k for k in table.schema.options if k.startswith("bitlake.index.")]
    table.add_column("v", "STRING")  # another column, which is NULL in the file
    assert table.count("lower(v) = 'ada'") == 0
    assert table.count("lower(v) IS NULL") == 1


def test_values_of_another_type_are_not_asked_for(lake: Lake) -> None:
    table = one_file_each(lake, "retyped", "bitmap(v % 10)", pa.array([11, 22], pa.int32()))
    table.alter_column("v", type="BIGINT")
    assert plan_of(table, "v % 10 = 2").metrics.files_read == 2
    assert table.count("v % 10 = 2") == 1
    table.append(pa.table({"v": pa.array([33], pa.int64())}))
    assert plan_of(table, "v % 10 = 2").metrics.files_read == 2
    assert table.count("v % 10 = 2") == 1


def test_a_struct_member_that_an_index_is_of_cannot_go(lake: Lake) -> None:
    table = lake.create_table(
        "members",
        pa.schema([("s", pa.struct([("x", pa.string())]))]),
        options={"bitlake.index.i": "bitmap(lower(s.x))"},
    )
    with pytest.raises(InvalidRequest, match=r"bitlake.index.i.*change that option first"):
        table.alter(rename={"s.x": "y"})


# --- declarations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"bitlake.index": "bitmap(lower(a))"}, "'bitlake.index' = .*no name; expected 'bitlake.index.<name>'"),
        ({"bitlake.index.": "bitmap(lower(a))"}, "'bitlake.index.' = .*no name; expected 'bitlake.index.<name>'"),
        ({"bitlake.index..version": "2"}, "no name; expected 'bitlake.index.<name>'"),
        ({"bitlake.index.i": "bitmap(lower(a)"}, "expected"),
        ({"bitlake.index.i": "lower"}, "is not an index; expected a type and an expression"),
        ({"bitlake.index.i": "bitmp(lower(a))"}, "unknown index type 'bitmp'; known are bitmap"),
        ({"bitlake.index.i": "bitmap(lower(c))"}, "bitlake.index.i' = 'bitmap.lower.c..': no column 'c'"),
        ({"bitlake.index.i": "bsi(lower(a))"}, "'lower.a.' is of type STRING; bsi takes"),
        ({"bitlake.index.i": "bitmap(sum(b))"}, "bitlake.index.i"),
        ({"bitlake.index.i": "bitmap(rand())"}, "bitlake.index.i"),
        ({"bitlake.index.i": "bitmap(lower('x'))"}, "names no column"),
        ({"bitlake.index.i": "bitmap(lower(b))"}, "is INT|not a STRING|BIGINT"),
        ({"bitlake.index.i": "bitmap(hour(t))"}, "depends on the time zone; set 'bitlake.index.i.timezone'"),
        ({"bitlake.index.i": "bitmap(hour(t))", "bitlake.index.i.timezone": "Mars"}, "Mars"),
        ({"bitlake.index.i": "bitmap(lower(a))", "bitlake.index.i.timezone": "UTC"}, "depends on no time zone"),
        ({"bitlake.index.i": "bitmap(lower(a))", "bitlake.index.i.fpp": "0.1"}, "bitmap has no option 'fpp'"),
        ({"bitlake.index.i.version": "2"}, "index 'i' is not declared"),
        ({"bitlake.index.a": "bitmap(lower(a))"}, "'a' is the name of a column"),
        ({"bitlake.index.a b": "bitmap(lower(a))"}, "letters, digits and _"),
        ({"bitlake.index.i": "bitmap(lower(a))", "bitlake.index.I": "bitmap(upper(a))"}, "names ignore case"),
        ({"bitlake.index.i": "bitmap(lower(a))", "bitlake.index.j": "bitmap(LOWER(A))"}, "index 'i' is the same"),
        ({"bitlake.index.i": "bitmap(a)", "file-index.bitmap.columns": "a"}, "declares the same index"),
        ({"bitlake.index.i": "bitmap(upper(a))"}, "'upper.a.' is also the name of a column"),
    ],
)
def test_bad_declarations_are_refused(lake: Lake, options: dict[str, str], says: str) -> None:
    columns = [("a", pa.string()), ("b", pa.int64()), ("t", pa.timestamp("us", "UTC")), ("upper(a)", pa.int32())]
    with pytest.raises(InvalidRequest, match=says):
        lake.create_table("refused", pa.schema(columns), options=options)


@pytest.mark.parametrize("key", ["bitlake.index", "bitlake.index.", "bitlake.index..version"])
def test_a_stored_declaration_without_a_name_is_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    """`bitlake.index` was accepted without a word, and no index was built."""
    lake = bitlake.connect(str(tmp_path))
    table = lake.create_table("t", pa.schema([("v", pa.string())]), options={"bitlake.index.i": "bitmap(lower(v))"})
    (stored,) = tmp_path.glob("*/t/schema/schema-*")
    stored.write_text(stored.read_text().replace('"options" : {', f'"options" : {{"{key}" : "bitmap(upper(v))",'))
    table = bitlake.connect(str(tmp_path)).table("t")
    for word in ("Ada", "BOB"):
        table.append(pa.table({"v": [word]}))
    assert caplog.text.count("the index has no name") == 1
    assert plan_of(table, "lower(v) = 'bob'").metrics.files_read == 1
    assert table.count("upper(v) = 'BOB'") == 1
    usable, ignored = table.indexes.coverage()
    assert (usable.spec.name, usable.files_indexed, usable.problem) == ("i", 2, None)
    assert (ignored.spec.name, ignored.files_indexed) == ("", 0)
    assert "the index has no name" in str(ignored.problem)
    with pytest.raises(InvalidRequest, match="no name"):
        table.indexes.create("upper(v)", "bitmap", name="j")
    lake.sql(f"ALTER TABLE t UNSET TBLPROPERTIES ('{key}')", engine="duckdb")
    assert [c.problem for c in table.indexes.coverage()] == [None]
    table.indexes.create("upper(v)", "bitmap", name="j")


def test_create_and_drop_by_name(lake: Lake) -> None:
    table = lake.create_table("by_name", pa.schema([("a", pa.string())]))
    table.indexes.create("lower(a)", "bloom-filter", {"fpp": "0.01"}, name="low")
    table.indexes.create("a", "bitmap", name="plain")
    specs = [(s.name, s.column, s.index_type, dict(s.options)) for s in table.indexes.list()]
    assert specs == [("low", "lower(a)", "bloom-filter", {"fpp": "0.01"}), ("plain", "a", "bitmap", {})]
    with pytest.raises(AlreadyExists, match="has an index 'low'"):
        table.indexes.create("upper(a)", "bitmap", name="low")
    table.indexes.drop("LOW")
    table.indexes.drop("plain")
    assert table.indexes.list() == []
    with pytest.raises(NotFound):
        table.indexes.drop("low")


def test_a_column_called_like_an_expression_keeps_its_own_entries(lake: Lake, tmp_path: Path) -> None:
    table = lake.create_table(
        "homonym",
        pa.schema([("a", pa.string()), ("lower(a)", pa.string())]),
        options={"file-index.bitmap.columns": "lower(a)"},
    )
    table.append(pa.table({"a": ["X"], "lower(a)": ["y"]}))
    assert table.count("lower(a) = 'x'") == 1
    assert table.count("`lower(a)` = 'x'") == 0
