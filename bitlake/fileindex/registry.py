"""The kinds of file index there are, and the table options that ask for them.

``file-index.<type>.columns = a, b, m[k]`` names the columns; ``file-index.<type>.<column>.<option>`` sets an option of
one of them (of one map key, or of all keys of a map column).  Source: index-format spec, section 1.4.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from bitlake.errors import InvalidRequest
from bitlake.expressions.tree import Leaf
from bitlake.fileindex import bitmap, bitmap_read, bloom, bsi, range_bitmap
from bitlake.fileindex.container import split_map_key
from bitlake.fileindex.selection import Selection
from bitlake.fileindex.settings import IndexOption
from bitlake.fileindex.window import Fetch
from bitlake.types import AtomicType, DataField, DataType, MapType
from bitlake.types.datatypes import STRINGS

PREFIX = "file-index."
_COLUMNS = ".columns"


class IndexWriter(Protocol):
    """Gathers one column: ``add`` any number of times, then ``finish`` once."""

    def add(self, column: pa.Array | pa.ChunkedArray) -> None:
        """Append a column's rows, in file order."""

    def finish(self) -> bytes:
        """The payload."""


class IndexReader(Protocol):
    """Asks one payload, lazily."""

    def test(self, leaf: Leaf) -> Selection | None:
        """The rows for which the leaf can be TRUE, or None when this index cannot tell."""


@dataclass(frozen=True, slots=True)
class IndexType:
    """One kind of index: what it takes, and how to write and open it."""

    name: str
    supports: Callable[[DataType], bool]
    why_not: str
    writer: Callable[[DataType, Mapping[str, str]], IndexWriter]
    open: Callable[[DataType, Fetch, int, int], IndexReader]
    options: Mapping[str, IndexOption[Any]]


def _kind(name: str, module: Any, writer: Any, opener: Any) -> IndexType:
    options = {option.name: option for option in module.OPTIONS}
    return IndexType(name, module.supports, module.WHY_NOT, writer, opener, options)


# In the order evaluation asks them: cheapest and surest first.
INDEX_TYPES: dict[str, IndexType] = {
    "bitmap": _kind("bitmap", bitmap, bitmap.BitmapWriter, bitmap_read.open_bitmap),
    "bloom-filter": _kind("bloom-filter", bloom, bloom.BloomWriter, bloom.open_bloom),
    "range-bitmap": _kind("range-bitmap", range_bitmap, range_bitmap.RangeBitmapWriter, range_bitmap.open_range_bitmap),
    "bsi": _kind("bsi", bsi, bsi.BsiWriter, bsi.open_bsi),
}
ROW_SELECTIVE = frozenset(INDEX_TYPES) - {"bloom-filter"}
"""The indexes that tell rows, where the others only tell files."""


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """An index to build: ``column`` is a column's name, or ``m[k]`` for one key of a map column."""

    column: str
    index_type: str
    options: Mapping[str, str]


def indexed_type(column: str, fields: Iterable[DataField]) -> tuple[DataField, str | None, DataType] | None:
    """(field, map key or None, type of the indexed values) of ``c`` or ``m[k]``; None when there is no such column."""
    fields = tuple(fields)
    for field in fields:
        if field.name == column:
            return field, None, field.type
    top, key = split_map_key(column)
    for field in fields if key is not None else ():
        if field.name == top and isinstance(field.type, MapType):
            return field, key, field.type.value
    return None


def parse_index_options(options: Mapping[str, str], fields: Sequence[DataField]) -> list[IndexSpec]:
    """The indexes that table options ask for, in the order they are declared.

    Raises :class:`InvalidRequest` naming option, value and what is allowed: an unknown index type, column or option,
    a column whose type the index does not take, a bad value, or an option of a column that no list declares.
    """
    found: dict[tuple[str, str], dict[str, str]] = {}
    for key, value in options.items():
        if key.startswith(PREFIX) and key.endswith(_COLUMNS):
            kind = key[len(PREFIX) : -len(_COLUMNS)]
            for name in value.split(","):
                column = name.strip()
                _check_column(key, value, kind, column, fields)
                found.setdefault((column, kind), {})
    of_maps: dict[tuple[str, str], dict[str, str]] = {}
    for key, value in options.items():
        parts = key[len(PREFIX) :].split(".")
        # Paimon ignores keys of another number of parts, such as file-index.in-manifest-threshold.
        if not key.startswith(PREFIX) or key.endswith(_COLUMNS) or len(parts) != 3:
            continue
        kind, column, option = parts
        if (column, kind) in found:
            _check_option(key, value, kind, option)
            found[column, kind][option] = value
        elif any(k == kind and c.startswith(column + "[") for c, k in found):
            _check_option(key, value, kind, option)
            of_maps.setdefault((column, kind), {})[option] = value
        else:
            raise InvalidRequest(f"option '{key}' = '{value}': list '{column}' in '{PREFIX}{kind}{_COLUMNS}' too")
    return [
        IndexSpec(column, kind, {**of_maps.get((split_map_key(column)[0], kind), {}), **own})
        for (column, kind), own in found.items()
    ]


def _check_column(option: str, value: str, kind: str, column: str, fields: Sequence[DataField]) -> None:
    where = f"option '{option}' = '{value}'"
    index = INDEX_TYPES.get(kind)
    if index is None:
        raise InvalidRequest(f"{where}: unknown index type '{kind}'; known are {', '.join(sorted(INDEX_TYPES))}")
    if not column:
        raise InvalidRequest(f"{where}: a column name is empty")
    known = indexed_type(column, fields)
    if known is None:
        _unknown_column(where, column, fields)
        return
    field, key, values = known
    if key is not None:
        key_type = field.type.key if isinstance(field.type, MapType) else None
        if not isinstance(key_type, AtomicType) or key_type.root not in STRINGS:
            raise InvalidRequest(
                f"{where}: keys of map column '{field.name}' are {key_type}; only string keys can be indexed"
            )
    elif isinstance(field.type, MapType):
        raise InvalidRequest(f"{where}: '{column}' is a map; index one of its keys, as in '{column}[key]'")
    if not index.supports(values):
        raise InvalidRequest(f"{where}: '{column}' is of type {values}; {index.why_not}")


def _unknown_column(where: str, column: str, fields: Sequence[DataField]) -> None:
    names = [field.name for field in fields]
    top = split_map_key(column)[0]
    if top in names:
        raise InvalidRequest(f"{where}: '{column}' names a map key, but '{top}' is no map column")
    near = difflib.get_close_matches(top, names, 3) or names
    raise InvalidRequest(f"{where}: there is no column '{column}'; columns are {', '.join(near)}")


def _check_option(key: str, value: str, kind: str, option: str) -> None:
    index = INDEX_TYPES[kind]
    declared = index.options.get(option)
    if declared is None:
        known = ", ".join(index.options) or "none"
        raise InvalidRequest(f"option '{key}' = '{value}': {kind} has no option '{option}'; its options are {known}")
    try:
        declared.parse(value)
    except ValueError as e:
        raise InvalidRequest(f"option '{key}' = '{value}': {e}") from e
