"""Writing rows of append tables again: files of a bucket as new files, without some of their rows.

Used where rows are deleted without deletion vectors, and by compaction.  Nothing is visible before a commit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bitlake import _clock
from bitlake.deletion import discard_files
from bitlake.errors import reading_table
from bitlake.fileindex.selection import Selection
from bitlake.formats.conform import retyped
from bitlake.io import Store
from bitlake.metadata import options as opt
from bitlake.metadata.manifest import FileSource, ManifestEntry
from bitlake.metadata.paths import TablePaths, data_file_name
from bitlake.metadata.schema import TableSchema
from bitlake.progress import of_items
from bitlake.runtime import LocalRunner, Runner
from bitlake.snapshot.partitions import PartitionReader
from bitlake.snapshot.state import TableState
from bitlake.table.data_file import DataFileWriter, FileMaker, file_format
from bitlake.table.fetch import FileTask, ReadCounts
from bitlake.table.plan import PlannedFile
from bitlake.table.read import ReadRequest, output_schema, read_file, tasks_of


@dataclass(frozen=True, slots=True)
class RewriteJob:
    """Files of one bucket to be written again as one sequence of rows; picklable."""

    tasks: tuple[FileTask, ...]
    partition: tuple[object, ...]
    bucket: int
    writer: str
    first_sequence: int
    group_bytes: int | None
    """Arrow bytes of a row group, at most; None: as the table's options say."""


REWRITE_BYTES = 128 << 20
"""Arrow bytes of the row groups that rewriting holds in this process, over all threads (an executor's process: each).

A row group is encoded when it is whole, so that files written side by side hold one each.  Two of full size took
500 MB beyond the imports (5M rows of 200 bytes, 2 cores); two halves 330 MB."""
_LEAST_GROUP = 32 << 20
"""Smaller row groups would cost every scan: more than four files are not written side by side."""


def rewrite(
    state: TableState,
    groups: Sequence[Sequence[ManifestEntry]],
    selections: Mapping[str, Selection],
    runner: Runner,
    source: FileSource,
) -> list[tuple[ManifestEntry, ...]]:
    """Write the selected rows (all, if a file is not named) of each group's files anew; the new entries of each group.

    Statistics and indexes are made anew, under the table's schema of now.  What was written is deleted on an error.
    """
    partitions = PartitionReader(state.schema, state.paths)
    schemas = state.schemas({e.file.schema_id for group in groups for e in group})
    group_bytes = None
    if isinstance(runner, LocalRunner):
        together = max(1, min(runner.threads, len(groups), REWRITE_BYTES // _LEAST_GROUP))
        runner, group_bytes = LocalRunner(together), REWRITE_BYTES // together
    jobs = []
    for group in groups:
        planned = [
            PlannedFile(
                e,
                partitions.data_path(e),
                partitions.values(e.partition),
                selections.get(e.file.file_name, Selection.all()),
            )
            for e in group
        ]
        first = min(e.file.min_sequence_number for e in group)
        place = (partitions.values(group[0].partition), group[0].bucket)
        jobs.append(RewriteJob(tuple(tasks_of(planned, schemas)), *place, _clock.new_uuid(), first, group_bytes))
    of_items("files", each=lambda job: len(job.tasks), size=lambda job: sum(t.size for t in job.tasks))
    call = partial(_rewrite_group, state.store, state.paths, state.schema, source)
    try:
        with reading_table(state.name):
            return runner.run(jobs, call)
    except BaseException:
        # Names are known before the files are: a group that failed has cleaned up, those that did not have not.
        for job in jobs:
            _discard_job(state, job)
        raise


def _rewrite_group(
    store: Store, paths: TablePaths, schema: TableSchema, source: FileSource, job: RewriteJob
) -> tuple[ManifestEntry, ...]:
    names = tuple(f.name for f in schema.fields)
    types = output_schema(schema, names)
    request = ReadRequest(schema, names, None)
    maker = FileMaker.of(paths, schema, store)
    with DataFileWriter(maker, job.partition, job.bucket, _names(schema, job.writer), job.group_bytes) as writer:
        for task in job.tasks:
            for table in read_file(store, task, request, ReadCounts()):
                writer.write(retyped(table, types))
        entries = writer.finish()
    out, at = [], job.first_sequence
    for entry in entries:
        last = at + entry.file.row_count - 1
        file = replace(entry.file, min_sequence_number=at, max_sequence_number=last, file_source=source)
        out.append(replace(entry, file=file))
        at = last + 1
    return tuple(out)


def _names(schema: TableSchema, writer: str) -> Iterator[str]:
    prefix = schema.opts.of(opt.DATA_FILE_PREFIX)
    return (data_file_name(prefix, writer, i, file_format(schema)) for i in itertools.count())


def _discard_job(state: TableState, job: RewriteJob) -> None:
    maker = FileMaker.of(state.paths, state.schema, state.store)
    name = next(_names(state.schema, job.writer))
    folder = maker.path(job.partition, job.bucket, name).rsplit("/", 1)[0]
    mark = name.removesuffix(f"0.{file_format(state.schema)}")
    discard_files(state.store, [f"{folder}/{f.name}" for f in state.store.list(folder) if f.name.startswith(mark)])
