"""One bucket that is written and compacted, beside its model, and read as readers see it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lsm_builders import context_of, put_files, rows_of, state_of
from lsm_model import Bucket, Change, Row, is_add, merged

from bitlake.fileindex.selection import Selection
from bitlake.merge.engine import merge_rows
from bitlake.mergetree.bucket import BucketReader, Compaction
from bitlake.mergetree.compaction import compact_unit
from bitlake.mergetree.universal_compaction import (
    CompactUnit,
    SortedRun,
    pick_compaction,
    pick_full_compaction,
    sorted_runs,
)
from bitlake.metadata.manifest import ManifestEntry
from bitlake.scan.column_reader import MergeTask, ReadCounts
from bitlake.scan.reader import ReadRequest, read_merged
from bitlake.schema.merge_spec import MergeSpec, max_level
from bitlake.snapshot.index_files import read_vectors
from bitlake.snapshot.table_files import TableFiles

COLUMNS = [("k", "INT NOT NULL"), ("x", "STRING NOT NULL"), *[(c, "BIGINT") for c in "abg"], ("t", "STRING")]


class BucketTable:
    """One bucket that is written and compacted."""

    def __init__(self, root: Path, options: dict[str, str], keys: Sequence[str], seed: int) -> None:
        columns = [c for c in COLUMNS if c[0] != "x" or "x" in keys]
        self.names = [n for n, _ in columns]
        self.context, self.store = context_of(root, columns, keys, options)
        self.spec = MergeSpec.of(self.context.schema)
        self.random = random.Random(seed)
        self.state = state_of(self.context, self.store, [])
        self.model = Bucket(self.spec, self.names)
        self.pending: list[Row] = []
        self.history: dict[Any, list[Row]] = {}

    def write(self, kinds: Sequence[int], most: int = 60) -> None:
        """A level-0 file of random rows."""
        first = self.state.next_sequence
        made = []
        for i in range(self.random.randint(1, most)):
            row = {
                "k": self.random.randint(0, 40),
                "x": self.random.choice(["", "a", "b\u00e9"]),
                **{c: self.random.choice([None, *range(-3, 4)]) for c in "ab"},
                # A lone row without its group's sequence is kept or cleared, as its file is kept or written anew.
                "g": self.random.choice([*([] if self.spec.groups else [None]), *range(-3, 4)]),
                "t": self.random.choice([None, "u", "v", "w"]),
                "_SEQUENCE_NUMBER": first + i,
                "_VALUE_KIND": self.random.choice(kinds),
            }
            made.append({n: row[n] for n in (*self.names, "_SEQUENCE_NUMBER", "_VALUE_KIND")})
        stored = merge_rows(self.spec, rows_of(self.context, made), self.names, keep_deletes=True)
        if stored.num_rows:
            self.pending += stored.to_pylist()
            for row in stored.to_pylist():
                self.history.setdefault(self.model.key(row), []).append(row)
            files = put_files(self.context, self.store, 0, stored)
            self.state = replace(self.state, files=(*self.state.files, *files))

    @property
    def runs(self) -> list[SortedRun]:
        return sorted_runs(self.state.files, self.context.schema)

    def unit(self) -> CompactUnit | None:
        """Any unit that takes all of level 0 and whole runs after it."""
        runs = self.runs
        top = max_level(self.context.schema.opts, (r.level for r in runs))
        how = self.random.random()
        if how < 0.2:
            vectors = self.vectors()
            return pick_full_compaction(runs, self.context.schema, has_vector=lambda n: n in vectors)
        if how < 0.4:
            return pick_compaction(runs, self.context.schema)
        least = sum(r.level == 0 for r in runs)
        if not least:
            return None
        count = self.random.randint(least, len(runs))
        level = top if count == len(runs) else runs[count].level - 1
        if level < 1:
            count, level = len(runs), top
        return CompactUnit(tuple(e for r in runs[:count] for e in r.files), level)

    def vectors(self) -> dict[str, Any]:
        if self.state.vectors is None:
            return {}
        return read_vectors(TableFiles(self.store, self.context.paths), self.context.schema, self.state.vectors)

    def apply(self, done: Compaction) -> None:
        """What the commit of a compaction does; levels above 0 must not overlap."""
        gone = {(e.file.file_name, e.file.level) for e in done.before}
        assert gone <= {(e.file.file_name, e.file.level) for e in self.state.files}
        files = [e for e in self.state.files if (e.file.file_name, e.file.level) not in gone]
        files += done.after
        vectors = self.state.vectors
        for change in done.index:
            assert change.base == (() if vectors is None else (vectors,))
            (vectors,) = change.new
        self.state = replace(self.state, files=tuple(files), vectors=vectors)
        live = {e.file.file_name for e in self.state.files if e.file.level > 0}
        assert set(self.vectors()) <= live
        reader = BucketReader(self.context, self.store, self.state.partition, {})
        for run in self.runs:
            ends = [end for e in run.files for end in reader.key_ends(e)]
            assert ends == sorted(ends)

    def compact(self, unit: CompactUnit) -> list[Change]:
        """Compact; returns the changelog's rows."""
        done = compact_unit(self.context, self.store, self.state, unit)
        self.apply(done)
        reader = BucketReader(self.context, self.store, self.state.partition, {})
        rows = [r for e in done.changelog for t in reader.read(e, reader.columns) for r in t.to_pylist()]
        return [(r["_VALUE_KIND"], self.model.values(r)) for r in rows]

    def physical(self, files: Sequence[ManifestEntry] | None = None) -> list[Row]:
        """Rows of levels above 0 that no vector marks, with their level."""
        reader = BucketReader(self.context, self.store, self.state.partition, self.vectors())
        return [
            {**r, "level": e.file.level}
            for e in (self.state.files if files is None else files)
            if e.file.level
            for t in reader.read(e, reader.columns)
            for r in t.to_pylist()
        ]

    def check_once(self) -> None:
        """Every key is in one row at most, and these are the model's."""
        rows = self.physical()
        assert all(is_add(r) for r in rows)
        keys = [self.model.key(r) for r in rows]
        assert len(set(keys)) == len(keys), "a key is alive twice"
        found = {self.model.key(r): self.model.values(r) for r in rows}
        assert found == {k: self.model.values(r) for k, r in self.model.rows.items()}

    def seen(self) -> dict[Any, tuple[Any, ...]]:
        """What readers see that merge all files, level 0 too."""
        reader = BucketReader(self.context, self.store, self.state.partition, self.vectors())
        tasks = tuple(
            replace(reader.task(e, Selection.all(True)), file_schema=self.context.schema, level=e.file.level)
            for e in self.state.files
        )
        if not tasks:
            return {}
        task = replace(tasks[0], merge=MergeTask(tasks))
        request = ReadRequest(self.context.schema, tuple(self.names), None)
        rows = [r for t in read_merged(self.store, task, request, ReadCounts()) for r in t.to_pylist()]
        found = {self.model.key(r): self.model.values(r) for r in rows}
        assert len(found) == len(rows)
        return found

    def whole_history(self) -> dict[Any, tuple[Any, ...]]:
        """What is alive by all rows ever stored: for tables that look nothing up."""
        found = {k: merged(self.spec, rows, True) for k, rows in self.history.items()}
        return {k: self.model.values(r) for k, r in found.items() if is_add(r) and r is not None}
