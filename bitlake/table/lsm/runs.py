"""The sorted runs of a bucket: each file of level 0 is one, and so is each level above that has files.

Order (index-format spec, section 9.3): level 0 first, newest first; then the levels upwards.  Within a level above 0 no
two files overlap, and they stand in the order of their keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bitlake.codec.binary_row import decode_row
from bitlake.merge.interval_partition import key_place
from bitlake.metadata.manifest import DataFileMeta, ManifestEntry
from bitlake.metadata.schema import TableSchema


@dataclass(frozen=True, slots=True)
class Run:
    """Files of one level whose rows, one file after the other, are in the order of their keys without repeats."""

    level: int
    files: tuple[ManifestEntry, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(e.file.file_size for e in self.files)


def sorted_runs(files: Sequence[ManifestEntry], schema: TableSchema) -> list[Run]:
    """The runs of a bucket's live files; ``schema`` has the table's key."""
    levels: dict[int, list[ManifestEntry]] = {}
    for entry in files:
        levels.setdefault(entry.file.level, []).append(entry)
    out = [Run(0, (e,)) for e in sorted(levels.pop(0, []), key=lambda e: _newest_first(e.file))]
    types = [schema.field(k).type for k in schema.trimmed_primary_keys]
    for level in sorted(levels):
        ordered = sorted(levels[level], key=lambda e: key_place(decode_row(types, e.file.min_key)))
        out.append(Run(level, tuple(ordered)))
    return out


def _newest_first(file: DataFileMeta) -> tuple[int, int, int, str]:
    return (-file.max_sequence_number, file.min_sequence_number, file.creation_time or 0, file.file_name)
