"""Rows that tasks leave as files, for one process to write: where all rows of a key must meet, and tasks meet nobody.

A file is one Arrow IPC stream, its buffers compressed with LZ4, in the table's staging folder.  Nothing names it but
what its task tells the commit, so orphan cleaning removes what a killed job left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import pyarrow as pa

from bitlake import _clock
from bitlake.deletion import discard_files
from bitlake.errors import CorruptError
from bitlake.io import Store
from bitlake.metadata.paths import TablePaths
from bitlake.snapshot.orphan_files import STAGING

FILE_BYTES = 32 << 20
"""Rows of a file, in memory: what the one that writes reads at a time."""


def stage_rows(store: Store, paths: TablePaths, rows: Iterable[pa.Table]) -> tuple[str, ...]:
    """Write rows into files of some size, in their order; on an error nothing is left behind.  Returns their paths."""
    made: list[str] = []
    try:
        for part in _shares(rows):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, part.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
                stream.write_table(part)
            path = f"{paths.root}/{STAGING}/rows-{_clock.new_uuid()}.arrow"
            made.append(path)
            store.write(path, sink.getvalue().to_pybytes())
    except BaseException:
        discard_files(store, made)
        raise
    return tuple(made)


def _shares(rows: Iterable[pa.Table]) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    size = 0
    for part in rows:
        held.append(part)
        size += part.nbytes
        if size >= FILE_BYTES:
            yield pa.concat_tables(held)
            held, size = [], 0
    if held:
        yield pa.concat_tables(held)


@dataclass(frozen=True, slots=True)
class StagedRows(Sequence[pa.Table]):
    """The rows of staged files in their order: each is read when it is asked for, and may be asked for again."""

    store: Store
    files: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.files)

    @overload
    def __getitem__(self, index: int) -> pa.Table: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[pa.Table]: ...

    def __getitem__(self, index: int | slice) -> pa.Table | Sequence[pa.Table]:
        """One file's rows; raises :class:`NotFound` if it is gone, :class:`CorruptError` if it is no longer whole."""
        if isinstance(index, slice):
            return StagedRows(self.store, self.files[index])
        path = self.files[index]
        try:
            with pa.ipc.open_stream(self.store.read(path)) as stream:
                return stream.read_all()
        except (pa.ArrowInvalid, OSError) as e:
            raise CorruptError(f"staged rows cannot be read: {e}", None, path=path) from e

    def discard(self) -> None:
        """Delete the files, as well as can be."""
        discard_files(self.store, self.files)
