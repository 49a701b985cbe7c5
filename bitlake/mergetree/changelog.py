"""Changelogs of compactions: the difference between a key's rows before and after, as rows +I, -U, +U and -D.

:class:`ChangelogMaker` compares whole columns: a compaction passes each key's row before and after its merge.  Source:
index-format spec, section 9.4, step 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.lazy_modules import compute as pc
from bitlake.metadata import options as opt
from bitlake.metadata.schema import TableSchema
from bitlake.schema.merge_spec import ADD, DELETE, UPDATE_AFTER, UPDATE_BEFORE, VALUE_KIND

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

_IGNORED = "changelog-producer.row-deduplicate-ignore-fields"


@dataclass(frozen=True, slots=True)
class ChangelogMaker:
    """Makes changelog rows.

    ``compared``: an update counts only if one of these columns differs (``changelog-producer.row-deduplicate``); None:
    every update counts.
    """

    compared: tuple[str, ...] | None

    @staticmethod
    def of(schema: TableSchema) -> ChangelogMaker:
        """Return the maker that a table's options ask for."""
        if not schema.opts.of(opt.ROW_DEDUPLICATE):
            return ChangelogMaker(None)
        ignored = {n.strip() for n in schema.options.get(_IGNORED, "").split(",")}
        return ChangelogMaker(tuple(n for n in schema.field_names if n not in ignored))

    def rows(self, before: pa.Table, before_row: Int64s, after: pa.Table, included: Bools) -> pa.Table:
        """Return the changes of keys, in key order, -U before +U.

        ``after`` holds each key's new row, in key order (kind -U or -D: the key has none); ``before_row`` is the number
        of its old row in ``before``, -1 for none; ``included`` selects the keys whose changes count.
        """
        exists = is_add(after)
        existed = before_row >= 0
        if existed.any():
            existed = existed & is_add(before)[before_row]
        inserted = np.flatnonzero(included & exists & ~existed)
        deleted = np.flatnonzero(included & ~exists & existed)
        updated = np.flatnonzero(included & exists & existed)
        if self.compared is not None and len(updated):
            old, new = before.take(pa.array(before_row[updated])), after.take(pa.array(updated))
            updated = updated[~same_rows(old, new, self.compared)]
        parts = [(after, inserted, inserted, ADD), (before, before_row[deleted], deleted, DELETE)]
        parts += [(before, before_row[updated], updated, UPDATE_BEFORE), (after, updated, updated, UPDATE_AFTER)]
        changes = [_of_kind(table.take(pa.array(rows)), kind) for table, rows, _, kind in parts if len(rows)]
        if not changes:
            return after.schema.empty_table()
        keys = np.concatenate([k for _, rows, k, _ in parts if len(rows)])
        combined = pa.concat_tables(changes)
        return combined if len(changes) == 1 else combined.take(pa.array(np.argsort(keys, kind="stable")))


def is_add(rows: pa.Table) -> Bools:
    """Return which rows are of kind +I or +U."""
    kinds = rows.column(VALUE_KIND).to_numpy()
    out: Bools = (kinds == ADD) | (kinds == UPDATE_AFTER)
    return out


def _of_kind(rows: pa.Table, kind: int) -> pa.Table:
    at = rows.column_names.index(VALUE_KIND)
    return rows.set_column(at, rows.schema.field(at), pa.array(np.full(rows.num_rows, kind, np.int8)))


def same_rows(left: pa.Table, right: pa.Table, columns: Sequence[str]) -> Bools:
    """Return which rows of two tables of one length have equal values in some columns; NULL = NULL, NaN = NaN."""
    same = np.ones(left.num_rows, bool)
    for name in columns:
        same &= _equal_values(left.column(name).combine_chunks(), right.column(name).combine_chunks())
    return same


def _equal_values(left: Any, right: Any) -> Bools:
    left_null, right_null = (a.is_null().to_numpy(zero_copy_only=False) for a in (left, right))
    valid = ~left_null & ~right_null
    t = pa.types
    if t.is_struct(left.type):
        equal = np.ones(len(left), bool)
        for i in range(left.type.num_fields):
            equal &= _equal_values(pc.struct_field(left, [i]), pc.struct_field(right, [i]))
    elif t.is_list(left.type) or t.is_large_list(left.type) or t.is_map(left.type):
        equal = _equal_lists(left, right, valid)
    else:
        equal = pc.equal(left, right).fill_null(False).to_numpy(zero_copy_only=False)
        if t.is_floating(left.type):
            nan = [pc.is_nan(a).fill_null(False).to_numpy(zero_copy_only=False) for a in (left, right)]
            equal = equal | (nan[0] & nan[1])
    out: Bools = (left_null & right_null) | (valid & equal)
    return out


def _equal_lists(left: Any, right: Any, valid: Bools) -> Bools:
    """Compare lists, or maps as lists of pairs: those of equal length entry by entry, all entries at once."""
    lengths = [_lengths(a) for a in (left, right)]
    equal = valid & (lengths[0] == lengths[1])
    rows = np.flatnonzero(equal & (lengths[0] > 0))
    if len(rows):
        entries = _equal_values(*[_entries(a.take(pa.array(rows))) for a in (left, right)])
        starts = np.cumsum(lengths[0][rows]) - lengths[0][rows]
        equal[rows] = np.logical_and.reduceat(entries, starts)
    out: Bools = equal
    return out


def _lengths(array: Any) -> Int64s:
    lists = array.cast(pa.list_(_pair(array.type))) if pa.types.is_map(array.type) else array
    lengths: Int64s = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _pair(kind: Any) -> Any:
    return pa.struct([pa.field("key", kind.key_type, False), pa.field("value", kind.item_type)])


def _entries(array: Any) -> Any:
    """The elements of all lists, concatenated; no list may be NULL."""
    if pa.types.is_map(array.type):
        start, end = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
        keys, items = array.keys[start:end], array.items[start:end]
        return pa.StructArray.from_arrays([keys, items], names=["key", "value"])
    return array.flatten()
