"""HASH index files of dynamic buckets: they must hold the hash of every key that is in their bucket.

All HASH files that a bucket had at the snapshots looked at are checked together, so that each data file's keys are read
once.  Memory: 4 bytes for each distinct key of the bucket's data files, and one HASH file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bitlake.codec.bucket import row_hash
from bitlake.codec.hashing import Int32s
from bitlake.errors import BitlakeError, CorruptError, NotFound
from bitlake.formats.conform import cast_column
from bitlake.formats.reader import reader_for
from bitlake.io import Store
from bitlake.metadata.index_manifest import IndexFileEntry
from bitlake.metadata.schema import TableSchema
from bitlake.schema.merge_spec import key_fields
from bitlake.table.verify.findings import Finding, of_error
from bitlake.tableindex.hash_index import decode_hashes
from bitlake.types import DataField, arrow_type


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A data file whose keys are wanted, and the schema that it was written with."""

    path: str
    schema: TableSchema

    @property
    def fields(self) -> tuple[DataField, ...]:
        """The columns of the key."""
        return key_fields(self.schema)


@dataclass(frozen=True, slots=True)
class HashTask:
    """The HASH files of a bucket by path, and for each the names of the data files that it must have all keys of.

    ``files`` are the data files by name; empty where only the HASH files themselves are looked at.
    """

    indexes: tuple[tuple[str, IndexFileEntry, frozenset[str]], ...]
    files: Mapping[str, KeyFile]


def check_hashes(store: Store, task: HashTask) -> tuple[Finding, ...]:
    """Check the HASH files of one bucket; runs in this process or on an executor."""
    found: list[Finding] = []
    known: dict[str, Int32s] = {}
    for name, file in task.files.items():
        try:
            known[name] = key_hashes(store, file)
        except (BitlakeError, pa.ArrowException):
            continue  # told by the data file itself
    for path, entry, names in task.indexes:
        try:
            data = store.read(path)
            if len(data) != entry.file_size:
                raise CorruptError(f"the file has {len(data):,} bytes, and the index manifest says {entry.file_size:,}")
            hashes = np.sort(decode_hashes(data, entry.row_count))
        except NotFound:
            found.append(Finding("hash-missing", path, "the file is not there"))
            continue
        except BitlakeError as e:
            found.append(of_error("hash-unreadable", path, e))
            continue
        found += _lacking(path, hashes, {n: known[n] for n in sorted(names) if n in known})
    return tuple(found)


def _lacking(path: str, hashes: Int32s, known: Mapping[str, Int32s]) -> Sequence[Finding]:
    for name, wanted in known.items():
        missing = wanted[~np.isin(wanted, hashes)]
        if len(missing):
            what = f"it lacks {len(missing):,} of the {len(wanted):,} keys of {name}, such as hash {int(missing[0])}"
            return [Finding("hash-incomplete", path, what)]
    return []


def key_batches(store: Store, file: KeyFile) -> Iterator[list[pa.Array]]:
    """The key columns of a data file, batch by batch, in the types of the key; raises what reading does."""
    with store.open_input(file.path) as source:
        for batch in reader_for(file.path)(source, [f.name for f in file.fields]):
            yield [
                cast_column(c, arrow_type(f.type)) if c.type != arrow_type(f.type) else c
                for c, f in zip(batch.columns, file.fields, strict=True)
            ]


def key_hashes(store: Store, file: KeyFile) -> Int32s:
    """The distinct hashes of the keys of a data file, ascending; raises what reading it does."""
    types, parts = [f.type for f in file.fields], [np.zeros(0, np.int32)]
    for columns in key_batches(store, file):
        parts.append(np.unique(row_hash(types, columns).view(np.int32)))
    hashes: Int32s = np.unique(np.concatenate(parts))
    return hashes
