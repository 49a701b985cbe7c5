"""The columns that names in a condition mean: case is ignored, an exact match comes first, a table may qualify them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace

from bitlake.errors import InvalidRequest, NotFound
from bitlake.expressions.tree import MapKey
from bitlake.types.datatypes import AtomicType, DataField, MapType, Root, RowType


class Columns:
    """A schema's columns by name."""

    def __init__(self, fields: Sequence[DataField]) -> None:
        self.fields = fields
        self.exact = {f.name: f for f in fields}
        self.lower: dict[str, list[DataField]] = {}
        for f in fields:
            self.lower.setdefault(f.name.lower(), []).append(f)

    def member(self, name: str) -> list[DataField]:
        """The struct column and the members that a dotted name leads to; empty if it names a column, or nothing.

        Raises :class:`NotFound` for a struct without such a member.
        """
        if "." not in name or self._find(name) is not None:
            return []
        parts = name.split(".")
        for start in range(len(parts) - 1):
            root = self._find(parts[start])
            if root is None or not isinstance(root.type, RowType):
                continue
            path = [root]
            for part in parts[start + 1 :]:
                inner = path[-1].type
                if not isinstance(inner, RowType):
                    raise NotFound(f"'{name}': '{path[-1].name}' of type {inner} has no members")
                path.append(Columns(inner.fields).field(part))
            return path
        return []

    def map_value(self, leaf: MapKey) -> DataField:
        """The values of a map's key, as a column."""
        field = self.field(leaf.column)
        made = field.type
        if not isinstance(made, MapType) or not isinstance(made.key, AtomicType) or made.key.root is not Root.VARCHAR:
            raise InvalidRequest(f"column '{field.name}' of type {made} is not a map with STRING keys")
        bound = MapKey(field.name, leaf.key)
        if bound in self.exact:
            raise InvalidRequest(f"'{bound}' is also the name of a column; it cannot name the value of a map's key")
        return replace(field, name=bound, type=replace(made.value, nullable=True))

    def field(self, name: str) -> DataField:
        """The column of a name; a dotted one may be a column, a struct's member or qualified by its table."""
        found = self._find(name)
        if found is not None:
            return found
        first, dot, rest = name.partition(".")
        if dot:
            root = self._find(first)
            if root is not None and isinstance(root.type, RowType):
                raise InvalidRequest(f"'{name}' is a member of a struct, and not a column")
            last = name.rpartition(".")[2]
            found = self._find(rest) or self._find(last)
            if found is not None:
                return found
        near = difflib.get_close_matches(name.lower(), list(self.lower), 3, 0.6)
        names = [self.lower[n][0].name for n in near] or [f.name for f in self.fields[:10]]
        listed = ", ".join(map(repr, names))
        raise NotFound(f"no column '{name}'; " + (f"did you mean {listed}?" if near else f"there are {listed}"))

    def _find(self, name: str) -> DataField | None:
        if name in self.exact:
            return self.exact[name]
        same = self.lower.get(name.lower(), [])
        if len(same) > 1:
            raise InvalidRequest(f"column '{name}' is ambiguous: {', '.join(f.name for f in same)}")
        return same[0] if same else None
