"""``CALL sys.…``: procedures; names, arguments and results are Paimon's."""
