"""Indexes that are declared by name, of columns and of expressions over one row.

``bitlake.index.<name> = <type>(<expression>)`` declares one, and ``bitlake.index.<name>.<option>`` sets an option of
its type, or the ``timezone`` of an expression that reads wall clocks::

    bitlake.index.by_email = bitmap(lower(email))
    bitlake.index.by_hour = bitmap(hour(created))
    bitlake.index.by_hour.timezone = Europe/Berlin

Paimon's own options (``file-index.<type>.columns``) accept columns only; Paimon fails on any other name there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bitlake.errors import InvalidRequest, NotFound
from bitlake.expressions.indexed import parse_indexed, zone_of
from bitlake.expressions.tree import IndexedExpression
from bitlake.fileindex.source import index_source
from bitlake.types import DataField, DataType, time_zone

NAMED = "bitlake.index."
"""The prefix of the options."""
_NAMELESS = NAMED.removesuffix(".")
TIMEZONE = "timezone"
_DECLARATION = re.compile(r"(?s)\s*([A-Za-z][\w-]*)\s*\((.*)\)\s*")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, slots=True)
class NamedIndex:
    """A declaration: an index type and its source, as ``text`` and over the table's columns."""

    name: str
    index_type: str
    text: str
    column: str
    type: DataType
    has_members: bool
    options: Mapping[str, str]
    where: str
    """The option, for messages."""


def declaration(name: str, index_type: str, text: str, options: Mapping[str, str]) -> dict[str, str]:
    """The table options that declare an index."""
    return {
        f"{NAMED}{name}": f"{index_type}({text})",
        **{f"{NAMED}{name}.{option}": value for option, value in options.items()},
    }


def index_name(key: str) -> str | None:
    """The name of the index that a table option belongs to, empty if it lacks one; None for another option."""
    if key.startswith(NAMED):
        return key[len(NAMED) :].partition(".")[0]
    return "" if key == _NAMELESS else None


def index_names(options: Mapping[str, str]) -> list[str]:
    """The names of all indexes that table options declare or configure, in their order."""
    return list(dict.fromkeys(name for key in options if (name := index_name(key)) is not None))


def named_keys(options: Mapping[str, str], name: str) -> list[str]:
    """The table options that declare the index of a name."""
    return [key for key in options if index_name(key) == name]


def name_of_index(options: Mapping[str, str], name: str) -> str | None:
    """The declared name of the index that is ``name``, or equals it in any case; None if there is none."""
    names = [declared for declared in index_names(options) if declared.lower() == name.lower()]
    return name if name in names else next(iter(names), None)


def declared_text(key: str, value: str) -> tuple[str, str] | None:
    """The index type and the expression of an option that declares an index; None for another option.

    Raises :class:`InvalidRequest` for a declaration of another form, and for one without a name.
    """
    if index_name(key) == "":
        raise InvalidRequest(f"option '{key}' = '{value}': the index has no name; expected '{NAMED}<name>'")
    if not key.startswith(NAMED) or "." in key[len(NAMED) :]:
        return None
    match = _DECLARATION.fullmatch(value)
    if match is None or not match[2].strip():
        raise InvalidRequest(
            f"option '{key}' = '{value}' is not an index; expected a type and an expression, as in bitmap(lower(email))"
        )
    return match[1], match[2].strip()


def declared_parts(options: Mapping[str, str], name: str) -> tuple[str, str, dict[str, str]]:
    """The index type, the expression and the options that a declaration has, even if it is not valid.

    The type is empty, and the expression is the option's whole value, if that has another form.
    """
    prefix = f"{NAMED}{name}."
    value = options.get(f"{NAMED}{name}" if name else _NAMELESS, "")
    match = _DECLARATION.fullmatch(value)
    kind, text = (match[1], match[2].strip()) if match else ("", value)
    return kind, text, {key[len(prefix) :]: option for key, option in options.items() if key.startswith(prefix)}


def named_indexes(options: Mapping[str, str], fields: Sequence[DataField]) -> Iterator[NamedIndex]:
    """The declared indexes, in the order of the options.

    Raises :class:`InvalidRequest` naming option and value for a declaration that cannot be read or has another's name,
    an expression that no index can be of, or an option of an index that is not declared.
    """
    names: dict[str, str] = {}
    columns = {f.name.lower() for f in fields}
    for key, value in options.items():
        text = declared_text(key, value)
        if text is None:
            _check_declared(key, value, options)
            continue
        name, where = key[len(NAMED) :], f"option '{key}' = '{value}'"
        if _NAME.fullmatch(name) is None:
            raise InvalidRequest(f"{where}: an index name has letters, digits and _, and not '{name}'")
        if name.lower() in columns:
            raise InvalidRequest(f"{where}: '{name}' is the name of a column; give the index another")
        if name.lower() in names:
            raise InvalidRequest(f"{where}: index '{names[name.lower()]}' has that name; names ignore case")
        names[name.lower()] = name
        yield _named(name, *text, options, fields, where)


def _check_declared(key: str, value: str, options: Mapping[str, str]) -> None:
    name = index_name(key)
    if name is not None and f"{NAMED}{name}" not in options:
        raise InvalidRequest(f"option '{key}' = '{value}': index '{name}' is not declared; set '{NAMED}{name}' too")


def _named(
    name: str, index_type: str, text: str, options: Mapping[str, str], fields: Sequence[DataField], where: str
) -> NamedIndex:
    prefix = f"{NAMED}{name}."
    own = {key[len(prefix) :]: value for key, value in options.items() if key.startswith(prefix)}
    zone = own.pop(TIMEZONE, None)
    try:
        if zone is not None:
            time_zone.zone(zone)
        column = parse_indexed(text, fields, zone or "UTC")
    except (InvalidRequest, NotFound) as e:
        raise InvalidRequest(f"{where}: {e}") from e
    depends = isinstance(column, IndexedExpression) and zone_of(column) is not None
    if depends and zone is None:
        raise InvalidRequest(f"{where}: '{text}' depends on the time zone; set '{prefix}{TIMEZONE}', such as 'UTC'")
    if zone is not None and not depends:
        raise InvalidRequest(f"{where}: '{text}' depends on no time zone; unset '{prefix}{TIMEZONE}'")
    if isinstance(column, IndexedExpression) and any(f.name == column for f in fields):
        raise InvalidRequest(f"{where}: '{column}' is also the name of a column; rename that")
    source = index_source(column, fields)
    assert source is not None
    return NamedIndex(name, index_type, text, column, source.type, source.has_members, own, where)
