"""Where the keys of a batch are now, for tables whose keys are unique over partitions, in this process.

The table's key and partition columns are read, of files whose key range meets the batch's, and what the same write has
placed before is remembered (its keys, partitions and buckets; Paimon keeps them on disk).  Spark joins instead
(:mod:`bitlake.spark.write.primary_key`).  Source: index-format spec, section 7.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bitlake.codec.hashing import Int32s
from bitlake.expressions.tree import And, Comparison, In, Op
from bitlake.formats.column_bounds import physical_values
from bitlake.snapshot.state import TableState
from bitlake.table.lsm.assign import Assigners
from bitlake.table.lsm.cross_partition import BUCKET, OLD, OLD_BUCKET, Rerouter, row_counts
from bitlake.table.lsm.model import BucketState
from bitlake.table.read import BUCKET as BUCKET_COLUMN
from bitlake.table.scan import Scan
from bitlake.table.write import gathered, group_codes

_FEW = 256
"""So many keys are asked for one by one, which indexes and statistics understand."""
_GATHERED = 1 << 20
"""Rows of the table that are compared with the batch at a time."""


class CrossPlaces:
    """Gives rows their partitions and buckets; mutable, one thread.  ``states``: the buckets, none for an overwrite."""

    def __init__(self, state: TableState, states: Mapping[tuple[bytes, int], BucketState]) -> None:
        self._state = state
        self._schema = state.schema
        self._rerouter = Rerouter(state.schema, Assigners.of(state.schema), row_counts(states))
        self._look = bool(states)
        self._written: list[pa.Table] = []

    def place(self, rows: pa.Table) -> tuple[pa.Table, Int32s]:
        """Rows to write (moved, dropped, or joined by -D rows for where their keys were), and their buckets."""
        joined = self._joined(rows)
        parts = [p for p in (self._rerouter.add(joined), self._rerouter.finish()) if p is not None]
        names = [*rows.column_names, BUCKET]
        placed = pa.concat_tables([p.select(names) for p in parts])
        self._written.append(self._places(placed, BUCKET))
        buckets: Int32s = placed.column(BUCKET).to_numpy().astype(np.int32)
        return placed.drop_columns([BUCKET]), buckets

    def _joined(self, rows: pa.Table) -> pa.Table:
        """Rows beside the places of their keys, those of a key together and in order of arrival."""
        known = [*(self._live(rows) if self._look else ()), *self._written]
        keys = list(self._schema.primary_keys)
        both = pa.concat_tables([_plain(t.select(keys)) for t in (rows, *known)])
        fields = [self._schema.field(k) for k in keys]
        codes = group_codes(both, fields, np.zeros(both.num_rows, np.int32))
        asked, there = codes[: rows.num_rows], codes[rows.num_rows :]
        at = np.full(int(codes.max()) + 1, -1, np.int64)
        at[there] = np.arange(len(there))  # of a key that is there twice, the last: what was written here
        found = at[asked]
        places = [OLD_BUCKET, *(OLD + p for p in self._schema.partition_keys)]
        if known:
            old = pa.concat_tables([t.select(places) for t in known]).take(pa.array(found, mask=found < 0))
        else:
            kinds = [pa.int32(), *(rows.schema.field(p).type for p in self._schema.partition_keys)]
            old = pa.table([pa.nulls(rows.num_rows, t) for t in kinds], names=places)
        for name in places:
            rows = rows.append_column(name, old.column(name))
        return rows.take(pa.array(np.argsort(asked, kind="stable")))

    def _live(self, rows: pa.Table) -> Iterator[pa.Table]:
        """The places of the table's live keys, of the batch's keys and maybe some others."""
        schema = self._schema
        keys = list(schema.primary_keys)
        scan = Scan(self._state, self._state.store, schema.field_names).with_level_0()
        wanted = {k: pc.unique(rows.column(k)) for k in keys}
        for name, values in wanted.items():
            if pa.types.is_floating(values.type):
                continue  # NaN and -0.0 are keys of their own, and not to a condition
            if len(values) <= _FEW:
                scan = scan.where_bound(In(name, tuple(sorted(physical_values(values)))))
            else:
                ends = pc.min_max(values)
                low, high = (physical_values(pa.array([ends[e].as_py()], values.type))[0] for e in ("min", "max"))
                scan = scan.where_bound(And((Comparison(name, Op.GE, low), Comparison(name, Op.LE, high))))
        scan = scan.select([*dict.fromkeys([*keys, *schema.partition_keys]), BUCKET_COLUMN])
        for part in gathered(scan.to_batches(), _GATHERED):
            chosen = None
            for name, values in wanted.items():
                here = pc.is_in(part.column(name), value_set=values)
                chosen = here if chosen is None else pc.and_(chosen, here)
            yield self._places(part.filter(chosen), BUCKET_COLUMN)

    def _places(self, rows: pa.Table, bucket: str) -> pa.Table:
        """Keys, and their places under the names that :class:`Rerouter` knows."""
        keys, parts = self._schema.primary_keys, self._schema.partition_keys
        columns = [*(rows.column(k) for k in keys), rows.column(bucket), *(rows.column(p) for p in parts)]
        return pa.table(columns, names=[*keys, OLD_BUCKET, *(OLD + p for p in parts)])


def _plain(rows: pa.Table) -> pa.Table:
    """Without NOT NULL, which would make tables of the same columns different."""
    return pa.table(rows.columns, names=rows.column_names)
