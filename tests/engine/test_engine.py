"""Statements in this process: no JVM and no PySpark, settings, and what needs Spark."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from long import exhaustive

import bitlake
from bitlake.cli.result import Result
from bitlake.errors import BitlakeError, InvalidRequest, NotFound, UnsupportedFeature
from bitlake.lake import lake_has_spark
from bitlake.lazy_modules import install_command

_WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing}:
            raise ModuleNotFoundError(f"No module named '{{name}}'", name=name)
sys.meta_path.insert(0, Missing())
import bitlake
lake = bitlake.connect({path!r})
run = lambda text: lake.sql(text, engine="duckdb")
run("CREATE TABLE t (id INT, day DATE) PARTITIONED BY (day)")
run("ALTER TABLE t SET TBLPROPERTIES ('file-index.bitmap.columns' = 'id')")
run("CALL sys.compact('t')")
run("TRUNCATE TABLE t PARTITION (day = '2026-01-01')")
assert "Scan of default.t" in run("EXPLAIN SELECT id FROM t WHERE id = 1").to_pylist()[0]["plan"]
assert run("SHOW TABLES").to_pylist() == [{{"namespace": "default", "tableName": "t", "isTemporary": False}}]
assert not any(m.startswith(("pyspark", "py4j")) for m in sys.modules)
try:
    print(run("SELECT count(*) FROM t").fetchall())
except bitlake.errors.BitlakeError as e:
    print(e)
"""


@pytest.mark.parametrize(
    ("missing", "printed"), [(("pyspark",), "[(0,)]"), exhaustive(("pyspark", "duckdb"), install_command("duckdb"))]
)
def test_no_jvm_and_no_engine_is_needed(tmp_path: Path, missing: tuple[str, ...], printed: str) -> None:
    code = _WITHOUT.format(missing=missing, path=str(tmp_path / "lake"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout


_NOTHING = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "pandas", "polars", "duckdb"):
            raise ModuleNotFoundError(f"No module named '{{name}}'", name=name)
sys.meta_path.insert(0, Missing())
import bitlake
lake = bitlake.connect({path!r})
table = lake.table("t")
assert table.to_arrow().num_rows == table.count() == table.dataset().count_rows() == 3
for ask in (table.to_pandas, table.scan().to_pandas, table.to_polars, table.lazy, table.to_duckdb,
            table.scan().to_spark, lambda: lake.spark, lambda: lake.sql("SELECT 1"), lambda: lake.read("t"),
            lambda: lake.sql("SELECT 1", engine="duckdb"), lambda: bitlake.register(None),
            lambda: lake.merge("t", "t", "a = b"), lambda: lake.write_stream(None, "t", "checkpoint"),
            lambda: lake.read_stream("t"), lambda: lake.explain("SELECT 1"), lambda: lake.plans("SELECT 1")):
    try:
        ask()
    except bitlake.errors.InvalidRequest as e:
        print(e)
from bitlake.cli.app import main
sys.argv = ["bitlake", "--lake", {path!r}, "sql", "--engine", "spark", "SELECT id FROM t"]
sys.exit(main())
"""


def test_each_missing_engine_is_one_error(lake: bitlake.Lake) -> None:
    """No Spark, DuckDB, Polars or pandas: what needs one says so, with the command that installs it."""
    done = subprocess.run(
        [sys.executable, "-c", _NOTHING.format(path=str(lake.path))], capture_output=True, text=True, check=False
    )
    commands = [re.sub(r".* is not installed: `(pip install .*)`$", r"\1", line) for line in done.stdout.splitlines()]
    pandas, polars, duckdb, spark = "pip install pandas", *map(install_command, ("polars", "duckdb", "spark"))
    assert commands == [*[pandas] * 2, *[polars] * 2, duckdb, *[spark] * 4, duckdb, *[spark] * 6], done.stdout
    # The command has no traceback, and is not "a bug in bitlake".
    assert done.returncode == 1
    assert re.fullmatch(rf"(starting Spark.*\n)?error: .*`{re.escape(spark)}`\n", done.stderr), done.stderr


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    lake = bitlake.connect(tmp_path / "lake")
    lake.create_table("t", pa.table({"id": [1, 2, 3], "p": ["a", "a", "b"]}), partition_by=["p"])
    return lake


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("COPY INTO t FROM '/x' FILE_FORMAT = (TYPE = CSV)", "COPY … needs Spark"),
        ("CREATE TEMPORARY VIEW v AS SELECT 1", "CREATE … needs Spark"),
        ("SET spark.sql.ansi.enabled = false", "SET spark.sql.ansi.enabled = false needs Spark"),
        ("ADD JAR '/x.jar'", "ADD JAR '/x.jar' needs Spark"),
        ("CACHE TABLE t", "CACHE … needs Spark"),
        ("CALL sys.compact(table => 't', order_strategy => 'order', order_by => 'id')", "sort compaction needs Spark"),
        ("CALL sys.migrate_database('parquet', 'd')", "Spark's own catalog needs Spark"),
        ("TRUNCATE TABLE IDENTIFIER(concat('t', current_user()))", "needs Spark"),
    ],
)
def test_what_needs_spark_says_so_and_changes_nothing(lake: bitlake.Lake, text: str, what: str) -> None:
    before = lake.table("t").snapshot
    with pytest.raises(UnsupportedFeature) as caught:
        lake.sql(text, engine="duckdb")
    assert what in str(caught.value) and "engine='spark'" in str(caught.value)
    assert lake.table("t").snapshot == before


def test_settings(lake: bitlake.Lake) -> None:
    set_zone = lake.sql("SET spark.sql.session.timeZone = Europe/Berlin", engine="duckdb")
    assert set_zone.to_pylist() == [{"key": "spark.sql.session.timeZone", "value": "Europe/Berlin"}]
    with pytest.raises(InvalidRequest, match="unknown time zone 'Mars/North'"):
        lake.sql("SET TIME ZONE 'Mars/North'", engine="duckdb")
    with pytest.raises(InvalidRequest, match="static or dynamic"):
        lake.sql("SET spark.sql.sources.partitionOverwriteMode = some", engine="duckdb")
    lake.sql("SET spark.sql.caseSensitive = true", engine="duckdb")
    with pytest.raises(BitlakeError, match="'T' does not exist|default.T"):
        lake.sql("DESCRIBE T", engine="duckdb")
    with pytest.raises(UnsupportedFeature, match="names are case-sensitive needs Spark"):
        lake.sql("SELECT * FROM t", engine="duckdb")
    lake.sql("RESET spark.sql.caseSensitive", engine="duckdb")
    assert lake.sql("DESCRIBE T", engine="duckdb").num_rows == 5


def test_options_of_the_session_choose_what_a_table_is(lake: bitlake.Lake) -> None:
    lake.table("t").append(pa.table({"id": [4], "p": ["c"]}))
    lake.sql("SET spark.paimon.scan.snapshot-id = 1", engine="duckdb")
    assert lake.sql("SELECT count(*) FROM t", engine="duckdb").fetchall() == [(3,)]
    lake.sql("RESET spark.paimon.scan.snapshot-id", engine="duckdb")
    assert lake.sql("SELECT count(*) FROM t", engine="duckdb").fetchall() == [(4,)]


def _selected(lake: bitlake.Lake, **options: str) -> list[tuple[Any, ...]]:
    given = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    for name, value in given.items():
        lake.sql(f"SET spark.paimon.{name} = {value}", engine="duckdb")
    try:
        return lake.sql("SELECT id, v FROM k ORDER BY id, v", engine="duckdb").fetchall()
    finally:
        for name in given:
            lake.sql(f"RESET spark.paimon.{name}", engine="duckdb")


def test_options_of_the_session_choose_changes(tmp_path: Path) -> None:
    """Bug: some were ignored: the query returned the whole table.  Expected: what Paimon does with each."""
    lake = bitlake.connect(str(tmp_path))
    columns = pa.schema([("id", pa.int64()), ("v", pa.string())])
    table = lake.create_table("k", columns, primary_key=["id"], options={"bucket": "1"})
    for number, text in enumerate("abcd"):
        table.append(pa.table([[1, number], [text, text]] if number > 1 else [[number], [text]], schema=columns))
    table.history.create_tag("2024-12-03", 1)
    table.history.create_tag("2024-12-04", 4)
    difference = [(1, "d"), (2, "c"), (3, "d")]
    assert _selected(lake, incremental_to_auto_tag="2024-12-04") == difference
    assert _selected(lake, incremental_to_auto_tag="2024-12-03") == []
    tags = {"incremental_between": "2024-12-03,2024-12-04"}
    assert _selected(lake, **tags) == _selected(lake, **tags, scan__mode="incremental") == difference
    delta = [(1, "b"), (1, "c"), (1, "d"), (2, "c"), (3, "d")]
    assert _selected(lake, **tags, incremental_between_tag_to_snapshot="true") == delta

    latest = [(0, "a"), *difference]
    for mode in ("default", "full", "latest", "latest-full", "LATEST_FULL"):
        assert _selected(lake, scan__mode=mode) == latest
    assert _selected(lake, scan__mode="from-snapshot", scan__snapshot_id="1") == [(0, "a")]
    for refused in (
        {"scan__mode": "compacted-full"},
        {"scan__creation_time_millis": "0"},
        {"scan__file_creation_time_millis": "0"},
    ):
        with pytest.raises(UnsupportedFeature, match="does not support the session's option"):
            _selected(lake, **refused)
    for mode, more, why in (
        ("incremental", {}, "needs incremental-between or "),
        ("from-timestamp", {}, "needs scan.timestamp or scan.timestamp-millis"),
        ("from-snapshot", {}, "needs scan.snapshot-id or "),
        ("latest", {"scan__snapshot_id": "1"}, "excludes scan.snapshot-id"),
    ):
        with pytest.raises(InvalidRequest, match=f"'scan.mode' = '{mode}' {why}"):
            _selected(lake, scan__mode=mode, **more)
    with pytest.raises(InvalidRequest, match="may set one of incremental-between"):
        _selected(lake, **tags, incremental_to_auto_tag="2024-12-04")


def test_parameters(lake: bitlake.Lake) -> None:
    lake.sql("TRUNCATE TABLE t PARTITION (p = :p)", {"p": "a"}, engine="duckdb")
    assert lake.table("t").to_arrow(["id"]).to_pydict() == {"id": [3]}


def test_auto_starts_spark_only_for_what_needs_it(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where PySpark is missing, one error says what needs Spark, and how to install it."""
    assert Result.of(lake, "SHOW TABLES", 0, "auto").rows["tableName"].to_pylist() == ["t"]
    assert Result.of(lake, "SELECT count(*) FROM t", 0, "auto").rows.to_pylist() == [{"count(1)": 3}]
    with pytest.raises(NotFound, match="did you mean t?"):
        Result.of(lake, "DESCRIBE tt", 0, "auto")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for text, why in (
        ("CACHE TABLE t", "CACHE … needs Spark"),
        ("SELECT explode(array(p)) FROM t", "DuckDB cannot run 'EXPLODE("),
    ):
        with pytest.raises(InvalidRequest) as caught:
            Result.of(lake, text, 0, "auto")
        assert why in str(caught.value) and install_command("spark") in str(caught.value)
    assert not lake_has_spark(lake)


def test_without_duckdb_queries_run_on_spark(lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where both are missing, one error says how to install either."""

    def starts(self: bitlake.Lake) -> Any:
        raise UnsupportedFeature("Spark starts")

    monkeypatch.setitem(sys.modules, "duckdb", None)
    monkeypatch.setattr(bitlake.Lake, "_sql_engine", starts)
    with pytest.raises(UnsupportedFeature, match="^Spark starts$"):
        Result.of(lake, "SELECT sum(id) FROM t", 0, "auto")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    duckdb, spark = (re.escape(install_command(extra)) for extra in ("duckdb", "spark"))
    with pytest.raises(InvalidRequest, match=f"^duckdb .* `{duckdb}`; Spark .* `{spark}`$"):
        Result.of(lake, "SELECT sum(id) FROM t", 0, "auto")
    with pytest.raises(InvalidRequest, match=f"CACHE … needs Spark.*`{spark}`$"):
        Result.of(lake, "CACHE TABLE t", 0, "auto")


@pytest.mark.parametrize(
    "text",
    [
        "VACUUM t RETAIN 99999999999999999999 HOURS DRY RUN",
        "CALL sys.create_tag('t', 'x', 1, '99999999999 d')",
        "ALTER TABLE t CREATE TAG x RETAIN 99999999999 DAYS",
        "CALL sys.compact(table => 't', partition_idle_time => '99999999999 d')",
    ],
)
def test_spans_longer_than_python_has(lake: bitlake.Lake, text: str) -> None:
    """Bug: they ended in an OverflowError."""
    lake.sql(text, engine="duckdb")
    assert lake.table("t").count() == 3


def test_types_are_described_as_spark_describes_them(tmp_path: Path) -> None:
    """Names of members were in lower case, and with the comments; Spark 4 shows these texts for its own tables."""
    lake = bitlake.connect(str(tmp_path))
    types = (
        "s STRUCT<Aa: INT COMMENT 'X', b: ARRAY<STRING>>, m MAP<STRING, DECIMAL(10, 2)>, c CHAR(3), d DECIMAL(10, 2)"
    )
    lake.sql(f"CREATE TABLE t ({types})", engine="duckdb")
    assert lake.sql("DESCRIBE t", engine="duckdb").column("data_type").to_pylist() == [
        *("struct<Aa:int,b:array<string>>", "map<string,decimal(10,2)>", "char(3)", "decimal(10,2)")
    ]


def test_values_of_secrets_are_not_shown(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path))
    options = "'my.password' = 'x1', 'http.URL' = 'x2', 'bitlake.index.by_token' = 'tokens(v)', 'other' = 'x3'"
    lake.sql(f"CREATE TABLE t (id INT, v STRING) TBLPROPERTIES ({options})", engine="duckdb")
    for text in ("SHOW CREATE TABLE t", "SHOW TBLPROPERTIES t", "DESCRIBE EXTENDED t", "SHOW TABLE EXTENDED LIKE 't'"):
        shown = str(lake.sql(text, engine="duckdb").to_pylist())
        assert "x1" not in shown and "x2" not in shown and shown.count("*********(redacted)") == 2, text
        assert "x3" in shown and "tokens(v)" in shown
    one = lake.sql("SHOW TBLPROPERTIES t ('my.password')", engine="duckdb").to_pylist()
    assert one == [{"key": "my.password", "value": "*********(redacted)"}]
