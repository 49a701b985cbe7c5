"""Which casts between column types Paimon allows.

A column may change its type if the cast table allows it (implicitly, or explicitly unless
``disable-explicit-type-casting`` is set) and a conversion of values exists (:mod:`bitlake.types.cast_values`, which is
a module of its own since metadata commands must not wait for numpy and Arrow).

Source: table-format spec, section 2 (Evolution).
"""

from __future__ import annotations

from dataclasses import replace

from bitlake.types.datatypes import (
    BINARIES,
    INTEGERS,
    MAX_LENGTH,
    STRINGS,
    TIMESTAMPS,
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    Root,
    RowType,
)

_NUMERIC = INTEGERS | {Root.FLOAT, Root.DOUBLE, Root.DECIMAL}
_DATETIME = TIMESTAMPS | {Root.DATE, Root.TIME}
_NARROWER = {
    Root.TINYINT: frozenset({Root.TINYINT}),
    Root.SMALLINT: frozenset({Root.TINYINT, Root.SMALLINT}),
    Root.INT: frozenset({Root.TINYINT, Root.SMALLINT, Root.INT}),
    Root.BIGINT: INTEGERS,
}
_IMPLICIT: dict[Root, frozenset[Root]] = {
    Root.CHAR: frozenset({Root.CHAR}),
    Root.VARCHAR: STRINGS,
    Root.BOOLEAN: frozenset({Root.BOOLEAN}),
    Root.BINARY: frozenset({Root.BINARY}),
    Root.VARBINARY: BINARIES,
    Root.DECIMAL: frozenset(_NUMERIC),
    **_NARROWER,
    Root.FLOAT: frozenset(INTEGERS | {Root.FLOAT, Root.DECIMAL}),
    Root.DOUBLE: frozenset(_NUMERIC),
    Root.DATE: frozenset({Root.DATE, Root.TIMESTAMP}),
    Root.TIME: frozenset({Root.TIME, Root.TIMESTAMP}),
    Root.TIMESTAMP: TIMESTAMPS,
    Root.TIMESTAMP_LTZ: TIMESTAMPS,
    Root.VARIANT: frozenset({Root.VARIANT}),
}
_TO_NUMBER = frozenset(_NUMERIC | STRINGS | {Root.BOOLEAN} | TIMESTAMPS)
_EXPLICIT: dict[Root, frozenset[Root]] = {
    Root.CHAR: frozenset(Root),
    Root.VARCHAR: frozenset(Root),
    Root.BOOLEAN: frozenset(STRINGS | INTEGERS),
    Root.BINARY: frozenset(STRINGS | {Root.VARBINARY}),
    Root.VARBINARY: frozenset(STRINGS | {Root.BINARY}),
    Root.DECIMAL: frozenset(STRINGS | {Root.BOOLEAN} | TIMESTAMPS),
    **dict.fromkeys((*INTEGERS, Root.FLOAT, Root.DOUBLE), _TO_NUMBER),
    Root.DATE: frozenset(TIMESTAMPS | STRINGS),
    Root.TIME: frozenset(TIMESTAMPS | STRINGS | {Root.TIME}),
    Root.TIMESTAMP: frozenset(_DATETIME | STRINGS | _NUMERIC),
    Root.TIMESTAMP_LTZ: frozenset(_DATETIME | STRINGS | _NUMERIC),
    Root.VARIANT: frozenset(),
}


def why_not_cast(source: DataType, target: DataType, *, explicit: bool) -> str | None:
    """Why a column of ``source`` cannot become one of ``target``; None if it can.  Nullability is not looked at.

    ``explicit``: casts that may lose information are allowed (Paimon's default).
    """
    if replace(source, nullable=True) == replace(target, nullable=True):
        return None
    if not isinstance(target, AtomicType):
        if type(source) is type(target):
            return f"change the parts of {_word(source)} one by one, by name ({_path(source)})"
        return f"{source} cannot become {target}"
    if not isinstance(source, AtomicType):
        if not explicit and target.root in STRINGS:
            return _explicit_only(source, target)
        if target.root in STRINGS and isinstance(source, (ArrayType, MapType, RowType)):
            return _no_text_of(source)
        return f"{source} cannot become {target}"
    if source.root not in _IMPLICIT[target.root]:
        if source.root not in _EXPLICIT[target.root]:
            return f"{source} cannot become {target}"
        if not explicit:
            return _explicit_only(source, target)
    if not _convertible(source, target):
        return f"{source} values cannot be converted to {target}"
    return None


def _explicit_only(source: DataType, target: DataType) -> str:
    return f"{source} to {target} may lose information, and 'disable-explicit-type-casting' is true"


def _word(made: DataType) -> str:
    return str(made).partition("<")[0]


def _path(made: DataType) -> str:
    if isinstance(made, RowType):
        return "column.member"
    return "column.element" if isinstance(made, ArrayType) else "column.value"


def _no_text_of(source: DataType) -> str | None:
    """Why some value inside a nested type has no text; None if all have."""
    text = AtomicType(Root.VARCHAR, length=MAX_LENGTH)
    inner: tuple[DataType, ...]
    match source:
        case ArrayType(element):
            inner = (element,)
        case MapType(key, value):
            inner = (key, value)
        case RowType(fields):
            inner = tuple(f.type for f in fields)
        case _:
            inner = ()
    for part in inner:
        why = why_not_cast(replace(part, nullable=True), text, explicit=True)
        if why is not None:
            return why
    return None


def _convertible(source: AtomicType, target: AtomicType) -> bool:
    """Whether Paimon has a rule that converts values of these types."""
    a, b = source.root, target.root
    if b in STRINGS:
        if a in _DATETIME:
            # Paimon's rule is for exactly the nullable STRING.
            return b is Root.VARCHAR and target.length == MAX_LENGTH and target.nullable
        return a is not Root.VARIANT
    if a in STRINGS:
        return b is not Root.VARIANT
    if b in TIMESTAMPS:
        return a in _DATETIME or a in (Root.INT, Root.BIGINT)
    if a in TIMESTAMPS:
        return b in _DATETIME or b in (Root.INT, Root.BIGINT)
    # What is left: numbers and booleans among themselves, binaries, and equal roots of another length.
    return a is not b or a in BINARIES or a is Root.DECIMAL


def java_float(value: float, *, single: bool = False) -> str:
    """A floating point number as Java prints it: ``0.1``, ``123456.789``, ``1.0E10``, ``NaN``, ``-Infinity``."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"

    import numpy as np  # only partitions of floating point numbers need it

    shortest = np.format_float_scientific(np.float32(value) if single else np.float64(value), trim="0")
    mantissa, exponent = shortest.split("e")
    power = int(exponent)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        sign = "-" if mantissa.startswith("-") else ""
        digits = mantissa.lstrip("-").replace(".", "")
        if power < 0:
            return f"{sign}0.{'0' * (-power - 1)}{digits.rstrip('0')}"
        whole = digits[: power + 1].ljust(power + 1, "0")
        return f"{sign}{whole}.{digits[power + 1 :].rstrip('0') or '0'}"
    return f"{mantissa}E{power}"
