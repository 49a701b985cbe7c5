"""What is fuzzed: each format's good files, and a function that reads one the way queries do.

A reader may return anything or raise :class:`bitlake.errors.BitlakeError`; whatever else comes out of it is a bug.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc as arrow_orc

from bitlake.expressions.binder import bind
from bitlake.expressions.parser import parse_predicate
from bitlake.fileindex.container import encode_container
from bitlake.fileindex.reader import open_index
from bitlake.fileindex.registry import INDEX_TYPES, IndexBuilder, parse_index_options
from bitlake.formats import avro, orc
from bitlake.formats.file_format import open_writer
from bitlake.formats.parquet.decode import read_columns
from bitlake.formats.parquet.footer import footer_stats, read_footer
from bitlake.formats.parquet.page_index import load_pages
from bitlake.metadata.manifest import decode_manifest, decode_manifest_list
from bitlake.metadata.schema import TableSchema, assign_ids
from bitlake.metadata.snapshot import Snapshot
from bitlake.metadata.stats import column_stats
from bitlake.types import DataField
from bitlake.types.arrow import from_arrow
from tests.builders import EVERY_TYPE
from tests.fileindex.payloads import leaf_of, parsed
from tests.fixtures import payloads, warehouse
from tests.formats.parquet_files import read_rows
from tests.fuzz.table_indexes import deletion_vectors, hashes, index_manifests
from tests.fuzz.target import Read, Target, guarded, uncompressed


def _index(kind: str) -> Target:
    seeds: list[tuple[bytes, Read]] = []
    for line in payloads():
        if line["index"] != kind or "bytes" not in line:
            continue
        type_, values = parsed(line)
        leaves = [leaf for answer in line["answers"][:12] if (leaf := leaf_of(type_, answer[0])) is not None]

        def read(data: bytes, type_: Any = type_, rows: int = len(values), leaves: Any = leaves) -> None:
            reader: Any = INDEX_TYPES[kind].reader(type_, lambda at, n: data[at : at + n], len(data), rows)
            steps: list[Callable[[], object]] = [functools.partial(reader.test, leaf) for leaf in leaves]
            for name, rows_too in (("value_counts", True), ("distinct", False), ("extremes", True)):
                if hasattr(reader, name):
                    question = getattr(reader, name)
                    steps.append(functools.partial(question, None) if rows_too else question)
            if hasattr(reader, "top_n"):
                steps.append(lambda: reader.top_n(3, True, False, None, True))
            guarded(*steps)

        seeds.append((bytes.fromhex(line["bytes"]), read))
    return Target(kind, seeds)


def _fields(schema: pa.Schema) -> tuple[DataField, ...]:
    return tuple(assign_ids([(f.name, from_arrow(f.type, f.nullable), None) for f in schema])[0])


_SMALL = pa.schema(
    [
        pa.field("i", pa.int32()),
        pa.field("s", pa.string()),
        pa.field("d", pa.date32()),
        pa.field("n", pa.decimal128(12, 2)),
        pa.field("f", pa.float64()),
        pa.field("b", pa.bool_()),
        pa.field("t", pa.timestamp("us")),
        pa.field("m", pa.map_(pa.string(), pa.string())),
        pa.field("l", pa.list_(pa.int64())),
    ]
)


def _rows(count: int = 300) -> pa.Table:
    rows = [
        {
            "i": None if i % 11 == 0 else i % 20,
            "s": None if i % 7 == 0 else f"value-{i % 13}",
            "d": i % 40,
            "n": None,
            "f": i / 3,
            "b": i % 2 == 0,
            "t": i * 1_000_000,
            "m": [("a", f"x{i % 5}")] if i % 3 else None,
            "l": list(range(i % 4)),
        }
        for i in range(count)
    ]
    return pa.Table.from_pylist(rows, _SMALL)


def _container() -> Target:
    fields = _fields(_SMALL)
    predicates = [
        bind(parse_predicate(t), fields)
        for t in (
            "i = 5 AND s = 'value-3'",
            "s IN ('value-1', 'q') OR d > DATE'1970-01-20'",
            "m['a'] = 'x2'",
            "n IS NULL",
        )
    ]

    def read(data: bytes) -> None:
        index = open_index(lambda at, n: data[at : at + n], len(data), fields, 300)
        for predicate in predicates:
            index.evaluate(predicate)

    seeds = []
    for options in (
        {"bitmap": "i,s", "bloom-filter": "s,m[a]", "bsi": "d", "range-bitmap": "i"},
        {"bitmap": "b,t", "bsi": "n"},
        {"bloom-filter": "i,s,d,f,t"},
    ):
        builder = IndexBuilder(
            parse_index_options({f"file-index.{k}.columns": v for k, v in options.items()}, fields), fields
        )
        builder.add(_rows())
        made = builder.payloads()
        seeds += [(encode_container(made, checksums=checksums), read) for checksums in (False, True)]
    for path in sorted(warehouse().rglob("*.index"))[:6]:
        seeds.append((path.read_bytes(), read))
    return Target("container", seeds)


@functools.cache
def _parquet_files() -> list[bytes]:
    out = []
    for compression, page_rows in (("zstd", 64), ("none", 50), ("snappy", 4096)):
        sink = io.BytesIO()
        from bitlake.formats.parquet.write import ParquetWriter

        writer = ParquetWriter(sink, _fields(_SMALL), compression=compression, page_rows=page_rows, row_group_rows=200)
        writer.write(_rows())
        writer.close()
        out.append(sink.getvalue())
    files = [p for p in sorted(warehouse().rglob("data-*.parquet")) if p.stat().st_size < 6000]
    return out + [p.read_bytes() for p in files[::40][:6]]


def _parquet_footer() -> Target:
    """Damage to the end of the file only: footer, offset indexes, and what points at pages."""

    def whole(body: bytes) -> Read:
        def read(tail: bytes) -> None:
            data = body + tail
            footer = read_footer(lambda at, n: data[at : at + n], len(data))
            wanted = [(g, leaf) for g in range(len(footer.row_groups)) for leaf in range(len(footer.leaves))]
            load_pages(footer, lambda ranges: [data[a : a + n] for a, n in ranges], wanted[:200])
            footer_stats(footer, _fields(_SMALL))

        return read

    seeds = []
    for data in _parquet_files():
        footer = read_footer(lambda at, n, data=data: data[at : at + n], len(data))  # type: ignore[misc]
        at = min(
            [c.index_offset for g in footer.row_groups for c in g.chunks if c.index_offset is not None]
            or [len(data) - 8 - int.from_bytes(data[-8:-4], "little")]
        )
        seeds.append((data[at:], whole(data[:at])))
    return Target("parquet-footer", seeds)


def _parquet() -> Target:
    """Damage anywhere, also in pages: chosen rows, then the whole file."""

    def read(data: bytes) -> None:
        def chosen() -> None:
            footer = read_footer(lambda at, n: data[at : at + n], len(data))
            rows = np.array([r for r in (0, 3, 70, 140, 280) if r < footer.rows], np.int64)
            names = list(footer.columns)[:12]
            read_rows(footer, lambda ranges: [data[a : a + n] for a, n in ranges], rows, names)

        def whole() -> None:
            for _ in read_columns(pa.BufferReader(data), use_threads=False):
                pass

        guarded(chosen, whole)

    return Target("parquet", [(data, read) for data in _parquet_files()])


def _reads(module: Any) -> Read:
    def read(data: bytes) -> None:
        for _ in module.read_columns(pa.BufferReader(data)):
            pass

    return read


def _written(name: str) -> list[bytes]:
    """Files of a format without pages: two by bitlake, Paimon's smallest."""
    out = []
    for compression in ("none", "zstd"):
        sink = io.BytesIO()
        writer = open_writer(name, sink, _fields(_SMALL), compression=compression, level=1, group_bytes=1 << 20)
        writer.write(_rows(100 if compression == "none" else 1000))
        writer.close()
        out.append(sink.getvalue())
    return [*out, min(warehouse().rglob(f"data-*.{name}"), key=lambda p: p.stat().st_size).read_bytes()]


def _avro() -> Target:
    return Target("avro", [(data, _reads(avro)) for data in _written("avro")])


def _orc() -> Target:
    rows = 120
    numbers = np.arange(rows)
    table = pa.table(
        {
            "repeated": pa.array(numbers // 40, pa.int32()),
            "patched": pa.array(np.where(numbers % 37 == 5, 1 << 50, numbers * 7919 % 100)),
            "text": pa.array([None if n % 5 == 0 else f"{n * 31 % 1000}-{n:x}" * (n % 3) for n in numbers]),
            "word": pa.array(["PENDING", "DONE", "X"] * (rows // 3)),
            "bytes": pa.array([bytes([n]) * (n % 4) for n in numbers], pa.binary()),
            "wide": pa.array([None if n % 9 == 0 else n for n in numbers.tolist()]).cast(pa.decimal128(30, 4)),
            "tiny": pa.array(numbers % 100, pa.int8()),
            "float": pa.array(numbers / 7, pa.float32()),
            "moment": pa.array(numbers * 86_400_000_123, pa.timestamp("us")),
            "zoned": pa.array(numbers * 1_000_000, pa.timestamp("us", "UTC")),
            "nested": pa.array([{"a": int(n), "b": [str(n)] * (n % 3)} if n % 4 else None for n in numbers]),
            "lists": pa.array([[[1, 2], []] * (n % 3) for n in numbers], pa.list_(pa.list_(pa.int64()))),
        }
    )
    files = _written("orc")
    for compression, threshold in (("uncompressed", 0.0), ("uncompressed", 1.0), ("zlib", 1.0), ("snappy", 0.0)):
        sink = io.BytesIO()
        arrow_orc.write_table(
            table.slice(0, 60 if compression == "zlib" else rows),
            sink,
            compression=compression,
            dictionary_key_size_threshold=threshold,
        )
        files.append(sink.getvalue())
    return Target("orc", [(data, _reads(orc)) for data in files])


def _manifests() -> Target:
    fields = _fields(EVERY_TYPE)

    def read(data: bytes) -> None:
        for entry in decode_manifest(data)[:50]:
            stats = column_stats(entry.file, fields)
            guarded(lambda stats=stats: [stats[n] for n in stats])  # type: ignore[misc]

    found = sorted(p for p in warehouse().rglob("manifest-*") if "list" not in p.name)
    seeds = [(p.read_bytes(), read) for p in found[::30][:6]]
    return Target("manifest", seeds + [(uncompressed(data), read) for data, _ in seeds])


def _manifest_lists() -> Target:
    found = sorted(warehouse().rglob("manifest-list-*"))
    seeds: list[tuple[bytes, Read]] = [(p.read_bytes(), decode_manifest_list) for p in found[::40][:6]]
    return Target("manifest-list", seeds + [(uncompressed(data), read) for data, read in seeds])


def _json(name: str, pattern: str, parse: Read) -> Target:
    found = [p for p in sorted(warehouse().rglob(pattern)) if p.is_file()]
    return Target(name, [(p.read_bytes(), parse) for p in found[:: max(1, len(found) // 12)]])


def _schema(data: bytes) -> None:
    schema = TableSchema.from_json(data)
    schema.to_json()
    guarded(lambda: parse_index_options(schema.options, schema.fields))


TARGETS: dict[str, Callable[[], Target]] = {
    **{kind: functools.partial(_index, kind) for kind in ("bloom-filter", "bitmap", "range-bitmap", "bsi")},
    "container": _container,
    "parquet-footer": _parquet_footer,
    "parquet": _parquet,
    "orc": _orc,
    "avro": _avro,
    "manifest": _manifests,
    "manifest-list": _manifest_lists,
    "deletion-vectors": deletion_vectors,
    "hash-index": hashes,
    "index-manifest": index_manifests,
    "snapshot": functools.partial(_json, "snapshot", "snapshot/snapshot-*", Snapshot.from_json),
    "schema": functools.partial(_json, "schema", "schema/schema-*", _schema),
}
