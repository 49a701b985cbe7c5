"""Changelogs of compactions: what a key was before and is after, as rows of kind +I, -U, +U and -D.

Source: index-format spec, section 9.4, step 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.lazy_arrow import compute as pc
from bitlake.metadata import mergetree_options
from bitlake.metadata.schema import TableSchema
from bitlake.schema.merge_spec import ADD, DELETE, UPDATE_AFTER, UPDATE_BEFORE, VALUE_KIND

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

_IGNORED = "changelog-producer.row-deduplicate-ignore-fields"


@dataclass(frozen=True, slots=True)
class ChangelogMaker:
    """Makes changelog rows; ``compared``: columns of which one must differ for an update, None: every update counts."""

    compared: tuple[str, ...] | None

    @staticmethod
    def of(schema: TableSchema) -> ChangelogMaker:
        """As the table's options say."""
        if not schema.opts.of(mergetree_options.ROW_DEDUPLICATE):
            return ChangelogMaker(None)
        ignored = {n.strip() for n in schema.options.get(_IGNORED, "").split(",")}
        return ChangelogMaker(tuple(n for n in schema.field_names if n not in ignored))

    def rows(self, before: pa.Table, place: Int64s, after: pa.Table, asked: Bools) -> pa.Table:
        """The changes of some keys, in key order, -U before +U.

        ``after``: what each key is now (a row of kind -U or -D: nothing), in key order; ``place``: the row of
        ``before`` that the key was, -1 for none; ``asked``: the keys whose changes count.
        """
        is_now = adds(after)
        was = place >= 0
        if was.any():
            was = was & adds(before)[place]
        fresh = np.flatnonzero(asked & is_now & ~was)
        gone = np.flatnonzero(asked & ~is_now & was)
        changed = np.flatnonzero(asked & is_now & was)
        if self.compared is not None and len(changed):
            old, new = before.take(pa.array(place[changed])), after.take(pa.array(changed))
            changed = changed[~same_rows(old, new, self.compared)]
        parts = [(after, fresh, fresh, ADD), (before, place[gone], gone, DELETE)]
        parts += [(before, place[changed], changed, UPDATE_BEFORE), (after, changed, changed, UPDATE_AFTER)]
        made = [_of_kind(table.take(pa.array(rows)), kind) for table, rows, _, kind in parts if len(rows)]
        if not made:
            return after.slice(0, 0)
        keys = np.concatenate([k for _, rows, k, _ in parts if len(rows)])
        together = pa.concat_tables(made)
        return together if len(made) == 1 else together.take(pa.array(np.argsort(keys, kind="stable")))


def adds(rows: pa.Table) -> Bools:
    """Which rows are of kind +I or +U."""
    kinds = rows.column(VALUE_KIND).to_numpy()
    out: Bools = (kinds == ADD) | (kinds == UPDATE_AFTER)
    return out


def _of_kind(rows: pa.Table, kind: int) -> pa.Table:
    at = rows.column_names.index(VALUE_KIND)
    return rows.set_column(at, rows.schema.field(at), pa.array(np.full(rows.num_rows, kind, np.int8)))


def same_rows(left: pa.Table, right: pa.Table, columns: Sequence[str]) -> Bools:
    """Which rows of two tables of one length have the same values in these columns: NULL is NULL, NaN is NaN."""
    same = np.ones(left.num_rows, bool)
    for name in columns:
        same &= _same(left.column(name).combine_chunks(), right.column(name).combine_chunks())
    return same


def _same(left: Any, right: Any) -> Bools:
    null, other = (a.is_null().to_numpy(zero_copy_only=False) for a in (left, right))
    both = ~null & ~other
    t = pa.types
    if t.is_struct(left.type):
        equal = np.ones(len(left), bool)
        for i in range(left.type.num_fields):
            equal &= _same(pc.struct_field(left, [i]), pc.struct_field(right, [i]))
    elif t.is_list(left.type) or t.is_large_list(left.type) or t.is_map(left.type):
        equal = _same_lists(left, right, both)
    else:
        equal = pc.equal(left, right).fill_null(False).to_numpy(zero_copy_only=False)
        if t.is_floating(left.type):
            nan = [pc.is_nan(a).fill_null(False).to_numpy(zero_copy_only=False) for a in (left, right)]
            equal = equal | (nan[0] & nan[1])
    out: Bools = (null & other) | (both & equal)
    return out


def _same_lists(left: Any, right: Any, both: Bools) -> Bools:
    """Lists (or maps, as lists of pairs) of the same length are compared entry by entry, all entries at once."""
    lengths = [_lengths(a) for a in (left, right)]
    equal = both & (lengths[0] == lengths[1])
    rows = np.flatnonzero(equal & (lengths[0] > 0))
    if len(rows):
        picked = [a.take(pa.array(rows)) for a in (left, right)]
        entries = _same(*[_entries(a) for a in picked])
        starts = np.cumsum(lengths[0][rows]) - lengths[0][rows]
        equal[rows] = np.logical_and.reduceat(entries, starts)
    out: Bools = equal
    return out


def _lengths(array: Any) -> Int64s:
    plain = array.cast(pa.list_(_pair(array.type))) if pa.types.is_map(array.type) else array
    found: Int64s = pc.list_value_length(plain).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _pair(kind: Any) -> Any:
    return pa.struct([pa.field("key", kind.key_type, False), pa.field("value", kind.item_type)])


def _entries(array: Any) -> Any:
    """The elements of all lists, one after the other (no list is NULL)."""
    if pa.types.is_map(array.type):
        start, end = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
        keys, items = array.keys[start:end], array.items[start:end]
        return pa.StructArray.from_arrays([keys, items], names=["key", "value"])
    return array.flatten()
