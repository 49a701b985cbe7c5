"""SET and RESET in this process, of the settings that statements here honour."""

from __future__ import annotations

import re

import pyarrow as pa

from bitlake.engine.session import (
    CASE_SENSITIVE,
    OPTION,
    PARTITION_OVERWRITE,
    TIME_ZONE,
    NeedsSpark,
    Session,
    nothing,
    result,
)
from bitlake.errors import InvalidRequest
from bitlake.expressions.literals import zone
from bitlake.sql import statements as st

_ZONE = re.compile(r"SET\s+TIME\s+ZONE\s+'([^']*)'\s*", re.I)
_SET = re.compile(r"SET\s+`?(spark\.[^\s=`]+)`?\s*=(.*)", re.I | re.S)
_RESET = re.compile(r"RESET\s+`?(spark\.[^\s`]+)`?\s*", re.I)
_VALUES = {CASE_SENSITIVE: ("true", "false"), PARTITION_OVERWRITE: ("static", "dynamic")}


def change_setting(session: Session, statement: st.Other) -> pa.Table:
    """SET name = value, SET TIME ZONE, RESET name; raises :class:`NeedsSpark` for all else that is Spark's."""
    text = statement.text.strip()
    reset, zoned, given = _RESET.fullmatch(text), _ZONE.fullmatch(text), _SET.fullmatch(text)
    if reset is not None and _is_honoured(reset[1]):
        session.set(reset[1], None)
        return nothing()
    if zoned is not None:
        name, value = TIME_ZONE, zoned[1]
    elif given is not None and _is_honoured(given[1]):
        name, value = given[1], given[2].strip()
    else:
        raise NeedsSpark(text[:60])
    _check(name, value)
    session.set(name, value)
    return result({"key": str, "value": str}, [(name, value)])


def _is_honoured(name: str) -> bool:
    return name.startswith(OPTION) or name in (TIME_ZONE, *_VALUES)


def _check(name: str, value: str) -> None:
    allowed = _VALUES.get(name)
    if allowed is not None and value.lower() not in allowed:
        raise InvalidRequest(f"'{name}' is {' or '.join(allowed)}, not '{value}'")
    if name == TIME_ZONE:
        zone(value)  # raises for one that is unknown
