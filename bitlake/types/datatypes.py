"""Paimon data types as values, and their form in schema JSON.

An atomic type is one JSON string, ``DECIMAL(10, 2) NOT NULL``; a constructed type is an object whose ``type`` word
carries the nullability, ``{"type": "ARRAY NOT NULL", "element": …}``.  Source: table-format spec, section 2.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from bitlake.errors import InvalidRequest

MAX_LENGTH = 2147483647
"""The length that STRING and BYTES stand for."""
COMPACT_DIGITS = 18
"""The most digits of a DECIMAL that Paimon holds in 64 bits."""


class Root(enum.Enum):
    """The atomic type roots, by the word Paimon writes."""

    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"
    VARIANT = "VARIANT"


INTEGERS = frozenset({Root.TINYINT, Root.SMALLINT, Root.INT, Root.BIGINT})
FLOATS = frozenset({Root.FLOAT, Root.DOUBLE})
STRINGS = frozenset({Root.CHAR, Root.VARCHAR})
BINARIES = frozenset({Root.BINARY, Root.VARBINARY})
TIMESTAMPS = frozenset({Root.TIMESTAMP, Root.TIMESTAMP_LTZ})
INTEGER_BITS = {Root.TINYINT: 8, Root.SMALLINT: 16, Root.INT: 32, Root.BIGINT: 64}


def _representation(self: object) -> str:
    return f"{type(self).__name__}({self})"


@dataclass(frozen=True, slots=True)
class AtomicType:
    """A type without children.

    ``length`` is set for CHAR, VARCHAR, BINARY and VARBINARY; ``precision`` for DECIMAL, TIME and the timestamps;
    ``scale`` for DECIMAL.
    """

    root: Root
    nullable: bool = True
    length: int | None = None
    precision: int | None = None
    scale: int | None = None

    __repr__ = _representation

    def __str__(self) -> str:
        return _atomic_text(self) + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True, slots=True)
class ArrayType:
    """ARRAY<element>."""

    element: DataType
    nullable: bool = True

    __repr__ = _representation

    def __str__(self) -> str:
        return f"ARRAY<{self.element}>" + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True, slots=True)
class MapType:
    """MAP<key, value>; keys are never NULL."""

    key: DataType
    value: DataType
    nullable: bool = True

    __repr__ = _representation

    def __str__(self) -> str:
        return f"MAP<{self.key}, {self.value}>" + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True, slots=True)
class MultisetType:
    """MULTISET<element>, stored as a map from element to its count."""

    element: DataType
    nullable: bool = True

    __repr__ = _representation

    def __str__(self) -> str:
        return f"MULTISET<{self.element}>" + ("" if self.nullable else " NOT NULL")


@dataclass(frozen=True, slots=True)
class RowType:
    """ROW<fields>, Spark's STRUCT; every field has an id of its own."""

    fields: tuple[DataField, ...]
    nullable: bool = True

    __repr__ = _representation

    def __str__(self) -> str:
        inner = ", ".join(f"`{f.name}` {f.type}" for f in self.fields)
        return f"ROW<{inner}>" + ("" if self.nullable else " NOT NULL")


DataType = AtomicType | ArrayType | MapType | MultisetType | RowType


def inner_types(made: DataType) -> tuple[DataType, ...]:
    """Return the types of a nested type's members; none for an atomic type."""
    match made:
        case RowType():
            return tuple(f.type for f in made.fields)
        case MapType():
            return made.key, made.value
        case ArrayType() | MultisetType():
            return (made.element,)
    return ()


def is_scalar(kind: DataType) -> TypeGuard[AtomicType]:
    """Whether values of a type are neither nested nor VARIANT, so that they compare."""
    return isinstance(kind, AtomicType) and kind.root is not Root.VARIANT


def all_types(made: DataType) -> Iterator[DataType]:
    """Iterate over a type and all types inside of it."""
    yield made
    for inner in inner_types(made):
        yield from all_types(inner)


@dataclass(frozen=True, slots=True)
class DataField:
    """A named, numbered column or struct member.

    ``default_value`` is SQL text with its quotes, as Paimon stores it.
    """

    id: int
    name: str
    type: DataType
    description: str | None = None
    default_value: str | None = None

    def __repr__(self) -> str:
        return f"DataField({self.id}: {self.name} {self.type})"


_ALIASES = {
    "INTEGER": "INT",
    "DOUBLE PRECISION": "DOUBLE",
    "NUMERIC": "DECIMAL",
    "DEC": "DECIMAL",
    "STRING": "STRING",
    "BYTES": "BYTES",
}
_PATTERN = re.compile(r"^\s*([A-Z_]+(?:\s+PRECISION)?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*(.*?)\s*$")
_TIMESTAMP_SUFFIX = {
    "": Root.TIMESTAMP,
    "WITHOUT TIME ZONE": Root.TIMESTAMP,
    "WITH LOCAL TIME ZONE": Root.TIMESTAMP_LTZ,
}


def parse_type(text: str) -> AtomicType:
    """Parse an atomic type's text form, case-insensitively.

    Raises :class:`InvalidRequest` for an unknown word or arguments out of range.

    >>> str(parse_type("decimal(10,2) not null"))
    'DECIMAL(10, 2) NOT NULL'
    """
    upper = re.sub(r"\s+", " ", text.upper()).strip()
    nullable = True
    if upper.endswith(" NOT NULL"):
        nullable, upper = False, upper[: -len(" NOT NULL")].rstrip()
    elif upper.endswith(" NULL"):
        upper = upper[: -len(" NULL")].rstrip()
    match = _PATTERN.match(upper)
    if match is None:
        raise InvalidRequest(f"unknown data type '{text}'")
    word, first, second, suffix = match.groups()
    word = _ALIASES.get(word, word)
    one = None if first is None else int(first)
    two = None if second is None else int(second)
    if word == "TIMESTAMP" and suffix in _TIMESTAMP_SUFFIX:
        kind = AtomicType(_TIMESTAMP_SUFFIX[suffix], precision=6 if one is None else one)
    elif suffix:
        raise InvalidRequest(f"unknown data type '{text}'")
    elif word == "STRING":
        kind = AtomicType(Root.VARCHAR, length=MAX_LENGTH)
    elif word == "BYTES":
        kind = AtomicType(Root.VARBINARY, length=MAX_LENGTH)
    elif word not in Root.__members__:
        raise InvalidRequest(f"unknown data type '{text}'")
    else:
        kind = _with_arguments(Root[word], one, two)
    _check_ranges(kind, text)
    return replace(kind, nullable=nullable)


def _with_arguments(root: Root, one: int | None, two: int | None) -> AtomicType:
    if root in STRINGS or root in BINARIES:
        return AtomicType(root, length=1 if one is None else one)
    if root is Root.DECIMAL:
        return AtomicType(root, precision=10 if one is None else one, scale=two or 0)
    if root is Root.TIME:
        return AtomicType(root, precision=0 if one is None else one)
    if root in TIMESTAMPS:
        return AtomicType(root, precision=6 if one is None else one)
    if one is not None:
        raise InvalidRequest(f"type {root.value} takes no argument")
    return AtomicType(root)


def _check_ranges(made: AtomicType, text: str) -> None:
    bad = ""
    if made.length is not None and not 1 <= made.length <= MAX_LENGTH:
        bad = f"length must be between 1 and {MAX_LENGTH}"
    if made.root is Root.DECIMAL:
        precision, scale = made.precision or 0, made.scale or 0
        if not 1 <= precision <= 38:
            bad = "precision must be between 1 and 38"
        elif not 0 <= scale <= precision:
            bad = "scale must be between 0 and the precision"
    elif made.precision is not None and not 0 <= made.precision <= 9:
        bad = "precision must be between 0 and 9"
    if bad:
        raise InvalidRequest(f"data type '{text}': {bad}")


def _atomic_text(made: AtomicType) -> str:
    root = made.root
    if root is Root.DECIMAL:
        return f"DECIMAL({made.precision}, {made.scale})"
    if root is Root.VARCHAR and made.length == MAX_LENGTH:
        return "STRING"
    if root is Root.VARBINARY and made.length == MAX_LENGTH:
        return "BYTES"
    if root in STRINGS or root in BINARIES:
        return f"{root.value}({made.length})"
    if root is Root.TIMESTAMP_LTZ:
        return f"TIMESTAMP({made.precision}) WITH LOCAL TIME ZONE"
    if root in (Root.TIME, Root.TIMESTAMP):
        return f"{root.value}({made.precision})"
    return str(root.value)


def type_from_json(value: Any) -> DataType:
    """Build a type from schema JSON (a string or an object); raises :class:`InvalidRequest` on anything else."""
    if isinstance(value, str):
        return parse_type(value)
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise InvalidRequest(f"a data type must be a string or an object with a 'type', not {value!r}")
    word = re.sub(r"\s+", " ", value["type"].upper()).strip()
    nullable = not word.endswith(" NOT NULL")
    word = word.removesuffix(" NOT NULL")
    try:
        if word == "ARRAY":
            return ArrayType(type_from_json(value["element"]), nullable)
        if word == "MULTISET":
            return MultisetType(type_from_json(value["element"]), nullable)
        if word == "MAP":
            return MapType(type_from_json(value["key"]), type_from_json(value["value"]), nullable)
        if word == "ROW":
            return RowType(tuple(field_from_json(f) for f in value["fields"]), nullable)
    except (KeyError, TypeError) as e:
        raise InvalidRequest(f"data type {word} lacks {e}") from e
    raise InvalidRequest(f"unknown data type '{value['type']}'")


def field_from_json(value: dict[str, Any]) -> DataField:
    """Build a field from its schema JSON object."""
    number, name = value["id"], value["name"]
    if not isinstance(number, int) or isinstance(number, bool) or not isinstance(name, str):
        raise TypeError(f"field {name!r} with id {number!r}")
    return DataField(
        number,
        name,
        type_from_json(value["type"]),
        value.get("description"),
        value.get("defaultValue"),
    )


def type_to_json(made: DataType) -> Any:
    """The JSON value Paimon writes for a type: a string or a dict in Paimon's key order."""
    null = "" if made.nullable else " NOT NULL"
    if isinstance(made, AtomicType):
        return str(made)
    if isinstance(made, ArrayType):
        return {"type": "ARRAY" + null, "element": type_to_json(made.element)}
    if isinstance(made, MultisetType):
        return {"type": "MULTISET" + null, "element": type_to_json(made.element)}
    if isinstance(made, MapType):
        return {"type": "MAP" + null, "key": type_to_json(made.key), "value": type_to_json(made.value)}
    return {"type": "ROW" + null, "fields": [field_to_json(f) for f in made.fields]}


def field_to_json(field: DataField) -> dict[str, Any]:
    """The JSON object Paimon writes for a field; absent description and default are omitted."""
    out: dict[str, Any] = {"id": field.id, "name": field.name, "type": type_to_json(field.type)}
    if field.description is not None:
        out["description"] = field.description
    if field.default_value is not None:
        out["defaultValue"] = field.default_value
    return out


class NextId:
    """Hands out field ids after ``last``."""

    def __init__(self, last: int) -> None:
        self.last = last

    def __call__(self) -> int:
        """The next id."""
        self.last += 1
        return self.last
