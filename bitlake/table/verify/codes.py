"""What can be wrong with a table: every code that a finding may have, what it means and what to do about it.

Codes are stable: scripts may compare them.  ``docs/verify.md`` shows this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]
_COPY = "put the file back from a copy of the table"
_ROLL = "go back to a snapshot without the fault, or copy what can be read to a new table"
_REPAIR = "repair writes it anew"


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of fault.

    ``severity``: an *error* makes readers fail or answer wrongly, here or in Paimon; a *warning* does not.
    ``remedy``: what to do about it.
    """

    name: str
    severity: Severity
    meaning: str
    remedy: str


def _errors(remedy: str, **codes: str) -> list[Code]:
    return [Code(name.replace("_", "-"), "error", meaning, remedy) for name, meaning in codes.items()]


def _warnings(remedy: str, **codes: str) -> list[Code]:
    return [Code(name.replace("_", "-"), "warning", meaning, remedy) for name, meaning in codes.items()]


CODES: dict[str, Code] = {
    c.name: c
    for c in (
        # Schemas, snapshots, tags, branches, hints.
        *_errors(
            _COPY,
            schema_missing="a schema that a snapshot or data file needs is not there",
            schema_unreadable="a schema file cannot be read",
            schema_wrong="a schema contradicts its file's name or itself",
            snapshot_missing="a snapshot between the first and the last is not there",
            snapshot_unreadable="a snapshot file cannot be read",
            snapshot_wrong="a snapshot contradicts its file's name, or says what Paimon does not know",
        ),
        *_errors(_ROLL, snapshot_count_wrong="a snapshot's record counts are not those of its files"),
        *_errors(
            "delete the tag, or make it anew of a snapshot that is there",
            tag_unreadable="a tag's file cannot be read",
        ),
        *_warnings(
            "make the tag anew if it is to hold the table's own snapshot",
            tag_differs="a tag and the snapshot of its number are not the same",
        ),
        *_errors("delete the branch", branch_wrong="a branch has no schema"),
        *_warnings(
            "call fast_forward of the same branch again, which completes it",
            fast_forward_unfinished="a fast-forward was interrupted, or runs: main's snapshots are replaced in part",
        ),
        *_errors(_REPAIR, hint_ahead="LATEST names a snapshot that is not there, which Paimon believes"),
        *_warnings(_REPAIR, hint_wrong="LATEST or EARLIEST does not name the last or first snapshot"),
        *_warnings(
            "reset the consumer (CALL sys.reset_consumer), or delete it",
            consumer_unreadable="a consumer's file cannot be read",
            consumer_wrong="a consumer would go on at a snapshot that is not there",
        ),
        *_warnings(
            "ANALYZE TABLE makes new statistics",
            statistics_missing="a snapshot's statistics file is not there",
            statistics_unreadable="a snapshot's statistics file cannot be read",
        ),
        # Manifests.
        *_errors(
            f"{_COPY}, or {_ROLL}",
            list_missing="a manifest list is not there",
            list_unreadable="a manifest list cannot be read",
            list_size_wrong="a manifest list is not as long as its snapshot says",
            manifest_missing="a manifest is not there",
            manifest_unreadable="a manifest cannot be read",
            manifest_size_wrong="a manifest is not as long as its list says",
        ),
        *_errors(
            "compact the manifests (CALL sys.compact_manifest), which writes new ones",
            manifest_count_wrong="a manifest does not hold as many entries as its list says",
            manifest_stats_wrong="a list's partitions, buckets, levels or schema of a manifest leave some of it out",
        ),
        *_errors(
            _ROLL,
            base_differs="a snapshot does not begin with the files that the one before ended with",
            file_added_twice="a data file was added while it was there",
            file_deleted_unknown="a data file was deleted that was not there",
            file_added_again="a data file was added after it was deleted: readers take it for deleted",
        ),
        # Data files.
        *_errors(
            f"{_COPY}, or take the file out of the table (remove_unexisting_files), which loses its rows",
            data_missing="a data file is not there",
            data_size_wrong="a data file is not as long as its manifest says",
            data_unreadable="a data file cannot be read",
        ),
        *_errors(
            "overwrite the partition from its source: what the manifest says of the file is not to be relied on",
            row_count_wrong="a data file does not have as many rows as its manifest says",
            delete_count_wrong="a data file does not have as many deleting rows as its manifest says",
            key_range_wrong="a data file's first and last key are not those of its manifest",
            key_order_wrong="a data file's rows are not in the order of their keys",
            key_twice="a data file has a key twice",
            sequence_wrong="a data file's sequence numbers are not those of its manifest",
            row_kind_wrong="a data file has rows of a kind that there is not",
            null_not_allowed="a data file has NULL in a column that is NOT NULL",
            stats_unreadable="a data file's statistics cannot be read",
            stats_hide_values="a data file has values outside of its statistics: queries miss them",
            null_count_wrong="a data file does not have as many NULLs as its statistics say",
            bucket_wrong="a data file is in another bucket than its rows belong to, or in one that there is not",
            bucket_count_mixed="data files of a partition were written for different numbers of buckets",
            partition_wrong="a data file is in another partition than its rows belong to",
            level_wrong="a data file is at a level that its table does not have",
            levels_overlap="data files of a level above 0 have keys in common",
            extra_file_missing="a file kept beside a data file is not there",
        ),
        *_errors(
            "compact the table fully (CALL sys.compact), which keeps the last row of each key",
            key_in_two_files="a key has two rows above level 0, where readers of this table do not merge",
        ),
        # File indexes.
        *_errors(
            "repair builds it anew from the data file, or drops it",
            index_missing="a data file's index file is not there",
            index_unreadable="a file index cannot be read, or its checksum does not match",
            index_wrong="a file index does not agree with the data file's rows: queries miss rows",
            index_twice="a data file names more than one index file",
        ),
        *_warnings(
            "repair drops it",
            index_unknown="a file index is of a kind, column or type that is not known: it is not used",
        ),
        # Table indexes.
        *_errors(
            f"{_COPY}, or {_ROLL}",
            index_manifest_missing="an index manifest is not there",
            index_manifest_unreadable="an index manifest cannot be read",
        ),
        *_errors(
            f"{_COPY}: without it deleted rows come back",
            vectors_missing="a file of deletion vectors is not there",
            vectors_size_wrong="a file of deletion vectors is not as long as the index manifest says",
            vectors_unreadable="a file of deletion vectors cannot be read",
            vectors_count_wrong="a file of deletion vectors does not hold as many as the index manifest says",
            vector_unreadable="a deletion vector cannot be read",
            vector_checksum_wrong="a deletion vector's checksum does not match",
            vector_out_of_range="a deletion vector deletes rows that its data file does not have",
            vector_cardinality_wrong="a deletion vector does not delete as many rows as the index manifest says",
            vector_of_absent_file="a deletion vector is of a data file that the snapshot does not have",
            vector_misplaced="a deletion vector is listed under another bucket than its data file's",
            vector_twice="a data file has two deletion vectors",
        ),
        *_errors(_ROLL, vector_lost="a data file has lost its deletion vector, or a part of it: deleted rows are back"),
        *_errors(
            "set 'deletion-vectors.enabled' again, if deleted rows have come back",
            vectors_not_applied="data files have deletion vectors, and the table's schema does not switch them on",
        ),
        *_errors(
            "repair builds it anew from the bucket's rows",
            hash_missing="a HASH index file is not there, or a bucket has none",
            hash_unreadable="a HASH index file cannot be read",
            hash_incomplete="a HASH index lacks keys of its bucket: they would be written to another one",
        ),
    )
}
"""Every code by name."""
