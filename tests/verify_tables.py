"""Tables to verify, and a hand that damages copies of them: it edits and encodes the table's real files again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import bitlake
from bitlake.file_store_table import FileStoreTable
from bitlake.formats.parquet.footer import read_footer
from bitlake.io.local import LocalStore
from bitlake.metadata.index_manifest import IndexFileEntry, decode_index_manifest, encode_index_manifest
from bitlake.metadata.manifest import (
    EntryKind,
    ManifestEntry,
    ManifestFileMeta,
    decode_manifest,
    decode_manifest_list,
    encode_manifest,
    encode_manifest_list,
)
from bitlake.metadata.schema import TableSchema
from bitlake.snapshot.manifests import manifest_meta
from bitlake.snapshot.partitions import PartitionReader
from bitlake.table.table import Table
from bitlake.write.analyze import ColumnStatistics, save_statistics

ROWS = pa.schema([pa.field("id", pa.int64()), ("v", pa.string()), ("x", pa.float64()), ("p", pa.string())])
KEYED = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), ("n", pa.int32())])
INDEXES = {
    "file-index.bitmap.columns": "v",
    "file-index.bloom-filter.columns": "v",
    "file-index.range-bitmap.columns": "id",
    "file-index.bsi.columns": "id",
}
SEPARATE = {**INDEXES, "file-index.in-manifest-threshold": "1 b"}
DV = {"deletion-vectors.enabled": "true"}
QUICK = {"commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "1 ms"}


def rows(start: int, stop: int) -> pa.Table:
    """Rows of an append table: eight values of ``v``, every fifth one NULL."""
    ids = range(start, stop)
    values = [None if i % 5 == 0 else f"value {i % 8}" for i in ids]
    made = {"id": list(ids), "v": values, "x": [i / 3 for i in ids], "p": [f"p{i % 2}" for i in ids]}
    return pa.table(made, schema=ROWS)


def keyed_rows(ids: Sequence[int], word: str) -> pa.Table:
    """Rows of a primary-key table."""
    return pa.table({"id": list(ids), "v": [f"{word} {i % 7}" for i in ids], "n": list(ids)}, schema=KEYED)


def create(root: Path, schema: pa.Schema, options: dict[str, str], partition_by: Sequence[str] = ()) -> Table:
    """The table ``t`` of a lake."""
    lake = bitlake.connect(str(root))
    return lake.create_table("t", schema, options={**QUICK, **options}, partition_by=partition_by)


# --- tables of every kind ---------------------------------------------------------------------------------------------


def append(root: Path) -> Table:
    """Partitions, every index, deletion vectors, a tag, a branch, a consumer, statistics."""
    table = create(root, ROWS, {**SEPARATE, **DV}, ["p"])
    table.append(rows(0, 40))
    table.append(rows(40, 60))
    table.history.create_tag("monday")
    table.history.create_branch("dev", "monday")
    table.delete("id = 3 OR id = 44")
    state = table._core.state()
    save_statistics(state, 58, {"id": ColumnStatistics(distinct_count=58, min="0", max="59", null_count=0)}, "me")
    consumer = Path(table.path) / "consumer" / "consumer-c"
    consumer.parent.mkdir()
    consumer.write_text('{"nextSnapshot" : 2}')
    return table


def embedded(root: Path) -> Table:
    """Indexes in the manifest."""
    table = create(root, ROWS, {**INDEXES, "file-index.in-manifest-threshold": "1 mb"})
    table.append(rows(0, 40))
    return table


def bucketed(root: Path) -> Table:
    """An append table of two buckets."""
    table = create(root, ROWS, {"bucket": "2", "bucket-key": "id"})
    table.append(rows(0, 40))
    table.append(rows(40, 60))
    return table


def keyed(root: Path, **more: str) -> Table:
    """A primary key, two buckets, several rounds of writing and deleting."""
    table = create(root, KEYED, {"bucket": "2", "primary-key": "id", **SEPARATE, **more})
    table.upsert(keyed_rows(range(60), "first"))
    table.upsert(keyed_rows(range(30, 90), "second"))
    gone = range(20)
    table.upsert(keyed_rows(gone, "gone"), kinds=pa.array([3] * len(gone), pa.int8()))
    table.upsert(keyed_rows(range(80, 120), "third"))
    return table


def keyed_of(file_format: str, root: Path) -> Table:
    """As :func:`keyed`, in another file format."""
    return keyed(root, **{"file.format": file_format})


def vectors(root: Path) -> Table:
    """A primary key with deletion vectors."""
    return keyed(root, **DV)


def layered(root: Path) -> Table:
    """A primary key with a level of several files: small targets, changelogs, and level 0 on top."""
    small = {"target-file-size": "1 kb", "changelog-producer": "input", "file-index.range-bitmap.columns": "id"}
    table = create(root, KEYED, {"bucket": "1", "primary-key": "id", "write-only": "true", **small})
    for i in range(3):
        table.upsert(keyed_rows(range(i * 3000, i * 3000 + 4000), f"round {i}"))
    table.alter_options({"write-only": "false"})
    table.maintenance.compact(full=True)
    table.upsert(keyed_rows(range(100), "late"))
    return table


def dynamic(root: Path) -> Table:
    """Dynamic buckets with a HASH index."""
    table = create(root, KEYED, {"bucket": "-1", "primary-key": "id", "dynamic-bucket.target-row-num": "30"})
    table.upsert(keyed_rows(range(50), "first"))
    table.upsert(keyed_rows(range(20, 80), "second"))
    return table


# --- damage -----------------------------------------------------------------------------------------------------------


class Patient:
    """A copy of a table that is damaged on purpose."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.root = Path(table.path)

    # Files of each kind.

    def file(self, pattern: str, which: int = 0) -> Path:
        """A file by its pattern, in the order of names."""
        found = sorted(self.root.glob(pattern))
        assert found, pattern
        return found[which]

    def data(
        self, which: int = 0, where: Callable[[ManifestEntry], bool] = lambda e: True
    ) -> tuple[Path, ManifestEntry]:
        """A live data file that fits, with its entry."""
        entries = [e for e in self.table._core.state().entries() if where(e)]
        entry = sorted(entries, key=lambda e: (e.partition, e.bucket, -e.file.row_count, e.file.file_name))[which]
        return self.path(entry), entry

    def path(self, entry: ManifestEntry) -> Path:
        """Where a data file is."""
        state = self.table._core.state()
        return Path(PartitionReader(state.schema, state.paths).data_path(entry))

    def listed(self, kind: str = "delta") -> Path:
        """A manifest list of the latest snapshot."""
        name: str = self.snapshot()[f"{kind}ManifestList"]
        return self.root / "manifest" / name

    def index(self, kind: str, which: int = 0) -> tuple[Path, IndexFileEntry]:
        """A table index file of the latest snapshot, with its entry."""
        entries = decode_index_manifest((self.root / "manifest" / self.snapshot()["indexManifest"]).read_bytes())
        found = [e for e in entries if e.index_type == kind and e.row_count]
        return self.root / "index" / found[which].file_name, found[which]

    # Bytes.

    @staticmethod
    def flip(path: Path, at: int) -> str:
        """Change a byte; returns the file's name."""
        data = bytearray(path.read_bytes())
        data[at] ^= 0xFF
        path.write_bytes(bytes(data))
        return path.name

    def flip_page_index(self) -> str:
        """Change where the first column's first page of a Parquet file begins; returns the file's name."""
        path = self.data()[0]
        data = path.read_bytes()
        footer = read_footer(lambda offset, length: data[offset : offset + length], len(data))
        chunk = footer.row_groups[0].chunks[0]
        assert chunk.index_offset is not None
        return self.flip(path, chunk.index_offset + 3)

    @staticmethod
    def cut(path: Path, share: float = 0.5) -> str:
        """Keep the first part of a file."""
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * share)])
        return path.name

    @staticmethod
    def remove(path: Path) -> str:
        """Delete a file."""
        path.unlink()
        return path.name

    # Small files.

    def last(self) -> int:
        """The latest snapshot's number."""
        return max(int(p.name.split("-")[1]) for p in self.root.glob("snapshot/snapshot-*"))

    def snapshot(self, number: int | None = None) -> dict[str, Any]:
        """A snapshot's members."""
        found: dict[str, Any] = json.loads((self.root / f"snapshot/snapshot-{number or self.last()}").read_text())
        return found

    def change_snapshot(self, number: int | None = None, **members: Any) -> str:
        """Change members of a snapshot's file."""
        path = self.root / f"snapshot/snapshot-{number or self.last()}"
        path.write_text(json.dumps({**json.loads(path.read_text()), **members}))
        return path.name

    def change_schema(self, change: Callable[[dict[str, Any]], None], number: int = 0) -> str:
        """Change a schema's file."""
        path = self.root / f"schema/schema-{number}"
        found = json.loads(path.read_text())
        change(found)
        path.write_text(json.dumps(found))
        return path.name

    # Manifests: what names them is made to agree, so that only the damage that is meant shows.

    def change_manifests(self, change: Callable[[list[ManifestEntry]], list[ManifestEntry]]) -> None:
        """Change the entries of every manifest."""
        types = [f.type for f in self._schema().partition_fields]

        def rewritten(meta: ManifestFileMeta) -> ManifestFileMeta:
            path = self.root / "manifest" / meta.file_name
            entries = decode_manifest(path.read_bytes())
            changed = change(entries)
            if changed == entries:
                return meta
            data = encode_manifest(changed)
            path.write_bytes(data)
            return manifest_meta(meta.file_name, len(data), changed, types)

        done: dict[str, ManifestFileMeta] = {}
        for path in sorted(self.root.glob("manifest/manifest-list-*")):
            metas = decode_manifest_list(path.read_bytes())
            for m in metas:
                if m.file_name not in done:
                    done[m.file_name] = rewritten(m)
            path.write_bytes(encode_manifest_list([done[m.file_name] for m in metas]))
        self.resize()

    def change_entries(self, name: str, change: Callable[[ManifestEntry], ManifestEntry]) -> str:
        """Change the entries of one data file, wherever they are; returns its name."""
        self.change_manifests(lambda entries: [change(e) if e.file.file_name == name else e for e in entries])
        return name

    def change_file(self, name: str, **changes: Any) -> str:
        """Change what entries say of one data file; returns its name."""
        return self.change_entries(name, lambda e: replace(e, file=replace(e.file, **changes)))

    def change_metas(self, change: Callable[[ManifestFileMeta], ManifestFileMeta]) -> str:
        """Change what lists say of their manifests; returns a manifest's name."""
        name = ""
        for path in sorted(self.root.glob("manifest/manifest-list-*")):
            metas = decode_manifest_list(path.read_bytes())
            path.write_bytes(encode_manifest_list([change(m) for m in metas]))
            name = metas[0].file_name if metas else name
        self.resize()
        return name

    def change_index(self, change: Callable[[IndexFileEntry], IndexFileEntry]) -> str:
        """Change the entries of every index manifest; returns the name of one index file of the latest snapshot."""
        for path in sorted(self.root.glob("manifest/index-manifest-*")):
            entries = decode_index_manifest(path.read_bytes())
            path.write_bytes(encode_index_manifest([change(e) for e in entries]))
        entries = decode_index_manifest((self.root / "manifest" / self.snapshot()["indexManifest"]).read_bytes())
        return entries[0].file_name

    def replace_data(self, which: int, change: Callable[[pa.Table], pa.Table], **writing: Any) -> str:
        """Write a data file anew, with other rows; its size is made to agree.  Returns its name."""
        path, _ = self.data(which)
        rows = change(pq.read_table(path, partitioning=None))
        pq.write_table(rows, path, compression="zstd", **writing)
        return self.change_file(path.name, file_size=path.stat().st_size)

    def repeated(self, name: str) -> str:
        """A data file's ADD twice."""
        self.change_manifests(
            lambda entries: [
                e
                for entry in entries
                for e in ([entry, entry] if entry.file.file_name == name and entry.kind is EntryKind.ADD else [entry])
            ]
        )
        return name

    def _schema(self) -> TableSchema:
        path = max(self.root.glob("schema/schema-*"), key=lambda p: int(p.name.split("-")[1]))
        return TableSchema.from_json(path.read_bytes())

    def resize(self) -> None:
        """Say the sizes of lists in snapshots, tags and branches as they are now."""
        for pattern in ("snapshot/snapshot-*", "tag/tag-*", "branch/*/snapshot/snapshot-*", "branch/*/tag/tag-*"):
            for path in self.root.glob(pattern):
                found = json.loads(path.read_text())
                for member in ("base", "delta", "changelog"):
                    name = found.get(f"{member}ManifestList")
                    if name is not None:
                        found[f"{member}ManifestListSize"] = (self.root / "manifest" / name).stat().st_size
                path.write_text(json.dumps(found))


def opened(root: Path) -> Table:
    """The table ``t`` of a lake's copy, without looking at it: it may be damaged."""
    path = root / "default.db" / "t"
    return Table(FileStoreTable("t", str(path), LocalStore(), opened=True))
