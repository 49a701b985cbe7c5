"""Explaining a scan: the same facts as text, as plain values and as JSON; before reading and after."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from builders import events

import bitlake
from bitlake.errors import InvalidRequest


@pytest.fixture
def lake(tmp_path: Path) -> bitlake.Lake:
    return bitlake.connect(str(tmp_path / "lake"))


def test_dict_and_json_tell_the_same(lake: bitlake.Lake) -> None:
    options = {"file-index.bitmap.columns": "status", "file-index.range-bitmap.columns": "amount"}
    table = lake.create_table("t", events().schema, options=options)
    table.append(events(1000))
    table.append(events(10).filter(pa.array([True] * 5 + [False] * 5)))
    scan = table.scan(["id"], where="status = 'S1' AND id >= 5")
    told = scan.explain("dict")
    assert json.loads(scan.explain("json")) == json.loads(json.dumps(told))
    assert told["where"] == "status = 'S1' AND id >= 5" and told["columns"] == ["id"]
    assert told["files"] == {"total": 2, "to_read": 1, "skipped": {"statistics": 1}}
    (file,), (gone,) = told["read"], told["skipped"]
    assert file["pruned_by"] == ["bitmap(status)"] and file["was_read"] is None and not file["exact"]
    assert gone["by"] == "statistics" and "id" in gone["detail"] and gone["rows"] == 5
    assert told["ms"]["plan"] > 0 and told["bytes"]["read"] == 0
    rows = scan.to_arrow().num_rows
    told = scan.explain("dict")
    assert told["rows"]["returned"] == rows == told["read"][0]["was_read"]["rows_returned"]
    assert told["read"][0]["was_read"]["bytes"] == told["bytes"]["read"] > 0
    assert "fetched" in scan.explain() and "instead of" in scan.explain()
    with pytest.raises(InvalidRequest, match="yaml"):
        scan.explain("yaml")


def test_limit_top_n_and_counting(lake: bitlake.Lake) -> None:
    table = lake.create_table("t", events().schema, options={"file-index.range-bitmap.columns": "id"})
    for _ in range(3):
        table.append(events(100))
    told = table.scan().limit(3).explain("dict")
    assert told["limit"] == 3 and {s["by"] for s in told["skipped"]} == {"limit"}
    assert [f["chosen"] for f in told["read"]] == [3]
    top = table.scan().top_n([("id", "desc")], 2)
    top.to_arrow()
    told = top.explain("dict")
    assert told["order_by"] == ["id DESC"] and told["ms"]["top_n"] > 0
    assert told["files"]["skipped"].get("top n", 0) + len(told["read"]) == 3
    assert "range-bitmap(id) top 2" in told["read"][0]["pruned_by"]
    scan = table.scan()
    assert scan.count() == 300
    assert scan.explain("dict")["answered_by"] == {"metadata": 3}
    assert "answered   3 by metadata" in scan.explain()


def test_an_index_that_is_not_worth_it_is_not_asked(lake: bitlake.Lake) -> None:
    rows = 120_000
    random = np.random.default_rng(0)
    table = lake.create_table(
        "t",
        pa.schema([("common", pa.string()), ("number", pa.int64()), ("wide", pa.int64())]),
        options={"file-index.bitmap.columns": "common", "file-index.range-bitmap.columns": "number,wide"},
    )
    common = random.choice(["a", "b", "c"], rows, p=[0.6, 0.39, 0.01])
    numbers = random.permutation(rows)
    table.append(pa.table({"common": common, "number": numbers, "wide": np.zeros(rows, np.int64)}))
    often = table.scan(where="common = 'a'")
    (file,) = often.plan().files
    assert file.whole and not file.selection.exact and "60 %" in file.unused_indexes[0]
    assert "not asked: bitmap(common): it would leave about 60 % of the rows" in often.explain()
    assert often.to_arrow().num_rows == int((common == "a").sum())
    # Whoever counts or wants the first ones needs to know them all the same.
    assert often.count() == int((common == "a").sum())
    assert often.plan().metrics.answered_by == {"index": 1}
    assert often.limit(5).plan().chosen_rows == 5
    rare = table.scan(where="common = 'c'").plan().files[0]
    assert rare.selection.exact and not rare.unused_indexes
    assert table.scan(where="common <> 'c'").plan().files[0].whole
    half = table.scan(where="number >= 30000")
    assert half.plan().files[0].whole and "75 %" in half.plan().files[0].unused_indexes[0]
    assert half.to_arrow().num_rows == 90_000
    # Either end of the range is, for itself, in half of the rows.
    middle = table.scan(where="number >= 60000 AND number < 60010").plan().files[0]
    assert middle.chosen_rows == 10 and not middle.unused_indexes
    wide = table.scan(where="number >= 10000 AND number >= 20000 AND number < 110000").plan().files[0]
    assert wide.whole and "75 %" in wide.unused_indexes[1]
    few = table.scan(where="number >= 119990 AND common <> 'c'").plan().files[0]
    assert few.chosen_rows == 10 and few.pruned_by == ("range-bitmap(number)",)


def test_only_indexes_that_answered_are_named(tmp_path: Path) -> None:
    rows = pa.table({"status": ["NEW", "PAID"] * 5000, "user_id": range(10_000)})
    options = {"file-index.bitmap.columns": "status", "file-index.bloom-filter.columns": "user_id"}
    table = bitlake.connect(str(tmp_path)).create_table("orders", rows.schema, options=options)
    table.append(rows)
    # A bloom filter answers equality, not a range.
    scan = table.scan(where="status = 'NEW' AND user_id > 4")
    assert "by bitmap(status) (" in scan.explain() and "bloom-filter" not in scan.explain()
    steps = scan.explanation().to_dict()["conditions"]
    assert [step["indexes"] for step in steps] == [["bitmap(status)"], []]
    assert "user_id > 4\n    no index that can answer it" in scan.explanation().text()
    both = table.scan(where="status = 'NEW' AND user_id = 4").explain()
    assert "by bitmap(status) and bloom-filter(user_id) (" in both


def test_cost_guide_weighs_bytes() -> None:
    from bitlake.expressions.tree import Comparison, Op
    from bitlake.fileindex.cost import CostPolicy, IndexQuery

    leaf = Comparison("c", Op.EQ, 1)
    guide = CostPolicy(4_000_000, lambda _: 5_000_000, exact=True)
    why = guide.reason_to_skip(object(), IndexQuery(leaf, 20_000_000, 4_000_000))
    assert why is not None and "20.0 MB of index for a column of 5.0 MB" in why
    assert guide.reason_to_skip(object(), IndexQuery(leaf, 5_000_000, 4_000_000)) is None
    assert CostPolicy(1000, lambda _: 10, exact=False).reason_to_skip(object(), IndexQuery(leaf, 10_000, 1000)) is None
    few = CostPolicy(4_000_000, lambda _: None, exact=False).reason_to_skip(object(), IndexQuery(leaf, 5_000_000, 10))
    assert few is not None and "10 rows further" in few
    assert (
        CostPolicy(4_000_000, lambda _: None, exact=True).reason_to_skip(object(), IndexQuery(leaf, 50_000_000, 10))
        is None
    )


def test_a_count_from_metadata_lists_no_file_to_read(lake: bitlake.Lake) -> None:
    table = lake.create_table("t", events().schema)
    table.append(events(100))
    scan = table.scan()
    assert scan.count() == 100
    text = scan.explain()
    assert "files      0 of 1 read" in text and "0 B in files to read" in text and "  + " not in text
    assert "no data file is opened: 1 file answered without" in text


def test_the_first_files_are_named_and_the_others_counted(lake: bitlake.Lake) -> None:
    rows = pa.table({"id": range(120), "p": [i // 2 for i in range(120)]})
    table = lake.create_table("t", rows, partition_by=["p"])
    text = str(table.scan(where="p <> 0 AND p < 55").explain())
    assert text.count("  + ") == 51 and "  + … 4 more files to read" in text
    assert text.count("  - ") == 6 and "more files skipped" not in text
    assert "  - … 9 more files skipped" in str(table.scan(where="p = 7").explain())


def test_partitions_are_named_by_dates(lake: bitlake.Lake) -> None:
    """They were named by days since 1970, as their folders are."""
    days = pa.array([20_600, 20_601], pa.date32())
    table = lake.create_table("t", pa.table({"id": [1, 2], "day": days}), partition_by=["day"])
    text = table.scan(where="day = '2026-05-27'").explain()
    assert "partition day=2026-05-28 fails day = DATE '2026-05-27'" in text
    assert re.search(r"\+ day=20600/bucket-0/\S+ \(day=2026-05-27\): its one row", text)
    assert re.search(r"- day=20601/bucket-0/\S+ \(day=2026-05-28\): skipped", text)
    assert {p.name for p in table.maintenance.report().parts} == {"day=2026-05-27", "day=2026-05-28"}


def test_files_without_a_declared_index_are_counted(lake: bitlake.Lake) -> None:
    rows = pa.table({"id": range(100), "s": [f"s{i % 10}" for i in range(100)]})
    table = lake.create_table("t", rows)
    for index in ("a ON t USING bitmap (s)", "b ON t USING bitmap (upper(s))"):
        lake.sql(f"CREATE INDEX {index}", engine="duckdb")
    table.append(rows)

    def coverage(where: str) -> list[str]:
        return re.findall("  coverage +(.*)", table.scan(where=where).explain())

    lacking = (
        "1 of 2 files without an index for this condition; CALL sys.rewrite_file_index(table => 'default.t') builds it"
    )
    for where in ("s = 's3'", "s > 's3' AND id > 5", "upper(s) = 'S3'", "s = 's34'"):
        assert coverage(where) == [lacking], where
    for where in ("id = 5", "length(s) = 2", "lower(s) = 's3'"):  # no index is declared
        assert not coverage(where), where
    table.indexes.rebuild()
    assert not coverage("s = 's3'") and not coverage("upper(s) = 'S3'")
