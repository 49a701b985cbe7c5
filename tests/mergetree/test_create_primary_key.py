"""CREATE TABLE with a primary key: keys, NOT NULL, and what Paimon forbids, each with its reason."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import InvalidRequest, UnsupportedFeature

COLUMNS = pa.schema([("Id", pa.int32()), ("p", pa.string()), ("v", pa.int64()), ("l", pa.list_(pa.int32()))])


def create(root: Path, partition_by: tuple[str, ...] = (), **options: str) -> bitlake.Table:
    named = {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}
    return bitlake.connect(root).create_table("t", COLUMNS, partition_by=partition_by, options=named)


def test_key_columns_become_not_null_and_the_option_goes(tmp_path: Path) -> None:
    schema = create(tmp_path, ("p",), primary_key="id, p").schema
    assert schema.primary_keys == ("Id", "p")
    assert schema.trimmed_primary_keys == ("Id",) == schema.bucket_keys
    assert [f.type.nullable for f in schema.fields] == [False, False, True, True]
    assert "primary-key" not in schema.options
    assert schema.num_buckets == -1


def test_the_key_as_an_argument(tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path)
    assert lake.create_table("t", COLUMNS, primary_key=["p", "Id"]).schema.primary_keys == ("p", "Id")
    with pytest.raises(InvalidRequest, match="given twice"):
        lake.create_table("u", COLUMNS, primary_key=["p"], options={"primary-key": "p"})


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("z", r"'z' is not among the columns Id, p"),
        ("Id,id", "'id' is named twice"),
        ("p", "no column besides partition columns"),
        ("l", "nested types"),
    ],
)
def test_a_key_that_cannot_be(tmp_path: Path, key: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        create(tmp_path, ("p",), primary_key=key)


def test_the_key_cannot_be_changed_later(tmp_path: Path) -> None:
    table = create(tmp_path, primary_key="Id")
    with pytest.raises(InvalidRequest, match="'primary-key' cannot be set once the table exists"):
        table.alter_options({"primary-key": "Id,p"})


# --- options ----------------------------------------------------------------------------------------------------------

MORE = pa.schema(
    [
        pa.field("id", pa.int32()),
        pa.field("p", pa.string()),
        pa.field("n", pa.int64()),
        pa.field("s", pa.string()),
        pa.field("b", pa.bool_()),
        pa.field("t", pa.timestamp("us")),
        pa.field("l", pa.list_(pa.int32())),
        pa.field("m", pa.map_(pa.string(), pa.int64())),
        pa.field("r", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        pa.field("lr", pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())]))),
        pa.field("mr", pa.map_(pa.string(), pa.struct([("x", pa.int32()), ("y", pa.string())]))),
        pa.field("raw", pa.binary()),
        pa.field("short", pa.map_(pa.string(), pa.struct([("x", pa.int32())]))),
    ]
)
PARTIAL = {"merge-engine": "partial-update"}
AGGREGATION = {"merge-engine": "aggregation"}


def aggregate(column: str, function: str, **more: str) -> dict[str, str]:
    return {
        **AGGREGATION,
        f"fields.{column}.aggregate-function": function,
        **{f"fields.{column}.{k.replace('_', '-')}": v for k, v in more.items()},
    }


REFUSED = [
    ({"merge-engine": "newest"}, "'merge-engine' = 'newest'.*deduplicate, partial-update, aggregation, first-row"),
    ({"changelog-producer": "some"}, "'changelog-producer' = 'some'.*none, input"),
    ({"bucket": "-3"}, "'bucket' = '-3'"),
    ({"bucket": "2", "bucket-key": "n"}, "'n' is not in the primary key"),
    ({"bucket-key": "id"}, "'bucket-key' needs 'bucket' to be a positive number"),
    ({"bucket": "2", "bucket-function.type": "mod", "primary-key": "s"}, "'mod' needs one INT or BIGINT key, not 's'"),
    # deletion vectors
    ({"deletion-vectors.enabled": "true", "changelog-producer": "full-compaction"}, "does not go with 'changelog-prod"),
    (
        {"deletion-vectors.enabled": "true", "merge-engine": "first-row"},
        "does not go with 'merge-engine' = 'first-row'",
    ),
    # changelog
    ({"merge-engine": "first-row", "changelog-producer": "input"}, "takes none or lookup"),
    ({"merge-engine": "aggregation", "fields.id.aggregate-function": "nope"}, "unknown aggregate function 'nope'"),
    ({"merge-engine": "first-row", "changelog-producer": "full-compaction"}, "takes none or lookup"),
    ({"changelog-producer": "lookup", "full-compaction.delta-commits": "3"}, "full-compaction.delta-commits"),
    ({"changelog-producer": "lookup", "streaming-read-overwrite": "true"}, "read twice"),
    ({"changelog.num-retained.min": "9", "changelog.num-retained.max": "3"}, "is above"),
    # sequence and other columns
    ({"sequence.field": "z"}, "names column 'z'"),
    ({"sequence.field": "n,n"}, "'n' twice"),
    ({"sequence.field": "m"}, "cannot order rows"),
    ({"sequence.field": "n", "merge-engine": "first-row"}, "comes first is kept"),
    ({"sequence.field": "n", "primary-key": "id", "partition": "p"}, "of another partition"),
    ({"sequence.field": "n", **aggregate("n", "sum")}, "'n' is a sequence field"),
    ({"sequence.field.sort-order": "up"}, "ascending, descending|ascending or descending"),
    ({"rowkind.field": "z"}, "names column 'z'"),
    ({"rowkind.field": "n"}, "'n' is BIGINT and must be STRING"),
    ({"record-level.expire-time": "1 d"}, "needs 'record-level.time-field'"),
    ({"record-level.expire-time": "1 d", "record-level.time-field": "s"}, "INT, BIGINT or TIMESTAMP"),
    ({"record-level.expire-time": "1 d", "record-level.time-field": "z"}, "names column 'z'"),
    # partial-update
    ({**PARTIAL, "fields.n.aggregate-function": "sum"}, "'n' needs a sequence group"),
    ({**PARTIAL, "fields.default-aggregate-function": "max"}, "needs a sequence group"),
    ({**PARTIAL, "fields.n.sequence-group": "s,z"}, "names column 'z'"),
    ({**PARTIAL, "fields.z.sequence-group": "s"}, "names column 'z'"),
    ({**PARTIAL, "fields.n.sequence-group": "id"}, "'id' of the primary key"),
    ({**PARTIAL, "fields.n.sequence-group": "s", "fields.t.sequence-group": "b,s"}, "'s' is in two sequence groups"),
    ({**PARTIAL, "partial-update.remove-record-on-delete": "true", "ignore-delete": "true"}, "contradict each other"),
    ({**PARTIAL, "partial-update.remove-record-on-delete": "true", "fields.n.sequence-group": "s"}, "sequence groups"),
    ({**PARTIAL, "partial-update.remove-record-on-sequence-group": "n"}, "'n', which orders no sequence group"),
    (
        {
            **PARTIAL,
            "fields.n.sequence-group": "s",
            "partial-update.remove-record-on-sequence-group": "n",
            "ignore-delete": "true",
        },
        "contradict each other",
    ),
    # aggregates
    (aggregate("n", "summ"), "unknown aggregate function 'summ'; did you mean sum"),
    (aggregate("n", "SUM"), "unknown aggregate function 'SUM'"),
    (aggregate("s", "sum"), "'sum' takes numbers, and column 's' is STRING"),
    (aggregate("s", "product"), "'product' takes numbers"),
    (aggregate("n", "bool_and"), "'bool_and' takes BOOLEAN"),
    (aggregate("n", "bool_or"), "'bool_or' takes BOOLEAN"),
    (aggregate("n", "listagg"), "'listagg' takes STRING"),
    (aggregate("l", "max"), "'max' takes columns that can be compared"),
    (aggregate("m", "min"), "'min' takes columns that can be compared"),
    (aggregate("n", "collect"), "'collect' takes ARRAY"),
    (aggregate("l", "merge_map"), "'merge_map' takes MAP"),
    (aggregate("m", "merge_map_with_keytime"), "takes MAP to ROW"),
    (aggregate("mr", "merge_map_with_keytime", ts_field="z"), "'z', and the rows have x, y"),
    (aggregate("l", "nested_update"), "'nested_update' takes ARRAY<ROW>"),
    (aggregate("lr", "nested_partial_update"), "nested-key' is missing"),
    (aggregate("lr", "nested_update", nested_sequence_field="x"), "nested-key' is missing"),
    (aggregate("lr", "nested_update", nested_key="q"), "'q', and the rows have x, y"),
    (aggregate("lr", "nested_update", nested_key="x", nested_key_null_strategy="skip"), "merge, ignore, error"),
    (aggregate("lr", "nested_update", count_limit="few"), "'few' is not allowed"),
    (aggregate("lr", "nested_update", count_limit="2147483648"), "'2147483648' is not allowed"),
    (aggregate("s", "rbm32"), "'rbm32' takes VARBINARY"),
    (aggregate("s", "hll_sketch"), "'hll_sketch' takes VARBINARY"),
    (aggregate("n", "sum", ignore_retract="perhaps"), "true or false"),
    ({**aggregate("n", "sum", ignore_retract="true"), "aggregation.remove-record-on-delete": "true"}, "contradict"),
    ({**AGGREGATION, "fields.default-aggregate-function": "sum"}, "'sum' takes numbers"),
    ({"fields.z.ignore-retract": "true"}, "names column 'z'"),
    ({"fields.r.x.aggregate-function": "sum"}, "goes inside the struct"),
    ({**PARTIAL, "fields.m.sequence-group": "s"}, "'m' is MAP.*cannot order rows"),
    ({**PARTIAL, "fields.n,m.sequence-group": "s"}, "cannot order rows"),
    (aggregate("short", "merge_map_with_keytime"), "takes MAP to ROW of at least two columns"),
    (aggregate("r", "nested_update"), "'nested_update' takes ARRAY<ROW>"),
    (
        {**PARTIAL, "partial-update.remove-record-on-delete": "true", "partial-update.ignore-delete": "true"},
        "contradict each other",
    ),
    (aggregate("b", "bool_and", distinct="perhaps"), "true or false"),
    # files
    ({"changelog-file.compression": "lz4", "file.format": "avro"}, "avro files take no compression 'lz4'"),
    ({"file.format.per.level": "0:csv"}, "file.format.per.level"),
    (
        {"file.format.per.level": "0:avro", "file.compression.per.level": "0:lz4"},
        "avro files take no compression 'lz4'",
    ),
    ({"changelog-file.format": "orc", "changelog-file.compression": "lzma"}, "orc files take no compression 'lzma'"),
    # not honoured
    ({"primary-key.nullable": "true"}, "would not be honoured"),
    ({"type": "object-table"}, "'type'"),
    ({"sequence.snapshot-ordering": "true"}, "would not be honoured"),
    ({"pk-clustering-override": "true"}, "would not be honoured"),
    ({"chain-table.enabled": "true"}, "would not be honoured"),
    ({"partition.timestamp-format.strict": "true"}, "would not be honoured"),
    ({"compaction.skip-expired-partitions": "true"}, "would not be honoured"),
    ({"deletion-vectors.enabled": "true", "lookup-wait": "false"}, "would not be honoured"),
    ({"changelog-producer.lookup-wait": "false"}, "would not be honoured"),
    ({"partition.expiration-time": "soon"}, "it takes a duration"),
    ({"partition.expiration-time": "7 d", "partition.timestamp-pattern": "$day"}, "names 'day'"),
    ({"partition.expiration-time": "7 d", "partition.timestamp-formatter": "QQ"}, "'QQ' is not understood"),
    ({"partition.expiration-time": "7 d", "partition.timestamp-formatter": "yyyy-MM-dd'T"}, "write text in quotes"),
    ({"partition.expiration-time": "7 d", "partition.timestamp-formatter": "yyyyMMdd[HH]"}, "write text in quotes"),
    ({"partition.expiration-strategy": "size"}, "values-time, update-time"),
    ({"tag.automatic-creation": "hourly"}, "none, process-time, watermark, batch"),
    ({"postpone.merge-on-read": "true"}, "would not be honoured"),
    ({"scan.mode": "latest-full"}, "would not be honoured"),
    ({"scan.snapshot-id": "1"}, "would not be honoured"),
    ({"pk-btree.index.columns": "n"}, "would not be honoured"),
    ({"upsert-key": "id"}, "would not be honoured"),
    ({"fields.m.map.storage-layout": "shared-shredding"}, "would not be honoured"),
]


def test_the_largest_count_limit_is_taken(tmp_path: Path) -> None:
    options = aggregate("lr", "nested_update", count_limit="2147483647")
    table = bitlake.connect(tmp_path).create_table("t", MORE, options={"primary-key": "id", **options})
    assert table.schema.options["fields.lr.count-limit"] == "2147483647"


def test_a_materialized_table_is_written_like_any_other(tmp_path: Path) -> None:
    """As in Paimon, whose Flink catalog creates them; writes were refused."""
    table = bitlake.connect(tmp_path).create_table("t", pa.table({"id": [1]}), options={"type": "Materialized-Table"})
    table.append(pa.table({"id": [2]}))
    table.delete("id = 1")
    assert table.to_arrow()["id"].to_pylist() == [2]


@pytest.mark.parametrize(("options", "why"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, options: dict[str, str], why: str) -> None:
    lake = bitlake.connect(tmp_path)
    with pytest.raises((InvalidRequest, UnsupportedFeature), match=why):
        lake.create_table("t", MORE, options={"primary-key": "id", **options})
    assert lake.databases() == [] or lake.tables() == []
    if "primary-key" in options:
        return
    table = lake.create_table("t", MORE, options={"primary-key": "id"})
    with pytest.raises((InvalidRequest, UnsupportedFeature), match=why):
        table.alter_options(options)
    assert table.schema.options == {}


ALLOWED: list[dict[str, str]] = [
    {"bucket": "-2"},
    {"bucket": "4", "bucket-key": "id"},
    {"primary-key": "id,s", "bucket": "4", "bucket-key": "s", "partition": "p"},
    {"deletion-vectors.enabled": "true", "changelog-producer": "lookup", "sequence.field": "n,t"},
    {"deletion-vectors.enabled": "true", "merge-engine": "partial-update", "changelog-producer": "input"},
    {"merge-engine": "first-row", "changelog-producer": "lookup", "ignore-delete": "true"},
    {**PARTIAL, "fields.n,t.sequence-group": "s,b", "fields.s.aggregate-function": "listagg"},
    {**PARTIAL, "fields.default-aggregate-function": "last_non_null_value"},
    {
        **PARTIAL,
        "fields.n.sequence-group": "s",
        "partial-update.remove-record-on-sequence-group": "n",
    },
    {**aggregate("n", "sum", ignore_retract="true"), "sequence.field": "t"},
    {**aggregate("lr", "nested_update", nested_key="x", nested_sequence_field="y", count_limit="10")},
    {**aggregate("mr", "merge_map_with_keytime", ts_field="x"), "aggregation.remove-record-on-delete": "true"},
    aggregate("raw", "rbm64"),
    {"record-level.expire-time": "1 d", "record-level.time-field": "t"},
    {"file.format.per.level": "0:avro,5:orc", "file.compression.per.level": "5:lz4", "changelog-file.format": "avro"},
    {"rowkind.field": "s", "ignore-delete": "true", "changelog-producer": "full-compaction"},
    {"changelog.num-retained.min": "3", "changelog.num-retained.max": "3"},
    {"streaming-read-overwrite": "true"},
    {"streaming-read-overwrite": "true", "changelog-producer": "input"},
    {"full-compaction.delta-commits": "3", "changelog-producer": "full-compaction"},
    {**PARTIAL, "fields.n.sequence-group": "l,m"},
    {**PARTIAL, "partial-update.remove-record-on-delete": "true"},
    {**PARTIAL, "fields.n.sequence-group": "s", "partial-update.ignore-delete": "true"},
    aggregate("lr", "nested_update"),
    aggregate("lr", "nested_partial_update", nested_key="x"),
    {**aggregate("n", "sum", ignore_retract="false"), "aggregation.remove-record-on-delete": "true"},
    {"fields.r.stats-mode": "none"},
    {"changelog-file.compression": "lz4", "file.format": "orc"},
    {
        "lookup-wait": "true",
        "changelog-producer.lookup-wait": "true",
        "batch-scan-mode": "none",
        "scan.mode": "default",
    },
    {
        "partition.mark-done-action": "success-file",
        "chain-table.enabled": "false",
        "fields.m.map.storage-layout": "default",
    },
]


@pytest.mark.parametrize("options", ALLOWED, ids=[str(i) for i in range(len(ALLOWED))])
def test_options_that_paimon_takes_are_taken(tmp_path: Path, options: dict[str, str]) -> None:
    table = bitlake.connect(tmp_path).create_table("t", MORE, options={"primary-key": "id", **options})
    kept = {k: v for k, v in options.items() if k not in ("primary-key", "partition")}
    assert table.schema.options == kept
    table.alter_options({"write-only": "true"})


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"changelog-producer": "input"}, "needs a table with a primary key"),
        ({"bucket": "-2"}, "not allowed for an append table"),
        ({"full-compaction.delta-commits": "3"}, "needs a primary key or buckets"),
        ({"streaming-read-overwrite": "true"}, "needs a table with a primary key"),
        ({"fields.z.stats-mode": "full"}, "names column 'z'"),
    ],
)
def test_append_tables_take_no_options_of_keys(tmp_path: Path, options: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        bitlake.connect(tmp_path).create_table("t", MORE, options=options)


def test_a_default_function_is_for_columns_that_neither_key_nor_order(tmp_path: Path) -> None:
    fields = pa.schema([("s", pa.string()), ("n", pa.int64()), ("t", pa.timestamp("us"))])
    options = {**AGGREGATION, "fields.default-aggregate-function": "sum", "primary-key": "s", "sequence.field": "t"}
    lake = bitlake.connect(tmp_path)
    assert lake.create_table("t", fields, options=options).schema.primary_keys == ("s",)
    with pytest.raises(InvalidRequest, match="column 't' is TIMESTAMP"):
        lake.create_table("u", fields, options={k: v for k, v in options.items() if k != "sequence.field"})


def test_append_tables_may_order_rows_and_compact_buckets(tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path)
    for i, options in enumerate(
        ({"sequence.field": "n"}, {"bucket": "2", "bucket-key": "n", "full-compaction.delta-commits": "3"})
    ):
        assert lake.create_table(f"t{i}", MORE, partition_by=["p"], options=options).schema.options == options


@pytest.mark.parametrize("function", ["theta_sketch", "hll_sketch"])
def test_sketches_need_their_package_when_the_table_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    fields = pa.schema([("id", pa.int32()), ("b", pa.binary()), ("n", pa.int64())])
    lake = bitlake.connect(tmp_path)
    with pytest.raises(UnsupportedFeature, match=rf"'{function}' needs the package datasketches"):
        lake.create_table("t", fields, options={"primary-key": "id", **aggregate("b", function)})
    lake.create_table("t", fields, options={"primary-key": "id", **aggregate("n", "sum")})
