"""Tools that explain, advise on, report on, inspect and verify tables.  The core does not need them."""
