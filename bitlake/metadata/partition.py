"""Folder names of partitions (table-format spec, section 1).

The folder is derived from the partition row and never parsed back: the row in the manifest is the truth.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from bitlake.types import AtomicType, DataField, Root
from bitlake.types.casts import java_float
from bitlake.types.datatypes import TIMESTAMPS

DEFAULT_NAME = "__DEFAULT_PARTITION__"
_ESCAPED = re.compile("[\x00-\x1f\x7f\"#%'*/:=?\\\\{}\\[\\]^]")


def escape(text: str) -> str:
    """Replace the characters a folder name may not hold by ``%XX``."""
    return _ESCAPED.sub(lambda m: f"%{ord(m.group()):02X}", text)


def partition_path(
    fields: Sequence[DataField], values: Sequence[Any], *, default_name: str = DEFAULT_NAME, legacy: bool = True
) -> str:
    """``k1=v1/k2=v2`` of physical ``values``, empty for an unpartitioned table.

    NULL and blank values become ``default_name``; ``legacy`` is the option ``partition.legacy-name``.
    """
    spec = partition_spec(fields, values, default_name=default_name, legacy=legacy)
    return "/".join(f"{escape(name)}={escape(text)}" for name, text in spec.items())


def partition_spec(
    fields: Sequence[DataField], values: Sequence[Any], *, default_name: str = DEFAULT_NAME, legacy: bool = True
) -> dict[str, str]:
    """The texts of physical ``values`` by column, as in a folder's name but without any escaping."""
    out = {}
    for field, value in zip(fields, values, strict=True):
        assert isinstance(field.type, AtomicType)
        text = "" if value is None else render_value(field.type, value, legacy=legacy)
        out[field.name] = text if text.strip() else default_name
    return out


def render_value(made: AtomicType, value: Any, *, legacy: bool = True) -> str:
    """A physical value as the text Paimon puts into folder names."""
    root = made.root
    if root is Root.BOOLEAN:
        return "true" if value else "false"
    if root is Root.DECIMAL:
        return _decimal(value, made.scale or 0)
    if root in (Root.FLOAT, Root.DOUBLE):
        return java_float(value, single=root is Root.FLOAT)
    if root is Root.DATE:
        return str(value) if legacy else _date(value)
    if root is Root.TIME:
        return str(value) if legacy else _clock_text(value * 1_000_000, made.precision or 0)
    if root in TIMESTAMPS:
        return _timestamp(made, value, legacy)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def _decimal(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"


def _date(days: int) -> str:
    """The proleptic Gregorian date of an epoch day, for any year (Hinnant's civil-from-days)."""
    era, day = divmod(days + 719468, 146097)
    year = (day - day // 1460 + day // 36524 - day // 146096) // 365
    day -= 365 * year + year // 4 - year // 100
    shifted = (5 * day + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    full = year + era * 400 + (month <= 2)
    sign = "-" if full < 0 else "+" if full > 9999 else ""
    return f"{sign}{abs(full):04d}-{month:02d}-{day - (153 * shifted + 2) // 5 + 1:02d}"


def _clock_text(nanos: int, digits: int) -> str:
    seconds, rest = divmod(nanos, 1_000_000_000)
    fraction = f".{rest:09d}"[: digits + 1] if digits else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"


def _timestamp(made: AtomicType, value: int, legacy: bool) -> str:
    precision = 6 if made.precision is None else made.precision
    unit = 1_000_000 if precision <= 3 else 1_000 if precision <= 6 else 1
    days, nanos = divmod(value * unit, 86_400_000_000_000)
    if not legacy:
        return f"{_date(days)} {_clock_text(nanos, precision)}"
    rest = nanos % 1_000_000_000
    digits = 0 if rest == 0 else 3 if rest % 1_000_000 == 0 else 6 if rest % 1_000 == 0 else 9
    clock = _clock_text(nanos, digits)
    # Java leaves out the seconds of a full minute.
    return f"{_date(days)}T{clock[:5] if nanos % 60_000_000_000 == 0 else clock}"
