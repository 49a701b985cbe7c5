"""SQL statements carried out by the core, in this process; the Spark room adds those that need a session of Spark's."""
