"""Lake tables on Spark: SQL, reads and writes as Spark jobs.  The only room that knows PySpark."""
