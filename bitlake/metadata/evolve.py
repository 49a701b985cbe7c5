"""A schema and changes of its columns → the next schema, or why not (table-format spec, section 2, Evolution).

Columns keep their ids: that is how files written before are read.  A new column takes the next id that no column ever
had, so that a name used again never means the old column's values.

Table options that name columns follow when a column is renamed or dropped: lists (``bucket-key``,
``file-index.<type>.columns`` …), keys with a column in them (``fields.<column>.…``,
``file-index.<type>.<column>.<option>``), and both at once (sequence groups).  A map column's index entries are written
``column[key]``.  Source: table-format spec, section 2, and index-format spec, section 1.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from bitlake.errors import AlreadyExists, InvalidRequest, NotFound
from bitlake.fileindex import INDEX_COLUMNS, INDEX_PREFIX
from bitlake.fileindex.container import split_map_key
from bitlake.fileindex.named_index import NAMED, declared_text, named_keys
from bitlake.metadata import options as opt
from bitlake.metadata.schema import (
    AddColumn,
    DropColumn,
    MoveColumn,
    Names,
    Path,
    Position,
    RenameColumn,
    RetypeColumn,
    SchemaChange,
    SetComment,
    SetDefault,
    SetNullable,
    SetTableComment,
    TableSchema,
    assign_ids,
    check_column_name,
    check_struct_names,
    near,
)
from bitlake.types import ArrayType, AtomicType, DataField, DataType, MapType, RowType
from bitlake.types.casts import why_not_cast

Fields = tuple[DataField, ...]
Edit = Callable[[Fields, int], Fields]
"""Siblings and the place of the one meant → the siblings as they shall be."""
Retype = Callable[[DataType], DataType]


def evolve(
    schema: TableSchema, changes: Sequence[SchemaChange], *, has_snapshot: bool = True, names: Names = Names.FOLDED
) -> TableSchema:
    """The schema after the changes, one after the other; ``schema`` itself if they change nothing.

    ``has_snapshot``: the table may hold rows.  Raises :class:`NotFound` for a column that is not there,
    :class:`AlreadyExists` for one that is, and :class:`InvalidRequest` for what Paimon forbids, with its reason.
    """
    evolution = _Evolution(schema, has_snapshot, names)
    for change in changes:
        evolution.apply(change)
    new = evolution.schema
    if (new.fields, dict(new.options), new.comment) == (schema.fields, dict(schema.options), schema.comment):
        return schema
    return new


class _Evolution:
    def __init__(self, schema: TableSchema, has_snapshot: bool, names: Names) -> None:
        self._names = names
        self._start = schema
        self._has_snapshot = has_snapshot
        self._fields = schema.fields
        self._highest = schema.highest_field_id
        self._options = dict(schema.options)
        self._primary = schema.primary_keys
        self._comment = schema.comment

    @property
    def schema(self) -> TableSchema:
        return self._start.next(
            fields=self._fields,
            highest_field_id=self._highest,
            options=self._options,
            primary_keys=self._primary,
            comment=self._comment,
        )

    def apply(self, change: SchemaChange) -> None:
        match change:
            case AddColumn():
                self._add(change)
            case DropColumn():
                self._drop(change)
            case RenameColumn():
                self._rename(change)
            case RetypeColumn():
                self._retype(change)
            case SetNullable():
                self._nullable(change)
            case SetComment(path, comment):
                self._edit(path, _each(lambda f: replace(f, description=comment)))
            case SetDefault(path, sql):
                self._edit(path, _each(lambda f: replace(f, default_value=sql)))
            case SetTableComment(text):
                self._comment = text
            case MoveColumn(path, position):
                self._edit(path, lambda fields, i: _moved(fields, i, position, self._names))
            case _:
                raise InvalidRequest(
                    f"{change!r} is not a schema change (AddColumn, RenameColumn, …); options are set by alter_options"
                )

    # --- changes -----------------------------------------------------------------------------------------------------

    def _add(self, change: AddColumn) -> None:
        name = change.path[-1]
        shown = ".".join(change.path)
        if not change.type.nullable:
            raise InvalidRequest(f"column '{shown}' cannot be added as NOT NULL: it is NULL in all existing rows")
        check_column_name(name, top=len(change.path) == 1)
        check_struct_names(shown, change.type, self._names)
        (field,), self._highest = assign_ids([(name, change.type, change.comment)], self._highest)

        def add(fields: Fields) -> Fields:
            if _find(fields, name, self._names) is not None:
                raise AlreadyExists(f"column '{shown}' already exists{_ignored(self._names)}")
            at = self._place(fields, change)
            return (*fields[:at], field, *fields[at:])

        self._fields = _inside(self._fields, change.path, add, self._names)

    def _place(self, fields: Fields, change: AddColumn) -> int:
        if change.position is not None:
            return _place(fields, change.position, self._names)
        before = self._options.get("add-column-before-partition", "false").lower() == "true"
        if before and len(change.path) == 1:
            keys = [i for i, f in enumerate(fields) if f.name in self._start.partition_keys]
            return keys[0] if keys else len(fields)
        return len(fields)

    def _drop(self, change: DropColumn) -> None:
        if change.if_exists and not self._exists(change.path):
            return
        field = self._resolve(change.path)
        if len(change.path) == 1:
            self._not_a_key(field.name, "be dropped")
            if all(f.name in (field.name, *self._start.partition_keys) for f in self._fields):
                raise InvalidRequest(f"column '{field.name}' cannot be dropped: it is the table's last one")
            self._options = follow_drop(self._options, field.name)

        def drop(fields: Fields, i: int) -> Fields:
            if len(fields) == 1:
                raise InvalidRequest(f"'{'.'.join(change.path)}' cannot be dropped: it is the struct's last member")
            return (*fields[:i], *fields[i + 1 :])

        self._edit(change.path, drop)

    def _rename(self, change: RenameColumn) -> None:
        old = self._resolve(change.path)
        new = change.new_name
        top = len(change.path) == 1
        if top and old.name in self._start.partition_keys:
            raise InvalidRequest(f"partition column '{old.name}' cannot be renamed: its name is in the folders' names")
        check_column_name(new, top=top)

        def rename(fields: Fields, i: int) -> Fields:
            other = _find(fields, new, self._names)
            if other is not None and (other != i or fields[i].name == new):
                shown = ".".join((*change.path[:-1], new))
                raise AlreadyExists(f"column '{shown}' already exists{_ignored(self._names)}")
            return (*fields[:i], replace(fields[i], name=new), *fields[i + 1 :])

        self._edit(change.path, rename)
        if top:
            self._options = follow_rename(self._options, old.name, new)
            self._primary = tuple(new if k == old.name else k for k in self._primary)

    def _retype(self, change: RetypeColumn) -> None:
        if len(change.path) == 1:
            name = self._resolve(change.path).name
            self._not_a_key(name, "change its type")
            if self._has_snapshot and name in _bucket_keys(self._options):
                raise InvalidRequest(
                    f"column '{name}' cannot change its type: 'bucket-key' = '{self._options['bucket-key']}' names it, "
                    "and existing rows lie in the buckets of its old type's hash"
                )
        explicit = not opt.Options(self._options).get(opt.EXPLICIT_CAST_OFF)

        def retype(made: DataType) -> DataType:
            new = replace(change.type, nullable=made.nullable)
            why = why_not_cast(made, new, explicit=explicit)
            if why is not None:
                raise InvalidRequest(f"column '{'.'.join(change.path)}' cannot become {change.type}: {why}")
            # An equal type keeps the ids inside it.
            return made if isinstance(made, type(new)) and not isinstance(new, AtomicType) else new

        self._retype_at(change.path, retype)

    def _nullable(self, change: SetNullable) -> None:
        shown = ".".join(change.path)
        if len(change.path) == 1 and change.nullable:
            name = self._resolve(change.path).name
            if name in self._primary:
                raise InvalidRequest(f"primary key column '{name}' cannot become nullable")
        off = opt.Options(self._options).get(opt.NULL_TO_NOT_NULL_OFF)

        def retype(made: DataType) -> DataType:
            if off and made.nullable and not change.nullable:
                raise InvalidRequest(
                    f"column '{shown}' cannot become NOT NULL, because existing rows may hold NULL; if none does, "
                    f"set '{opt.NULL_TO_NOT_NULL_OFF.name}' = 'false' first"
                )
            return replace(made, nullable=change.nullable)

        self._retype_at(change.path, retype)

    # --- finding -----------------------------------------------------------------------------------------------------

    def _not_a_key(self, name: str, what: str) -> None:
        for keys, kind in ((self._start.partition_keys, "partition"), (self._primary, "primary key")):
            if name in keys:
                raise InvalidRequest(f"{kind} column '{name}' cannot {what}")

    def _exists(self, path: Path) -> bool:
        try:
            self._resolve(path)
        except NotFound:
            return False
        return True

    def _resolve(self, path: Path) -> DataField:
        """The column or struct member that a path names."""
        fields_found: list[DataField] = []

        def look(fields: Fields) -> Fields:
            fields_found.append(fields[_index(fields, path, self._names)])
            return fields

        _inside(self._fields, path, look, self._names)
        return fields_found[0]

    def _edit(self, path: Path, edit: Edit) -> None:
        self._fields = _inside(
            self._fields, path, lambda fields: edit(fields, _index(fields, path, self._names)), self._names
        )

    def _retype_at(self, path: Path, retype: Retype) -> None:
        """Change the type of a column, of a struct's member, of an array's element or of a map's value."""
        edit = _each(lambda f: replace(f, type=retype(f.type)))
        names = self._names
        self._fields = _inside(
            self._fields, path, lambda fields: edit(fields, _index(fields, path, names)), names, retype
        )


def _inside(
    fields: Fields, path: Path, edit: Callable[[Fields], Fields], names: Names, retype: Retype | None = None
) -> Fields:
    """The fields with those changed among which the last name of ``path`` is looked for."""
    if not path or not all(path):
        raise InvalidRequest("a column's name is empty")
    if len(path) == 1:
        return edit(fields)
    i = _index(fields, path[:1], names)
    made = _inside_type(fields[i].type, path, 1, edit, names, retype)
    return (*fields[:i], replace(fields[i], type=made), *fields[i + 1 :])


def _inside_type(
    made: DataType, path: Path, depth: int, edit: Callable[[Fields], Fields], names: Names, retype: Retype | None
) -> DataType:
    shown = ".".join(path[:depth])
    last = depth == len(path) - 1
    word = path[depth].lower()
    if isinstance(made, RowType):
        if last:
            return replace(made, fields=edit(made.fields))
        i = _index(made.fields, path[: depth + 1], names)
        inner = _inside_type(made.fields[i].type, path, depth + 1, edit, names, retype)
        return replace(made, fields=(*made.fields[:i], replace(made.fields[i], type=inner), *made.fields[i + 1 :]))
    if not isinstance(made, (ArrayType, MapType)):
        raise NotFound(f"'{shown}' is {made}, which has no part '{path[depth]}'")
    expected = "element" if isinstance(made, ArrayType) else "value"
    if isinstance(made, MapType) and word == "key":
        raise InvalidRequest(f"the keys of map '{shown}' cannot be changed")
    if word != expected:
        raise NotFound(f"'{shown}' is {made}, whose part is called '{expected}', not '{path[depth]}'")
    old = made.element if isinstance(made, ArrayType) else made.value
    if last:
        if retype is None:
            raise InvalidRequest(f"'{'.'.join(path)}' has no name and no place of its own: only its type can change")
        new = retype(old)
    else:
        new = _inside_type(old, path, depth + 1, edit, names, retype)
    return replace(made, element=new) if isinstance(made, ArrayType) else replace(made, value=new)


def _find(fields: Fields, name: str, names: Names) -> int | None:
    """Where the field of that name is: as written, or else by what ``names`` calls the same."""
    for i, f in enumerate(fields):
        if f.name == name:
            return i
    alike = [i for i, f in enumerate(fields) if names.same(f.name, name)]
    return alike[0] if len(alike) == 1 else None


def _index(fields: Fields, path: Path, names: Names) -> int:
    index = _find(fields, path[-1], names)
    if index is None:
        raise NotFound(f"no column '{'.'.join(path)}'{near(path[-1], [f.name for f in fields])}")
    return index


def _each(change: Callable[[DataField], DataField]) -> Edit:
    return lambda fields, i: (*fields[:i], change(fields[i]), *fields[i + 1 :])


def _place(fields: Fields, position: Position, names: Names) -> int:
    return 0 if position.after is None else _index(fields, (position.after,), names) + 1


def _moved(fields: Fields, i: int, position: Position, names: Names) -> Fields:
    field = fields[i]
    others = (*fields[:i], *fields[i + 1 :])
    if position.after is not None and _find(fields, position.after, names) == i:
        raise InvalidRequest(f"column '{field.name}' cannot be moved after itself")
    at = _place(others, position, names)
    return (*others[:at], field, *others[at:])


def _bucket_keys(options: dict[str, str]) -> tuple[str, ...]:
    return tuple(k.strip() for k in options.get("bucket-key", "").split(",") if k)


def _ignored(names: Names) -> str:
    return " (names ignore case)" if names is Names.FOLDED else ""


_GROUPS = (opt.SEQUENCE_GROUP, ".nested-key")
_LISTS = ("bucket-key", "sequence.field", "rowkind.field", "record-level.time-field", "clustering.columns")
# What these do, nothing could do without the column.
_NEEDED = ("bucket-key", "sequence.field", "rowkind.field", "record-level.time-field")

Rename = Callable[[str], str | None]
"""A column's name from now on; None if it is gone."""


def follow_rename(options: Mapping[str, str], old: str, new: str) -> dict[str, str]:
    """The options after column ``old`` became ``new``.

    Raises :class:`InvalidRequest` if an option names the column and cannot hold the new name.
    """
    named = _follow_named(options, lambda name: new if name.lower() == old.lower() else name)
    changed = _follow(named, lambda name: new if name == old else name)
    bad = [sign for sign in ",.[]" if sign in new]
    if bad and changed != named:
        key = next(k for k in named if changed.get(k) != named[k])
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
    named = _follow_named(options, lambda n: None if n.lower() == name.lower() else n)
    return _follow(named, lambda n: None if n == name else n)


def _follow_named(options: Mapping[str, str], rename: Rename) -> dict[str, str]:
    """The options with the expressions of named indexes renamed, and without the indexes of a column that is dropped.

    Names of columns ignore case in expressions.
    """
    out = dict(options)
    for key, value in options.items():
        try:
            renamed = _renamed_declaration(key, value, rename)
        except InvalidRequest:
            continue  # another engine's text, which declares no index
        if renamed is not None:
            out[key] = renamed
        else:
            for name in named_keys(options, key[len(NAMED) :]):
                out.pop(name, None)
    return out


def _renamed_declaration(key: str, value: str, rename: Rename) -> str | None:
    """An option's value with the columns of an expression renamed; None if a column is dropped."""
    declared = declared_text(key, value)
    if declared is None:
        return value
    from bitlake.expressions.parser import renamed_columns  # brings sqlglot, which only SQL text needs

    kind, text = declared
    renamed = renamed_columns(text, rename)
    return None if renamed is None else value if renamed == text else f"{kind}({renamed})"


def _follow(options: Mapping[str, str], rename: Rename) -> dict[str, str]:
    out = {}
    for key, value in options.items():
        new_key, new_value = _key(key, rename), _value(key, value, rename)
        if new_key is not None and new_value is not None:
            out[new_key] = new_value
    return out


def _key(key: str, rename: Rename) -> str | None:
    if key.startswith(opt.FIELDS):
        names, dot, tail = key[len(opt.FIELDS) :].rpartition(".")
        if not dot:
            return key
        if key.endswith(_GROUPS):
            kept = _joined(names, rename)
            return None if kept is None else f"{opt.FIELDS}{kept}.{tail}"
        new = rename(names)
        return None if new is None else f"{opt.FIELDS}{new}.{tail}"
    if key.startswith(INDEX_PREFIX) and not key.endswith(INDEX_COLUMNS):
        parts = key[len(INDEX_PREFIX) :].split(".")
        if len(parts) == 3:
            new = _indexed(parts[1], rename)
            return None if new is None else f"{INDEX_PREFIX}{parts[0]}.{new}.{parts[2]}"
    return key


def _value(key: str, value: str, rename: Rename) -> str | None:
    if key in _LISTS or (key.startswith(opt.FIELDS) and key.endswith(_GROUPS)):
        return _joined(value, rename)
    if key.startswith(INDEX_PREFIX) and key.endswith(INDEX_COLUMNS):
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
