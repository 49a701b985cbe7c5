"""Which partitions are too old: by a time in their values, or by when their last file was written.

The limits come from :mod:`bitlake.schema.partition_age`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from bitlake import _clock
from bitlake.errors import BitlakeError, InvalidRequest
from bitlake.metadata import expiry_options as xo
from bitlake.metadata.partition import render_value
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import BATCH_IDENTIFIER
from bitlake.schema.partition_age import COLUMN, PartitionAge, python_format
from bitlake.table.partitions import PartitionReader
from bitlake.table.state import TableState
from bitlake.types import AtomicType

log = logging.getLogger("bitlake")

_DEFAULTS = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d")


def expired_partitions(state: TableState, age: PartitionAge, most: int | None = None) -> list[dict[str, Any]]:
    """The partitions that are too old, the oldest first, as physical values by column.

    A partition whose value is NULL or no time stays.  Raises :class:`InvalidRequest` for what cannot be a time.
    """
    schema = state.schema
    if not schema.partition_keys:
        raise InvalidRequest(f"table '{state.name}' is not partitioned: none of its partitions can expire")
    age.check(schema.partition_keys)
    entries = state.entries()
    reader = PartitionReader(schema, state.paths)
    # Both times are the local wall clock, as if UTC.
    limit = _clock.local_ms() - age.limit_ms
    last: dict[bytes, int] = {}
    for e in entries:
        last[e.partition] = max(last.get(e.partition, 0), e.file.creation_time or 0)
    reading = _Time(schema, age)
    found = []
    for raw, written in last.items():
        values = reader.values(raw)
        at = written if age.strategy == "update-time" else reading.of(values)
        if at is not None and at < limit:
            found.append((at, reader.folder(raw), dict(zip(schema.partition_keys, values, strict=True))))
    found.sort(key=lambda f: f[:2])
    return [values for _, _, values in found[:most]]


def drop_expired(
    now: Callable[[], TableState], drop: Callable[[dict[str, Any]], object], age: PartitionAge, most: int | None = None
) -> list[dict[str, Any]]:
    """Drop the partitions that are too old, at most ``most``, one by one; returns them as values by column.

    ``now`` gives the table's state; ``drop`` deletes a partition's rows in a commit of its own.
    """
    gone = []
    for values in expired_partitions(now(), age, most):
        # By when they were written: one that was written to since it was looked at is not old any more.
        if age.strategy == "update-time" and values not in expired_partitions(now(), age):
            continue
        drop(values)
        gone.append(values)
    return gone


def expire_after_commit(
    now: Callable[[], TableState], drop: Callable[[dict[str, Any]], object], state: TableState, identifier: int
) -> None:
    """Expire partitions after a batch commit to ``state``, if ``end-input.check-partition-expire`` asks for it.

    As in Paimon, ``partition.expiration-check-interval`` does not matter then, and a table without partitions or
    without ``partition.expiration-time`` is left alone.  The caller's commit is done: a failure is logged, and the next
    commit makes up for it.
    """
    options = state.schema.opts
    if identifier != BATCH_IDENTIFIER or not options.of(xo.END_INPUT) or not state.schema.partition_keys:
        return
    try:
        age = PartitionAge.of(state.schema.options)
        for values in drop_expired(now, drop, age, options.of(xo.MAX_NUM)) if age else ():
            log.info("%s: partition %s expired", state.name, values)
    except BitlakeError as e:
        log.warning("%s: the commit is done, but partitions could not be expired: %s", state.name, e)


class _Time:
    """The time in a partition's values, ms as if UTC."""

    def __init__(self, schema: TableSchema, age: PartitionAge) -> None:
        self._fields = schema.partition_fields
        self._pattern = age.pattern or f"${self._fields[0].name}"
        self._formats = _DEFAULTS if age.formatter is None else (python_format(age.formatter),)

    def of(self, values: tuple[Any, ...]) -> int | None:
        texts = {}
        for f, v in zip(self._fields, values, strict=True):
            assert isinstance(f.type, AtomicType)
            texts[f.name] = None if v is None else render_value(f.type, v, legacy=False)
        if any(texts[n] is None for n in COLUMN.findall(self._pattern)):
            return None
        text = COLUMN.sub(lambda m: str(texts[m.group(1)]), self._pattern)
        for form in self._formats:
            try:
                return int(datetime.strptime(text, form).replace(tzinfo=UTC).timestamp() * 1000)
            except ValueError:
                continue
        return None
