"""How old a partition may become: Paimon's ``partition.expiration-*`` options.

Patterns name partition columns as ``$dt``, formatters are Java's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bitlake.errors import InvalidRequest
from bitlake.metadata import options as opt
from bitlake.metadata.options import Options

STRATEGIES = ("values-time", "update-time")
COLUMN = re.compile(r"\$(\w+)")
"""A partition column in a pattern."""
_PARTS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "SSS": "%f", "yy": "%y"}
_WORDS = re.compile(r"'([^']*)'|([A-Za-z])\2*")


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
        limit = given.of(opt.PARTITION_EXPIRATION_TIME)
        if limit is None:
            return None
        return PartitionAge(
            limit,
            given.of(opt.PARTITION_TIMESTAMP_FORMATTER),
            given.of(opt.PARTITION_TIMESTAMP_PATTERN),
            given.of(opt.PARTITION_EXPIRATION_STRATEGY),
        )

    def check(self, partition_keys: Sequence[str]) -> None:
        """Raises :class:`InvalidRequest` for a pattern, formatter or strategy that no partition could go by."""
        if self.strategy not in STRATEGIES:
            raise InvalidRequest(f"unknown strategy '{self.strategy}'; expected {', '.join(STRATEGIES)}")
        unknown = [n for n in COLUMN.findall(self.pattern or "") if n not in partition_keys]
        if unknown:
            raise InvalidRequest(
                f"pattern '{self.pattern}' names '{unknown[0]}', and partitions have {', '.join(partition_keys)}"
            )
        if self.formatter is not None:
            python_format(self.formatter)


def python_format(java: str) -> str:
    """Translate a Java date-time formatter to strptime's; raise :class:`InvalidRequest` for unsupported parts."""

    def part(m: re.Match[str]) -> str:
        if m.group(1) is not None:
            return m.group(1).replace("%", "%%")
        if m.group() not in _PARTS:
            raise InvalidRequest(
                f"timestamp formatter '{java}': '{m.group()}' is not understood; use {', '.join(_PARTS)}"
            )
        return _PARTS[m.group()]

    return _WORDS.sub(part, java)
