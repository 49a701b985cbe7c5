"""Identifiers: a table's full name, and what it stands for in a catalog.

The table part may name a branch or a system table: ``t$branch_dev``, ``t$snapshots``, ``t$branch_dev$files``, as
Paimon's identifiers do.
"""

from __future__ import annotations

from dataclasses import dataclass

from bitlake.errors import InvalidRequest

_BRANCH = "branch_"


@dataclass(frozen=True, slots=True)
class Identifier:
    """A table's full name."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class Relation:
    """A table, a branch of it, or a system table of one of these."""

    table: str
    branch: str | None = None
    system: str | None = None


def split_relation(name: str) -> Relation:
    """Take a name apart; raises :class:`InvalidRequest` for one with too many parts."""
    table, *parts = name.split("$")
    branch = None
    if parts and parts[0].lower().startswith(_BRANCH):
        branch = parts.pop(0)[len(_BRANCH) :]
    if len(parts) > 1 or not table or branch == "" or "" in parts:
        raise InvalidRequest(f"'{name}' is no table name; say t, t$branch_b, t$snapshots or t$branch_b$snapshots")
    return Relation(table, None if branch == "main" else branch, parts[0].lower() if parts else None)
