"""Table schemas: creating, validating, evolving and aligning columns; the options that decide how rows merge."""
