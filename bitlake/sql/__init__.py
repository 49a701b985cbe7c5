"""SQL text: statements, types and queries taken apart; pure, with no Spark and no tables."""
