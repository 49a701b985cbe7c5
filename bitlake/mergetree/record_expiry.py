"""Record-level expiry: compactions drop rows older than the table's retention time.

``record-level.time-field`` is INT (seconds), BIGINT (seconds, or milliseconds from 10^12 on) or a timestamp.  A row
expires when the current time, in whole seconds, is above its time + ``record-level.expire-time``.  Rows with NULL stay.
Readers do not apply expiry.  Source: index-format spec, section 10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bitlake import _clock
from bitlake.codec.binary_row import units_per_milli
from bitlake.errors import InvalidRequest
from bitlake.mergetree.commit_message import MergeTreeContext
from bitlake.metadata import mergetree_options
from bitlake.metadata.manifest import ManifestEntry
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.stats import column_stats
from bitlake.schema.evolution import stored_alike
from bitlake.types import AtomicType, DataField, Root
from bitlake.types.datatypes import TIMESTAMPS

_MILLIS_FROM = 10**12


@dataclass(frozen=True, slots=True)
class RecordExpire:
    """Which rows of a table are expired, at the time of its creation."""

    field: DataField
    oldest: int
    """Seconds since the epoch: rows before it are expired."""
    context: MergeTreeContext

    @staticmethod
    def of(context: MergeTreeContext) -> RecordExpire | None:
        """Return a table's expiry, None if its rows do not expire.

        Raises :class:`InvalidRequest` if the time field does not exist or has another type.
        """
        schema = context.schema
        retention = schema.opts.of(mergetree_options.EXPIRE_TIME)
        if retention is None:
            return None
        name = schema.opts.of(mergetree_options.EXPIRE_FIELD)
        field = next((f for f in schema.fields if f.name == name), None)
        kind = None if field is None else field.type
        if field is None or not isinstance(kind, AtomicType) or kind.root not in (Root.INT, Root.BIGINT, *TIMESTAMPS):
            raise InvalidRequest(
                f"table {context.table}: record-level.expire-time needs record-level.time-field to name a column of "
                f"type INT, BIGINT or TIMESTAMP, not {name!r}"
            )
        return RecordExpire(field, _clock.now_ms() // 1000 - retention // 1000, context)

    def keep(self, rows: pa.Table) -> pa.Table:
        """Return the rows that are not expired."""
        column = rows.column(self.field.name).combine_chunks()
        seconds = self._seconds(np.asarray(_integers(column)))
        kept = (seconds >= self.oldest) | column.is_null().to_numpy(zero_copy_only=False)
        return rows if kept.all() else rows.filter(pa.array(kept))

    def expired(self, entry: ManifestEntry) -> bool:
        """Return whether a file holds expired rows, by its statistics; False if they do not show it."""
        schema = self._schema(entry)
        stored = next((f for f in schema.fields if f.id == self.field.id), None)
        if stored is None or not stored_alike(stored.type, self.field.type):
            return False
        stats = column_stats(entry.file, schema.fields).get(stored.name)
        low = None if stats is None else stats.min
        return low is not None and int(self._seconds(np.array([low], np.int64))[0]) < self.oldest

    def _schema(self, entry: ManifestEntry) -> TableSchema:
        return self.context.schemas.get(entry.file.schema_id, self.context.schema)

    def _seconds(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        kind = self.field.type
        assert isinstance(kind, AtomicType)
        if kind.root is Root.BIGINT:
            return np.where(values >= _MILLIS_FROM, values // 1000, values)
        return values if kind.root is Root.INT else values // (1000 * units_per_milli(kind))


def _integers(column: Any) -> npt.NDArray[np.int64]:
    plain = column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column
    values: npt.NDArray[np.int64] = plain.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return values
