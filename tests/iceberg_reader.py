"""Reads Iceberg metadata by the specification alone, without bitlake: rows, and what must hold of every file.

Used by the tests of :mod:`bitlake.snapshot.iceberg_metadata`; `make interop` reads such tables with
pyiceberg, DuckDB and Polars.
"""

from __future__ import annotations

import datetime
import io
import itertools
import json
import struct
import zlib
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import fastavro.read
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

EPOCH = datetime.datetime(1970, 1, 1)
_FORMS = {"int": "<i", "date": "<i", "long": "<q", "float": "<f", "double": "<d", "time": "<q"}


@dataclass
class IcebergTable:
    """The table that a folder of metadata describes, at the version of its hint."""

    folder: Path
    metadata: dict[str, Any]

    @staticmethod
    def open(folder: Path) -> IcebergTable:
        version = int((folder / "version-hint.text").read_text())
        return IcebergTable(folder, json.loads((folder / f"v{version}.metadata.json").read_text()))

    @property
    def current(self) -> dict[str, Any]:
        return self.snapshot(self.metadata["current-snapshot-id"])

    def snapshot(self, number: int) -> dict[str, Any]:
        (found,) = [s for s in self.metadata["snapshots"] if s["snapshot-id"] == number]
        return found

    @property
    def version(self) -> int:
        return self.metadata["format-version"]

    @property
    def schema(self) -> dict[str, Any]:
        (found,) = [s for s in self.metadata["schemas"] if s["schema-id"] == self.metadata["current-schema-id"]]
        return found

    def manifests(self, snapshot: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        return avro((snapshot or self.current)["manifest-list"])[1]

    def entries(self, content: int = 0, snapshot: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """All entries, deleted ones too, of the manifests of data (0) or of deletes (1)."""
        return [e for m in self.manifests(snapshot) if m["content"] == content for e in avro(m["manifest_path"])[1]]

    def live(self, content: int = 0, snapshot: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        return [e["data_file"] for e in self.entries(content, snapshot) if e["status"] != 2]

    def files(self) -> list[str]:
        return sorted(str(local(f["file_path"])) for f in self.live())

    def rows(self, snapshot_id: int | None = None) -> list[dict[str, Any]]:
        """The rows of a snapshot, with the columns of the current schema by their ids."""
        snapshot = self.current if snapshot_id is None else self.snapshot(snapshot_id)
        vectors = {f["referenced_data_file"]: f for f in self.live(1, snapshot)}
        out = []
        for file in self.live(0, snapshot):
            table = pq.read_table(local(file["file_path"]), partitioning=None)
            by_id = {int(f.metadata[b"PARQUET:field_id"]): f.name for f in table.schema if f.metadata}
            gone = deleted_rows(vectors[file["file_path"]]) if file["file_path"] in vectors else BitMap()
            names = [(f["name"], by_id.get(f["id"])) for f in self.schema["fields"]]
            columns = {
                name: [None] * table.num_rows if stored is None else table.column(stored).to_pylist()
                for name, stored in names
            }
            rows = zip(*columns.values(), strict=True)
            out += [dict(zip(columns, row, strict=True)) for i, row in enumerate(rows) if i not in gone]
        return out

    def check(self) -> None:
        """Assert what the specification and every reader asks of the current snapshot's files."""
        meta, current = self.metadata, self.current
        ids = [s["snapshot-id"] for s in meta["snapshots"]]
        assert ids == sorted(set(ids)) and ids[-1] == meta["current-snapshot-id"] == meta["last-sequence-number"]
        assert all(s["sequence-number"] == s["snapshot-id"] for s in meta["snapshots"])
        assert {r["snapshot-id"] for r in meta["refs"].values()} <= set(ids)
        assert all(r["type"] == "tag" for r in meta["refs"].values())
        assert self.schema["schema-id"] == current["schema-id"]
        assert max(f["id"] for f in self.schema["fields"]) <= meta["last-column-id"]
        paths = Counter(f["file_path"] for f in self.live())
        assert not [p for p, n in paths.items() if n > 1], "a file is listed twice"
        for manifest in self.manifests():
            self._check_manifest(manifest, current["snapshot-id"])
        self._check_summary(current)
        for file in self.live():
            self._check_file(file)
        vectors = self.live(1)
        assert len({v["referenced_data_file"] for v in vectors}) == len(vectors)
        assert {v["referenced_data_file"] for v in vectors} <= set(paths)
        if self.version >= 3:
            self._check_row_ids()

    def _check_manifest(self, manifest: dict[str, Any], current: int) -> None:
        path = local(manifest["manifest_path"])
        assert path.parent == self.folder and manifest["manifest_length"] == path.stat().st_size
        header, entries = avro(manifest["manifest_path"])
        assert header["format-version"] == str(self.version)
        assert header["content"] == ("data", "deletes")[manifest["content"]]
        assert json.loads(header["partition-spec"]) == self.metadata["partition-specs"][0]["fields"]
        assert json.loads(header["schema"])["schema-id"] == int(header["schema-id"])
        counts = Counter(e["status"] for e in entries)
        rows = {s: sum(e["data_file"]["record_count"] for e in entries if e["status"] == s) for s in range(3)}
        for status, word in ((1, "added"), (0, "existing"), (2, "deleted")):
            assert manifest[f"{word}_files_count"] == counts[status]
            assert manifest[f"{word}_rows_count"] == rows[status]
        assert manifest["min_sequence_number"] <= min(e["sequence_number"] for e in entries)
        assert manifest["sequence_number"] == manifest["added_snapshot_id"] <= current
        for e in entries:
            assert e["sequence_number"] == e["file_sequence_number"] <= manifest["sequence_number"]
            wrote = manifest["added_snapshot_id"]
            assert e["snapshot_id"] == wrote if e["status"] == 2 else e["snapshot_id"] == e["sequence_number"]
            assert (e["status"] == 1) == (e["status"] != 2 and e["snapshot_id"] == wrote)
        names = [f["name"] for f in self.metadata["partition-specs"][0]["fields"]]
        assert len(manifest["partitions"]) == len(names)
        for i, summary in enumerate(manifest["partitions"]):
            values = [list(e["data_file"]["partition"].values())[i] for e in entries]
            assert summary["contains_null"] or None not in values

    def _check_summary(self, snapshot: dict[str, Any]) -> None:
        summary, live = snapshot["summary"], self.live()
        assert int(summary["total-data-files"]) == len(live)
        assert int(summary["total-records"]) == sum(f["record_count"] for f in live)
        assert int(summary["total-files-size"]) == sum(f["file_size_in_bytes"] for f in live)
        assert int(summary["total-delete-files"]) == len(self.live(1))
        added = [e for e in self.entries() if e["status"] == 1 and e["snapshot_id"] == snapshot["snapshot-id"]]
        assert int(summary["added-data-files"]) == len(added)
        removed = [e for e in self.entries() if e["status"] == 2 and e["snapshot_id"] == snapshot["snapshot-id"]]
        assert int(summary["deleted-data-files"]) == len(removed)

    def _check_file(self, file: dict[str, Any]) -> None:
        """The size, the rows, the partition and the bounds are those of the file."""
        path = local(file["file_path"])
        assert path.stat().st_size == file["file_size_in_bytes"]
        if file["file_format"] != "parquet":
            return
        table = pq.read_table(path, partitioning=None)
        assert table.num_rows == file["record_count"]
        types = {f["id"]: f["type"] for s in self.metadata["schemas"] for f in s["fields"]}
        columns = {int(f.metadata[b"PARQUET:field_id"]): table.column(f.name) for f in table.schema if f.metadata}
        spec = self.metadata["partition-specs"][0]["fields"]
        for field, value in zip(spec, file["partition"].values(), strict=True):
            stored = columns[field["source-id"]]
            if pa.types.is_timestamp(stored.type) and stored.type.tz is None:
                value = value.replace(tzinfo=None)  # fastavro makes each one an instant
            assert set(stored.to_pylist()) == {value}
        for number, count in pairs(file["null_value_counts"]):
            assert columns[number].null_count == count
        for side in ("lower_bounds", "upper_bounds"):
            for number, data in pairs(file[side]):
                bound = value_of(types[number], data)
                for value in columns[number].to_pylist():
                    if value is not None and not isinstance(value, (datetime.time, bytes)):
                        low, high = (bound, value) if side == "lower_bounds" else (value, bound)
                        assert low <= high, (number, side, bound, value)

    def _check_row_ids(self) -> None:
        """Row ids of live files do not overlap, and are below the next one."""
        taken = []
        for m in self.manifests():
            if m["content"] == 1:
                assert m["first_row_id"] is None
                continue
            following = m["first_row_id"]
            for e in avro(m["manifest_path"])[1]:
                file = e["data_file"]
                if e["status"] == 2:
                    continue
                first = file["first_row_id"]
                if first is None:
                    first, following = following, following + file["record_count"]
                taken.append((first, first + file["record_count"]))
        taken.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(taken))
        assert not taken or taken[-1][1] <= self.metadata["next-row-id"]


def _read_snappy(stream: Any) -> io.BytesIO:
    """A block of an Avro file: fastavro itself needs another library for Snappy."""
    number = _varint(stream)
    size = (number >> 1) ^ -(number & 1)
    body, checksum = stream.read(size - 4), stream.read(4)
    data = pa.decompress(body, _varint(io.BytesIO(body)), "snappy", asbytes=True)
    assert zlib.crc32(data) == int.from_bytes(checksum, "big")
    return io.BytesIO(data)


def _varint(stream: Any) -> int:
    value = shift = 0
    while True:
        (byte,) = stream.read(1)
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value


fastavro.read.BLOCK_READERS["snappy"] = _read_snappy


def local(uri: str) -> Path:
    """The path of a file that metadata names, as Paimon (Java) writes it."""
    assert uri.startswith("file:/") and not uri.startswith("file://")
    return Path(uri.removeprefix("file:"))


def avro(path: str) -> tuple[dict[str, str], list[dict[str, Any]]]:
    with local(path).open("rb") as stream:
        reader = fastavro.reader(stream)
        return dict(reader.metadata), list(reader)


def pairs(made: list[dict[str, Any]] | None) -> list[tuple[int, Any]]:
    return [(p["key"], p["value"]) for p in made or ()]


def value_of(made: str, data: bytes) -> Any:
    """A bound as Python has it."""
    if made == "boolean":
        return data != b"\0"
    if made == "string":
        return data.decode()
    if made == "binary":
        return data
    if made.startswith("decimal"):
        scale = int(made.rstrip(")").split(",")[1])
        return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale)
    if made.startswith("timestamp"):
        found = EPOCH + datetime.timedelta(microseconds=struct.unpack("<q", data)[0])
        return found.replace(tzinfo=datetime.UTC) if made == "timestamptz" else found
    (number,) = struct.unpack(_FORMS[made], data)
    return EPOCH.date() + datetime.timedelta(days=number) if made == "date" else number


def deleted_rows(file: dict[str, Any]) -> BitMap:
    """A deletion vector as the Puffin specification draws it: size, magic, bitmaps by key, checksum."""
    data = local(file["file_path"]).read_bytes()
    assert data[:4] == data[-4:] == b"PFA1" and data[-8:-4] == bytes(4)
    length = int.from_bytes(data[-12:-8], "little")
    footer = json.loads(data[-12 - length : -12])
    assert data[-16 - length : -12 - length] == b"PFA1"
    (found,) = [b for b in footer["blobs"] if b["properties"]["referenced-data-file"] == file["referenced_data_file"]]
    assert (found["offset"], found["length"]) == (file["content_offset"], file["content_size_in_bytes"])
    assert found["properties"]["cardinality"] == str(file["record_count"]) and found["type"] == "deletion-vector-v1"
    blob = data[file["content_offset"] :][: file["content_size_in_bytes"]]
    size = int.from_bytes(blob[:4], "big")
    body = blob[4:-4]
    assert size == len(body) and body[:4] == bytes([0xD1, 0xD3, 0x39, 0x64])
    assert int.from_bytes(blob[-4:], "big") == zlib.crc32(body)
    assert file["file_format"] == "puffin" and file["content"] == 1
    assert int.from_bytes(body[4:12], "little") == 1 and body[12:16] == bytes(4)
    rows = BitMap.deserialize(body[16:])
    assert len(rows) == file["record_count"]
    return rows


def sorted_rows(rows: list[dict[str, Any]] | pa.Table) -> list[tuple[Any, ...]]:
    """Rows in an order of their own, for comparison."""
    found = rows.to_pylist() if isinstance(rows, pa.Table) else rows
    return sorted((tuple(sorted(r.items(), key=lambda c: c[0])) for r in found), key=repr)
