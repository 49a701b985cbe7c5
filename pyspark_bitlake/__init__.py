"""Where PySpark looks for data sources: top-level packages named ``pyspark_*`` with a ``DefaultSource``."""

from bitlake.spark.source.data_source import BitlakeDataSource as DefaultSource

__all__ = ["DefaultSource"]
