"""NOT NULL columns of files that Spark's own reader reads."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession


def with_not_null(spark: SparkSession, frame: DataFrame, stored: Sequence[str], names: Collection[str]) -> DataFrame:
    """A frame of :meth:`DataFrameReader.parquet`, of the columns ``stored``, in which those of ``names`` are NOT NULL.

    Spark makes every column of a file relation nullable, and an expression over it that is not would keep filters from
    its reader.  So the relation itself gets another output.  On Spark Connect, which cannot, all stay nullable.
    """
    session: Any = getattr(spark, "_jsparkSession", None)
    jvm: Any = getattr(spark, "_jvm", None)
    if session is None or jvm is None or not names:
        return frame
    relation = frame._jdf.queryExecution().analyzed()
    output = relation.output()
    columns = []
    for at, name in enumerate(stored):
        column = output.apply(at)
        columns.append(column.withNullability(False) if name in names else column)
    size = relation.productArity()
    gateway: Any = spark.sparkContext._gateway
    parts = gateway.new_array(jvm.java.lang.Object, size)
    for n in range(size):
        part = relation.productElement(n)
        parts[n] = jvm.PythonUtils.toSeq(columns) if n == 1 else part  # LogicalRelation(relation, output, …)
    made = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session, relation.makeCopy(parts))
    return DataFrame(made, spark)
