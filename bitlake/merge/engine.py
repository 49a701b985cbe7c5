"""Merge engines: rows of several sorted runs in, one row for each key that is alive out.

A key that is in one row only is that row, whatever the engine.  The others go step by step: the first row of every key,
then the second rows of those keys that have one, and so on; a key has at most one row in each file, so there are no
more steps than files, each over whole arrays.

Where levels are merged by lookup, the rows of level 0 count, and of the levels above only those of the lowest that has
the key.  A compaction of such a table merges what the levels above its output hold into what it writes, and leaves it
there: so the lowest level that has a key has all its values (index-format spec, section 9.4; Paimon's readers do the
same).

Sources: index-format spec, section 10, and the observed behaviour of Paimon's readers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake.errors import InvalidRequest
from bitlake.merge.functions import Accumulator, Choice, LastNonNull, accumulator
from bitlake.merge.keys import Groups, Int64s, dense_ranks, equality_codes, group_rows, order_codes
from bitlake.schema.merge_spec import (
    ADD,
    AGGREGATION,
    DEDUPLICATE,
    DELETE,
    FIRST_ROW,
    SEQUENCE_NUMBER,
    UPDATE_BEFORE,
    VALUE_KIND,
    MergeSpec,
    SequenceGroup,
)

Bools = npt.NDArray[np.bool_]


def merge_rows(
    spec: MergeSpec, rows: pa.Table, columns: Sequence[str], *, keep_deletes: bool = False, lone_as_is: bool = True
) -> pa.Table:
    """One row for each key, with these columns: what readers see, or what is stored.

    ``rows``: :meth:`MergeSpec.needed` columns of all runs, in any order.

    For readers (``keep_deletes`` false) keys that are deleted are left out, and rows come in any order.  To be stored,
    they come in key order, ``_SEQUENCE_NUMBER`` and ``_VALUE_KIND`` before the columns, and deleted keys as the rows
    (-U, -D) that must go on hiding what older files hold.

    ``lone_as_is`` false: rows that are alone in their key go through the engine too, as those do in a compaction that
    has looked the key up in all levels above (a lone -D of an aggregation is then taken back from nothing).

    Raises :class:`InvalidRequest` where the engine cannot take a row that is there (a delete, an overflow).
    """
    kinds = equality_codes(rows.column(VALUE_KIND)).astype(np.int8)
    retracts = (kinds == UPDATE_BEFORE) | (kinds == DELETE)
    if spec.engine in (DEDUPLICATE, FIRST_ROW) and spec.ignore_delete and retracts.any():
        rows = rows.filter(pa.array(~retracts))
        kinds, retracts = kinds[~retracts], retracts[~retracts]
    if keep_deletes and spec.engine == FIRST_ROW and retracts.any():
        raise InvalidRequest("merge-engine first-row cannot take delete rows, and there are some: set 'ignore-delete'")
    wanted = [*((SEQUENCE_NUMBER, VALUE_KIND) if keep_deletes else ()), *columns]
    if not rows.num_rows:
        return rows.select(wanted)
    groups = group_rows([rows.column(k) for k in spec.keys], _ordering(spec, rows, retracts), key_order=keep_deletes)
    if spec.engine in (DEDUPLICATE, FIRST_ROW):
        chosen = groups.last if spec.engine == DEDUPLICATE else groups.order[groups.starts]
        return _take(rows.select(wanted), chosen if keep_deletes else chosen[~retracts[chosen]])
    single = groups.sizes == 1
    if not lone_as_is:
        single &= False if _changes_lone_rows(spec) else ~retracts[groups.last]
    if single.all():
        return _take(rows.select(wanted), groups.last if keep_deletes else groups.last[~retracts[groups.last]])
    alone = groups.only(single).order
    several = groups.only(~single)
    merge = _Merge(spec, rows.take(pa.array(several.order)), kinds[several.order], several, columns)
    if not keep_deletes:
        kept = _take(rows.select(wanted), alone[~retracts[alone]])
        return pa.concat_tables([kept, merge.run()])
    both = pa.concat_tables([rows.select(wanted).take(pa.array(alone)), merge.run_stored()])
    place = np.empty(len(groups), np.int64)
    place[np.concatenate([np.flatnonzero(single), np.flatnonzero(~single)])] = np.arange(len(groups))
    return _take(both, place)


def _take(rows: pa.Table, order: Int64s) -> pa.Table:
    """Rows in this order; as they are where that is their order."""
    if len(order) == rows.num_rows and np.array_equal(order, np.arange(len(order))):
        return rows
    return rows.take(pa.array(order))


_PLAIN_FUNCTIONS = frozenset(
    "primary-key last_value last_non_null_value first_value first_non_null_value first_not_null_value min max sum "
    "product bool_and bool_or merge_map rbm32 rbm64 theta_sketch hll_sketch".split()
)
"""Functions that give back a lone value as it is; others look into it (blank text, repeated elements)."""


def _changes_lone_rows(spec: MergeSpec) -> bool:
    functions = spec.functions.values()
    return bool(spec.groups) or any(f.name not in _PLAIN_FUNCTIONS for f in functions)


def _ordering(spec: MergeSpec, rows: pa.Table, retracts: Bools) -> list[Int64s]:
    user = [order_codes(rows.column(c), spec.descending) for c in spec.sequence]
    # Of one sequence number, a row that takes back merges before one that adds.
    return [*user, order_codes(rows.column(SEQUENCE_NUMBER)), (~retracts).astype(np.int64)]


class _Merge:
    """Partial-update or aggregation over keys of several rows; rows are in merge order, key by key."""

    def __init__(
        self, spec: MergeSpec, rows: pa.Table, kinds: npt.NDArray[np.int8], groups: Groups, columns: Sequence[str]
    ) -> None:
        self._spec = spec
        self._rows = rows
        self._kinds = kinds
        self._starts, self._sizes = groups.starts, groups.sizes
        self._columns = columns
        self._states: dict[str, Accumulator] = {}
        self._grouped = {c: g for g in spec.groups for c in g.columns}
        self._sequenced = {c: g for g in spec.groups for c in g.sequence}
        functions = spec.functions
        for name in columns:
            column = rows.column(name).combine_chunks()
            function = functions.get(name)
            if name in self._sequenced:
                self._states[name] = Choice(column, len(groups))
            elif function is not None and (spec.engine == AGGREGATION or spec.groups):
                self._states[name] = accumulator(function, column, len(groups))
            elif name in self._grouped:
                self._states[name] = Choice(column, len(groups))
            else:
                self._states[name] = LastNonNull(column, len(groups))
        self._deleted = np.zeros(len(groups), bool)
        self._inserted = np.zeros(len(groups), bool)
        self._filled = np.zeros(len(groups), bool)
        # The newest sequence of each sequence group; below all ranks while there is none.
        self._ranks: list[Int64s] = []
        self._empty: list[Bools] = []
        self._newest: list[Int64s] = []
        for group in spec.groups:
            if self._asked(group):
                codes = [order_codes(rows.column(c)) for c in group.sequence]
                nulls = [rows.column(c).is_null().to_numpy() for c in group.sequence]
                self._ranks.append(dense_ranks(codes))
                self._empty.append(np.logical_and.reduce(nulls))
            else:
                self._ranks.append(np.zeros(0, np.int64))
                self._empty.append(np.zeros(0, bool))
            self._newest.append(np.full(len(groups), -1, np.int64))

    def _asked(self, group: SequenceGroup) -> bool:
        wanted = not set(self._columns).isdisjoint((*group.sequence, *group.columns))
        return wanted or not self._spec.remove_on_group.isdisjoint(group.sequence)

    def run(self) -> pa.Table:
        """The merged rows that are alive."""
        self._merge_all()
        return self._result((), ()).filter(pa.array(self._alive()))

    def run_stored(self) -> pa.Table:
        """A row for each group, with its sequence number and kind: +I, or -D for a key that is not alive."""
        self._merge_all()
        last = pa.array(self._starts + self._sizes - 1)
        kinds = pa.array(np.where(self._alive(), ADD, DELETE).astype(np.int8))
        numbers = self._rows.column(SEQUENCE_NUMBER).take(last)
        return self._result((SEQUENCE_NUMBER, VALUE_KIND), (numbers, kinds))

    def _merge_all(self) -> None:
        step = self._aggregate if self._spec.engine == AGGREGATION else self._partial
        for n in range(int(self._sizes.max())):
            groups = np.flatnonzero(self._sizes > n)
            step(groups, self._starts[groups] + n)

    def _alive(self) -> Bools:
        return ~self._deleted if self._spec.engine == AGGREGATION else self._inserted & ~self._deleted

    def _result(self, names: Sequence[str], arrays: Sequence[Any]) -> pa.Table:
        """The merged columns of all groups, after the arrays of these names."""
        every = [*names, *self._columns]
        made = [*arrays, *(self._states[c].finish() for c in self._columns)]
        if not made:
            return pa.table({"": pa.nulls(len(self._sizes))}).select([])
        return pa.Table.from_arrays(made, schema=pa.schema([self._rows.schema.field(c) for c in every]))

    def _set(self, groups: Int64s, rows: Int64s) -> None:
        for state in self._states.values():
            state.set(groups, rows)
        for ranks, newest in zip(self._ranks, self._newest, strict=True):
            if len(ranks):
                newest[groups] = ranks[rows]

    # --- aggregation --------------------------------------------------------------------------------------------------

    def _aggregate(self, groups: Int64s, rows: Int64s) -> None:
        kinds = self._kinds[rows]
        removed = (kinds == DELETE) & self._spec.remove_on_delete
        self._deleted[groups] = removed
        self._set(groups[removed], rows[removed])
        back = ((kinds == UPDATE_BEFORE) | (kinds == DELETE)) & ~removed
        forth = ~back & ~removed
        for state in self._states.values():
            state.retract(groups[back], rows[back])
            state.agg(groups[forth], rows[forth])

    # --- partial update -----------------------------------------------------------------------------------------------

    def _partial(self, groups: Int64s, rows: Int64s) -> None:
        kinds = self._kinds[rows]
        back = (kinds == UPDATE_BEFORE) | (kinds == DELETE)
        self._deleted[groups] = False
        if back.any():
            self._take_back(groups[back], rows[back], kinds[back])
        groups, rows = groups[~back], rows[~back]
        if self._spec.groups:
            self._update_groups(groups, rows)
        else:
            for state in self._states.values():
                state.agg(groups, rows)
        self._inserted[groups] = True
        self._filled[groups] = True

    def _take_back(self, groups: Int64s, rows: Int64s, kinds: npt.NDArray[np.int8]) -> None:
        fresh = ~self._filled[groups]
        self._set(groups[fresh], rows[fresh])
        self._filled[groups] = True
        if self._spec.ignore_delete:
            return
        if self._spec.groups:
            self._retract_groups(groups, rows, kinds)
        elif self._spec.remove_on_delete:
            gone = kinds == DELETE
            self._deleted[groups[gone]] = True
            self._set(groups[gone], rows[gone])
        else:
            raise InvalidRequest(
                "merge-engine partial-update cannot take delete rows, and there are some: set 'ignore-delete', "
                "'partial-update.remove-record-on-delete', or sequence groups"
            )

    def _newer(self, number: int, groups: Int64s, rows: Int64s) -> tuple[Bools, Bools]:
        """Of a sequence group: which rows say something, and which of these are not older than what is there."""
        ranks, newest = self._ranks[number], self._newest[number]
        if not len(ranks):
            return np.zeros(len(rows), bool), np.zeros(len(rows), bool)
        says = ~self._empty[number][rows]
        return says, says & (ranks[rows] >= newest[groups])

    def _update_groups(self, groups: Int64s, rows: Int64s) -> None:
        told = {g: self._newer(i, groups, rows) for i, g in enumerate(self._spec.groups)}
        functions = self._spec.functions
        for name, state in self._states.items():
            group = self._grouped.get(name) or self._sequenced.get(name)
            if group is None:
                state.agg(groups, rows)
                continue
            says, newer = told[group]
            state.agg(groups[newer], rows[newer])
            older = says & ~newer
            if name in functions and name not in self._sequenced:
                state.agg_reversed(groups[older], rows[older])
        for i, group in enumerate(self._spec.groups):
            newer = told[group][1]
            if newer.any():
                self._newest[i][groups[newer]] = self._ranks[i][rows[newer]]

    def _retract_groups(self, groups: Int64s, rows: Int64s, kinds: npt.NDArray[np.int8]) -> None:
        told = {g: self._newer(i, groups, rows) for i, g in enumerate(self._spec.groups)}
        removed = np.zeros(len(rows), bool)
        for group, (_, newer) in told.items():
            if not self._spec.remove_on_group.isdisjoint(group.sequence):
                removed |= newer & (kinds == DELETE)
        functions = self._spec.functions
        for name, state in self._states.items():
            group_of = self._grouped.get(name) or self._sequenced.get(name)
            if group_of is None:
                continue
            says, newer = told[group_of]
            says, newer = says & ~removed, newer & ~removed
            if name in self._sequenced:
                state.set(groups[newer], rows[newer])
            elif name in functions:
                state.retract(groups[says], rows[says])
            else:
                assert isinstance(state, Choice)
                state.clear(groups[newer])
        for i, group in enumerate(self._spec.groups):
            newer = told[group][1] & ~removed
            if newer.any():
                self._newest[i][groups[newer]] = self._ranks[i][rows[newer]]
        self._deleted[groups[removed]] = True
        self._set(groups[removed], rows[removed])


LEVEL = "_LEVEL"
"""A column of rows on their way to being merged, stored nowhere: the level of the file that a row comes from."""


@dataclass(frozen=True, slots=True)
class Levels:
    """A chunk and its keys in order: of rows above level 0 only those of the lowest level that has the key.

    ``groups``: rows by key, level 0 first; ``fresh``: keys with a row of level 0; ``high``: the row of a level above,
    -1 for none.
    """

    chunk: pa.Table
    groups: Groups
    fresh: Bools
    high: Int64s

    @staticmethod
    def of(keys: Sequence[str], chunk: pa.Table) -> Levels:
        """Sort out rows with these key columns and :data:`LEVEL`."""
        level = chunk.column(LEVEL).to_numpy()
        groups = group_rows([chunk.column(k) for k in keys], [level.astype(np.int64)], key_order=True)
        upper = level[groups.order] > 0
        starts = np.zeros(len(upper), bool)
        starts[groups.starts] = True
        first = upper.copy()
        first[1:] &= starts[1:] | ~upper[:-1]
        fresh = ~upper[groups.starts]
        kept = ~upper | first
        if not kept.all():
            # Again on what is left: its rows have other numbers.
            return Levels.of(keys, chunk.take(pa.array(np.sort(groups.order[kept]))))
        high = np.full(len(groups), -1, np.int64)
        last = groups.starts + groups.sizes - 1
        high[upper[last]] = groups.order[last[upper[last]]]
        return Levels(chunk, groups, fresh, high)

    def keys(self, names: Sequence[str], wanted: Bools) -> list[pa.Array]:
        """The key columns of some keys, ascending."""
        rows = pa.array(self.groups.order[self.groups.starts[wanted]])
        return [self.chunk.column(k).take(rows).combine_chunks() for k in names]
