"""Files that a query on Spark does without, on each way to read; and scans of all files that a session forbids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from caches import forget
from long import halves

import bitlake
from bitlake.errors import BitlakeError, CorruptError, InvalidRequest
from bitlake.spark.read import scan as spark_scan

pytestmark = pytest.mark.spark


@pytest.fixture
def files(lake: bitlake.Lake) -> list[Path]:
    schema = pa.schema([("i", pa.int64()), ("p", pa.string())])
    table = lake.create_table("t", schema, partition_by=["p"])
    for part in ("a", "b", "c"):
        table.append(pa.table({"i": range(100), "p": [part] * 100}, schema=schema))
    return [Path(f.path) for f in table.scan().plan().files]


@pytest.fixture(params=["driver", "spark", "pages"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each way that Spark reads files."""
    if request.param != "driver":
        monkeypatch.setattr(spark_scan, "DRIVER_ROWS", 0)
    if request.param == "pages":
        monkeypatch.setattr(spark_scan, "_native_types", lambda plan: False)
    yield request.param
    forget()


@pytest.mark.parametrize(("way", "kind"), halves(["driver", "spark", "pages"], ["corrupt", "lost"]), indirect=["way"])
def test_a_query_does_without_a_file(lake: bitlake.Lake, files: list[Path], way: str, kind: str) -> None:
    # The options were accepted, and the query failed as without them.
    if kind == "lost":
        files[1].unlink()
    else:
        files[1].write_bytes(b"corrupt file")
    text = "SELECT p, count(i % 7) AS n FROM t GROUP BY p ORDER BY p"
    for option in (None, "lost" if kind == "corrupt" else "corrupt"):
        if option is not None:
            lake.sql(f"SET spark.paimon.scan.ignore-{option}-files = true")
        with pytest.raises(Exception, match=files[1].name):
            lake.sql(text).collect()
    lake.sql(f"SET spark.paimon.scan.ignore-{kind}-files = true")
    try:
        assert [tuple(r) for r in lake.sql(text).collect()] == [("a", 100), ("c", 100)]
        if kind == "corrupt":
            with pytest.raises(BitlakeError, match=files[1].name):
                lake.sql("DELETE FROM t WHERE i % 10 = 3")
    finally:
        for option in ("corrupt", "lost"):
            lake.sql(f"RESET spark.paimon.scan.ignore-{option}-files")


def test_an_empty_file_is_not_one_without_rows(
    lake: bitlake.Lake, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Spark's own reader skipped a data file that had become empty: its rows were missing, and nothing said so.
    monkeypatch.setattr(spark_scan, "DRIVER_ROWS", 0)
    files[1].write_bytes(b"")
    with pytest.raises(CorruptError, match=f"the file has 0 bytes, and the manifest says .*{files[1].name}"):
        lake.sql("SELECT sum(i) FROM t").collect()


def test_a_session_forbids_to_read_all_files_of_a_partitioned_table(lake: bitlake.Lake, files: list[Path]) -> None:
    # Paimon's own test of the option, which was accepted and ignored.
    lake.create_table("plain", pa.schema([("a", pa.int32())])).append(pa.table({"a": pa.array([1, 2], pa.int32())}))
    lake.sql("SET spark.paimon.read.allow.fullScan = false")
    try:
        assert lake.sql("SELECT * FROM plain").count() == 2
        for text in ("SELECT * FROM t", "SELECT * FROM t WHERE p > ''", "SELECT * FROM t ORDER BY i LIMIT 3"):
            with pytest.raises(InvalidRequest, match="allow.fullScan' = false forbids it; filter by p"):
                lake.sql(text)
        assert lake.sql("SELECT * FROM t WHERE p > 'a'").count() == 200
        assert lake.sql("SELECT count(*) FROM t").collect()[0][0] == 300, "which reads no file"
    finally:
        lake.sql("RESET spark.paimon.read.allow.fullScan")
    assert lake.sql("SELECT * FROM t").count() == 300
