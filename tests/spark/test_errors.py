"""Errors of Spark as errors of bitlake: the cause from a Python worker, without its stack."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bitlake.errors import CorruptError, InvalidRequest, StorageUnavailable
from bitlake.spark.errors import spark_errors


def no_packages(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """As an import fails in a Python without bitlake's packages."""
    raise ModuleNotFoundError("No module named 'numpy'", name="numpy")


def no_module(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A function of a user's query whose own import fails."""
    raise ModuleNotFoundError("No module named 'shapes'", name="shapes")


def run(spark: SparkSession, function: object) -> None:
    with spark_errors("writing to table 'default.t'"):
        spark.range(1).mapInArrow(function, "id BIGINT").collect()  # type: ignore[arg-type]


def test_workers_without_the_packages_of_bitlake(spark: SparkSession) -> None:
    with pytest.raises(InvalidRequest, match=r"the Python of Spark's workers has no numpy: install .*PYSPARK_PYTHON"):
        run(spark, no_packages)


def test_the_error_of_a_worker_is_in_the_message(spark: SparkSession) -> None:
    with pytest.raises(StorageUnavailable, match="Spark failed: .*No module named 'shapes'") as e:
        run(spark, no_module)
    assert "worker.py" not in str(e.value) and "Traceback" not in str(e.value)


FAILING = {
    "1 % id": "Remainder by zero",
    "element_at(array(1), int(id))": "The index 0 is invalid",
    "make_date(2020, 13, int(id))": "MonthOfYear",
    "to_date(concat('x', id), 'yyyy')": "'x0' could not be parsed",
    "to_number(concat('a', id), '999')": "The format is invalid",
    "map('[a]', id, '[a]', id)": "Duplicate map key",
    "CAST(concat('[x]', id) AS INT)": "cannot be cast",
    "CAST(concat('1\\n', id) AS INT)": "The value '1 0' .* cannot be cast",
    "from_json(concat('{', id), 'a INT', map('mode', 'FAILFAST'))": "Malformed records",
    "raise_error(concat('cannot take: [A] ', id))": r"cannot take: \[A\] 0",
}


@pytest.mark.parametrize("expression", FAILING)
def test_a_value_that_cannot_be_computed_is_an_invalid_request(spark: SparkSession, expression: str) -> None:
    says = FAILING[expression] if "raise" in expression else f"writing to table 't': .*{FAILING[expression]}"
    with pytest.raises(InvalidRequest, match=says) as e, spark_errors("writing to table 't'"):
        spark.range(1).selectExpr(expression).collect()
    assert "SQLSTATE" not in str(e.value)


def test_an_error_of_a_damaged_file_is_no_invalid_request() -> None:
    """Also if its cause is a value that cannot be read."""
    cause = "x: [MALFORMED_VARIANT] Variant binary is malformed. SQLSTATE: 22023"
    with pytest.raises(CorruptError), spark_errors("reading"):
        raise PySparkException(f"[FAILED_READ_FILE.NO_HINT] Error reading file a. SQLSTATE: KD001\nCaused by: {cause}")


@pytest.mark.parametrize("text", ["cannot reach [A], sorry", "x: [A] " * 100_000, "[A] [B] " * 100_000])
def test_an_error_that_names_no_condition_of_values_is_of_the_storage(text: str) -> None:
    with pytest.raises(StorageUnavailable), spark_errors("reading"):
        raise PySparkException(f"{text} SQLSTATE: XX000")
