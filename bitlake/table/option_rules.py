"""Options that Paimon does not let go together, and those that tables here would not honour.

The rules of one key's rows are in :mod:`bitlake.table.merge.rules`.  Source: index-format spec, section 9.1, and
table-format spec, section 10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bitlake.errors import InvalidRequest, UnsupportedFeature
from bitlake.formats.writer import CODECS, check_format
from bitlake.metadata import mergetree_options as lo
from bitlake.metadata import mergetree_options as mo
from bitlake.metadata import options as opt
from bitlake.table.data_paths import external_roots
from bitlake.table.merge.rules import check_merge
from bitlake.table.merge.spec import FIRST_ROW
from bitlake.table.partition_age import PartitionAge
from bitlake.types import DataField

# Options that change what writers must do, in ways the writers here do not.
_NOT_HONOURED: tuple[opt.Option[Any], ...] = (
    opt.TYPE,
    opt.PATH,
    opt.FILE_SUFFIX_COMPRESSION,
    opt.MANIFEST_FORMAT,
    opt.MANIFEST_COMPRESSION,
    opt.PRIMARY_KEY_NULLABLE,
    opt.ROW_TRACKING,
    opt.DATA_EVOLUTION,
    mo.SNAPSHOT_ORDERING,
)
# The same, of options that are not declared because nothing else is done with them: name → the value that is harmless.
_NOT_KNOWN: Mapping[str, str | None] = {
    "pk-clustering-override": "false",
    "chain-table.enabled": "false",
    "partition.timestamp-format.strict": "false",
    "compaction.skip-expired-partitions": "false",
    "partition.mark-done-action": "success-file",
    "lookup-wait": "true",
    "changelog-producer.lookup-wait": "true",
    "tag.callbacks": None,
    "commit.callbacks": None,
    "clustering.incremental": "false",
    "postpone.merge-on-read": "false",
    "batch-scan-mode": "none",
    "key-value.sequence_number.enabled": "false",
    "global-index.external-path": None,
    "blob-field": None,
    "blob-descriptor-field": None,
    "blob-view-field": None,
    "vector-field": None,
    "pk-vector.index.columns": None,
    "pk-btree.index.columns": None,
    "pk-bitmap.index.columns": None,
    "pk-multivalue.index.columns": None,
    "pk-full-text.index.columns": None,
}
# What readers would be shown, of options that Paimon takes from a query or else from the table.
_READING: Mapping[str, str | None] = {
    "scan.mode": "default",
    **dict.fromkeys(
        (
            "scan.snapshot-id",
            "scan.tag-name",
            "scan.version",
            "scan.timestamp",
            "scan.timestamp-millis",
            "scan.watermark",
            "scan.creation-time-millis",
            "scan.file-creation-time-millis",
            "incremental-between",
            "incremental-between-timestamp",
            "incremental-to-auto-tag",
        )
    ),
}
_LAYOUT = ".map.storage-layout"


def check_honoured(options: Mapping[str, str]) -> None:
    """Refuse options that would not be honoured; raises :class:`UnsupportedFeature` naming one and what to do."""
    parsed = opt.Options(options)
    for option in _NOT_HONOURED:
        if parsed.of(option) != option.default:
            raise UnsupportedFeature(
                f"option '{option.name}' = '{options[option.name]}' would not be honoured by this version of bitlake; "
                f"leave it at its default ({option.default})"
            )
    for name, text in options.items():
        harmless = _NOT_KNOWN.get(name, text)
        if name.startswith("fields.") and name.endswith(_LAYOUT):
            harmless = "default"
        if text != harmless:
            raise UnsupportedFeature(
                f"option '{name}' = '{text}' would not be honoured by this version of bitlake; leave it out"
            )


def check_reading(options: Mapping[str, str]) -> None:
    """Refuse to set options that would show readers another state of the table: bitlake's readers do not look at them.

    Tables that have them already are read and written all the same.  Raises :class:`UnsupportedFeature`.
    """
    for name, text in options.items():
        if text != _READING.get(name, text):
            raise UnsupportedFeature(
                f"option '{name}' = '{text}' would not be honoured by bitlake as an option of a table; name the state "
                "in the query"
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
        if parsed.of(mo.STREAMING_OVERWRITE):
            raise InvalidRequest(
                f"option '{mo.STREAMING_OVERWRITE.name}' needs a table with a primary key; append tables have "
                "'streaming-read-append-overwrite'"
            )
        if parsed.of(opt.BUCKET) == -1 and parsed.of(mo.FULL_COMPACTION_COMMITS) is not None:
            raise InvalidRequest(f"option '{mo.FULL_COMPACTION_COMMITS.name}' needs a primary key or buckets")
    if parsed.of(mo.STREAMING_OVERWRITE) and producer in ("full-compaction", "lookup"):
        raise InvalidRequest(
            f"option '{mo.STREAMING_OVERWRITE.name}' does not go with '{name}' = '{producer}': changes would be read "
            "twice"
        )
    if parsed.of(mo.FULL_COMPACTION_COMMITS) is not None and producer == "lookup":
        raise InvalidRequest(
            f"option '{mo.FULL_COMPACTION_COMMITS.name}' does not go with '{name}' = 'lookup'; use 'full-compaction' "
            "to have the changelog made by full compactions, or leave it out"
        )
    if primary_keys and parsed.of(opt.MERGE_ENGINE) == FIRST_ROW and producer not in ("none", "lookup"):
        raise InvalidRequest(
            f"option '{name}' = '{producer}' does not go with '{opt.MERGE_ENGINE.name}' = '{FIRST_ROW}', which takes "
            "none or lookup"
        )
    low = parsed.of(mo.CHANGELOG_RETAINED_MIN) or parsed.of(opt.SNAPSHOT_RETAINED_MIN)
    high = parsed.of(mo.CHANGELOG_RETAINED_MAX) or parsed.of(opt.SNAPSHOT_RETAINED_MAX)
    if low > high:
        raise InvalidRequest(
            f"option '{mo.CHANGELOG_RETAINED_MIN.name}' = {low} is above '{mo.CHANGELOG_RETAINED_MAX.name}' = {high}"
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
    formats, codecs = parsed.of(lo.FORMAT_PER_LEVEL), parsed.of(lo.COMPRESSION_PER_LEVEL)
    changelog = parsed.of(lo.CHANGELOG_FORMAT), parsed.of(lo.CHANGELOG_COMPRESSION)
    used = {
        (f"'{lo.FORMAT_PER_LEVEL.name}' or '{lo.COMPRESSION_PER_LEVEL.name}', level {level}"): (
            formats.get(level, usual),
            codecs.get(level, codec),
        )
        for level in sorted({*formats, *codecs})
    }
    if any(changelog):
        used[f"'{lo.CHANGELOG_FORMAT.name}' or '{lo.CHANGELOG_COMPRESSION.name}'"] = (
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
