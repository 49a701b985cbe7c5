"""Conditions that a scan computes, against Spark's own answers over the same rows."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from computed_conditions import EXTREME, FIELDS, MILD, Conditions, rows_of
from long import long
from pyspark.errors import PySparkException

from bitlake.errors import EvaluationFailed, InvalidRequest
from bitlake.expressions.binder import bind
from bitlake.expressions.evaluate import evaluate
from bitlake.expressions.parser import parse_predicate
from bitlake.expressions.sql_text import to_sql
from bitlake.expressions.tree import Computed, computed_tests
from bitlake.types import DataField, parse_type

ROWS = 60
BATCH = 40
SETTINGS = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",  # a few rows: compiling takes longer than it saves
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.ansi.enabled": "true",
}


class Oracle:
    """Spark over some rows, in a time zone."""

    def __init__(self, spark: Any, folder: Path, rows: pa.Table, zone: str) -> None:
        path = str(folder / "rows.parquet")
        pq.write_table(rows, path)
        self.spark, self.zone = spark, zone
        self.frame = spark.read.parquet(path).coalesce(1)

    def true_rows(self, conditions: list[str]) -> list[set[int] | None]:
        """The ids for which each condition is TRUE; None where Spark fails."""
        try:
            columns = [f"({c}) AS c{i}" for i, c in enumerate(conditions)]
            found = self.frame.selectExpr("id", *columns).toArrow()
        except PySparkException:
            if len(conditions) == 1:
                return [None]
            middle = len(conditions) // 2
            return self.true_rows(conditions[:middle]) + self.true_rows(conditions[middle:])
        ids = found.column("id").to_pylist()
        answers = (found.column(i + 1).to_pylist() for i in range(len(conditions)))
        return [{i for i, true in zip(ids, answer, strict=True) if true} for answer in answers]


def ours(condition: str, rows: pa.Table, zone: str) -> set[int]:
    bound = bind(parse_predicate(condition, zone), FIELDS, zone)
    ids = {i for i, true in enumerate(evaluate(bound, rows, FIELDS).to_pylist()) if true}
    printed = bind(parse_predicate(to_sql(bound, FIELDS), zone), FIELDS, zone)
    assert {i for i, true in enumerate(evaluate(printed, rows, FIELDS).to_pylist()) if true} == ids, (condition, bound)
    return ids


def fails_somewhere(condition: str, rows: pa.Table, zone: str) -> bool:
    """Whether a computed part fails for any row, also one that other parts leave out."""
    bound = bind(parse_predicate(condition, zone), FIELDS, zone)
    try:
        for test in computed_tests(bound):
            evaluate(Computed(test), rows, FIELDS)
    except InvalidRequest:
        return True
    return False


CASES = [
    (1, 80, "UTC", "mild"),
    (2, 40, "Europe/Berlin", "mild"),
    (3, 40, "UTC", "extreme"),
    *[long(1, 220, "UTC", "mild"), long(2, 120, "Europe/Berlin", "mild"), long(3, 120, "UTC", "extreme")],
    *[long(seed, 600, zone, kind) for seed, zone, kind in ((10, "UTC", "mild"), (11, "America/New_York", "mild"))],
    *[long(seed, 600, zone, "extreme") for seed, zone in ((12, "UTC"), (13, "+05:30"), (14, "Europe/Berlin"))],
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("seed", "count", "zone", "kind"), CASES)
def test_a_scan_computes_what_spark_computes(
    spark: Any, tmp_path: Path, seed: int, count: int, zone: str, kind: str
) -> None:
    before = {k: spark.conf.get(k, None) for k in (*SETTINGS, "spark.sql.session.timeZone")}
    for key, value in {**SETTINGS, "spark.sql.session.timeZone": zone}.items():
        spark.conf.set(key, value)
    try:
        compare(spark, tmp_path, seed, count, zone, kind)
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)


def compare(spark: Any, folder: Path, seed: int, count: int, zone: str, kind: str) -> None:
    rows = rows_of(MILD if kind == "mild" else EXTREME, ROWS, seed)
    oracle = Oracle(spark, folder, rows, zone)
    made = Conditions(seed)
    answered: dict[str, set[int]] = {}
    failing: list[str] = []
    refused = 0
    for _ in range(count):
        condition = made.condition()
        for text in (condition, f"NOT ({condition})"):
            try:
                answered[text] = ours(text, rows, zone)
            except InvalidRequest as e:
                refused += "a scan cannot evaluate" in str(e)
                if "in some row" in str(e) or "a value" in str(e):
                    failing.append(text)
    texts = list(answered)
    wrong = []
    for start in range(0, len(texts), BATCH):
        batch = texts[start : start + BATCH]
        for text, expected in zip(batch, oracle.true_rows(batch), strict=True):
            if expected is None and fails_somewhere(text, rows, zone):
                continue  # other terms, and comparisons that it implies, leave these rows out first
            if expected != answered[text]:
                wrong.append((text, expected if expected is None else sorted(expected), sorted(answered[text])))
    assert not wrong, f"{len(wrong)} of {len(texts)}: {wrong[:10]}"
    assert len(texts) > count * (1.2 if kind == "mild" else 0.5), (len(texts), len(failing), refused)
    # What fails here fails in Spark.
    succeeded = [t for t in failing[: max(6, count // 20)] if oracle.true_rows([t]) != [None]]
    assert not succeeded, succeeded


CONTEXTS = ["ΑΣ", "ΌΣΟΣ. Σ", "Σ", "ΑΣΒ", "ΑΣ.", "Α.Σ", "ΑΣ'Β", "aΣ1", "1Σ", "ΣΣ", "İΣ", "ΑΣ\u0301", "ΑΣ\u00ad", "😀Σ"]
CONTEXTS += ["ß", "İstanbul", "ŉ", "Ǆ", "ǅ", "ﬁn", "i\u0307", "ı", "ΐ", "ԵՒ", "և"]
UPPER_SINCE_UNICODE_16 = "\u019b\u0264\ua7d3\ua7d5"


@pytest.mark.exhaustive
@pytest.mark.parametrize("texts", [pytest.param(CONTEXTS, id="contexts"), long([], id="every character")])
def test_case_is_spark_s_case(spark: Any, tmp_path: Path, texts: list[str]) -> None:
    texts = texts or [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    known = [t for t in texts if all(unicodedata.category(c) != "Cn" and c not in UPPER_SINCE_UNICODE_16 for c in t)]
    pq.write_table(pa.table({"s": known}), str(tmp_path / "texts.parquet"))
    frame = spark.read.parquet(str(tmp_path / "texts.parquet"))
    found = frame.selectExpr("s", "upper(s) AS u", "lower(s) AS l").toArrow()
    fields = [DataField(i, name, parse_type("STRING")) for i, name in enumerate("sul")]
    bound = bind(parse_predicate("upper(s) = u AND lower(s) = l"), fields)
    wrong = found.filter(pc.invert(evaluate(bound, found, fields)))
    assert wrong.num_rows == 0, wrong.to_pylist()[:10]
    for unknown in [t for t in texts if len(t) == 1 and unicodedata.category(t) == "Cn"][::5000]:
        with pytest.raises(EvaluationFailed, match="newer Unicode"):
            evaluate(bound, pa.table({"s": [unknown], "u": ["x"], "l": ["x"]}), fields)
