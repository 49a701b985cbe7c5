"""SQL text: parse statements, types and queries, without Spark and without tables."""
