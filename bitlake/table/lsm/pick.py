"""Which files of a bucket to compact next: Paimon's universal compaction (index-format spec, section 9.3)."""

from __future__ import annotations

from dataclasses import dataclass

from bitlake.metadata.manifest import ManifestEntry


@dataclass(frozen=True, slots=True)
class Unit:
    """Files to compact together, and the level that their rows go to.

    ``rewrite``: these are files of the highest level, each to be written anew by itself (their deleted rows dropped).
    """

    files: tuple[ManifestEntry, ...]
    output_level: int
    rewrite: bool = False
