"""Which partitions are too old: by a time in their values, or by when their last file was written.

Source: Paimon's ``partition.expiration-*`` options; patterns name partition columns as ``$dt``, formatters are Java's.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bitlake import _clock
from bitlake.errors import BitlakeError, InvalidRequest
from bitlake.metadata import expiry_options as xo
from bitlake.metadata.options import Options
from bitlake.metadata.partition import render_value
from bitlake.metadata.schema import TableSchema
from bitlake.metadata.snapshot import BATCH_IDENTIFIER
from bitlake.table.partitions import PartitionReader
from bitlake.table.state import TableState
from bitlake.types import AtomicType

log = logging.getLogger("bitlake")

STRATEGIES = ("values-time", "update-time")
_COLUMN = re.compile(r"\$(\w+)")
_PARTS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "SSS": "%f", "yy": "%y"}
_WORDS = re.compile(r"'([^']*)'|([A-Za-z])\2*")
_DEFAULTS = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d")


@dataclass(frozen=True, slots=True)
class PartitionAge:
    """When a partition is too old: ``limit_ms`` after its time.  Formatter and pattern None: Paimon's defaults."""

    limit_ms: int
    formatter: str | None = None
    pattern: str | None = None
    strategy: str = "values-time"

    @staticmethod
    def of(options: Mapping[str, str]) -> PartitionAge | None:
        """What a table's options say, None if they give no time; raises :class:`InvalidRequest` for bad values."""
        given = Options(options)
        limit = given.of(xo.TIME)
        if limit is None:
            return None
        return PartitionAge(limit, given.of(xo.FORMATTER), given.of(xo.PATTERN), given.of(xo.STRATEGY))

    def check(self, partition_keys: Sequence[str]) -> None:
        """Raises :class:`InvalidRequest` for a pattern, formatter or strategy that no partition could go by."""
        if self.strategy not in STRATEGIES:
            raise InvalidRequest(f"'{self.strategy}' is no strategy; there are {', '.join(STRATEGIES)}")
        unknown = [n for n in _COLUMN.findall(self.pattern or "") if n not in partition_keys]
        if unknown:
            raise InvalidRequest(
                f"pattern '{self.pattern}' names '{unknown[0]}', and partitions have {', '.join(partition_keys)}"
            )
        if self.formatter is not None:
            _python_format(self.formatter)


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
        self._formats = _DEFAULTS if age.formatter is None else (_python_format(age.formatter),)

    def of(self, values: tuple[Any, ...]) -> int | None:
        texts = {}
        for f, v in zip(self._fields, values, strict=True):
            assert isinstance(f.type, AtomicType)
            texts[f.name] = None if v is None else render_value(f.type, v, legacy=False)
        if any(texts[n] is None for n in _COLUMN.findall(self._pattern)):
            return None
        text = _COLUMN.sub(lambda m: str(texts[m.group(1)]), self._pattern)
        for form in self._formats:
            try:
                return int(datetime.strptime(text, form).replace(tzinfo=UTC).timestamp() * 1000)
            except ValueError:
                continue
        return None


def _python_format(java: str) -> str:
    def part(m: re.Match[str]) -> str:
        if m.group(1) is not None:
            return m.group(1).replace("%", "%%")
        if m.group() not in _PARTS:
            raise InvalidRequest(
                f"timestamp formatter '{java}': '{m.group()}' is not understood; use {', '.join(_PARTS)}"
            )
        return _PARTS[m.group()]

    return _WORDS.sub(part, java)
