from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from caches import forget

import bitlake
from bitlake.scan import page_pruning
from bitlake.scan import page_pruning as page_planning
from bitlake.scan.plan import SkipReason
from bitlake.table.table import Table

ROWS, FILES, PAGE = 1_000, 6, 100
OPTIONS = {"parquet.page.size": "16384", "parquet.page.row.count.limit": str(PAGE)}


def rows(file: int) -> pa.Table:
    """In each file all of ``key``'s range: in order, with gaps; and ``mixed``, in none."""
    order = np.arange(ROWS, dtype=np.int64)
    mixed = np.random.default_rng(file).permutation(order)
    return pa.table({"key": order * 10 * FILES + file, "mixed": mixed, "payload": [f"p{i}" for i in order]})


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    lake = bitlake.connect(str(tmp_path_factory.mktemp("lake")))
    made = lake.create_table("t", rows(0).schema, options=OPTIONS | {"deletion-vectors.enabled": "true"})
    for file in range(FILES):
        made.append(rows(file))
    made.delete("key = 60")
    return made


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Small files are worth asking; the names of those that were."""
    monkeypatch.setattr(page_pruning, "WORTH_ROWS", 0)
    monkeypatch.setattr(page_planning, "WORTH_ROWS", 0)
    monkeypatch.setattr(page_planning, "WORTH_BYTES", 0)
    names: list[str] = []
    plain = page_planning.footer_of

    def seen(store: Any, task: Any) -> Any:
        names.append(task.path)
        return plain(store, task)

    monkeypatch.setattr(page_planning, "footer_of", seen)
    return names


def live() -> pa.Table:
    every = pa.concat_tables([rows(file) for file in range(FILES)])
    return every.filter(pc.field("key") != 60)


def test_a_plan_has_the_pages_that_can_hold_a_value(table: Table, asked: list[str]) -> None:
    scan = table.scan(where="key IN (30060, 30061, 31)")
    plan = scan.plan()
    assert len(asked) == FILES
    assert [f.pruned_by for f in plan.files] == [("page bounds(key)",)] * FILES and all(f.by_pages for f in plan.files)
    assert plan.chosen_rows == 2 * PAGE * FILES - 1, "a row of a page is deleted"
    assert "by page bounds(key), to be filtered again" in scan.explain()
    forget("footers")
    phases = {p.name: p for p in scan.explanation(analyze=True).phases}
    assert phases["page bounds"].bytes > 0 and not phases["indexes"].bytes and not phases["footers"].bytes
    expected = live().filter(pc.field("key").isin([30060, 30061, 31]))
    assert scan.to_arrow().cast(expected.schema).equals(expected)
    assert plan.metrics.rows_read == plan.chosen_rows and plan.metrics.pages_ms > 0


def test_files_without_a_page_for_a_value_are_skipped(table: Table) -> None:
    end = PAGE * 10 * FILES
    scan = table.scan(where=f"key > {end - 10 * FILES + 3} AND key < {end + 2}")
    plan = scan.plan()
    assert [s.reason for s in plan.skipped] == [SkipReason.PAGES] * 2
    assert plan.metrics.files_skipped == {"page bounds": 2}, "2 and 3 above or below the edge of a page"
    assert "page bounds(key): no page can have a row with" in plan.skipped[0].detail
    assert sorted(scan.to_arrow()["key"].to_pylist()) == sorted([end, end + 1, end - 56, end - 55])


def test_where_values_lie_scattered_a_few_files_are_asked(table: Table, asked: list[str]) -> None:
    plan = table.scan(where="mixed = 7").plan()
    assert len(asked) == 3 and plan.chosen_rows == FILES * ROWS - 1 and not any(f.by_pages for f in plan.files)
    table.scan(where="payload LIKE '%7'").plan()
    assert table.scan().plan().chosen_rows == FILES * ROWS - 1


def test_a_delete_reads_the_pages_that_can_hold_a_match(tmp_path: Path) -> None:
    made = bitlake.connect(str(tmp_path)).create_table("t", rows(0).schema, options=OPTIONS)
    made.append(rows(0))
    assert [f.chosen_rows for f in made.scan(where="key = 600")._core.exact_plan().files] == [PAGE]
    assert made.delete("key = 600") == 1 and made.scan().count() == ROWS - 1


def test_a_footer_that_cannot_be_read_is_an_error_of_reading(tmp_path: Path) -> None:
    made = bitlake.connect(str(tmp_path)).create_table("t", rows(0).schema, options=OPTIONS)
    made.append(rows(0))
    (file,) = tmp_path.rglob("*.parquet")
    data = file.read_bytes()
    file.write_bytes(data[:-4] + b"PAR2")
    forget()
    scan = made.scan(where="key = 600")
    assert scan.plan().chosen_rows == ROWS
    with pytest.raises(bitlake.CorruptError):
        scan.to_arrow()


@pytest.mark.parametrize(
    "options", [{"write-only": "true"}, {"deletion-vectors.enabled": "true"}], ids=["merged", "vectors"]
)
def test_rows_of_keys_are_the_same_whatever_pages_are_left(tmp_path: Path, options: dict[str, str]) -> None:
    """Of files that are merged only conditions on keys may leave pages out: another version of a row may not match."""
    fields = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.int64())])
    made = bitlake.connect(str(tmp_path)).create_table(
        "t", fields, primary_key=["k"], options=OPTIONS | {"bucket": "1"} | options
    )
    pick, rows_now, narrowed = np.random.default_rng(5), dict[int, int](), 0
    for turn in range(3):
        keys = pick.permutation(3_000)[: 3_000 if turn == 0 else 700]
        values = pick.integers(0, 1_000, len(keys))
        made.upsert(pa.table({"k": keys, "v": values}))
        rows_now |= dict(zip(keys.tolist(), values.tolist(), strict=True))
        for low in pick.integers(0, 2_900, 6).tolist():
            for where, wanted in (
                (f"k BETWEEN {low} AND {low + 90}", [(k, v) for k, v in rows_now.items() if low <= k <= low + 90]),
                (f"k = {low} AND v < 500", [(k, v) for k, v in rows_now.items() if k == low and v < 500]),
                (f"v = {low // 3}", [(k, v) for k, v in rows_now.items() if v == low // 3]),
            ):
                scan = made.scan(where=where)
                assert sorted((r["k"], r["v"]) for r in scan.to_arrow().to_pylist()) == sorted(wanted)
                files = [m for f in scan.plan().files for m in (f.merge.files if f.merge is not None else [f])]
                narrowed += any(f.by_pages for f in files)
    assert narrowed > 18


@pytest.mark.parametrize("ordered", [0, 2, 4])
def test_the_first_the_middle_and_the_last_file_are_asked(tmp_path: Path, asked: list[str], ordered: int) -> None:
    """One of them that is narrowed is reason enough to ask the others."""
    made = bitlake.connect(str(tmp_path)).create_table("t", rows(0).schema, options=OPTIONS)
    for file in range(5):
        data = rows(file)
        made.append(data if file == ordered else data.set_column(0, "key", data["mixed"]))
    plan = made.scan(where="key = 600").plan()
    assert len(asked) == 5 and [f.by_pages for f in plan.files] == [file == ordered for file in range(5)]
    asked.clear()
    made.scan(where="mixed = 600").plan()
    assert asked == [plan.files[i].path for i in (0, 2, 4)]


def test_files_of_which_a_quarter_is_left_already_are_not_asked(tmp_path: Path, asked: list[str]) -> None:
    for share, count in ((4, 0), (3, 1)):
        groups = np.arange(ROWS, dtype=np.int64) % share
        data = rows(0).append_column("group", pa.array(groups))
        options = OPTIONS | {"file-index.bitmap.columns": "group"}
        made = bitlake.connect(str(tmp_path)).create_table(f"t{share}", data.schema, options=options)
        made.append(data)
        asked.clear()
        made.scan(where="group = 1 AND key < 600").plan()
        assert len(asked) == count, share


@pytest.mark.parametrize(("limit", "value"), [("MOST_FILES", FILES), ("WORTH_BYTES", 0)])
def test_plans_of_many_or_of_small_files_are_not_asked(
    table: Table, asked: list[str], monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    scan = table.scan(where="key IN (30060, 30061, 31)")
    if limit == "WORTH_BYTES":
        value = sum(f.entry.file.file_size for f in table.scan().plan().files)
    monkeypatch.setattr(page_planning, limit, value)
    scan.plan()
    assert len(asked) == FILES
    asked.clear()
    monkeypatch.setattr(page_planning, limit, value + (1 if limit == "WORTH_BYTES" else -1))
    assert not any(f.by_pages for f in table.scan(where="key IN (30060, 30061, 31)").plan().files) and not asked
