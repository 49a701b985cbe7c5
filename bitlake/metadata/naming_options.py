"""Table options that name columns, and how they follow when a column is renamed or dropped.

Lists (``bucket-key``, ``file-index.<type>.columns`` …), keys with a column in them (``fields.<column>.…``,
``file-index.<type>.<column>.<option>``), and both at once (sequence groups).  A map column's index entries are written
``column[key]``.  Source: table-format spec, section 2, and index-format spec, section 1.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bitlake.errors import InvalidRequest
from bitlake.fileindex.container import split_map_key

_FIELDS = "fields."
_INDEX = "file-index."
_COLUMNS = ".columns"
_GROUPS = (".sequence-group", ".nested-key")
_LISTS = ("bucket-key", "sequence.field", "rowkind.field", "record-level.time-field", "clustering.columns")
# What these do, nothing could do without the column.
_NEEDED = ("bucket-key", "sequence.field", "rowkind.field", "record-level.time-field")

Rename = Callable[[str], str | None]
"""A column's name from now on; None if it is gone."""


def follow_rename(options: Mapping[str, str], old: str, new: str) -> dict[str, str]:
    """The options after column ``old`` became ``new``.

    Raises :class:`InvalidRequest` if an option names the column and cannot hold the new name.
    """
    changed = _follow(options, lambda name: new if name == old else name)
    bad = [sign for sign in ",.[]" if sign in new]
    if bad and changed != dict(options):
        key = next(k for k in options if changed.get(k) != options[k])
        raise InvalidRequest(
            f"column '{old}' cannot be called '{new}': option '{key}' names it, where no name may hold '{bad[0]}'"
        )
    return changed


def follow_drop(options: Mapping[str, str], name: str) -> dict[str, str]:
    """The options after a column was dropped: its indexes and its own options go with it.

    Raises :class:`InvalidRequest` for a column that the table is organised by.
    """
    for key in _NEEDED:
        if name in _split(options.get(key, "")):
            raise InvalidRequest(f"column '{name}' cannot be dropped: '{key}' = '{options[key]}' names it")
    return _follow(options, lambda n: None if n == name else n)


def _follow(options: Mapping[str, str], rename: Rename) -> dict[str, str]:
    out = {}
    for key, value in options.items():
        new_key, new_value = _key(key, rename), _value(key, value, rename)
        if new_key is not None and new_value is not None:
            out[new_key] = new_value
    return out


def _key(key: str, rename: Rename) -> str | None:
    if key.startswith(_FIELDS):
        names, dot, tail = key[len(_FIELDS) :].rpartition(".")
        if not dot:
            return key
        if key.endswith(_GROUPS):
            kept = _joined(names, rename)
            return None if kept is None else f"{_FIELDS}{kept}.{tail}"
        new = rename(names)
        return None if new is None else f"{_FIELDS}{new}.{tail}"
    if key.startswith(_INDEX) and not key.endswith(_COLUMNS):
        parts = key[len(_INDEX) :].split(".")
        if len(parts) == 3:
            new = _indexed(parts[1], rename)
            return None if new is None else f"{_INDEX}{parts[0]}.{new}.{parts[2]}"
    return key


def _value(key: str, value: str, rename: Rename) -> str | None:
    if key in _LISTS or (key.startswith(_FIELDS) and key.endswith(_GROUPS)):
        return _joined(value, rename)
    if key.startswith(_INDEX) and key.endswith(_COLUMNS):
        return _joined(value, lambda name: _indexed(name, rename))
    return value


def _joined(value: str, rename: Rename) -> str | None:
    """A list with its names changed; None if none is left, the text as it was if nothing changed."""
    names = _split(value)
    renamed = [rename(n) for n in names]
    if renamed == names:
        return value
    return ",".join(n for n in renamed if n is not None) or None


def _indexed(name: str, rename: Rename) -> str | None:
    """``c`` or ``c[key]``."""
    # A column may be called like a map's entry.
    new = rename(name)
    if new != name:
        return new
    top, key = split_map_key(name)
    if key is None:
        return name
    renamed = rename(top)
    return None if renamed is None else f"{renamed}[{key}]"


def _split(value: str) -> list[str]:
    return [part.strip() for part in value.split(",")] if value else []
