from __future__ import annotations

import pytest

from bitlake.errors import InvalidRequest
from bitlake.metadata import options as o
from bitlake.metadata.optiontypes import StatsMode, parse_duration_ms, parse_memory


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
    assert [parse_memory(t) for t in ("7", "7b", "2 kb", "1G")] == [7, 7, 2048, 1 << 30]
    assert [parse_duration_ms(t) for t in ("5", "5 s", "1h", "2 min", "1 d")] == [5, 5000, 3600000, 120000, 86400000]


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
    with pytest.raises(InvalidRequest, match="never"):
        o.check_alter({}, {"path": "/x"}, has_snapshot=False)
    with pytest.raises(InvalidRequest, match="never"):
        o.check_alter({}, {"type": "format-table"}, has_snapshot=False)
