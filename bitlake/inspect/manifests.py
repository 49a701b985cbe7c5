"""The records of manifest lists, manifests and index manifests, as nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitlake.formatting import counted
from bitlake.inspect.avro_files import avro_tree
from bitlake.inspect.context import TableContext, shown
from bitlake.inspect.source import Source
from bitlake.inspect.tree import Page, Tree
from bitlake.metadata.index_manifest import IndexFileEntry, decode_index_manifest
from bitlake.metadata.manifest import (
    DataFileMeta,
    FileSource,
    ManifestEntry,
    ManifestFileMeta,
    decode_manifest,
    decode_manifest_list,
)
from bitlake.metadata.stats import column_stats


def manifest_list_tree(tree: Tree, source: Source, page: Page, context: TableContext) -> None:
    """A manifest list: its manifests."""

    def describe(node: Tree, meta: ManifestFileMeta) -> None:
        node.name = meta.file_name
        node.facts.update(_known(
            bytes=meta.file_size, added=meta.num_added_files, deleted=meta.num_deleted_files, schema=meta.schema_id,
            buckets=_span(meta.min_bucket, meta.max_bucket), levels=_span(meta.min_level, meta.max_level),
        ))  # fmt: skip
        fields = context.partition_fields
        low, high = context.values(fields, meta.partition_stats.min), context.values(fields, meta.partition_stats.max)
        if fields and low and high:
            node.facts["partitions"] = f"{_spec(low)} … {_spec(high)}"

    avro_tree(tree, source, page, decode_manifest_list, describe, "manifests")


def manifest_tree(tree: Tree, source: Source, page: Page, context: TableContext, column: str | None) -> None:
    """A manifest: its changes of data files; with statistics of one column, or of all where one entry is shown."""

    def describe(node: Tree, entry: ManifestEntry) -> None:
        file = entry.file
        node.name = f"{entry.kind.name} {file.file_name}"
        partition = context.values(context.partition_fields, entry.partition)
        node.facts.update(_known(
            partition=_spec(partition) if partition else None, bucket=entry.bucket, of=entry.total_buckets,
            level=file.level, rows=file.row_count, bytes=file.file_size, schema=file.schema_id,
            sequence=_span(file.min_sequence_number, file.max_sequence_number),
            deletes=file.delete_row_count or None,
            source=None if file.file_source is None else _source(file.file_source),
            **{"beside it": list(file.extra_files) or None, "external path": file.external_path},
        ))  # fmt: skip
        if file.embedded_index is not None:
            node.facts["embedded index"] = counted(len(file.embedded_index), "byte")
        _keys(node, file, context)
        _statistics(node, file, context, column, page.limit == 1)

    avro_tree(tree, source, page, decode_manifest, describe, "entries")


def index_manifest_tree(tree: Tree, source: Source, page: Page, context: TableContext) -> None:
    """An index manifest: the table's index files, and the vectors in each."""

    def describe(node: Tree, entry: IndexFileEntry) -> None:
        node.name = entry.file_name
        partition = context.values(context.partition_fields, entry.partition)
        node.facts.update(_known(
            type=entry.index_type, partition=_spec(partition) if partition else None, bucket=entry.bucket,
            bytes=entry.file_size, **{"hashes" if entry.ranges is None else "vectors": entry.row_count},
        ))  # fmt: skip
        for place in (entry.ranges or ())[: page.limit]:
            told = _known(**{"vector at": place.offset, "length": place.length, "deleted": place.cardinality})
            node.add(place.data_file, facts=told)
        node.more = max(0, len(entry.ranges or ()) - page.limit)

    avro_tree(tree, source, page, decode_index_manifest, describe, "index files")


def _keys(node: Tree, file: DataFileMeta, context: TableContext) -> None:
    fields = context.key_fields(file.schema_id)
    if fields:
        low, high = context.values(fields, file.min_key), context.values(fields, file.max_key)
        if low and high:
            node.facts["keys"] = f"{_spec(low)} … {_spec(high)}"


def _statistics(node: Tree, file: DataFileMeta, context: TableContext, column: str | None, every: bool) -> None:
    schema = context.schema(file.schema_id)
    if schema is None:
        return
    stats = column_stats(file, schema.fields)
    names = [f for f in schema.fields if f.name in stats]
    if column is None and not every:
        node.facts["statistics"] = f"of {len(names)} columns"
        return
    for field in names:
        if column is None or field.name.lower() == column.lower():
            found = stats[field.name]
            told = {"smallest": shown(field, found.min), "largest": shown(field, found.max), "NULLs": found.null_count}
            node.add(f"statistics of {field.name}", facts=told)


def _spec(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={'NULL' if v is None else v}" for k, v in values.items())


def _known(**facts: Any) -> dict[str, Any]:
    return {k: v for k, v in facts.items() if v is not None}


def _span(low: int | None, high: int | None) -> str | None:
    return None if low is None or high is None else str(low) if low == high else f"{low}-{high}"


def _source(code: int) -> str:
    return FileSource(code).name if code in set(FileSource) else str(code)
