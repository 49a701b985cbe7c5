"""Identifiers: the full names of tables, branches and system tables.

The table part may name a branch or a system table, as in Paimon: ``t$branch_dev``, ``t$snapshots``,
``t$branch_dev$files``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bitlake.errors import InvalidRequest

DEFAULT_DATABASE = "default"
"""The database of names without one; every catalog has it."""
_BRANCH = "branch_"
_FORBIDDEN = re.compile(r"[/\\\x00-\x1f]")


@dataclass(frozen=True, slots=True)
class Identifier:
    """A database and the name of an object in it."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class ObjectName:
    """The parts of an identifier's table name: the table, and perhaps a branch and a system table of it."""

    table: str
    branch: str | None = None
    """None for ``main``."""
    system: str | None = None
    """The system table in lower case, such as ``snapshots``."""


def parse_object_name(name: str) -> ObjectName:
    """Split a name at its ``$``; raises :class:`InvalidRequest` if a part is empty or there are too many."""
    table, *parts = name.split("$")
    branch = None
    if parts and parts[0].lower().startswith(_BRANCH):
        branch = parts.pop(0)[len(_BRANCH) :]
    if len(parts) > 1 or not table or branch == "" or "" in parts:
        raise InvalidRequest(
            f"invalid table name '{name}'; expected t, t$branch_b, t$snapshots or t$branch_b$snapshots"
        )
    return ObjectName(table, None if branch == "main" else branch, parts[0].lower() if parts else None)


def check_name(name: str, kind: str) -> None:
    """Raise :class:`InvalidRequest` unless the name can be a folder's; ``kind`` is ``table`` or ``database``."""
    if not name or name in (".", "..") or _FORBIDDEN.search(name):
        raise InvalidRequest(
            f"invalid {kind} name '{name}': it becomes the name of a folder, so it must not be empty, '.' or '..', nor "
            "contain '/', '\\' or control characters"
        )
