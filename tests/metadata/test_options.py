from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from bitlake.errors import InvalidRequest
from bitlake.metadata import options as o
from bitlake.metadata.option_types import StatsMode, parse_duration_ms, parse_memory
from bitlake.schema import validation

DATA = Path(__file__).parents[1] / "data"


def test_typed_reading_and_defaults() -> None:
    options = o.Options({"bucket": "4", "target-file-size": "128 MB", "fields.a.stats-mode": "full", "x.y": "z"})
    assert options.of(o.BUCKET) == 4
    assert options.get(o.TARGET_FILE_SIZE) == 128 << 20
    assert options.of(o.MANIFEST_TARGET_SIZE) == 8 << 20
    assert options.of(o.COMMIT_MIN_WAIT) == 10
    assert options.stats_mode("a") == StatsMode("full")
    assert str(options.stats_mode("b")) == "truncate(16)"
    assert options["x.y"] == "z"
    assert options.get("none") is None
    assert dict(options) == {"bucket": "4", "target-file-size": "128 MB", "fields.a.stats-mode": "full", "x.y": "z"}


def test_quantities() -> None:
    # The units of Paimon's MemorySize and TimeUtils.
    memory = [
        "7",
        "7b",
        "7 bytes",
        "2 kb",
        "2k",
        "2 kibibytes",
        "3 mb",
        "3m",
        "3 mebibytes",
        "1G",
        "4 gb",
        "5 tb",
        "5t",
    ]
    assert [parse_memory(t) for t in memory] == [
        *[7, 7, 7, 2048, 2048, 2048, 3145728, 3145728, 3145728],
        *[1073741824, 4294967296, 5497558138880, 5497558138880],
    ]
    for count in (1, 10**7):
        for unit, millis in (("ms", 1), ("s", 1000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000)):
            assert parse_duration_ms(f"{count} {unit}") == count * millis
        assert parse_duration_ms(f"{10**6 * count} ns") == count == parse_duration_ms(f"{1000 * count} µs")
    assert [parse_duration_ms(t) for t in ("5", "5 s", "1h", "2 min", "1 d")] == [5, 5000, 3600000, 120000, 86400000]
    small = ["999999 ns", "1000000 nanoseconds", "999 µs", "1000 µs", "2500 micro", "7 ms", "7 milli", "3 m", "2 hours"]
    assert [parse_duration_ms(t) for t in small] == [0, 1, 0, 1, 2, 7, 7, 180000, 7200000]
    plural = ["1000000 nanos", "1000 micros", "1 millis", "2 secs"]
    assert [parse_duration_ms(t) for t in plural] == [1, 1, 1, 2000]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("snapshot.time-retained", "10 us"),
        ("snapshot.time-retained", "9223372036854775807 s"),
        ("snapshot.time-retained", "9223372036854775808 ns"),
        ("snapshot.time-retained", "\u0661 h"),
        ("target-file-size", "9223372036854775807 kb"),
        ("target-file-size", "\u0661 mb"),
        ("num-levels", " 5"),
        ("num-levels", "\u0665"),
        ("deletion-vectors.enabled", " true"),
        ("merge-engine", "partial_update"),
        ("merge-engine", " first-row"),
        ("tag.period-formatter", "with-dashes"),
    ],
)
def test_texts_that_paimon_refuses(name: str, text: str) -> None:
    """Paimon (Java) could not open a table with such an option."""
    option = next(v for v in vars(o).values() if isinstance(v, o.Option) and v.name == name)
    with pytest.raises(InvalidRequest, match=f"option '{name}' = "):
        option.read(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bucket", "0"),
        ("bucket", "x"),
        ("file.format", "xml"),
        ("target-file-size", "12 apples"),
        ("metadata.stats-mode", "truncate(0)"),
        ("fields.c.stats-mode", "some"),
        ("file-index.on-unreadable", "ignore"),
        ("write-only", "yes"),
        ("commit.max-retries", "-1"),
        ("snapshot.num-retained.max", "3"),
    ],
)
def test_validate_names_option_and_value(name: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=name.replace(".", r"\.")):
        o.validate({name: text})


def test_validate_keeps_unknown() -> None:
    o.validate({"someone.elses": "thing", "owner": "root", "file-index.bloom-filter.columns": "a"})
    assert o.is_known("file-index.bloom-filter.columns")
    assert not o.is_known("someone.elses")


def test_slips_of_the_pen_are_told() -> None:
    told = o.misspelt(["buckets", "merge_engine", "file-index.bitmap.colums", "file-index.bitmap.columns", "owner"])
    assert [t.split("'")[1::2] for t in told] == [
        ["buckets", "bucket"],
        ["merge_engine", "merge-engine"],
        ["file-index.bitmap.colums", "file-index.bitmap.columns"],
    ]
    assert not o.misspelt([*o.OPTIONS, *o.IMMUTABLE, "fields.a.aggregate-function", "file-index.bitmap.a.version"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {"bucket-key": "a"}),
        ({"merge-engine": "first-row"}, {}),
        ({}, {"bucket": "3"}),
        ({"bucket": "3"}, {"bucket": "-1"}),
        ({}, {"deletion-vectors.enabled": "true"}),
        ({"ignore-delete": "true"}, {"ignore-delete": "false"}),
        ({"bucket-function.type": "mod"}, {"bucket-function.type": "hive"}),
    ],
)
def test_what_cannot_change_after_a_snapshot(old: dict[str, str], new: dict[str, str]) -> None:
    o.check_alter(old, new, has_snapshot=False)
    with pytest.raises(InvalidRequest, match="may change"):
        o.check_alter(old, new, has_snapshot=True)


def test_what_can_change() -> None:
    o.check_alter({"bucket": "3"}, {"bucket": "5"}, has_snapshot=True)
    o.check_alter({"bucket": "-2"}, {"bucket": "5"}, has_snapshot=True)
    modifiable = {"deletion-vectors.modifiable": "true"}
    # Paimon would take it; rows would come back, or be there twice, unless the table is compacted at that moment.
    for old, new, call in (({}, "true", "enable"), ({"deletion-vectors.enabled": "true"}, "false", "disable")):
        with pytest.raises(InvalidRequest, match=rf"only by {call}_deletion_vectors\(table\)"):
            o.check_alter(modifiable | old, modifiable | {"deletion-vectors.enabled": new}, has_snapshot=True)
        o.check_alter(modifiable | old, modifiable | {"deletion-vectors.enabled": new}, has_snapshot=False)
    with pytest.raises(InvalidRequest, match="taken away"):
        o.check_alter({"bucket": "3"}, {}, has_snapshot=True)
    with pytest.raises(InvalidRequest, match="cannot change"):
        o.check_alter({}, {"path": "/x"}, has_snapshot=False)
    with pytest.raises(InvalidRequest, match="cannot change"):
        o.check_alter({}, {"type": "format-table"}, has_snapshot=False)


# The defaults of Paimon's page of core options, and the smallest number each option takes (None: not a number).
# fmt: off
DECLARED = [
    ("aggregation.remove-record-on-delete", False, None),
    ("alter-column-null-to-not-null.disabled", True, None),
    ("changelog-producer.row-deduplicate", False, None),
    ("changelog.num-retained.max", None, 1),
    ("changelog.num-retained.min", None, 1),
    ("changelog.time-retained", None, 0),
    ("commit.force-create-snapshot", False, None),
    ("commit.max-retries", 10, 0),
    ("commit.max-retry-wait", 10000, 0),
    ("commit.min-retry-wait", 10, 0),
    ("commit.timeout", None, 0),
    ("compaction.force-rewrite-all-files", False, None),
    ("compaction.force-up-level-0", False, None),
    ("compaction.incremental-size-threshold", None, 0),
    ("compaction.max-size-amplification-percent", 200, 0),
    ("compaction.min.file-num", 5, 1),
    ("compaction.offpeak-ratio", 0, 0),
    ("compaction.offpeak.end.hour", -1, -1),
    ("compaction.offpeak.start.hour", -1, -1),
    ("compaction.optimization-interval", None, 0),
    ("compaction.size-ratio", 1, 0),
    ("compaction.total-size-threshold", None, 0),
    ("consumer.changelog-only", False, None),
    ("data-evolution.enabled", False, None),
    ("data-file.thin-mode", False, None),
    ("deletion-vector.index-file.target-size", 2097152, 0),
    ("delete.force-produce-changelog", False, None),
    ("deletion-vectors.bitmap64", False, None),
    ("deletion-vectors.enabled", False, None),
    ("deletion-vectors.merge-on-read", False, None),
    ("deletion-vectors.modifiable", False, None),
    ("disable-explicit-type-casting", False, None),
    ("dynamic-bucket.initial-buckets", None, 1),
    ("dynamic-bucket.max-buckets", -1, -1),
    ("dynamic-bucket.target-row-num", 2000000, 1),
    ("dynamic-partition-overwrite", True, None),
    ("end-input.check-partition-expire", False, None),
    ("file-index.in-manifest-threshold", 500, 0),
    ("file-index.read.enabled", True, None),
    ("file.block-size", None, 1),
    ("file.compression.zstd-level", 1, 1),
    ("file.suffix.include.compression", False, None),
    ("force-lookup", False, None),
    ("full-compaction.delta-commits", None, 1),
    ("ignore-delete", False, None),
    ("ignore-update-before", False, None),
    ("index-file-in-data-file-dir", False, None),
    ("lookup-compact.max-interval", None, 1),
    ("manifest.full-compaction-threshold-size", 16777216, 0),
    ("manifest.merge-min-count", 30, 1),
    ("manifest.target-file-size", 8388608, 0),
    ("metadata.iceberg.compaction.max.file-num", 50, 1),
    ("metadata.iceberg.compaction.min.file-num", 10, 1),
    ("metadata.iceberg.delete-after-commit.enabled", True, None),
    ("metadata.iceberg.manifest-legacy-version", False, None),
    ("metadata.iceberg.previous-versions-max", 0, 0),
    ("metadata.stats-dense-store", True, None),
    ("metadata.stats-keep-first-n-columns", -1, -1),
    ("num-levels", None, 2),
    ("num-sorted-run.compaction-trigger", 5, 1),
    ("num-sorted-run.stop-trigger", None, 1),
    ("overwrite-upgrade", True, None),
    ("parquet.page.row.count.limit", None, 64),
    ("parquet.page.size", None, 1024),
    ("partial-update.remove-record-on-delete", False, None),
    ("partition.end-input-to-done", False, None),
    ("partition.expiration-check-interval", 3600000, 0),
    ("partition.expiration-batch-size", None, 0),
    ("partition.expiration-max-num", 100, 1),
    ("partition.expiration-time", None, 0),
    ("partition.legacy-name", True, None),
    ("postpone.batch-write-fixed-bucket", True, None),
    ("postpone.batch-write-fixed-bucket.max-parallelism", 2048, 1),
    ("postpone.default-bucket-num", None, 1),
    ("postpone.target-row-num-per-bucket", None, 1),
    ("postpone.target-size-per-bucket", 1073741824, 1),
    ("primary-key.nullable", False, None),
    ("query-auth.enabled", False, None),
    ("record-level.expire-time", None, 0),
    ("row-tracking.enabled", False, None),
    ("scan.ignore-corrupt-files", False, None),
    ("scan.ignore-lost-files", False, None),
    ("sequence.snapshot-ordering", False, None),
    ("snapshot.expire.limit", 50, 1),
    ("snapshot.ignore-empty-commit", None, None),
    ("snapshot.num-retained.max", 2147483647, 1),
    ("snapshot.num-retained.min", 10, 1),
    ("snapshot.time-retained", 3600000, 0),
    ("source.split.open-file-cost", 4194304, 0),
    ("streaming-read-append-overwrite", False, None),
    ("streaming-read-overwrite", False, None),
    ("streaming.read.snapshot.delay", None, 0),
    ("tag.automatic-completion", False, None),
    ("tag.creation-delay", 0, 0),
    ("tag.creation-period-duration", None, 0),
    ("tag.create-success-file", False, None),
    ("tag.default-time-retained", None, 0),
    ("tag.num-retained-max", None, 1),
    ("tag.time-expire-enabled", False, None),
    ("target-file-row-num", None, 1),
    ("target-file-size", None, 1),
    ("write-buffer-size", 268435456, 1),
    ("write-only", False, None),
]
# fmt: on


# The options that hold text, words or ratios, as the same page has them (None: without a default).
# Of Hive and REST catalogs, in which bitlake registers no tables.
REFUSED = (
    *("database", "glue.skip-archive", "hadoop-conf-dir", "hive-client-class", "hive-conf-dir"),
    *("hive-skip-update-stats", "table", "uri"),
)
WORDED = {
    **dict.fromkeys(f"metadata.iceberg.{name}" for name in REFUSED),
    "bucket": -1,
    "bucket-function.type": "default",
    "bucket-key": (),
    "changelog-file.compression": None,
    "changelog-file.format": None,
    "changelog-file.prefix": "changelog-",
    "changelog-file.stats-mode": None,
    "changelog-producer": "none",
    "commit.user-prefix": None,
    "compaction.delete-ratio-threshold": 0.2,
    "compaction.small-file-ratio": 0.7,
    "data-file.external-paths": None,
    "data-file.external-paths.specific-fs": None,
    "data-file.external-paths.strategy": "none",
    "data-file.external-paths.weights": None,
    "data-file.path-directory": None,
    "data-file.prefix": "data-",
    "file.compression": "zstd",
    "file.compression.per.level": {},
    "file.format": "parquet",
    "file.format.per.level": {},
    "lookup-compact": "radical",
    "manifest.compression": "zstd",
    "manifest.format": "avro",
    "merge-engine": "deduplicate",
    "metadata.stats-mode": StatsMode("truncate", 16),
    "metadata.stats-mode.per.level": {},
    "partial-update.remove-record-on-sequence-group": None,
    "partition": None,
    "partition.default-name": "__DEFAULT_PARTITION__",
    "partition.expiration-strategy": "values-time",
    "partition.timestamp-formatter": None,
    "consumer.expiration-time": None,
    "partition.timestamp-pattern": None,
    "path": None,
    "primary-key": None,
    "record-level.time-field": None,
    "rowkind.field": None,
    "sequence.field": None,
    "sequence.field.sort-order": "ascending",
    "sink.process-time-zone": None,
    "sink.watermark-time-zone": "UTC",
    "tag.automatic-creation": "none",
    "tag.batch.customized-name": None,
    "tag.creation-period": "daily",
    "tag.period-formatter": "with_dashes",
    "type": "table",
    "metadata.iceberg.format-version": 2,
    "metadata.iceberg.manifest-compression": "snappy",
    "metadata.iceberg.storage": "disabled",
    "metadata.iceberg.storage-location": None,
}
OWN = {
    "file-index.on-unreadable": "scan",
    "read.spark-path": "auto",
    "read.join-filters": True,
    "read.driver-queries": True,
    "read.spark-planning-entries": None,
}

# The options that CoreOptions marks @Immutable.
IMMUTABLE = {
    "aggregation.remove-record-on-delete",
    "blob-descriptor-field",
    "blob-field",
    "blob-view-field",
    "bucket-function.type",
    "bucket-key",
    "data-evolution.enabled",
    "data-file.path-directory",
    "dynamic-bucket.initial-buckets",
    "force-lookup",
    "index-file-in-data-file-dir",
    "merge-engine",
    "partial-update.remove-record-on-delete",
    "partial-update.remove-record-on-sequence-group",
    "partition",
    "pk-clustering-override",
    "primary-key",
    "primary-key.nullable",
    "row-tracking.enabled",
    "rowkind.field",
    "sequence.snapshot-ordering",
    "type",
}


@pytest.mark.parametrize(("name", "default", "least"), DECLARED, ids=[row[0] for row in DECLARED])
def test_defaults_and_limits_are_paimons(name: str, default: object, least: int | None) -> None:
    option = o.OPTIONS[name]
    value = o.Options({}).of(option)
    assert value == default and type(value) is type(default)
    if option.default_text is not None:
        assert option.read(option.default_text) == default
    if least is not None:
        assert option.read(str(least)) == least
        with pytest.raises(InvalidRequest, match=name.replace(".", r"\.")):
            option.read(str(least - 1))


@pytest.mark.parametrize("name", [*REFUSED, "rest.uri", "table-properties.owner"])
def test_options_of_iceberg_catalogs_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"metadata.iceberg.{name}.*'table-location' or 'hadoop-catalog'"):
        o.validate({f"metadata.iceberg.{name}": "x"})


def test_every_other_default_is_paimons() -> None:
    worded = WORDED | OWN
    assert {name: o.Options({}).of(o.OPTIONS[name]) for name in worded} == worded
    assert {*worded, *(row[0] for row in DECLARED)} == set(o.OPTIONS)
    texts = {name: o.OPTIONS[name].default_text for name in worded}
    assert {name: o.OPTIONS[name].read(text) for name, text in texts.items() if text is not None} == {
        name: worded[name] for name, text in texts.items() if text is not None
    }


def test_immutable_options_are_paimons() -> None:
    assert o.IMMUTABLE == IMMUTABLE


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("bucket", ["-2", "-1", "1", "2147483647"], ["-3", "0", "2147483648"]),
        ("file.compression.zstd-level", ["1", "22"], ["0", "23"]),
        ("compaction.offpeak.start.hour", ["-1", "0", "23"], ["-2", "24"]),
        ("compaction.offpeak.end.hour", ["-1", "0", "23"], ["-2", "24"]),
        ("compaction.small-file-ratio", ["0", "1"], ["-0.001", "1.001"]),
        ("compaction.delete-ratio-threshold", ["0", "1"], ["-0.001", "1.001"]),
        ("metadata.stats-mode", ["truncate(1)", "none"], ["truncate(0)", "truncate(-1)"]),
        ("metadata.stats-mode.per.level", ["0:none", "0:none,1:full"], ["-1:none", "none"]),
        ("data-file.external-paths.weights", ["1,2"], ["0,2", "1,-1"]),
        # Paimon's types int and long.
        ("num-levels", ["2147483647"], ["2147483648"]),
        ("parquet.page.row.count.limit", ["2147483647"], ["2147483648"]),
        ("target-file-row-num", ["9223372036854775807"], ["9223372036854775808"]),
    ],
)
def test_limits_of_ranges(name: str, good: list[str], bad: list[str]) -> None:
    for text in good:
        o.validate({name: text})
    for text in bad:
        with pytest.raises(InvalidRequest, match=name.replace(".", r"\.")):
            o.validate({name: text})


def test_equal_limits_of_a_pair_are_fine() -> None:
    o.validate({"commit.min-retry-wait": "5 s", "commit.max-retry-wait": "5 s"})
    o.validate({"snapshot.num-retained.min": "5", "snapshot.num-retained.max": "5"})
    with pytest.raises(InvalidRequest, match=r"commit\.min-retry-wait"):
        o.validate({"commit.min-retry-wait": "5001 ms", "commit.max-retry-wait": "5 s"})
    with pytest.raises(InvalidRequest, match=r"snapshot\.num-retained\.min"):
        o.validate({"snapshot.num-retained.min": "6", "snapshot.num-retained.max": "5"})


def test_a_misspelt_option_gets_one_suggestion() -> None:
    assert len(o.misspelt(["snapshot.num-retained.mix"])) == 1
    assert o.misspelt(["quite.another.word"]) == []


@pytest.mark.parametrize("power", range(5))
def test_sizes_of_each_unit(power: int) -> None:
    units = [("", "b", "bytes"), ("k", "kb", "kibibytes"), ("m", "mb"), ("g", "gb"), ("t", "tb", "tebibytes")][power]
    for unit in units:
        assert parse_memory(f"3 {unit.upper()}") == parse_memory(f" 3{unit} ") == 3 * 1024**power


def test_every_option_of_paimon_acts_is_refused_or_is_named_as_without_effect() -> None:
    """The keys of Paimon's ``CoreOptions`` at release 1.4.2."""
    keys = (DATA / "paimon-core-options.txt").read_text().split()
    page = (DATA.parents[1] / "docs" / "compatibility.md").read_text()
    section = page.split("## Options without effect")[1].split("\n## ")[0]
    named = re.findall(r"`([^`\s]+)`", section)
    read_elsewhere = {
        *("add-column-before-partition", "branch", "changelog-producer.row-deduplicate-ignore-fields"),
        *("scan.fallback-branch", "scan.primary-branch", "table-read.sequence-number.enabled"),
    }
    known = {*o.OPTIONS, *o.FORMER_NAMES, *validation._NOT_KNOWN, *validation._READING, *read_elsewhere}
    assert len(keys) > 250
    assert [k for k in keys if k not in known and not any(fnmatch(k, name) for name in named)] == []
    assert [n for n in named if not any(fnmatch(k, n) for k in keys)] == [], "no option of Paimon's has this name"
    assert not {*named} & {*validation._NOT_KNOWN, *validation._READING}, "refused, not without effect"


@pytest.mark.parametrize(
    "name", ["first-row.ignore-delete", "deduplicate.ignore-delete", "partial-update.ignore-delete"]
)
def test_former_names_count_where_the_option_is_not_set(name: str) -> None:
    assert o.Options({name: "true"}).of(o.IGNORE_DELETE)
    assert not o.Options({name: "true", "ignore-delete": "false"}).of(o.IGNORE_DELETE)
    assert o.Options({"write.compaction-skip": "true"}).of(o.WRITE_ONLY)
    assert o.misspelt([name, "write.compaction-skip"]) == []
    with pytest.raises(InvalidRequest, match=f"option '{name}' = 'yes' is not allowed"):
        o.Options({name: "yes"}).of(o.IGNORE_DELETE)
    with pytest.raises(InvalidRequest, match=f"option '{name}' = 'yes' is not allowed"):
        o.validate({name: "yes"})
