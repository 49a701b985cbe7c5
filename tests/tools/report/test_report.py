"""The report of a table: its numbers are the table's, what it recommends works, and its page fits and loads nothing."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from datetime import timedelta
from html import unescape
from pathlib import Path

import pyarrow as pa
import pytest
from long import exhaustive

import bitlake
from bitlake.table.table import Table
from bitlake.tools.report import TableReport, gather
from bitlake.tools.report.facts import Thresholds, scan_facts
from bitlake.tools.scan_log import ScanRecord, ScanTerm

SCHEMA = pa.schema([("id", pa.int64()), ("status", pa.string()), ("dt", pa.string())])
INDEXES = {
    "file-index.bitmap.columns": "status",
    "file-index.bloom-filter.columns": "id",
    "bucket": "1",
    "bucket-key": "id",
}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def rows(first: int, count: int, day: str) -> pa.Table:
    status = ["new" if i % 3 else "paid" for i in range(count)]
    return pa.table([range(first, first + count), status, [day] * count], schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    lake = bitlake.connect(str(tmp_path / "lake"))
    options = {**INDEXES, "deletion-vectors.enabled": "true", "file-index.in-manifest-threshold": "0 b"}
    made = lake.create_table("default.<b>&'t", SCHEMA, partition_by=["dt"], options=options)
    for i in range(10):
        made.append(rows(100 * i, 100, "2026-01-01"))
    made.append(rows(5000, 50, "2026-01-02 & <script>alert(1)</script>"))
    return made


def report(table: Table, top: int = 15) -> TableReport:
    return table.maintenance.report(top=top)


def test_numbers_are_the_tables(table: Table) -> None:
    table.delete("status = 'paid' AND id < 100")
    found = report(table)
    entries = table._core.state().entries()
    assert (found.total.files, found.total.rows) == (11, 1050) == (len(entries), sum(e.file.row_count for e in entries))
    assert found.total.size == sum(e.file.file_size for e in entries) == sum(p.size for p in found.parts)
    assert found.total.deleted == 34 == 1050 - table.scan().count()
    assert [p.files for p in found.parts] == [10, 1] and found.part_count == 2
    assert sum(files for _, files, _ in found.sizes) == 11
    assert {(i.column, i.kind): i.files for i in found.indexes} == {
        ("status", "bitmap"): 11,
        ("id", "bloom-filter"): 11,
    }
    beside = sum(f.stat().st_size for f in Path(table.path).rglob("*.index"))
    assert 0 < sum(i.size for i in found.indexes) < beside and found.index_sample == (11, 11)
    assert found.snapshots == 12 == sum(n for span in found.timeline for n in span.values())
    assert found.commits[0].id == 12 and found.commits[0].operation == "DELETE"
    assert json.loads(found.to_json())["total"]["rows"] == 1050


def test_what_it_recommends_is_done_by_running_it(table: Table) -> None:
    table.delete("status = 'paid'")
    table.alter_options({"file-index.bitmap.columns": "dt,status"})
    found = report(table)
    titles = [a.title for a in found.actions]
    assert titles == ["Build indexes that are missing", "Put small files together"]
    call = "CALL sys.compact(table => 'default.<b>&\\'t', compact_strategy => 'minor')"
    assert found.actions[1].sql == (call,)
    table.indexes.rebuild()
    table.maintenance.compact()
    assert report(table).actions == () and table.maintenance.compact() is None
    table.alter_options({"file-index.bitmap.columns": "status"})
    assert [a.title for a in report(table).actions] == ["Drop undeclared indexes"]


def test_rows_that_only_a_full_compaction_takes_out(table: Table) -> None:
    table.maintenance.compact(full=True)
    table.delete("id < 130")
    (action,) = report(table).actions
    assert action.title == "Take deleted rows out" and "compact_strategy => 'full'" in action.sql[0]
    assert table.maintenance.compact() is None, "less than compaction.delete-ratio-threshold of any file"
    table.maintenance.compact(full=True)
    assert report(table).actions == ()


def test_old_snapshots_partitions_and_tags_are_recommended_to_go(table: Table) -> None:
    table.alter_options({"partition.expiration-time": "1 d"})
    table.history.create_tag("short", retain=timedelta(milliseconds=1))
    table.maintenance.compact()
    found = gather(table._core.state(), thresholds=Thresholds(snapshots=5))
    assert [a.title for a in found.actions] == [
        "Expire old snapshots",
        "Expire old partitions",
        "Delete tags that are over",
    ]
    assert "retain_max => 5, dry_run => true" in found.actions[0].sql[0]
    table.maintenance.expire_snapshots(retain_max=5, retain_min=1, older_than=1 << 60)
    again = gather(table._core.state(), thresholds=Thresholds(snapshots=5))
    assert [x.title for x in again.actions] == ["Expire old partitions", "Delete tags that are over"]


def test_a_damaged_index_is_named_and_no_error(table: Table) -> None:
    damaged = next(Path(table.path).rglob("*.index"))
    damaged.write_bytes(b"no index")
    found = report(table)
    assert found.index_problems and found.actions[0].title == "Rebuild damaged indexes"


def test_a_declaration_that_cannot_be_used_is_named_with_the_statements_that_drop_it(table: Table) -> None:
    table.indexes.create("lower(status)", "bitmap", name="by_status")
    latest = max(Path(table.path).glob("schema/schema-*"), key=lambda p: int(p.name.rpartition("-")[2]))
    text = latest.read_text().replace("lower(status)", "lower(gone)")
    latest.write_text(text.replace('"options" : {', '"options" : {"bitlake.index" : "bitmap(status)",'))
    lake = bitlake.connect(str(Path(table.path).parents[1]))
    title = "Drop declarations that cannot be used"
    (action,) = [a for a in report(lake.table(table.name)).actions if a.title == title]
    assert "'bitlake.index' = 'bitmap(status)'" in action.why
    assert len(action.sql) == 2
    for statement in action.sql:
        lake.sql(statement, engine="duckdb")
    assert title not in [a.title for a in report(lake.table(table.name)).actions]


def keyed(folder: Path, options: dict[str, str]) -> Table:
    key = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
    return bitlake.connect(str(folder)).create_table("k", key, primary_key=["id"], options={"bucket": "1", **options})


def test_levels_of_a_keyed_table(tmp_path: Path) -> None:
    table = keyed(tmp_path, {"write-only": "true"})
    for _ in range(6):
        table.upsert(pa.table({"id": range(1000), "v": range(1000)}))
    (action,) = report(table).actions
    assert action.title == "Merge the newest files" and "6 files of 6" in action.why
    table.maintenance.compact()
    found = report(table)
    assert set(found.total.levels) == {5} and found.actions == ()
    assert "Levels" in text_of(found.to_html())


@pytest.mark.parametrize("options", [{}, {"compaction.min.file-num": "9"}, {"deletion-vectors.enabled": "true"}])
def test_compaction_is_recommended_just_where_it_does_something(tmp_path: Path, options: dict[str, str]) -> None:
    """The page used thresholds of its own, and recommended what `bitlake compact` then found nothing to do for."""
    lake = bitlake.connect(str(tmp_path / "lake"))
    tables = [lake.create_table("a", SCHEMA, options=options), keyed(tmp_path, options)]
    for step in range(10):
        tables[0].append(rows(step, 50, "d"))
        tables[1].upsert(pa.table({"id": range(step, step + 50), "v": range(50)}))
        for table in tables:
            told = [a for a in report(table).actions if "'minor'" in a.sql[0]]
            assert (len(told) == 1) == (table.maintenance.compact() is not None), (table.name, step)


def test_lists_are_bounded(tmp_path: Path) -> None:
    table = bitlake.connect(str(tmp_path)).create_table("p", SCHEMA, partition_by=["dt"])
    table.append(pa.table([range(300), ["x"] * 300, [f"d{i}" for i in range(300)]], schema=SCHEMA))
    found = report(table, top=7)
    assert len(found.parts) == 7 and found.part_count == 300 and found.rest is not None
    assert found.rest.name == "293 more" and found.rest.files + sum(p.files for p in found.parts) == 300
    assert len(found.to_html()) < 40_000
    empty = bitlake.connect(str(tmp_path)).create_table("e", SCHEMA)
    assert report(empty).snapshot is None and "Nothing has been committed yet" in report(empty).to_html()


def test_no_data_is_read(table: Table) -> None:
    for file in Path(table.path).rglob("*.parquet"):
        file.write_bytes(b"gone")
    assert report(table).total.rows == 1050


def test_scans_in_sum_and_by_what_they_ask() -> None:
    def scan(column: str, read: int, time_ms: int) -> ScanRecord:
        return ScanRecord(
            "t", time_ms, 1, None, (ScanTerm(column, "="),), None, None, (), 4, 1, {"statistics": 3}, 10, 5, 5, 1000,
            read, read, 0, 1.0, 2.0,
        )  # fmt: skip

    found = scan_facts([scan("a", 900, 5), scan("a", 700, 7), scan("b", 0, 6)])
    assert found is not None and (found.first_ms, found.last_ms, found.files_read) == (5, 7, 3)
    assert [(a.what, a.scans, round(a.skipped, 9)) for a in found.asked] == [("a =", 2, 0.2), ("b =", 1, 1.0)]
    assert found.all.bytes_touched == 1600 and found.files_skipped == (("statistics", 9),)
    assert scan_facts([]) is None


def text_of(html: str) -> str:
    return unescape(re.sub(r"<[^>]*>", " ", re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)))


def test_saved_with_its_scans(table: Table, tmp_path: Path) -> None:
    lake = bitlake.connect(str(Path(table.path).parent.parent), record_scans=True)
    recording = lake.table("`<b>&'t`")
    recording.scan(where="id = 3").to_arrow()
    found = recording.maintenance.report(tmp_path / "report.html")
    assert found.scans is not None and [a.what for a in found.scans.asked] == ["id ="]
    assert (tmp_path / "report.html").read_text() == found.to_html()


def test_the_page_is_escaped_and_loads_nothing(table: Table) -> None:
    html = report(table).to_html()
    assert "<script" not in html and "<script>alert(1)" in text_of(html) and "<b>&'t" in text_of(html)
    assert not re.search(r"\b(?:src|href)=|url\(|https?:", html)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (on Debian: the package chromium)")
@pytest.mark.parametrize("width", [exhaustive(1280), exhaustive(400), 320])
def test_the_page_fits(table: Table, tmp_path: Path, width: int) -> None:
    table.delete("status = 'paid'")
    measured = (
        "<script>document.title=JSON.stringify([document.documentElement.scrollWidth,innerWidth,"
        "[...document.querySelectorAll('section')].filter(s=>s.getBoundingClientRect().right>innerWidth).length])</script>"
    )
    # The page itself has no script: the measuring one is put into a copy that allows it, in a frame of that width.
    inner = re.sub(r"<meta http-equiv[^>]*>", "", report(table).to_html()).replace("</body>", measured + "</body>")
    (tmp_path / "page.html").write_text(inner)
    outer = (
        f"<body style='margin:0'><iframe id=f width={width} height=900 style='border:0' src=page.html></iframe>"
        "<pre id=o></pre><script>f.onload=()=>o.textContent='found '+f.contentDocument.title</script>"
    )
    (tmp_path / "outer.html").write_text(outer)
    command = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--allow-file-access-from-files",
        "--dump-dom",
    ]
    command += [
        f"--user-data-dir={tmp_path / 'profile'}",
        "--virtual-time-budget=5000",
        (tmp_path / "outer.html").as_uri(),
    ]
    dump = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    said = re.search(r"found (\[[^<]*\])", unescape(dump))
    assert said is not None, dump[-500:]
    wide, inside, outside = json.loads(said.group(1))
    assert inside == width and wide <= inside and outside == 0


def test_small_files_stand_out_only_where_a_compaction_is_due(tmp_path: Path) -> None:
    table = bitlake.connect(tmp_path).create_table("t", pa.table({"id": [1]}))
    calm = table.maintenance.report()
    assert calm.total.small_files == 1 and not calm.due.files
    assert (
        "no compaction is due" in calm.to_html() and 'class="c2"' not in calm.to_html().split("Sizes of files")[1][:600]
    )
    for i in range(12):
        table.append(pa.table({"id": [i]}))
    due = table.maintenance.report()
    assert due.due.files and "no compaction is due" not in due.to_html()
    assert "c2" in due.to_html().split("Sizes of files")[1][:900]


def test_tables_name_their_columns_in_each_cell(table: Table) -> None:
    """A narrow screen shows each cell on a line of its own, after its column's name."""
    page = report(table).to_html()
    for name in ("Partition", "Files", "Small", "Size", "Rows", "Deleted", "Ratio"):
        assert f'data-name="{name}"' in page
