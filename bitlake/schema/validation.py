"""Validate a table's options against its schema, when a table is created or altered.

Checked are the options that decide how rows of one key merge (index-format spec, section 10), options that Paimon
does not allow together, and options that this implementation would not honour (index-format spec, section 9.1, and
table-format spec, section 10).  Paimon finds some of the errors only when rows are written, such as an aggregate
function on a type that it cannot take; here all are found with the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bitlake.codec.sketches import sketch_union
from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.formats.file_format import CODECS, check_format
from bitlake.metadata import options as opt
from bitlake.metadata.options import IGNORE_DELETE, ROWKIND_FIELD, PartitionAge
from bitlake.metadata.schema import near
from bitlake.schema.data_paths import external_roots
from bitlake.schema.merge_spec import DEDUPLICATE, FIRST_ROW, PARTIAL_UPDATE
from bitlake.types import ArrayType, AtomicType, DataField, DataType, MapType, Root, RowType
from bitlake.types.datatypes import INTEGERS, MAX_LENGTH, TIMESTAMPS, is_scalar

_DEFAULT = "default-aggregate-function"
_FUNCTION = "aggregate-function"
_STRATEGIES = ("merge", "ignore", "error")


def check_merge(
    fields: Sequence[DataField], partition_keys: Sequence[str], primary_keys: Sequence[str], options: Mapping[str, str]
) -> None:
    """Refuse options that do not go together or with the columns; raises :class:`InvalidRequest` with the reason."""
    rules = _Rules(fields, partition_keys, primary_keys, options)
    rules.check_fields()
    rules.check_sequence()
    rules.check_other_columns()
    if primary_keys:
        rules.check_engine()


class _Rules:
    def __init__(
        self,
        fields: Sequence[DataField],
        partition_keys: Sequence[str],
        primary_keys: Sequence[str],
        options: Mapping[str, str],
    ) -> None:
        self._types = {f.name: f.type for f in fields}
        self._partition_keys = partition_keys
        self._primary_keys = primary_keys
        self._text = options
        self._options = opt.Options(options)
        self._engine = self._options.of(opt.MERGE_ENGINE)
        self._sequence = _names(options.get(opt.SEQUENCE_FIELD.name))

    # --- names -------------------------------------------------------------------------------------------------------

    def _need(self, column: str, option: str) -> DataType:
        kind = self._types.get(column)
        if kind is None:
            raise InvalidRequest(
                f"option '{option}' = '{self._text.get(option, '')}' names column '{column}', which the table does not "
                f"have{near(column, self._types)}"
            )
        return kind

    def check_fields(self) -> None:
        """``fields.<column>.…``: the column must be there."""
        for key in self._text:
            if not key.startswith(opt.FIELDS):
                continue
            parts = key.split(".")
            names = parts[1].split(",")
            for name in names:
                if name != _DEFAULT:
                    self._need(name, key)
            if len(parts) > 3 and len(names) == 1 and isinstance(self._types.get(names[0]), RowType):
                raise InvalidRequest(f"option '{key}' goes inside the struct '{names[0]}', which options cannot")

    def check_sequence(self) -> None:
        """``sequence.field``."""
        name = opt.SEQUENCE_FIELD.name
        for i, column in enumerate(self._sequence):
            kind = self._need(column, name)
            if not is_scalar(kind):
                raise InvalidRequest(f"option '{name}': column '{column}' is {kind}, which cannot order rows")
            if column in self._sequence[:i]:
                raise InvalidRequest(f"option '{name}' names column '{column}' twice")
            if f"{opt.FIELDS}{column}.{_FUNCTION}" in self._text:
                raise InvalidRequest(
                    f"option 'fields.{column}.{_FUNCTION}': '{column}' is a sequence field and cannot be aggregated"
                )
        if self._sequence and self._engine == FIRST_ROW:
            raise InvalidRequest(
                f"option '{name}' does not go with '{opt.MERGE_ENGINE.name}' = '{FIRST_ROW}': the row that comes first "
                "is kept, whatever its columns hold"
            )
        if self._sequence and self._primary_keys and not set(self._partition_keys) <= set(self._primary_keys):
            raise InvalidRequest(
                f"option '{name}' does not go with a primary key ({', '.join(self._primary_keys)}) that leaves "
                f"partition columns ({', '.join(self._partition_keys)}) out: a row would have to be compared with one "
                "of another partition"
            )

    def check_other_columns(self) -> None:
        """``rowkind.field`` and ``record-level.*``."""
        column = self._options.of(ROWKIND_FIELD)
        if column is not None:
            kind = self._need(column, ROWKIND_FIELD.name)
            if not (isinstance(kind, AtomicType) and kind.root in (Root.CHAR, Root.VARCHAR)):
                raise InvalidRequest(
                    f"option '{ROWKIND_FIELD.name}': column '{column}' is {kind} and must be STRING, VARCHAR or CHAR"
                )
        column = self._options.of(opt.EXPIRE_FIELD)
        if column is None:
            if self._options.of(opt.EXPIRE_TIME) is not None:
                raise InvalidRequest(f"option '{opt.EXPIRE_TIME.name}' needs '{opt.EXPIRE_FIELD.name}'")
            return
        kind = self._need(column, opt.EXPIRE_FIELD.name)
        if not (isinstance(kind, AtomicType) and (kind.root in (Root.INT, Root.BIGINT) or kind.root in TIMESTAMPS)):
            raise InvalidRequest(
                f"option '{opt.EXPIRE_FIELD.name}': column '{column}' is {kind} and must be INT, BIGINT or TIMESTAMP"
            )

    # --- engines -----------------------------------------------------------------------------------------------------

    def check_engine(self) -> None:
        """Raise for options that the merge engine does not take."""
        if self._engine in (DEDUPLICATE, FIRST_ROW):
            return
        groups = self._groups() if self._engine == PARTIAL_UPDATE else {}
        if self._engine == PARTIAL_UPDATE:
            self._check_partial_update(groups)
        ordering = {c for g in groups for c in g} if groups else set(self._sequence)
        grouped = {c for columns in groups.values() for c in columns}
        for column, kind in self._types.items():
            option = f"{opt.FIELDS}{column}.{_FUNCTION}"
            if option not in self._text:
                option = f"{opt.FIELDS}{_DEFAULT}"
            name = self._text.get(option)
            if name is None:
                continue
            if name not in FUNCTIONS:
                raise InvalidRequest(f"option '{option}': unknown aggregate function '{name}'{near(name, FUNCTIONS)}")
            if column in self._primary_keys or column in ordering:
                continue
            if self._engine == PARTIAL_UPDATE and name != "last_non_null_value" and column not in grouped:
                raise InvalidRequest(
                    f"option '{option}' = '{name}': with '{opt.MERGE_ENGINE.name}' = '{PARTIAL_UPDATE}' column "
                    f"'{column}' needs a sequence group to be aggregated"
                )
            self._check_function(column, kind, option, name)

    def _groups(self) -> dict[tuple[str, ...], tuple[str, ...]]:
        """Sequence columns of each group → the columns it protects."""
        out: dict[tuple[str, ...], tuple[str, ...]] = {}
        taken: dict[str, str] = {}
        for key, value in self._text.items():
            if not (key.startswith(opt.FIELDS) and key.endswith(opt.SEQUENCE_GROUP)):
                continue
            ordering, columns = _names(key[len(opt.FIELDS) : -len(opt.SEQUENCE_GROUP)]), _names(value)
            for column in (*ordering, *columns):
                kind = self._need(column, key)
                if column in self._primary_keys:
                    raise InvalidRequest(f"option '{key}': column '{column}' of the primary key is in no group")
                if column in ordering and not is_scalar(kind):
                    raise InvalidRequest(f"option '{key}': column '{column}' is {kind}, which cannot order rows")
            for column in columns:
                if column in taken:
                    raise InvalidRequest(f"column '{column}' is in two sequence groups, '{taken[column]}' and '{key}'")
                taken[column] = key
            out[ordering] = columns
        return out

    def _check_partial_update(self, groups: Mapping[tuple[str, ...], tuple[str, ...]]) -> None:
        remove, by_group = opt.PARTIAL_REMOVE.name, opt.PARTIAL_REMOVE_GROUP.name
        ignore = self._options.of(IGNORE_DELETE)
        if self._options.of(opt.PARTIAL_REMOVE):
            if ignore:
                raise InvalidRequest(f"options '{remove}' and '{IGNORE_DELETE.name}' contradict each other: choose one")
            if groups:
                raise InvalidRequest(
                    f"option '{remove}' does not go with sequence groups, of which each has its own order; use "
                    f"'{by_group}'"
                )
        named = _names(self._options.of(opt.PARTIAL_REMOVE_GROUP))
        if named and ignore:
            raise InvalidRequest(f"options '{by_group}' and '{IGNORE_DELETE.name}' contradict each other: choose one")
        ordering = {c for g in groups for c in g}
        other = next((c for c in named if c not in ordering), None)
        if other is not None:
            raise InvalidRequest(f"option '{by_group}' names column '{other}', which orders no sequence group")

    def _flag(self, name: str) -> bool:
        return self._text.get(name, "false").strip().lower() == "true"

    # --- aggregate functions -----------------------------------------------------------------------------------------

    def _check_function(self, column: str, made: DataType, option: str, name: str) -> None:
        wanted, takes = FUNCTIONS[name]
        if not takes(made):
            raise InvalidRequest(f"option '{option}': '{name}' takes {wanted}, and column '{column}' is {made}")
        if name in ("theta_sketch", "hll_sketch"):
            sketch_union(name)  # refuses where the package for it is missing
        mine = f"{opt.FIELDS}{column}."
        if self._flag(f"{mine}ignore-retract") and self._options.of(opt.AGGREGATION_REMOVE):
            raise InvalidRequest(
                f"options '{mine}ignore-retract' and '{opt.AGGREGATION_REMOVE.name}' contradict each other: choose one"
            )
        self._check_details(name, made, mine)

    def _check_details(self, name: str, made: DataType, mine: str) -> None:
        for flag in ("ignore-retract", "distinct"):
            text = self._text.get(mine + flag)
            if text is not None and text.strip().lower() not in ("true", "false"):
                raise InvalidRequest(f"option '{mine}{flag}' = '{text}' is not allowed; it takes true or false")
        if name == "merge_map_with_keytime" and isinstance(made, MapType):
            self._check_members(made.value, mine + "ts-field")
        if name not in ("nested_update", "nested_partial_update") or not isinstance(made, ArrayType):
            return
        key = _names(self._text.get(f"{mine}nested-key"))
        self._check_members(made.element, f"{mine}nested-key")
        self._check_members(made.element, f"{mine}nested-sequence-field")
        needing = [mine + n for n in ("nested-key-null-strategy", "nested-sequence-field") if mine + n in self._text]
        if not key and (needing or name == "nested_partial_update"):
            raise InvalidRequest(f"option '{mine}nested-key' is missing: {(needing or [name])[0]} needs it")
        strategy = self._text.get(f"{mine}nested-key-null-strategy")
        if strategy is not None and strategy.strip().lower() not in _STRATEGIES:
            raise InvalidRequest(
                f"option '{mine}nested-key-null-strategy' = '{strategy}' is not allowed; it takes one of "
                f"{', '.join(_STRATEGIES)}"
            )
        limit = self._text.get(f"{mine}count-limit")
        if limit is not None and not (limit.strip().isdigit() and int(limit) <= MAX_LENGTH):
            raise InvalidRequest(f"option '{mine}count-limit' = '{limit}' is not allowed; it takes a whole number")

    def _check_members(self, made: DataType, option: str) -> None:
        members = [f.name for f in made.fields] if isinstance(made, RowType) else []
        for name in _names(self._text.get(option)):
            if name not in members:
                raise InvalidRequest(
                    f"option '{option}' names '{name}', and the rows have {', '.join(members)}{near(name, members)}"
                )


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(n.strip() for n in (text or "").split(",") if n.strip())


# --- types ------------------------------------------------------------------------------------------------------------


def _of(*roots: Root) -> Callable[[DataType], bool]:
    return lambda made: isinstance(made, AtomicType) and made.root in roots


def _text(made: DataType) -> bool:
    return isinstance(made, AtomicType) and made.root is Root.VARCHAR and made.length == MAX_LENGTH


def _rows(made: DataType) -> bool:
    return isinstance(made, ArrayType) and isinstance(made.element, RowType)


def _timed(made: DataType) -> bool:
    return isinstance(made, MapType) and isinstance(made.value, RowType) and len(made.value.fields) >= 2


def _any(_: DataType) -> bool:
    return True


_Rule = tuple[str, Callable[[DataType], bool]]
_ANY: _Rule = ("any column", _any)
_NUMERIC: _Rule = ("numbers", _of(*INTEGERS, Root.FLOAT, Root.DOUBLE, Root.DECIMAL))
_ORDERED: _Rule = ("columns that can be compared", is_scalar)
_TRUTH: _Rule = ("BOOLEAN", _of(Root.BOOLEAN))
_BYTES: _Rule = ("VARBINARY", _of(Root.VARBINARY))
_NESTED: _Rule = ("ARRAY<ROW>", _rows)

FUNCTIONS: Mapping[str, _Rule] = {
    "sum": _NUMERIC,
    "product": _NUMERIC,
    "min": _ORDERED,
    "max": _ORDERED,
    "last_value": _ANY,
    "last_non_null_value": _ANY,
    "first_value": _ANY,
    "first_non_null_value": _ANY,
    "first_not_null_value": _ANY,
    "bool_and": _TRUTH,
    "bool_or": _TRUTH,
    "listagg": ("STRING", _text),
    "collect": ("ARRAY", lambda made: isinstance(made, ArrayType)),
    "merge_map": ("MAP", lambda made: isinstance(made, MapType)),
    "merge_map_with_keytime": ("MAP to ROW of at least two columns", _timed),
    "nested_update": _NESTED,
    "nested_partial_update": _NESTED,
    "theta_sketch": _BYTES,
    "hll_sketch": _BYTES,
    "rbm32": _BYTES,
    "rbm64": _BYTES,
    "primary-key": _ANY,
}
"""Aggregate functions by name: what they take, in words and as a test."""


# Options that change what writers must do, in ways the writers here do not.
_NOT_HONOURED: tuple[opt.Option[Any], ...] = (
    opt.PATH,
    opt.FILE_SUFFIX_COMPRESSION,
    opt.MANIFEST_FORMAT,
    opt.MANIFEST_COMPRESSION,
    opt.PRIMARY_KEY_NULLABLE,
    opt.ROW_TRACKING,
    opt.DATA_EVOLUTION,
    opt.SNAPSHOT_ORDERING,
)
# The same, of options that are not declared because nothing else is done with them: name → the value that is harmless.
_NOT_KNOWN: Mapping[str, str | None] = {
    **dict.fromkeys(
        "pk-clustering-override chain-table.enabled partition.timestamp-format.strict "
        "compaction.skip-expired-partitions clustering.incremental postpone.merge-on-read "
        "key-value.sequence_number.enabled write.hive-style-dynamic-partition.enabled "
        "visibility-callback.enabled".split(),
        "false",
    ),
    **dict.fromkeys(
        "tag.callbacks commit.callbacks commit.strict-mode.last-safe-snapshot global-index.external-path blob-field "
        "blob-descriptor-field blob-view-field vector-field pk-vector.index.columns pk-btree.index.columns "
        "pk-bitmap.index.columns pk-multivalue.index.columns pk-full-text.index.columns upsert-key".split()
    ),
    "partition.mark-done-action": "success-file",
    "lookup-wait": "true",
    "changelog-producer.lookup-wait": "true",
    "batch-scan-mode": "none",
}
# What readers would be shown, of options that Paimon takes from a query or else from the table.
_READING: Mapping[str, str | None] = {
    "scan.mode": "default",
    **dict.fromkeys(
        "scan.snapshot-id scan.tag-name scan.version scan.timestamp scan.timestamp-millis scan.watermark "
        "scan.creation-time-millis scan.file-creation-time-millis incremental-between incremental-between-timestamp "
        "incremental-to-auto-tag scan.bounded.watermark consumer-id".split()
    ),
    "incremental-between-scan-mode": "auto",
    **dict.fromkeys("incremental-between-tag-to-snapshot consumer.ignore-progress".split(), "false"),
}
_OF_STREAMS = ("consumer-id", "consumer.ignore-progress")
_LAYOUT = ".map.storage-layout"
_REMOVE = ", and remove it from a table that has it: ALTER TABLE … UNSET TBLPROPERTIES ('{}')"


def check_honoured(options: Mapping[str, str]) -> None:
    """Refuse options that would not be honoured; raises :class:`UnsupportedFeature` naming one and what to do."""
    parsed = opt.Options(options)
    if parsed.of(opt.TYPE).lower() not in opt.PAIMON_TYPES:
        kinds = " or ".join(opt.PAIMON_TYPES)
        raise UnsupportedFeature(f"option '{opt.TYPE.name}' = '{options[opt.TYPE.name]}' is not supported; use {kinds}")
    for option in _NOT_HONOURED:
        if parsed.of(option) != option.default:
            raise UnsupportedFeature(
                f"option '{option.name}' = '{options[option.name]}' would not be honoured by this version of bitlake; "
                f"leave it at its default ({option.default}){_REMOVE.format(option.name)}"
            )
    for name, text in options.items():
        harmless = _NOT_KNOWN.get(name, text)
        if name.startswith(opt.FIELDS) and name.endswith(_LAYOUT):
            harmless = "default"
        if text != harmless:
            raise UnsupportedFeature(
                f"option '{name}' = '{text}' would not be honoured by this version of bitlake; leave it out"
                f"{_REMOVE.format(name)}"
            )


def check_partition_expiry(options: Mapping[str, str], partition_keys: Sequence[str]) -> None:
    """Raise :class:`InvalidRequest` for options that set the expiry of partitions of a table without partitions.

    Paimon 1.4 cannot open such a table.  Later versions ignore the option, and so do writes to their tables.
    """
    name = opt.PARTITION_EXPIRATION_TIME.name
    if name in options and not partition_keys:
        raise InvalidRequest(f"option '{name}' needs a table with partitions; leave it out, or partition the table")


def check_reading(options: Mapping[str, str]) -> None:
    """Refuse to set options that would show readers another state of the table: bitlake's readers do not look at them.

    Tables that have them already are read and written all the same.  Raises :class:`UnsupportedFeature`.
    """
    for name, text in options.items():
        if text != _READING.get(name, text):
            instead = "name the state in the query"
            if name in _OF_STREAMS:
                instead = f"give it to the stream: spark.readStream.option('{name}', '{text}'), lake.read_stream(…)"
            raise UnsupportedFeature(
                f"option '{name}' = '{text}' would not be honoured by bitlake as an option of a table; {instead}"
            )


def check_combinations(
    fields: Sequence[DataField], partition_keys: Sequence[str], primary_keys: Sequence[str], options: Mapping[str, str]
) -> None:
    """Refuse options that contradict each other, the columns or the keys; raises :class:`InvalidRequest`."""
    parsed = opt.Options(options)
    check_merge(fields, partition_keys, primary_keys, options)
    _check_changelog(parsed, primary_keys)
    if parsed.of(opt.DV_ENABLED):
        _check_vectors(parsed)
    _check_files(parsed, fields)
    if parsed.of(opt.EXTERNAL_PATHS_STRATEGY) != "none" and parsed.of(opt.EXTERNAL_PATHS):
        external_roots(parsed)
    age = PartitionAge.of(options)
    if age is not None:
        age.check(partition_keys)


def _check_changelog(parsed: opt.Options, primary_keys: Sequence[str]) -> None:
    producer, name = parsed.of(opt.CHANGELOG_PRODUCER), opt.CHANGELOG_PRODUCER.name
    if not primary_keys:
        if producer != "none":
            raise InvalidRequest(f"option '{name}' = '{producer}' needs a table with a primary key")
        if parsed.of(opt.STREAMING_OVERWRITE):
            raise InvalidRequest(
                f"option '{opt.STREAMING_OVERWRITE.name}' needs a table with a primary key; append tables have "
                "'streaming-read-append-overwrite'"
            )
        if parsed.of(opt.BUCKET) == -1 and parsed.of(opt.FULL_COMPACTION_COMMITS) is not None:
            raise InvalidRequest(f"option '{opt.FULL_COMPACTION_COMMITS.name}' needs a primary key or buckets")
    if parsed.of(opt.STREAMING_OVERWRITE) and producer in ("full-compaction", "lookup"):
        raise InvalidRequest(
            f"option '{opt.STREAMING_OVERWRITE.name}' does not go with '{name}' = '{producer}': changes would be read "
            "twice"
        )
    if parsed.of(opt.FULL_COMPACTION_COMMITS) is not None and producer == "lookup":
        raise InvalidRequest(
            f"option '{opt.FULL_COMPACTION_COMMITS.name}' does not go with '{name}' = 'lookup'; use 'full-compaction' "
            "to have the changelog made by full compactions, or leave it out"
        )
    if primary_keys and parsed.of(opt.MERGE_ENGINE) == FIRST_ROW and producer not in ("none", "lookup"):
        raise InvalidRequest(
            f"option '{name}' = '{producer}' does not go with '{opt.MERGE_ENGINE.name}' = '{FIRST_ROW}', which takes "
            "none or lookup"
        )
    low = parsed.of(opt.CHANGELOG_RETAINED_MIN) or parsed.of(opt.SNAPSHOT_RETAINED_MIN)
    high = parsed.of(opt.CHANGELOG_RETAINED_MAX) or parsed.of(opt.SNAPSHOT_RETAINED_MAX)
    if low > high:
        raise InvalidRequest(
            f"option '{opt.CHANGELOG_RETAINED_MIN.name}' = {low} is above '{opt.CHANGELOG_RETAINED_MAX.name}' = {high}"
        )


def _check_vectors(parsed: opt.Options) -> None:
    producer = parsed.of(opt.CHANGELOG_PRODUCER)
    if producer == "full-compaction":
        raise InvalidRequest(
            f"option '{opt.DV_ENABLED.name}' does not go with '{opt.CHANGELOG_PRODUCER.name}' = '{producer}', but with "
            "none, input or lookup"
        )
    if parsed.of(opt.MERGE_ENGINE) == FIRST_ROW:
        raise InvalidRequest(
            f"option '{opt.DV_ENABLED.name}' does not go with '{opt.MERGE_ENGINE.name}' = '{FIRST_ROW}': no row is "
            "ever replaced there, so that none has to be deleted"
        )


def _check_files(parsed: opt.Options, fields: Sequence[DataField]) -> None:
    """Formats and codecs of levels and changelog files must go with the columns, and with each other."""
    usual, codec = parsed.of(opt.FILE_FORMAT).lower(), parsed.of(opt.FILE_COMPRESSION)
    formats, codecs = parsed.of(opt.FORMAT_PER_LEVEL), parsed.of(opt.COMPRESSION_PER_LEVEL)
    changelog = parsed.of(opt.CHANGELOG_FORMAT), parsed.of(opt.CHANGELOG_COMPRESSION)
    used = {
        (f"'{opt.FORMAT_PER_LEVEL.name}' or '{opt.COMPRESSION_PER_LEVEL.name}', level {level}"): (
            formats.get(level, usual),
            codecs.get(level, codec),
        )
        for level in sorted({*formats, *codecs})
    }
    if any(changelog):
        used[f"'{opt.CHANGELOG_FORMAT.name}' or '{opt.CHANGELOG_COMPRESSION.name}'"] = (
            changelog[0] or usual,
            changelog[1] or codec,
        )
    for where, (file_format, compression) in used.items():
        try:
            check_format(file_format, fields)
        except UnsupportedFeature as e:
            raise UnsupportedFeature(f"option {where}: {e}") from e
        if compression not in CODECS[file_format]:
            raise InvalidRequest(
                f"option {where}: {file_format} files take no compression '{compression}', but one of "
                f"{', '.join(CODECS[file_format])}"
            )
