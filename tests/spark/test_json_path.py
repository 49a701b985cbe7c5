"""``get_json_object`` of random texts, damaged ones among them, against Spark's."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from json_documents import PATHS, document
from long import full, long

from bitlake.expressions.json_path import json_values, path_names


@pytest.mark.parametrize("count", [4000, long(full(40_000, 400_000))])
def test_a_value_is_spark_s_or_unknown(spark: Any, tmp_path: Path, count: int) -> None:
    draw = random.Random(count)
    texts = [document(draw) for _ in range(count)]
    pq.write_table(pa.table({"i": range(count), "p": texts}), str(tmp_path / "texts.parquet"))
    columns = [f"""get_json_object(p, "{path}") AS v{i}""" for i, path in enumerate(PATHS)]
    answers = spark.read.parquet(str(tmp_path / "texts.parquet")).selectExpr("i", *columns).toArrow().sort_by("i")
    found = 0
    for i, path in enumerate(PATHS):
        values, unknown = json_values(pa.array(texts), path_names(path))
        expected = answers[f"v{i}"].to_pylist()
        wrong = [
            (text, path, value, true)
            for text, value, doubt, true in zip(texts, values.to_pylist(), unknown, expected, strict=True)
            if value != true and not doubt
        ]
        assert not wrong, f"{len(wrong)}: {wrong[:5]}"
        # Strings are never unknown, unless quotes are single ones; numbers and objects may be.
        certain = [t for t, d, v in zip(texts, unknown, expected, strict=True) if d and v == "needle" and "'" not in t]
        assert certain == []
        found += sum(value is not None for value in values.to_pylist())
    assert found > count / 4
