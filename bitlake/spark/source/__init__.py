"""The Spark data source ``bitlake``: tables read and written by ``spark.read.format("bitlake")`` and its streams."""
