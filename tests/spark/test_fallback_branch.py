"""Tables with ``scan.fallback-branch`` in SQL: by the driver, by Spark's reader and by workers."""

from __future__ import annotations

from typing import Any

import pytest
from answers import rows_of
from long import exhaustive
from scan.test_fallback_branch import keyed_branch

import bitlake

pytestmark = pytest.mark.spark


def ask(lake: bitlake.Lake, text: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(r) for r in rows_of(lake.sql(text))), key=repr)


@pytest.mark.parametrize("paths", [["auto"], exhaustive(["driver", "spark", "workers"])], ids=["auto", "others"])
def test_queries_read_the_partitions_of_two_branches_and_writes_only_those_of_the_table(
    lake: bitlake.Lake, paths: list[str]
) -> None:
    # The option was refused.
    lake.sql("CREATE TABLE t (p STRING, id INT, v STRING) PARTITIONED BY (p)")
    keyed_branch(lake, "t", "stream")
    lake.sql("INSERT INTO t SELECT 'a', id, 'm' || id FROM range(2000)")
    lake.sql("INSERT INTO t VALUES ('b', 1, 'm1')")
    lake.sql("INSERT INTO `t$branch_stream` SELECT IF(id < 10, 'b', 'c'), id, 's' || id FROM range(3000)")
    lake.sql("INSERT INTO `t$branch_stream` VALUES ('c', 20, 'again')")
    lake.sql("ALTER TABLE t SET TBLPROPERTIES ('scan.fallback-branch' = 'stream')")
    for path in paths:
        lake.sql(f"ALTER TABLE t SET TBLPROPERTIES ('read.spark-path' = '{path}')")
        counts = ask(lake, "SELECT p, count(*), max(v) FROM t GROUP BY p")
        assert counts == [("a", 2000, "m999"), ("b", 1, "m1"), ("c", 2990, "s999")], path
        assert ask(lake, "SELECT p, id FROM t WHERE v IN ('again', 's20', 'm7')") == [("a", 7), ("c", 20)], path
        assert ask(lake, "SELECT count(*) FROM t") == [(4991,)], path
        assert ask(lake, "SELECT id FROM t WHERE p >= 'b' ORDER BY id DESC LIMIT 2") == [(2998,), (2999,)], path
        assert ask(lake, "SELECT count(*) FROM t a JOIN t b ON a.id = b.id AND a.p < b.p WHERE b.p = 'c'") == [(1990,)]
    assert ask(lake, "SHOW PARTITIONS t") == [("p=a",), ("p=b",), ("p=c",)]
    assert ask(lake, "SELECT count(*) FROM t WHERE p = sys.max_pt('t')") == [(2990,)]
    lake.sql("DELETE FROM t WHERE id < 100")
    lake.sql("UPDATE t SET v = 'u' WHERE id = 2000")
    # The table's partition b is empty now: the branch has it.
    assert ask(lake, "SELECT p, count(*) FROM t GROUP BY p") == [("a", 1900), ("b", 10), ("c", 2990)]
    assert ask(lake, "SELECT count(*) FROM t WHERE v = 'u'") == [(0,)]
    assert ask(lake, "SELECT count(*) FROM t VERSION AS OF 1") == [(5000,)]
