"""A table verified on executors, by procedure and by ``lake.verify``: the same findings as on threads here."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import verify_damage as damage
import verify_tables as made
from caches import forget
from verify_tables import Patient

import bitlake
from bitlake.errors import InvalidRequest

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> bitlake.Lake:
    made.append(tmp_path / "lake")
    forget()
    return bitlake.connect(str(tmp_path / "lake"), spark=spark)


def call(lake: bitlake.Lake, text: str) -> list[dict[str, Any]]:
    return [r.asDict() for r in lake.sql(text).collect()]


def test_executors_find_what_threads_find(lake: bitlake.Lake) -> None:
    assert call(lake, "CALL sys.verify(table => 't')") == []
    p = Patient(lake.table("t"))
    p.cut(damage.index_of(p))
    p.flip(p.data(1)[0], 6)
    p.flip(p.index("DELETION_VECTORS")[0], 12)
    damage.write(p, "snapshot/LATEST", "1")
    forget()
    here = lake.verify("t")
    assert set(here.codes) == {"index-unreadable", "data-unreadable", "vector-checksum-wrong", "hint-wrong"}
    assert lake.verify("t", distributed=True).to_dict() == here.to_dict()
    rows = call(lake, "CALL sys.verify('t', parallelism => 2)")
    assert [(r["severity"], r["code"], r["file"], r["offset"]) for r in rows] == [
        (f.severity, f.code, f.path, f.offset) for f in here.findings
    ]
    assert {r["code"] for r in call(lake, "CALL sys.verify('t', deep => false)")} == {
        "index-unreadable",
        "vector-checksum-wrong",
        "hint-wrong",
    }


def test_repairing_by_procedure(lake: bitlake.Lake) -> None:
    p = Patient(lake.table("t"))
    index = p.cut(damage.index_of(p))
    forget()
    planned = call(lake, "CALL sys.verify('t', repair => true)")
    assert [r["severity"] for r in planned][-1] == "would repair"
    done = call(lake, "CALL sys.verify('t', repair => true, dry_run => false)")
    assert (done[-1]["severity"], done[-1]["snapshots"]) == ("repaired", "snapshot 5")
    assert call(lake, "CALL sys.verify('t', snapshots => '5')") == []
    assert [r["file"].rsplit("/", 1)[1] for r in call(lake, "CALL sys.verify('t', snapshots => '4')")] == [index]


def test_a_table_whose_schema_is_damaged(lake: bitlake.Lake) -> None:
    shutil.copy(Path(lake.table("t").path) / "schema/schema-0", Path(lake.path) / "kept")
    Patient(lake.table("t")).cut(Path(lake.table("t").path) / "schema/schema-0")
    forget()
    assert "schema-unreadable" in lake.verify("t").codes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [("snapshots => 'all'", "ids between commas"), ("repair => true, indexes => 'x'", "rebuild or drop")],
)
def test_wrong_arguments(lake: bitlake.Lake, arguments: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        lake.sql(f"CALL sys.verify('t', {arguments})")


@pytest.mark.exhaustive
def test_tables_that_spark_wrote_are_well(lake: bitlake.Lake) -> None:
    columns = (
        "id BIGINT NOT NULL, s STRING, c CHAR(8), d DECIMAL(20, 3), f FLOAT, x DOUBLE, b BOOLEAN, t TINYINT, dt DATE, "
        "ts TIMESTAMP, ntz TIMESTAMP_NTZ, bin BINARY, m MAP<STRING, INT>, st STRUCT<a: INT, b: STRING>, p INT"
    )
    values = (
        "id, IF(id % 5 = 0, NULL, CONCAT('a long text of ', id)), CONCAT('c', id % 3), CAST(id / 3 AS DECIMAL(20, 3)), "
        "IF(id % 7 = 0, FLOAT('NaN'), CAST(id AS FLOAT)), -id / 9, id % 2 = 0, CAST(id % 100 AS TINYINT), "
        "DATE_ADD(DATE'1969-12-30', CAST(id AS INT)), TIMESTAMP_MICROS(id * 1000001 - 5), "
        "CAST(TIMESTAMP_MICROS(id * 7777777 - 99) AS TIMESTAMP_NTZ), CAST(CONCAT('b', id) AS BINARY), "
        "MAP('k', CAST(id AS INT)), NAMED_STRUCT('a', CAST(id AS INT), 'b', 'x'), CAST(id % 2 AS INT)"
    )
    indexes = "'file-index.bitmap.columns' = 's,c,m[k]', 'file-index.range-bitmap.columns' = 'id,ntz,dt'"
    for name, how in (
        ("plain", f"PARTITIONED BY (p) TBLPROPERTIES ({indexes}, 'deletion-vectors.enabled' = 'true')"),
        ("keyed", f"TBLPROPERTIES ({indexes}, 'bucket' = '2', 'primary-key' = 'id', 'changelog-producer' = 'lookup')"),
    ):
        lake.sql(f"CREATE TABLE {name} ({columns}) {how}")
        lake.sql(f"INSERT INTO {name} SELECT {values} FROM RANGE(60)")
        lake.sql(f"INSERT INTO {name} SELECT {values} FROM RANGE(40, 90)")
        lake.sql(f"DELETE FROM {name} WHERE id % 11 = 4")
        forget()
        report = lake.verify(name)
        assert not report.findings, report.text()
        assert report.checked["file_indexes"]
