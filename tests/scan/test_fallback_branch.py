"""Tables with ``scan.fallback-branch`` or ``scan.primary-branch``: queries read the partitions of two branches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import InvalidRequest, NotFound
from bitlake.table.table import Table

SCHEMA = pa.schema([("p", pa.string()), ("id", pa.int32()), ("v", pa.string())])


def rows(*values: tuple[str, int, str]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, v, strict=True)) for v in values], schema=SCHEMA)


def keyed_branch(lake: bitlake.Lake, name: str, branch: str) -> Table:
    """Create a branch whose rows have a key, as Paimon's ALTER TABLE `t$branch_x` SET ('primary-key' = …) does."""
    table = lake.table(name)
    table.history.create_branch(branch)
    (path,) = Path(table.path, "branch", f"branch-{branch}", "schema").iterdir()
    schema: dict[str, Any] = json.loads(path.read_text())
    schema["primaryKeys"] = ["p", "id"]
    schema["options"] = {"bucket": "2", "file-index.bloom-filter.columns": "v"}
    for field in schema["fields"]:
        if field["name"] in ("p", "id"):
            field["type"] += " NOT NULL"
    path.write_text(json.dumps(schema))
    return lake.table(f"{name}$branch_{branch}")


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    """Main has the partitions a and b, the branch b and c; its rows are merged by key."""
    lake = bitlake.connect(str(tmp_path / "lake"))
    table = lake.create_table(
        "t", SCHEMA, partition_by=["p"], options={"file-index.bitmap.columns": "v", "deletion-vectors.enabled": "true"}
    )
    branch = keyed_branch(lake, "t", "stream")
    table.append(rows(("a", 1, "m1"), ("a", 2, "m2"), ("b", 3, "m3")))
    branch.append(rows(("b", 8, "s8"), ("c", 4, "s4"), ("c", 5, "s5")))
    branch.append(rows(("c", 5, "S5"), ("c", 6, "s6")))
    table.alter_options({"scan.fallback-branch": "stream"})
    return lake


def found(table: Table, **scan: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(r.values()) for r in table.scan(**scan).to_arrow().to_pylist())


def test_partitions_that_the_table_lacks_are_read_from_the_other_branch(lake: bitlake.Lake) -> None:
    # The option was refused, and a table that Paimon had written with it lost the branch's rows.
    table = lake.table("t")
    assert [r[1:] for r in found(table)] == [(1, "m1"), (2, "m2"), (3, "m3"), (4, "s4"), (5, "S5"), (6, "s6")]
    assert found(table, columns=["id"], where="v = 'S5'") == [(5,)]
    assert found(table, columns=["id"], where="v = 's5'") == []  # replaced before it is filtered
    assert found(table, columns=["id"], where="p = 'c' AND id > 4") == [(5,), (6,)]
    assert found(table, columns=["id"], where="p IN ('b', 'c') AND v < 'n'") == [(3,), (5,)]
    assert found(table, columns=["id"], where="v = 's8'") == []  # partition b is the table's
    scan = table.scan()
    assert scan.count() == 6 and scan.count_distinct("p") == 3 and scan.min_max("id") == (1, 6)
    assert scan.group_count("p").to_pydict() == {"p": ["a", "b", "c"], "count": [2, 1, 3]}
    assert scan.top_n([("id", "desc")], 4).to_arrow()["id"].to_pylist() == [6, 5, 4, 3]
    assert scan.limit(5).to_arrow().num_rows == 5 and scan.plan().metrics.files >= 3
    assert "S5" not in str(scan.explain("dict")) and "rows" in table.scan(where="v = 'm1'").explain(analyze=True)


def test_deletes_and_added_columns_of_either_branch_are_seen(lake: bitlake.Lake) -> None:
    table, branch = lake.table("t"), lake.table("t$branch_stream")
    table.delete("id = 2")
    branch.delete("p = 'c' AND id = 4")
    table.delete("p = 'c'")  # writes see the table alone
    assert [r[1] for r in found(table)] == [1, 3, 5, 6]
    table.delete("p = 'a'")
    assert [r[1] for r in found(table)] == [3, 5, 6]
    branch.append(rows(("a", 7, "s7")))
    assert [r[1] for r in found(table)] in ([3, 5, 6], [7, 3, 5, 6])
    for t in (table, branch):
        t.add_column("w", "INT")
    assert table.scan(["w"]).to_arrow()["w"].null_count >= 3


def test_the_primary_branch_is_read_first(lake: bitlake.Lake) -> None:
    table = lake.table("t")
    with pytest.raises(InvalidRequest, match="cannot both be set"):
        table.alter_options({"scan.primary-branch": "stream"})
    table.alter_options({"scan.primary-branch": "stream"}, unset=["scan.fallback-branch"])
    assert [r[1] for r in found(table)] == [1, 2, 8, 4, 5, 6]
    assert table.scan().top_n([("id", "desc")], 2).to_arrow()["id"].to_pylist() == [8, 6]


def test_moments_are_of_both_branches(lake: bitlake.Lake) -> None:
    table, branch = lake.table("t"), lake.table("t$branch_stream")
    assert [r[1] for r in found(table, snapshot=1)] in ([1, 2, 3], [1, 2, 3, 4, 5])  # the branch at that time, or first
    at = table.snapshot
    assert at is not None
    assert len(found(table, timestamp=at.time_millis)) >= 3
    table.history.create_tag("x")
    with pytest.raises(NotFound, match="stream.*tag 'x'"):
        table.scan(tag="x")
    branch.history.create_tag("x", 1)
    assert [r[1] for r in found(table, tag="x")] == [1, 2, 3, 4, 5]


def test_a_branch_that_is_read_must_exist_and_have_the_same_columns(lake: bitlake.Lake) -> None:
    table = lake.table("t")
    with pytest.raises(InvalidRequest, match="branch 'nope'|'nope'.*does not exist"):
        table.alter_options({"scan.fallback-branch": "nope"})
    with pytest.raises(InvalidRequest, match="option 'scan.fallback-branch' names it"):
        table.history.delete_branch("stream")
    with pytest.raises(InvalidRequest, match="a new table does not have"):
        lake.create_table("u", SCHEMA, options={"scan.fallback-branch": "x"})
    table.add_column("w", "INT")
    with pytest.raises(InvalidRequest, match="same column types"):
        table.scan()


def test_partitions_are_listed_of_both_branches(lake: bitlake.Lake) -> None:
    listed = lake.table("t$partitions").scan(["partition", "record_count"]).to_arrow().to_pylist()
    assert [tuple(r.values()) for r in listed] == [("p=a", 2), ("p=b", 1), ("p=c", 4)]
