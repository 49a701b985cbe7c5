"""COPY INTO a folder: a query's rows as CSV, JSON or Parquet files, written by Spark."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.errors import AlreadyExists, InvalidRequest
from bitlake.spark.context import EngineContext
from bitlake.spark.copy_into import store_of
from bitlake.spark.errors import spark_errors
from bitlake.spark.hadoop_path import hadoop_path
from bitlake.spark.query import query
from bitlake.sql import statements as st
from bitlake.sql.parser import parse_statement
from bitlake.sql.statements import CopyIntoFolder

_WRITER = {
    "FIELD_DELIMITER": "sep",
    "HEADER": "header",
    "QUOTE": "quote",
    "ESCAPE": "escape",
    "COMPRESSION": "compression",
    "DATE_FORMAT": "dateFormat",
    "TIMESTAMP_FORMAT": "timestampFormat",
}


def copy_into_folder(context: EngineContext, statement: CopyIntoFolder) -> DataFrame:
    """COPY INTO 'folder': one row, with the folder, how many files it has and how many rows were written.

    The rows are counted by a query of their own, as in Paimon: the numbers agree if the query is deterministic.
    """
    if not isinstance(parse_statement(statement.query), st.Query):
        raise InvalidRequest(f"COPY INTO '{statement.folder}' takes a query, and not: {statement.query[:60]}")
    files = store_of(context, statement.folder)
    folder = hadoop_path(statement.folder)
    if not statement.overwrite and files.list(folder):
        raise AlreadyExists(f"{statement.folder} holds files already: say OVERWRITE = TRUE, or choose another folder")
    frame = query(context, statement.query)
    options = {o: statement.format.options[k] for k, o in _WRITER.items() if k in statement.format.options}
    with spark_errors(f"writing {statement.folder}"):
        rows = frame.count()
        writer = frame.write.mode("overwrite").options(**options)
        writer.format(statement.format.type.lower()).save(folder)
    count = sum(f.name.startswith("part-") for f in files.list(folder) if not f.is_dir)
    columns = [("output_path", T.StringType()), ("file_count", T.IntegerType()), ("rows_written", T.LongType())]
    return context.rows(columns, [(statement.folder, count, rows)])
