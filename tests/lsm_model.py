"""A plain model of one bucket: what compactions make of rows, key by key, by index-format spec, section 9.4."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from merge_model import merge_key

from bitlake.schema.merge_spec import DELETE, FIRST_ROW, UPDATE_BEFORE, MergeSpec

Row = dict[str, Any]
Change = tuple[int, tuple[Any, ...]]


def is_add(row: Row | None) -> bool:
    return row is not None and row["_VALUE_KIND"] not in (UPDATE_BEFORE, DELETE)


def in_order(spec: MergeSpec, rows: Sequence[Row]) -> list[Row]:
    """Rows of one key as they merge."""

    def place(row: Row) -> Any:
        sign = -1 if spec.descending else 1
        user = [(row[c] is not None, sign * (row[c] or 0)) for c in spec.sequence]
        return (*user, row["_SEQUENCE_NUMBER"])

    return sorted(rows, key=place)


def merged(spec: MergeSpec, rows: Sequence[Row], lone_as_is: bool) -> Row | None:
    """One row of several of a key, None if none is alive; system columns as stored."""
    ordered = in_order(spec, rows)
    if spec.engine == FIRST_ROW:
        return ordered[0]
    found = merge_key(spec, ordered, lone_as_is)
    if found is None:
        return None
    kind = ordered[-1]["_VALUE_KIND"] if spec.engine == "deduplicate" or (len(rows) == 1 and lone_as_is) else 0
    return {**found, "_SEQUENCE_NUMBER": ordered[-1]["_SEQUENCE_NUMBER"], "_VALUE_KIND": kind}


class Bucket:
    """Keys and what became of them, for tables that look keys up: each compaction merges level 0 into what is."""

    def __init__(self, spec: MergeSpec, names: Sequence[str]) -> None:
        self.spec = spec
        self.names = names
        self.rows: dict[Any, Row] = {}

    def key(self, row: Row) -> Any:
        return tuple(row[k] for k in self.spec.keys)

    def values(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[n] for n in self.names)

    def compact(self, level_0: Sequence[Row], deduplicate: bool = False) -> list[Change]:
        """Take level-0 rows up; returns the changelog in key order: kinds 0 +I, 1 -U, 2 +U, 3 -D."""
        keys: dict[Any, list[Row]] = {}
        for row in level_0:
            keys.setdefault(self.key(row), []).append(row)
        changes: list[Change] = []
        for key in sorted(keys):
            before = self.rows.get(key)
            after = merged(self.spec, [*([before] if before else []), *keys[key]], False)
            if after is None:
                self.rows.pop(key, None)
                if before is not None:
                    changes.append((3, self.values(before)))
                continue
            self.rows[key] = after
            if self.spec.engine == FIRST_ROW:
                self.rows[key] = before or after
                changes += [] if before else [(0, self.values(after))]
            elif before is None:
                changes.append((0, self.values(after)))
            elif not deduplicate or self.values(before) != self.values(after):
                changes += [(1, self.values(before)), (2, self.values(after))]
        return changes
