"""A table's past: moments of it, changes between them, tags and branches of a table handle, going back."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import AlreadyExists, InvalidRequest, NotFound
from bitlake.snapshot import versions
from bitlake.table.table import Table

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
NESTED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("l", pa.list_(pa.int32())),
        pa.field("m", pa.map_(pa.string(), pa.int32())),
        pa.field("s", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
    ]
)


def rows(ids: list[int], value: str) -> pa.Table:
    return pa.table({"id": ids, "v": [value] * len(ids)}, schema=COLUMNS)


def values(scan: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(r.values()) for r in scan.to_arrow().to_pylist())


@pytest.fixture
def appended(tmp_path: Path) -> Table:
    table = bitlake.connect(str(tmp_path / "lake")).create_table("t", COLUMNS)
    for i in range(1, 5):
        table.append(rows([i], f"v{i}"))
    return table


def keyed(tmp_path: Path, schema: pa.Schema = COLUMNS, **options: str) -> Table:
    given = {"bucket": "1", "primary-key": "id", **{k.replace("_", "-"): v for k, v in options.items()}}
    return bitlake.connect(str(tmp_path / "lake")).create_table("k", schema, options=given)


# --- moments ----------------------------------------------------------------------------------------------------------


def test_a_scan_reads_a_snapshot_a_tag_or_a_time(appended: Table) -> None:
    appended.history.create_tag("two", 2)
    assert values(appended.scan(snapshot=1)) == [(1, "v1")]
    assert values(appended.scan(tag="two", where="id > 1")) == [(2, "v2")]
    state = appended._core.state()
    times = [versions.load_snapshot(state.table_files, i).time_millis for i in (1, 2, 3, 4)]
    for number, at in enumerate(times, 1):
        same = max(i for i, t in enumerate(times, 1) if t == at)
        assert appended.scan(timestamp=at).count() == same >= number
    assert appended.scan(timestamp="9999-12-31 00:00:00").count() == 4
    with pytest.raises(NotFound, match="no snapshot as old as 1970-01-01 .* the first one kept, 1"):
        appended.scan(timestamp="1970-01-01")
    with pytest.raises(InvalidRequest, match="invalid timestamp 'soon'"):
        appended.scan(timestamp="soon")
    with pytest.raises(InvalidRequest, match="give one of snapshot and tag"):
        appended.scan(snapshot=1, tag="two")
    with pytest.raises(NotFound, match="has no tag 'three'; its tags: two"):
        appended.scan(tag="three")


def test_an_expired_snapshot_says_which_are_kept(appended: Table) -> None:
    appended.history.create_tag("one", 1)
    appended.maintenance.expire_snapshots(retain_max=1, retain_min=1, older_than=1 << 60, max_deletes=100)
    with pytest.raises(NotFound, match="has no snapshot 2: only snapshot 4 is kept; 2 has expired \\(a tag keeps"):
        appended.scan(snapshot=2)
    assert values(appended.scan(tag="one")) == [(1, "v1")]
    with pytest.raises(NotFound, match="changes between snapshots 1 and 4: only snapshot 4 is kept"):
        appended.scan(incremental_between=(1, 4))
    assert values(appended.scan(incremental_between=(3, 4))) == [(4, "v4")]


def test_a_moment_has_the_columns_it_had(appended: Table) -> None:
    appended.add_column("w", "INT")
    assert appended.scan(snapshot=4).schema.names == ["id", "v"]
    assert appended.scan().schema.names == ["id", "v", "w"]


# --- changes ----------------------------------------------------------------------------------------------------------


def test_changes_of_an_append_table(appended: Table) -> None:
    assert values(appended.scan(incremental_between=(1, 3))) == [(2, "v2"), (3, "v3")]
    assert values(appended.scan(incremental_between=(0, 1))) == [(1, "v1")]
    assert values(appended.scan(incremental_between=(2, 2))) == []
    assert values(appended.changes(3)) == [("+I", 4, "v4")]
    appended.history.create_tag("a", 1)
    appended.history.create_tag("b", 3)
    assert values(appended.scan(incremental_between=("a", "b"), columns=["v"])) == [("v2",), ("v3",)]
    assert appended.scan(incremental_between=("a", "b"), where="id = 3").count() == 1
    with pytest.raises(InvalidRequest, match="an earlier tag"):
        appended.scan(incremental_between=("b", "a"))
    with pytest.raises(InvalidRequest, match="an earlier moment"):
        appended.scan(incremental_between=(3, 1))
    with pytest.raises(NotFound, match="between snapshots 1 and 9: snapshots 1 to 4 are kept"):
        appended.scan(incremental_between=(1, 9))
    with pytest.raises(InvalidRequest, match="unknown incremental mode"):
        appended.scan(incremental_between=(1, 2), mode="both")


def test_an_overwrite_is_in_the_difference_only(appended: Table) -> None:
    appended.overwrite(rows([9], "new"))
    assert values(appended.scan(incremental_between=(4, 5))) == []
    assert values(appended.scan(incremental_between=(4, 5), mode="diff")) == [(9, "new")]


def test_delta_has_all_rows_and_deletes_where_kinds_are_asked_for(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    table.upsert(rows([1, 2, 3], "old"))
    table.upsert(rows([2], "new"))
    table.upsert(rows([3], "gone"), ["-D"])
    table.upsert(rows([2], "newest"))
    first = 1
    added = [(2, "new"), (2, "newest")]
    assert values(table.scan(incremental_between=(first, table.snapshot.id))) == added  # type: ignore[union-attr]
    assert values(table.changes(first)) == [*(("+I", *row) for row in added), ("-D", 3, "gone")]
    assert values(table.changes(first).select(["rowkind"])) == [("+I",), ("+I",), ("-D",)]
    assert values(table.changes(first).where("rowkind = '-D' AND id > 1")) == [("-D", 3, "gone")]
    assert table.changes(first).count() == 3 and table.changes(first).exists()
    with pytest.raises(InvalidRequest, match="read the rows of changes"):
        table.changes(first).min_max("id")


SUMMED = {"merge-engine": "aggregation", "fields.v.aggregate-function": "listagg"}


@pytest.mark.parametrize("options", [{}, {"deletion-vectors.enabled": "true"}, SUMMED])
def test_delta_has_the_rows_that_appends_wrote(tmp_path: Path, options: dict[str, str]) -> None:
    table = keyed(tmp_path, **options)
    deletes = "merge-engine" not in options
    table.upsert(rows([1, 2, 3], "old"))
    before = table.snapshot.id  # type: ignore[union-attr]
    table.upsert(rows([3], "x"))
    if deletes:
        table.upsert(rows([3, 2, 1], "x"), ["-D"] * 3)
        table.maintenance.compact(full=True)
    else:
        table.truncate()
    table.upsert(rows([3], "new"))
    table.upsert(rows([1], "newer"))
    last = table.snapshot.id  # type: ignore[union-attr]
    wanted = [(1, "newer"), (3, "new"), (3, "x")]
    scan = table.scan(incremental_between=(before, last), mode="delta")
    assert values(scan) == wanted and scan.count() == 3
    changed = values(table.changes(before, mode="delta"))
    assert changed == [*(("+I", *row) for row in wanted), *(("-D", i, "x") for i in (1, 2, 3) if deletes)]
    assert values(scan.where("id = 3").select(["v"])) == [("new",), ("x",)]


def test_a_binlog_has_both_rows_of_an_update_in_one(tmp_path: Path) -> None:
    table = keyed(tmp_path, **{"changelog-producer": "input", "write-buffer-size": "1 kb"})
    ids = list(range(20_000))
    table.upsert(rows(ids, "old"))
    pairs = rows([i for i in ids for _ in range(2)], "new")
    table.upsert(pairs.set_column(1, "v", pa.array(["old", "new"] * len(ids))), ["-U", "+U"] * len(ids))
    table.upsert(rows([5, 6], "gone"), ["-U", "-D"])
    binlog = table.changes(1, packed=True)
    updated = binlog.where("rowkind = '+U'")
    assert updated.count() == len(ids)
    assert updated.to_arrow().sort_by("rowkind").slice(0, 1).to_pylist()[0]["v"] == ["old", "new"]
    assert binlog.select(["v"]).where("rowkind <> '+U'").to_arrow().to_pylist() == [{"v": ["gone"]}] * 2
    with pytest.raises(InvalidRequest, match="packed rows begin with their kind"):
        table.changes(1, packed=True, kinds=False)


def test_a_difference_compares_keys(tmp_path: Path) -> None:
    table = keyed(tmp_path)
    table.upsert(rows([1, 2, 3], "old"))
    before = table.snapshot.id  # type: ignore[union-attr]
    table.upsert(rows([2, 4], "new"))
    table.upsert(rows([1], "x"), ["-D"])
    table.upsert(rows([3], "old"))
    table.maintenance.compact(full=True)
    assert values(table.changes(before, mode="diff")) == [("+I", 2, "new"), ("+I", 4, "new"), ("-D", 1, "old")]
    assert values(table.scan(incremental_between=(before, table.snapshot.id), mode="diff")) == [(2, "new"), (4, "new")]  # type: ignore[union-attr]
    assert values(table.changes(before, mode="diff").where("v = 'old'")) == [("-D", 1, "old")]
    assert values(table.changes(0, before, mode="diff")) == [("+I", i, "old") for i in (1, 2, 3)]


def test_a_difference_has_rows_that_only_a_deletion_vector_deletes(tmp_path: Path) -> None:
    table = keyed(tmp_path, **{"deletion-vectors.enabled": "true"})
    table.upsert(rows([1, 2, 3], "old"))
    table.maintenance.compact(full=True)
    before = table.snapshot.id  # type: ignore[union-attr]
    table.upsert(rows([2], "x"), ["-D"])
    files = table.scan(snapshot=before).plan().files
    assert [f.path for f in table.scan().plan().files] == [f.path for f in files]
    assert values(table.changes(before, mode="diff")) == [("-D", 2, "old")]
    assert values(table.scan(incremental_between=(before, table.snapshot.id), mode="diff")) == []  # type: ignore[union-attr]


def test_a_difference_of_an_append_table_leaves_out_deleted_rows(tmp_path: Path) -> None:
    # As Paimon 1.4.2; delta returns the rows as they were appended, with or without deletion vectors.
    options = {"deletion-vectors.enabled": "true"}
    table = bitlake.connect(str(tmp_path)).create_table("t", COLUMNS, options=options)
    table.append(rows([1, 2, 3], "a"))
    table.append(rows([4, 5, 6], "b"))
    table.delete("id IN (1, 4)")
    table.update({"v": "c"}, "id IN (2, 5)")
    table.history.create_tag("first", 1)
    table.history.create_tag("last", 4)
    wanted = [(2, "c"), (5, "c"), (6, "b")]
    assert values(table.scan(incremental_between=(1, 4), mode="diff")) == wanted
    assert values(table.scan(incremental_between=("first", "last"), where="id > 2")) == wanted[1:]
    assert table.scan(incremental_between=(1, 4), mode="diff").count() == 3
    assert values(table.changes(1, 4, mode="diff")) == [("+I", *row) for row in wanted]
    assert values(table.scan(incremental_between=(2, 3), mode="diff")) == []
    assert values(table.scan(incremental_between=(1, 4), mode="delta")) == [(4, "b"), (5, "b"), (6, "b")]


@pytest.mark.parametrize("enable", [True, False])
def test_a_difference_over_a_switch_of_deletion_vectors(tmp_path: Path, enable: bool) -> None:
    table = keyed(tmp_path, **{"deletion-vectors.enabled": str(not enable).lower()})
    table.upsert(rows([1, 2, 3], "old"))
    table.upsert(rows([2], "x"), ["-D"])
    table.upsert(rows([3], "new"))
    before = table.snapshot.id  # type: ignore[union-attr]
    assert values(table) == [(1, "old"), (3, "new")]
    table.maintenance.enable_deletion_vectors() if enable else table.maintenance.disable_deletion_vectors()
    assert values(table.changes(before, mode="diff")) == []
    table.upsert(rows([3], "newest"))
    assert values(table.changes(before, mode="diff")) == [("+I", 3, "newest")]


@pytest.mark.parametrize("is_keyed", [True, False])
@pytest.mark.parametrize("by_tags", [True, False])
def test_changes_have_the_latest_columns_in_every_mode(tmp_path: Path, is_keyed: bool, by_tags: bool) -> None:
    # As Paimon 1.4.2 reads incremental-between: a time travel takes the columns of then, changes those of today.
    table = keyed(tmp_path) if is_keyed else bitlake.connect(str(tmp_path)).create_table("a", COLUMNS)
    for i in range(1, 4):
        table.append(rows([i], f"v{i}"))
        table.history.create_tag(f"tag-{i}")
    table.alter(rename={"v": "text"}, add={"more": "INT"})
    moments: Any = ("tag-1", "tag-3") if by_tags else (1, 3)
    for mode in ("auto", "diff", "delta"):
        scan = table.scan(incremental_between=moments, mode=mode)
        assert scan.columns == ("id", "text", "more"), mode
        assert values(scan) == [(2, "v2", None), (3, "v3", None)], mode
        changes = table.changes(*moments, mode=mode)
        assert changes.columns == ("rowkind", "id", "text", "more"), mode
        assert values(changes.where("text = 'v3' AND more IS NULL")) == [("+I", 3, "v3", None)], mode


def test_a_difference_of_a_table_that_was_replaced_has_the_columns_of_then(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path))
    lake.create_table("t", COLUMNS, primary_key=["id"], options={"bucket": "1"}).append(rows([1], "old"))
    lake.table("t").append(rows([2], "new"))
    lake.sql("CREATE OR REPLACE TABLE t (other INT)", engine="duckdb")
    assert values(lake.table("t").changes(1, 2, mode="diff")) == [("+I", 2, "new")]


@pytest.mark.parametrize("parts", [[], ["v"]])
def test_a_difference_over_another_number_of_buckets_has_no_unchanged_rows(tmp_path: Path, parts: list[str]) -> None:
    lake = bitlake.connect(str(tmp_path / "lake"))
    table = lake.create_table("k", COLUMNS, primary_key=["id", *parts], partition_by=parts, options={"bucket": "3"})
    table.upsert(pa.concat_tables([rows(list(range(20)), "a"), rows(list(range(20, 40)), "b")]))
    before = table.snapshot.id  # type: ignore[union-attr]
    table.maintenance.rescale(4)
    assert values(table.changes(before, mode="diff")) == []
    table.upsert(rows([1, 50], "a" if parts else "new"))
    table.upsert(rows([25], "b"), ["-D"])
    changed = [("+I", 50, "a")] if parts else [("+I", 1, "new"), ("+I", 50, "new")]
    assert values(table.changes(before, mode="diff")) == [*changed, ("-D", 25, "b")]
    last = table.snapshot.id  # type: ignore[union-attr]
    found = values(table.scan(incremental_between=(before, last), mode="diff"))
    assert found == [row[1:] for row in changed]


def test_nested_values_are_compared_too(tmp_path: Path) -> None:
    table = keyed(tmp_path, NESTED)

    def made(change: int) -> pa.Table:
        full = [1, [1, None], [("a", 1)], {"x": 1, "y": ["p"]}]
        empty = [2, [], [], {"x": None, "y": []}]
        null = [3, None, None, None]
        other = [4, [1, 2 + change], [("a", 1), ("b", change)], {"x": 1, "y": ["p", str(change)]}]
        columns = zip(full, empty, null, other, strict=True)
        return pa.table([pa.array(c, f.type) for c, f in zip(columns, NESTED, strict=True)], schema=NESTED)

    table.upsert(made(0))
    before = table.snapshot.id  # type: ignore[union-attr]
    table.upsert(made(1))
    changed = table.changes(before, mode="diff").select(["rowkind", "id"])
    assert values(changed) == [("+I", 4)]


def test_a_changelog_is_read_row_by_row(tmp_path: Path) -> None:
    table = keyed(tmp_path, changelog_producer="input")
    table.upsert(rows([1], "a"))
    table.upsert(pa.concat_tables([rows([1], "a"), rows([1], "b"), rows([2], "c")]), ["-U", "+U", "+I"])
    table.upsert(rows([2], "c"), ["-D"])
    last = table.snapshot.id  # type: ignore[union-attr]
    found = values(table.changes(0))
    assert found == [("+I", 1, "a"), ("+I", 2, "c"), ("+U", 1, "b"), ("-D", 2, "c"), ("-U", 1, "a")]
    assert values(table.scan(incremental_between=(0, last))) == [(1, "a"), (1, "b"), (2, "c")]
    delta = [("+I", 1, "a"), ("+I", 2, "c"), ("+U", 1, "b"), ("-D", 2, "c")]
    assert values(table.changes(0, mode="delta")) == delta


def test_changes_by_time(appended: Table) -> None:
    assert appended.changes_by_time(0, kinds=False).count() == 4
    assert appended.changes_by_time("9990-01-01", kinds=False).count() == 0
    assert appended.changes_by_time(0, 1, kinds=False).count() == 0


def test_a_difference_by_time_before_the_earliest_snapshot(tmp_path: Path) -> None:
    """Bug: it read the snapshot before the earliest one, which does not exist.  Expected: what Paimon (Java) reads."""
    table = keyed(tmp_path)
    for number in range(1, 5):
        table.upsert(rows([number], "a"))
    assert values(table.changes_by_time(0, 1, mode="diff")) == values(table.changes(0, 0, mode="diff")) == []
    table.maintenance.expire_snapshots(retain_max=2, retain_min=2, older_than=2**60)
    assert [s.id for s in table.history.snapshots()] == [3, 4]
    assert values(table.changes_by_time(0, 1, mode="diff")) == []
    assert values(table.changes_by_time(0, mode="diff")) == [("+I", 4, "a")]
    assert values(table.changes_by_time(0)) == [("+I", 3, "a"), ("+I", 4, "a")]


# --- tags, branches, going back ---------------------------------------------------------------------------------------


def test_tags_of_a_table(appended: Table) -> None:
    assert appended.history.create_tag("a", 1) and not appended.history.create_tag("a", 2, if_not_exists=True)
    with pytest.raises(AlreadyExists, match="already has a tag 'a'"):
        appended.history.create_tag("a")
    appended.history.rename_tag("a", "b")
    appended.history.replace_tag("b", 3)
    assert {n: t.snapshot.id for n, t in appended.history.tags().items()} == {"b": 3}
    assert appended.history.create_tag("c", timestamp=0)
    assert appended.history.tags()["c"].snapshot.id == 1
    with pytest.raises(NotFound, match="committed at 9999"):
        appended.history.create_tag("d", timestamp="9999-01-01")
    appended.history.create_tag("e", retain=timedelta(milliseconds=1000))
    assert appended.maintenance.expire_tags() == []
    assert appended.maintenance.expire_tags("9999-01-01", dry_run=True) == ["b", "c", "e"], "as Paimon (Java) does"
    assert appended.history.delete_tag("c") and not appended.history.delete_tag("c", if_exists=True)


def test_a_branch_is_read_and_written_by_its_name(appended: Table, tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path / "lake"))
    appended.history.create_tag("two", 2)
    appended.history.create_branch("dev", "two")
    dev = lake.table("t$branch_dev")
    assert dev.history.branch == "dev" and appended.history.branch == "main" and appended.history.branches() == ["dev"]
    dev.append(rows([7], "dev"))
    assert values(dev.scan()) == [(1, "v1"), (2, "v2"), (7, "dev")]
    assert lake.write(rows([8], "dev"), "T$branch_dev") == 1 and lake.tables() == ["t"]
    assert dev.delete("id = 8") == 1
    assert appended.scan().count() == 4
    with pytest.raises(InvalidRequest, match="in use"):
        dev.history.delete_branch("dev")
    with pytest.raises(NotFound, match="has no branch 'devel'; its branches: dev"):
        lake.table("t$branch_devel")
    with pytest.raises(NotFound, match="has no branch 'devel'; its branches: dev"):
        lake.write(rows([7], "dev"), "t$branch_devel")
    appended.history.delete_tag("two")
    appended.history.fast_forward("dev")
    assert values(appended.scan()) == [(1, "v1"), (2, "v2"), (7, "dev")]
    appended.history.rename_branch("dev", "old")
    assert appended.history.delete_branch("old") and not appended.history.delete_branch("old", if_exists=True)


def test_rolling_back(appended: Table) -> None:
    appended.history.create_tag("two", 2)
    with pytest.raises(InvalidRequest, match="tags two hold later ones"):
        appended.history.rollback(1)
    with pytest.raises(InvalidRequest, match="one of snapshot, tag and timestamp"):
        appended.history.rollback(1, tag="two")
    assert appended.history.rollback(3) == (4, 3)
    assert appended.history.rollback(tag="two") == (3, 2)
    assert values(appended.scan()) == [(1, "v1"), (2, "v2")]
    appended.history.delete_tag("two")
    with pytest.raises(NotFound):
        appended.history.rollback(timestamp=0)
    with pytest.raises(NotFound, match="has no snapshot 4"):
        appended.history.rollback(4)
    appended.append(rows([5], "again"))
    assert appended.snapshot is not None and appended.snapshot.id == 3


def test_arguments_of_another_type_are_refused(appended: Table) -> None:
    with pytest.raises(InvalidRequest, match=r"expected a snapshot id, not 'a'; for a tag use rollback\(tag=…\)"):
        appended.history.rollback("a")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="invalid retain 5; expected a timedelta"):
        appended.history.create_tag("a", retain=5)  # type: ignore[arg-type]
    assert not appended.history.tags()
