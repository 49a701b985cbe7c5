"""How a table merges rows of one key, read from its options (index-format spec, section 10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bitlake.errors import InvalidRequest
from bitlake.metadata import mergetree_options as lsm
from bitlake.metadata import options as opt
from bitlake.metadata.schema import TableSchema
from bitlake.types import DataField

SEQUENCE_NUMBER = "_SEQUENCE_NUMBER"
VALUE_KIND = "_VALUE_KIND"
ADD, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
"""``_VALUE_KIND`` on disk: +I, -U, +U, -D.  -U and -D take back ("retract")."""

DEDUPLICATE, PARTIAL_UPDATE, AGGREGATION, FIRST_ROW = "deduplicate", "partial-update", "aggregation", "first-row"
_GROUP = ".sequence-group"
_LAST_NON_NULL = "last_non_null_value"


@dataclass(frozen=True, slots=True)
class Function:
    """An aggregate function of a column with the options that begin ``fields.<column>.``."""

    name: str
    options: Mapping[str, str]

    @property
    def ignore_retract(self) -> bool:
        """Whether taking back changes nothing."""
        return self.flag("ignore-retract")

    def flag(self, name: str) -> bool:
        """An option that is true or false (default)."""
        return self.options.get(name, "false").strip().lower() == "true"


@dataclass(frozen=True, slots=True)
class SequenceGroup:
    """Columns that change together, only by rows whose ``sequence`` columns are not older."""

    sequence: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MergeSpec:
    """What decides how rows of one key become one.

    ``keys``: the trimmed primary key; ``sequence``: columns that order rows before the sequence number does;
    ``functions``: by column, only those that have one.
    """

    engine: str
    keys: tuple[str, ...]
    fields: tuple[DataField, ...]
    sequence: tuple[str, ...]
    descending: bool
    ignore_delete: bool
    remove_on_delete: bool
    groups: tuple[SequenceGroup, ...]
    remove_on_group: frozenset[str]
    functions: Mapping[str, Function]

    @staticmethod
    def of(schema: TableSchema) -> MergeSpec:
        """The table's; raises :class:`InvalidRequest` for options that name columns which are not there."""
        options = opt.Options(schema.options)
        text = dict(schema.options)
        engine = options.of(opt.MERGE_ENGINE)
        names = [f.name for f in schema.fields]
        sequence = _names(options.get(opt.SEQUENCE_FIELD), names, "sequence.field")
        order = text.get("sequence.field.sort-order", "ascending").strip().lower()
        groups = _groups(text, names) if engine == PARTIAL_UPDATE else ()
        return MergeSpec(
            engine,
            schema.trimmed_primary_keys,
            tuple(schema.fields),
            sequence,
            order == "descending",
            _flag(text, "ignore-delete")
            or any(_flag(text, f"{e}.ignore-delete") for e in (DEDUPLICATE, PARTIAL_UPDATE, FIRST_ROW)),
            _flag(text, f"{engine}.remove-record-on-delete"),
            groups,
            frozenset(_names(text.get("partial-update.remove-record-on-sequence-group"), names, "sequence group")),
            _functions(schema, text, engine, sequence, groups),
        )

    def needed(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        """The columns that must be read so that ``columns`` come out right, system columns first."""
        out = [SEQUENCE_NUMBER, VALUE_KIND, *self.keys, *self.sequence, *columns]
        for group in self.groups:
            if self.remove_on_group or not set(columns).isdisjoint((*group.sequence, *group.columns)):
                out += group.sequence
        return tuple(dict.fromkeys(out))


def _flag(text: Mapping[str, str], name: str) -> bool:
    return text.get(name, "false").strip().lower() == "true"


def _names(text: str | None, known: list[str], option: str) -> tuple[str, ...]:
    out = tuple(n.strip() for n in (text or "").split(",") if n.strip())
    for name in out:
        if name not in known:
            raise InvalidRequest(f"option '{option}' names column '{name}', and the table has {', '.join(known)}")
    return out


def _groups(text: Mapping[str, str], known: list[str]) -> tuple[SequenceGroup, ...]:
    return tuple(
        SequenceGroup(_names(name[len("fields.") : -len(_GROUP)], known, name), _names(value, known, name))
        for name, value in text.items()
        if name.startswith("fields.") and name.endswith(_GROUP)
    )


def _functions(
    schema: TableSchema,
    text: Mapping[str, str],
    engine: str,
    sequence: tuple[str, ...],
    groups: tuple[SequenceGroup, ...],
) -> Mapping[str, Function]:
    out: dict[str, Function] = {}
    if engine not in (AGGREGATION, PARTIAL_UPDATE):
        return out
    default = text.get("fields.default-aggregate-function")
    ordering = {c for g in groups for c in g.sequence}
    for field in schema.fields:
        start = f"fields.{field.name}."
        given = {k[len(start) :]: v for k, v in text.items() if k.startswith(start)}
        name = given.get("aggregate-function") or default
        if field.name in schema.primary_keys:
            name = "primary-key"
        elif engine == AGGREGATION:
            name = "last_value" if field.name in sequence else name or _LAST_NON_NULL
        elif field.name in ordering:
            name = None
        if name is not None:
            out[field.name] = Function(name.strip().lower(), given)
    return out


def needs_lookup(schema: TableSchema) -> bool:
    """Whether compactions look keys up in the levels above, so that level 0 is forced up at every one."""
    options = schema.opts
    return (
        options.of(opt.DV_ENABLED)
        or options.of(opt.MERGE_ENGINE) == FIRST_ROW
        or options.of(opt.CHANGELOG_PRODUCER) == "lookup"
        or options.of(lsm.FORCE_LOOKUP)
    )


def max_level(options: opt.Options, used: Iterable[int] = ()) -> int:
    """The highest level of a bucket; never below one of the levels ``used`` by its files."""
    levels = options.of(lsm.NUM_LEVELS) or options.of(lsm.COMPACTION_TRIGGER) + 1
    return max(levels - 1, 1, *used)


def is_cross_partition(schema: TableSchema) -> bool:
    """Whether the table's keys are unique over partitions: its primary key lacks a partition column."""
    keys = schema.primary_keys
    return bool(keys) and schema.num_buckets == -1 and any(p not in keys for p in schema.partition_keys)
