"""The merge engines row by row, as Paimon's code runs them: what the vectorised ones are compared with."""

from __future__ import annotations

from typing import Any

from bitlake.schema.merge_spec import AGGREGATION, DEDUPLICATE, DELETE, PARTIAL_UPDATE, UPDATE_BEFORE, MergeSpec

Row = dict[str, Any]


def _low(value: Any) -> tuple[bool, Any]:
    return (value is not None, value if value is not None else 0)


class Column:
    """One aggregate function's state of one key."""

    def __init__(self, name: str, ignore: bool) -> None:
        self.name, self.ignore, self.begun = name, ignore, False

    def agg(self, held: Any, new: Any) -> Any:
        name = self.name
        if name in ("last_value", "primary-key"):
            return new
        if name == "last_non_null_value":
            return held if new is None else new
        if name in ("first_value", "first_non_null_value"):
            if not self.begun and (name == "first_value" or new is not None):
                self.begun = True
                return new
            return held
        if name == "listagg":
            if new is None or not new.strip():
                return held
            return new if held is None or not held.strip() else f"{held},{new}"
        if held is None or new is None:
            return new if held is None else held
        return {"sum": held + new, "product": held * new, "min": min(held, new), "max": max(held, new)}[name]

    def reversed(self, held: Any, new: Any) -> Any:
        return self.agg(new, held)

    def retract(self, held: Any, gone: Any) -> Any:
        if self.ignore:
            return held
        if self.name == "last_value":
            return None
        if self.name == "primary-key":
            return gone
        if self.name == "last_non_null_value":
            return None if gone is not None else held
        if self.name == "sum":
            if held is None or gone is None:
                return held if held is not None else None if gone is None else -gone
            return held - gone
        raise ValueError(self.name)


def merge_key(spec: MergeSpec, rows: list[Row], lone_as_is: bool = True) -> Row | None:
    """The row of one key, or None; ``rows`` in merge order, with ``_VALUE_KIND``."""
    back = [r["_VALUE_KIND"] in (UPDATE_BEFORE, DELETE) for r in rows]
    if spec.engine == DEDUPLICATE:
        left = [(r, b) for r, b in zip(rows, back, strict=True) if not (b and spec.ignore_delete)]
        return left[-1][0] if left and not left[-1][1] else None
    if len(rows) == 1 and lone_as_is:
        return None if back[0] else rows[0]
    columns = [f.name for f in spec.fields]
    functions = {c: Column(f.name, f.ignore_retract) for c, f in (spec.functions or {}).items()}
    state: Row = dict.fromkeys(columns)
    return (_aggregated if spec.engine == AGGREGATION else _updated)(spec, rows, back, columns, functions, state)


def _aggregated(
    spec: MergeSpec, rows: list[Row], back: list[bool], columns: list[str], functions: dict[str, Column], state: Row
) -> Row | None:
    deleted = False
    for row, retract in zip(rows, back, strict=True):
        deleted = spec.remove_on_delete and row["_VALUE_KIND"] == DELETE
        for c in columns:
            if deleted:
                state[c] = row[c]
            else:
                f = functions[c]
                state[c] = f.retract(state[c], row[c]) if retract else f.agg(state[c], row[c])
    return None if deleted else state


def _updated(
    spec: MergeSpec, rows: list[Row], back: list[bool], columns: list[str], functions: dict[str, Column], state: Row
) -> Row | None:
    assert spec.engine == PARTIAL_UPDATE
    group_of = {c: g for g in spec.groups for c in (*g.sequence, *g.columns)}
    deleted = inserted = filled = False
    for row, retract in zip(rows, back, strict=True):
        deleted = False
        if retract and not filled:
            state, filled = {c: row[c] for c in columns}, True
        if retract and spec.ignore_delete:
            continue
        if not spec.groups:
            if not retract:
                state.update({c: row[c] for c in columns if row[c] is not None})
            elif row["_VALUE_KIND"] == DELETE:
                assert spec.remove_on_delete
                state, deleted = {c: row[c] for c in columns}, True
        else:
            before = dict(state)
            for c in columns:
                g = group_of.get(c)
                f = functions.get(c) if g is None or c not in g.sequence else None
                if g is None:
                    if not retract:
                        state[c] = f.agg(state[c], row[c]) if f else state[c] if row[c] is None else row[c]
                    continue
                if all(row[s] is None for s in g.sequence):
                    continue
                newer = [_low(row[s]) for s in g.sequence] >= [_low(before[s]) for s in g.sequence]
                gone = retract and newer and row["_VALUE_KIND"] == DELETE
                if gone and c in g.sequence and not spec.remove_on_group.isdisjoint(g.sequence):
                    state, deleted = {x: row[x] for x in columns}, True
                    break
                if c in g.sequence:
                    state[c] = row[c] if newer else state[c]
                elif f is not None:
                    change = f.retract if retract else f.agg if newer else f.reversed
                    state[c] = change(state[c], row[c])
                elif newer:
                    state[c] = None if retract else row[c]
        if not retract:
            inserted = filled = True
    return state if inserted and not deleted else None
