"""What Spark answers to the terms and conditions of ``tests/expressions/spark_answers.jsonl``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import spark_answers
from long import long
from pyspark.errors import PySparkException
from spark_answers import GROUPS, Group

from bitlake.errors import InvalidRequest

SETTINGS = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",  # a few rows: compiling takes longer than it saves
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.ansi.enabled": "true",
}
BATCH = 40


def columns(frame: Any, texts: list[str]) -> list[pa.ChunkedArray | None]:
    """The values of each expression; None where Spark fails."""
    try:
        found = frame.selectExpr(*[f"{text} AS c{i}" for i, text in enumerate(texts)]).toArrow()
    except PySparkException:
        if len(texts) == 1:
            return [None]
        middle = len(texts) // 2
        return columns(frame, texts[:middle]) + columns(frame, texts[middle:])
    return list(found.columns)


def answers(frame: Any, texts: list[str]) -> list[pa.ChunkedArray | None]:
    return [a for i in range(0, len(texts), BATCH) for a in columns(frame, texts[i : i + BATCH])]


def answered(spark: Any, folder: Path, group: Group) -> Group:
    """The group with the answers of Spark to what bitlake evaluates."""
    pq.write_table(group.rows, str(folder / "rows.parquet"))
    frame = spark.read.parquet(str(folder / "rows.parquet")).coalesce(1)
    terms, conditions = spark_answers.questions(group)
    terms, conditions = [t for t in terms if accepted(t, group)], [c for c in conditions if accepted(c, group, True)]
    types = [f.dataType.simpleString() for f in frame.selectExpr(*terms).schema]
    made = Group(group.seed, group.kind, group.zone)
    for text, kind, found in zip(terms, types, answers(frame, terms), strict=True):
        made.terms.append((text, kind, None if found is None else spark_answers.shown(found)))
    for text, found in zip(conditions, answers(frame, [f"({c})" for c in conditions]), strict=True):
        if found is not None:
            made.conditions.append((text, spark_answers.bits(found.to_pylist())))
    return made


def accepted(text: str, group: Group, condition: bool = False) -> bool:
    try:
        if condition:
            spark_answers.true_rows(text, group.rows, group.zone)
        else:
            spark_answers.bound_term(text, group.zone)
    except InvalidRequest:
        return False
    return True


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [0, *(long(i) for i in range(1, len(GROUPS)))])
def test_the_recorded_answers_are_spark_s(spark: Any, tmp_path: Path, number: int) -> None:
    group = GROUPS[number]
    before = {k: spark.conf.get(k, None) for k in (*SETTINGS, "spark.sql.session.timeZone")}
    for key, value in {**SETTINGS, "spark.sql.session.timeZone": group.zone}.items():
        spark.conf.set(key, value)
    try:
        found = answered(spark, tmp_path, group)
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)
    if os.environ.get("BITLAKE_RECORD"):
        known = spark_answers.recorded() if number else []
        spark_answers.write([*known[:number], found])
        return
    known_group = spark_answers.recorded()[number]
    assert [list(t) for t in found.terms] == known_group.terms
    assert [list(c) for c in found.conditions] == known_group.conditions
