"""A primary-key table under random SQL against a dictionary: INSERT, UPDATE, DELETE, MERGE, OVERWRITE, compact, expire.

``BITLAKE_SQL_MODEL_STEPS`` makes the runs longer.  Every choice comes from the seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
from long import long
from pyspark.sql import SparkSession

import bitlake

pytestmark = pytest.mark.spark

STEPS = int(os.environ.get("BITLAKE_SQL_MODEL_STEPS", "8"))
TABLES = {
    "vectors": "'bucket' = '2', 'deletion-vectors.enabled' = 'true', 'changelog-producer' = 'lookup'",
    "merge-on-read": "'bucket' = '-1', 'dynamic-bucket.target-row-num' = '9', "
    "'num-sorted-run.compaction-trigger' = '3'",
}
KEYS, PARTITIONS = 30, "xyz"
Row = tuple[int, str, int | None, str | None]


class _Run:
    """The table, its dictionary, and what may be done to both."""

    def __init__(self, lake: bitlake.Lake, name: str) -> None:
        self.lake = lake
        self.rng = random.Random(name)
        self.model: dict[tuple[int, str], Row] = {}
        lake.sql("DROP TABLE IF EXISTS m")
        lake.sql(
            "CREATE TABLE m (id INT, p STRING, a INT, b STRING, PRIMARY KEY (id, p) NOT ENFORCED) PARTITIONED BY (p) "
            f"TBLPROPERTIES ({TABLES[name]})"
        )

    def step(self, number: int) -> None:
        chances: dict[Callable[[], None], int] = {
            self.insert: 6,
            self.update: 4,
            self.delete: 4,
            self.merge: 4,
            self.overwrite: 2,
            self.compact: 3,
            self.expire: 1,
        }
        operation = self.rng.choices(list(chances), list(chances.values()))[0]
        operation()
        self.check(f"step {number}, {operation.__name__}", sql=number % 10 == 9)

    def check(self, doing: str, sql: bool) -> None:
        wanted = sorted(self.model.values(), key=repr)
        found = self.lake.table("m").scan().to_arrow().to_pydict()
        assert sorted(zip(*found.values(), strict=True), key=repr) == wanted, doing
        if sql:
            rows = self.lake.sql("SELECT id, p, a, b FROM m WHERE id >= 0").collect()
            assert sorted(map(tuple, rows), key=repr) == wanted, doing

    def counted(self, text: str) -> int:
        count: int = self.lake.sql(text).collect()[0]["num_affected_rows"]
        return count

    # --- statements ---------------------------------------------------------------------------------------------------

    def insert(self) -> None:
        rows = self.rows()
        self.lake.sql(f"INSERT INTO m VALUES {_values(rows)}")
        self.model.update({r[:2]: r for r in rows})

    def update(self) -> None:
        third = self.rng.randrange(3)
        hit = [r for r in self.model.values() if r[0] % 3 == third and r[2] is not None and r[2] < 30]
        done = self.counted(f"UPDATE m SET a = a + 1, b = concat(b, '!') WHERE id % 3 = {third} AND a < 30")
        assert done == len(hit)
        for i, p, a, b in hit:
            assert a is not None
            self.model[i, p] = (i, p, a + 1, None if b is None else b + "!")

    def delete(self) -> None:
        low = self.rng.randrange(KEYS)
        where, goes = self.rng.choice(
            [
                (f"id BETWEEN {low} AND {low + 3}", lambda r: low <= r[0] <= low + 3),
                (f"p = 'x' AND a > {low}", lambda r: r[1] == "x" and r[2] is not None and r[2] > low),
                (f"id % 7 = {low % 7} AND b IS NULL", lambda r: r[0] % 7 == low % 7 and r[3] is None),
                (f"id IN (SELECT max(id) FROM m WHERE id < {low})", self.just_below(low)),
            ]
        )
        hit = [k for k, r in self.model.items() if goes(r)]
        assert self.counted(f"DELETE FROM m WHERE {where}") == len(hit)
        for key in hit:
            del self.model[key]

    def just_below(self, limit: int) -> Callable[[Row], bool]:
        most = max((k[0] for k in self.model if k[0] < limit), default=None)
        return lambda r: r[0] == most

    def merge(self) -> None:
        rows = list({r[:2]: r for r in self.rows()}.values())
        count = self.counted(
            f"MERGE INTO m USING (SELECT * FROM VALUES {_values(rows)} AS v(id, p, a, b)) AS s "
            "ON m.id = s.id AND m.p = s.p WHEN MATCHED AND s.a IS NULL THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET a = s.a, b = concat(m.b, '+') "
            "WHEN NOT MATCHED AND s.id % 2 = 0 THEN INSERT *"
        )
        assert count == sum(r[:2] in self.model or r[0] % 2 == 0 for r in rows)
        for i, p, a, b in rows:
            old = self.model.get((i, p))
            if old is None:
                if i % 2 == 0:
                    self.model[i, p] = (i, p, a, b)
            elif a is None:
                del self.model[i, p]
            else:
                self.model[i, p] = (i, p, a, None if old[3] is None else old[3] + "+")

    def overwrite(self) -> None:
        p = self.rng.choice(PARTITIONS)
        rows = list({r[0]: (r[0], p, *r[2:]) for r in self.rows()}.values())
        values = _values([(i, a, b) for i, _, a, b in rows])
        self.lake.sql(f"INSERT OVERWRITE m PARTITION (p = '{p}') SELECT id, a, b FROM VALUES {values} AS v(id, a, b)")
        self.model = {k: r for k, r in self.model.items() if k[1] != p} | {r[:2]: r for r in rows}

    def compact(self) -> None:
        strategy = self.rng.choice(["full", "minor"])
        self.lake.sql(f"CALL sys.compact(table => 'd.m', compact_strategy => '{strategy}')")

    def expire(self) -> None:
        self.lake.table("m").maintenance.expire_snapshots(
            retain_max=self.rng.randrange(1, 5), retain_min=1, older_than=0, max_deletes=1000
        )

    def rows(self) -> list[Row]:
        rng = self.rng
        return [
            (
                rng.randrange(KEYS),
                rng.choice(PARTITIONS),
                rng.choice([None, rng.randrange(40)]),
                rng.choice([None, "b", "é"]),
            )
            for _ in range(rng.choice([1, 4, 20]))
        ]


def _values(rows: list[Any]) -> str:
    def text(value: Any) -> str:
        return "NULL" if value is None else str(value) if isinstance(value, int) else f"'{value}'"

    return ", ".join(f"({', '.join(map(text, row))})" for row in rows)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "steps"), [*((n, STEPS) for n in TABLES), *(long(n, 40) for n in TABLES)])
def test_random_statements_end_as_in_a_dictionary(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, name: str, steps: int
) -> None:
    lake = bitlake.connect(str(tmp_path_factory.mktemp("lake")), spark=spark)
    lake.sql("CREATE DATABASE d")
    lake.sql("USE d")
    run = _Run(lake, name)
    for number in range(steps):
        run.step(number)
