"""``CALL sys.…``: procedures with named and positional arguments; names, arguments and results are Paimon's.

Importing the package imports the modules of procedures, each of which registers its own.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import pyarrow as pa

from bitlake.engine.procedures import compact, history, maintenance
from bitlake.engine.procedures.procedure import PROCEDURES, Arguments, Procedure
from bitlake.engine.session import Session, result
from bitlake.engine.show import like_names
from bitlake.errors import InvalidRequest, NotFound, UnsupportedFeature
from bitlake.metadata.schema import near
from bitlake.sql import statements as st

__all__ = ["PROCEDURES", "call", "compact", "history", "maintenance", "show_procedures"]
_TRACKING = "tables with row tracking ('row-tracking.enabled'), which bitlake does not write"
_FUNCTIONS = "functions that a REST catalog keeps; CREATE TEMPORARY FUNCTION is Spark's own and runs here"
_OF_PAIMON = {
    **dict.fromkeys(
        ("create_global_index", "drop_global_index", "materialize_deletion_vectors", "reassign_row_id"), _TRACKING
    ),
    **dict.fromkeys(("create_function", "alter_function", "drop_function"), _FUNCTIONS),
    "compact_chain_table": "chain tables ('chain-table.enabled'), which bitlake does not write",
}
"""The purposes of Paimon's procedures that bitlake lacks; docs/compatibility.md lists them."""


def call(session: Session, statement: st.Call) -> pa.Table:
    """CALL: find the procedure, bind its arguments, run it."""
    name = statement.procedure.lower().removeprefix("sys.")
    procedure = PROCEDURES.get(name)
    if procedure is None and name in _OF_PAIMON:
        raise UnsupportedFeature(f"procedure 'sys.{name}' of Paimon's is not in bitlake: it is for {_OF_PAIMON[name]}")
    if procedure is None:
        close = [PROCEDURES[n].signature for n in get_close_matches(name, PROCEDURES, 3, 0.6)]
        suggestion = f"; did you mean {' or '.join(close)}?" if close else ""
        raise NotFound(f"no procedure '{statement.procedure}'{suggestion}; SHOW PROCEDURES lists all {len(PROCEDURES)}")
    returned = procedure.run(Arguments(session, _arguments(procedure, statement)))
    return result({"result": bool}, [(True,)]) if returned is None else returned


def show_procedures(session: Session, statement: st.ShowProcedures) -> pa.Table:
    """SHOW PROCEDURES: their names, how to call them, and what they and their arguments are for."""
    columns = dict.fromkeys(("procedure", "signature", "description", "arguments"), str)
    rows = []
    for p in sorted(PROCEDURES.values(), key=lambda p: p.name):
        arguments = "\n".join(f"{x.name}: {x.doc}" for x in p.parameters)
        rows.append((f"sys.{p.name}", p.signature, p.doc, arguments))
    wanted = set(like_names([r[0].removeprefix("sys.") for r in rows], statement.like))
    return result(columns, [r for r in rows if r[0].removeprefix("sys.") in wanted])


def _arguments(procedure: Procedure, statement: st.Call) -> dict[str, Any]:
    names = [p.name.lower() for p in procedure.parameters]
    if len(statement.positional) > len(names):
        raise InvalidRequest(
            f"{procedure.signature} takes {len(names)} arguments and was given {len(statement.positional)}"
        )
    out = dict(zip(names, statement.positional, strict=False))
    for given, value in statement.named.items():
        name = given.lower()
        if name not in names:
            raise InvalidRequest(f"{procedure.signature} has no argument '{given}'{near(name, names)}")
        if name in out:
            raise InvalidRequest(f"{procedure.signature} was given '{name}' twice")
        out[name] = value
    missing = [p.name for p in procedure.parameters if p.required and out.get(p.name.lower()) is None]
    if missing:
        raise InvalidRequest(f"{procedure.signature} needs '{missing[0]}'")
    return out
