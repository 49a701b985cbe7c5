"""Options that say how rows of one primary key become one, and what readers of changes see.

Declared as in :mod:`bitlake.metadata.options`.  Source: index-format spec, sections 10 and 11.
"""

from __future__ import annotations

from typing import Any, TypeVar

from bitlake.metadata.optiontypes import Option, at_least, parse_bool, parse_duration_ms, words

T = TypeVar("T")
MERGE_OPTIONS: list[Option[Any]] = []
"""All of them; :data:`bitlake.metadata.options.OPTIONS` has them too."""


def _add(option: Option[T]) -> Option[T]:
    MERGE_OPTIONS.append(option)
    return option


def _bool(name: str, doc: str, immutable: bool = False) -> Option[bool]:
    return _add(Option(name, parse_bool, False, "true or false", doc, "false", immutable))


SEQUENCE_ORDER = _add(
    Option("sequence.field.sort-order", words("ascending", "descending"), "ascending", "ascending or descending",
           "Whether the largest or the smallest value of the sequence field is the newest.", "ascending")
)  # fmt: skip
SNAPSHOT_ORDERING = _bool("sequence.snapshot-ordering", "Order rows of one key by their snapshot.", immutable=True)
AGGREGATION_REMOVE = _bool(
    "aggregation.remove-record-on-delete", "Aggregation: a row of kind -D removes the key's row.", immutable=True
)
PARTIAL_REMOVE = _bool(
    "partial-update.remove-record-on-delete", "Partial update: a row of kind -D removes the key's row.", immutable=True
)
PARTIAL_REMOVE_GROUP = _add(
    Option[str | None]("partial-update.remove-record-on-sequence-group", str, None, "columns between commas",
           "Partial update: a -D that is newer for these sequence groups removes the row.", None, True)
)  # fmt: skip
ROW_DEDUPLICATE = _bool("changelog-producer.row-deduplicate", "Leave changes that change nothing out of changelogs.")
STREAMING_OVERWRITE = _bool("streaming-read-overwrite", "Streaming readers see what an overwrite changes.")
FULL_COMPACTION_COMMITS = _add(
    Option[int | None]("full-compaction.delta-commits", at_least(1), None, "a whole number ≥ 1",
           "Compact fully after this many commits.")
)  # fmt: skip
EXPIRE_TIME = _add(
    Option[int | None]("record-level.expire-time", parse_duration_ms, None, "a duration such as '7 d'",
           "Compactions drop rows that are older than this by the time field.")
)  # fmt: skip
EXPIRE_FIELD = _add(
    Option[str | None]("record-level.time-field", str, None, "a column name",
           "The column that record-level expiry goes by: INT (seconds), BIGINT (seconds or milliseconds) or TIMESTAMP.")
)  # fmt: skip
CHANGELOG_RETAINED_MIN = _add(
    Option[int | None]("changelog.num-retained.min", at_least(1), None, "a whole number ≥ 1",
           "Changelogs that expiry always keeps; unset: as snapshots.")
)  # fmt: skip
CHANGELOG_RETAINED_MAX = _add(
    Option[int | None]("changelog.num-retained.max", at_least(1), None, "a whole number ≥ 1",
           "Changelogs above this number expire; unset: as snapshots.")
)  # fmt: skip
CHANGELOG_TIME_RETAINED = _add(
    Option[int | None]("changelog.time-retained", parse_duration_ms, None, "a duration such as '7 d'",
           "Changelogs younger than this are kept; unset: as snapshots.")
)  # fmt: skip
