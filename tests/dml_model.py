"""DELETE, UPDATE and MERGE against a plain model: the same statement as queries over a view that Spark holds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from long import long

import bitlake

COLUMNS = "id BIGINT, a INT, b STRING, s STRUCT<x: INT, y: STRING>, p STRING"
OPTIONS: dict[str, dict[str, str]] = {
    "vectors": {"deletion-vectors.enabled": "true", "file-index.bitmap.columns": "b"},
    "vectors64-bucketed": {
        "deletion-vectors.enabled": "true",
        "deletion-vectors.bitmap64": "true",
        "bucket": "2",
        "bucket-key": "id",
    },
    "copy-on-write": {},
    "copy-on-write-bucketed": {"bucket": "2", "bucket-key": "id"},
}

NAMES = ["vectors", "copy-on-write-bucketed", long("vectors64-bucketed"), long("copy-on-write")]


def append_halves(lake: bitlake.Lake, name: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Write rows in this process, half of them in each of two files, as Spark's two tasks do."""
    schema = lake.table(name).arrow_schema
    data = pa.table([pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), schema, strict=True)], schema.names)
    half = len(rows) // 2
    for part in (data.slice(0, half), data.slice(half)):
        lake.write(part, name)


class Model:
    """A table ``t`` of a lake and its rows as a plain list, changed side by side.  Mutable."""

    def __init__(self, lake: bitlake.Lake, options: dict[str, str], seed: int, partitioned: bool) -> None:
        self.lake = lake
        self.random = random.Random(seed)
        self.rows: list[tuple[Any, ...]] = []
        listed = ", ".join(f"'{k}' = '{v}'" for k, v in options.items())
        by = "PARTITIONED BY (p)" if partitioned else ""
        lake.sql(f"CREATE TABLE t ({COLUMNS}) {by}" + (f" TBLPROPERTIES ({listed})" if options else ""))
        for batch in range(3):
            self.append(batch * 40, 40, by_spark=batch == 0)
        lake.sql("SELECT 3 AS k, 'x' AS w UNION ALL SELECT 7, 'y' UNION ALL SELECT NULL, 'z'").createOrReplaceTempView(
            "other"
        )

    def append(self, first: int, count: int, by_spark: bool = True) -> None:
        """Append random rows in two files, which Spark writes or this process."""
        pick = self.random.choice
        new = [
            (
                first + i,
                pick([None, *range(12)]),
                pick([None, "x", "y", "z"]),
                pick([None, {"x": i, "y": None}, {"x": None, "y": "q"}]),
                pick(["p", "q/r", None]),
            )
            for i in range(count)
        ]
        frame = self.lake.spark.createDataFrame(new, COLUMNS)
        if by_spark:
            self.lake.write(frame, "t")
        else:
            append_halves(self.lake, "t", new)
        self.rows += frame.collect()

    def view(self) -> str:
        """The rows as they should be, as a view of this name."""
        self.lake.spark.createDataFrame(self.rows, COLUMNS).createOrReplaceTempView("model")
        return "model"

    def condition(self) -> str:
        """A random condition: some a scan can evaluate, some only Spark can."""
        k, pick = self.random.randrange(12), self.random.choice
        simple = [
            f"a < {k}",
            f"t.a = {k}",
            "b = 'x'",
            "b IS NULL",
            f"id BETWEEN {k * 5} AND {k * 8}",
            f"id >= {k * 10}",
            f"a % 3 = {k % 3}",
            "p = 'q/r'",
            "s.x > 10",
            "a IN (SELECT k FROM other)",
            "EXISTS (SELECT 1 FROM other WHERE other.w = t.b AND t.a > 4)",
            "id > (SELECT max(k) * 10 FROM other)",
            "length(b) + a > 5",
        ]
        first, second = pick(simple), pick(simple)
        return pick([first, first, f"{first} AND {second}", f"{first} OR {second}", f"NOT ({first})"])

    def check(self) -> None:
        """The table holds the model's rows, read by Spark and in this process."""
        want = sorted(self.rows, key=repr)
        got = sorted(self.lake.sql("SELECT id, a, b, s, p FROM t").collect(), key=repr)
        assert got == want
        assert sorted(self.lake.table("t").scan(["id"]).to_arrow().column(0).to_pylist()) == sorted(r[0] for r in want)

    def delete(self, condition: str) -> None:
        """DELETE in both."""
        self.view()
        kept = self.lake.spark.sql(f"SELECT * FROM model t WHERE NOT coalesce(({condition}), false)").collect()
        found = self.lake.sql(f"DELETE FROM t WHERE {condition}").collect()
        assert found[0].asDict() == {"num_affected_rows": len(self.rows) - len(kept)}, condition
        self.rows = kept

    def update(self, values: dict[str, str], written: str, condition: str) -> None:
        """UPDATE in both; ``values`` by column for the model, ``written`` as SET says it."""
        self.view()
        hit = f"coalesce(({condition}), false)"
        items = [f"if({hit}, {values[c]}, t.{c}) AS {c}" if c in values else c for c in ("id", "a", "b", "s", "p")]
        count = self.lake.spark.sql(f"SELECT count(*) FROM model t WHERE {hit}").collect()[0][0]
        rows = self.lake.spark.sql(f"SELECT {', '.join(items)} FROM model t").collect()
        found = self.lake.sql(f"UPDATE t SET {written} WHERE {condition}").collect()
        assert found[0].asDict() == {"num_affected_rows": count}, condition
        self.rows = rows
