"""A Spark session for many small queries on one core."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from spark_classes import java_options

QUICK = {
    "spark.sql.shuffle.partitions": "1",
    # To compile each query's code takes longer than to run it over so few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    # Checks of Spark's own after each rule.
    "spark.sql.lightweightPlanChangeValidation": "false",
}
"""Settings of a session."""
_FIXED = {
    # Spark reserves a page for each aggregation, sort and broadcast: with the default of 64 MB on one core, every fifth
    # statement waited for a full collection of the heap.
    "spark.buffer.pageSize": "1m",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.ui.retainedJobs": "5",
    "spark.ui.retainedStages": "5",
    "spark.ui.retainedTasks": "20",
}


def start(folder: str, for_hours: bool = False, **settings: str) -> SparkSession:
    """Start a session with its warehouse in a folder; it logs nothing."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", java_options(for_hours))
    # More tasks at a time would wait for one thread that plans; other cores have processes of their own.
    os.environ.setdefault("SPARK_MASTER", "local[1]")
    from bitlake.spark.session import get_or_create

    spark = get_or_create(spark__sql__warehouse__dir=f"{folder}/warehouse", **_FIXED, **settings)
    spark.sparkContext.setLogLevel("OFF")
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    return spark
