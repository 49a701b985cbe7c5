"""Reading a table: plan which files, rows and pages to read, and read them."""
