"""Recorded scans: what is kept, masked or not, that logs stay small, and that trouble with them reaches no scan."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import InvalidRequest
from bitlake.expressions.tree import And, Between, Comparison, In, IsNull, Like, Not, Op, Or
from bitlake.io.local import LocalStore
from bitlake.tools import scan_log
from bitlake.tools import scan_log as scan_recorder
from bitlake.tools.scan_log import ScanLog, ScanRecord, ScanTerm, terms_of

ROWS = pa.table({"id": pa.array(range(1000), pa.int64()), "status": ["NEW", "PAID", "SENT", "LOST"] * 250})
OPTIONS = {"file-index.bitmap.columns": "status"}


def made(folder: Path, **given: object) -> bitlake.Table:
    lake = bitlake.connect(folder, **given)  # type: ignore[arg-type]
    table = lake.create_table("orders", ROWS.schema, options=OPTIONS)
    table.append(ROWS)
    return table


def test_a_scan_is_kept_with_what_it_asked_and_what_it_read(tmp_path: Path) -> None:
    table = made(tmp_path, record_scans=True)
    scan = table.scan(["id"], "status = 'LOST' AND id >= 500")
    rows = scan.to_arrow()
    (record,) = table.indexes.scans()
    assert record.where == "status = 'LOST' AND id >= 500"
    assert record.terms == (ScanTerm("status", "="), ScanTerm("id", ">="))
    assert record.columns == ("id",)
    assert (record.table, record.snapshot, record.engine) == ("default.orders", 1, "python")
    metrics = scan.plan().metrics
    assert record.rows_returned == rows.num_rows == 125
    assert record.rows_chosen == 250
    assert (record.bytes_read, record.index_bytes) == (metrics.data_bytes_read, metrics.index_bytes_read)
    assert record.bytes_total == scan.plan().files[0].entry.file.file_size
    assert record.skipping_rate == 1 - (metrics.data_bytes_read + metrics.index_bytes_read) / record.bytes_total


def test_files_skipped_are_told_by_reason_and_sum_up(tmp_path: Path) -> None:
    table = made(tmp_path, record_scans="values")
    table.append(ROWS.set_column(0, "id", pa.array(range(5000, 6000), pa.int64())))
    table.scan(where="id > 5500").to_arrow()
    table.scan(where="status = 'NONE'").to_arrow()
    table.scan().count()
    first, second, third = table.indexes.scans()
    assert first.files_skipped == {"statistics": 1}
    assert second.files_skipped == {"file index": 2} or second.files_skipped == {"statistics": 2}
    assert third.where is None and third.terms == ()
    counts = [(s.files_total, s.files_read, sum(s.files_skipped.values())) for s in (first, second, third)]
    assert counts == [(2, 1, 1), (2, 0, 2), (2, 2, 0)]
    assert 0 < first.skipping_rate < second.skipping_rate


def test_masked_conditions_keep_their_shape_and_no_value(tmp_path: Path) -> None:
    table = made(tmp_path, record_scans="masked")
    table.scan(where="status IN ('secret', 'NEW') OR status LIKE 'hush%' OR id BETWEEN 17171 AND 18181").to_arrow()
    (record,) = table.indexes.scans()
    assert record.where is None
    assert {(t.column, t.op) for t in record.terms} >= {("status", "IN"), ("status", "LIKE"), ("id", ">=")}
    text = "".join(p.read_text() for p in Path(table.path).glob("scans/*.jsonl"))
    assert text and not any(word in text for word in ("secret", "hush", "17171"))


def test_nothing_is_kept_unless_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(scan_recorder.ENVIRONMENT, raising=False)
    table = made(tmp_path / "a")
    table.scan().to_arrow()
    assert table.indexes.scans() == []
    assert not (Path(table.path) / "scans").exists()
    monkeypatch.setenv(scan_recorder.ENVIRONMENT, "1")
    other = made(tmp_path / "b")
    other.scan().to_arrow()
    assert len(other.indexes.scans()) == 1
    assert made(tmp_path / "c", record_scans=False).indexes.scans() == []
    with pytest.raises(InvalidRequest, match="'sometimes'"):
        bitlake.connect(tmp_path, record_scans="sometimes")


def test_logs_may_go_to_a_folder_of_their_own(tmp_path: Path) -> None:
    table = made(tmp_path / "lake", record_scans=True, scan_log=tmp_path / "logs")
    table.scan(where="id = 1").to_arrow()
    assert [r.where for r in table.indexes.scans()] == ["id = 1"]
    assert list((tmp_path / "logs" / "default.orders").glob("*.jsonl"))
    assert not (Path(table.path) / "scans").exists()


def test_what_the_table_does_itself_is_no_scan_of_a_user(tmp_path: Path) -> None:
    table = made(tmp_path, record_scans=True)
    table.delete("id = 3")
    table.maintenance.compact()
    table.maintenance.remove_orphan_files()
    assert table.indexes.scans() == []


def test_a_log_that_cannot_be_written_is_no_trouble_of_a_scan(tmp_path: Path) -> None:
    table = made(tmp_path, record_scans=True)
    (Path(table.path) / "scans").write_text("in the way")
    assert table.scan(where="id = 1").to_arrow().num_rows == 1
    table.indexes.scans()  # stores what waits, or not
    assert (Path(table.path) / "scans").read_text() == "in the way"


def test_logs_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_recorder, "FILE_BYTES", 2000)
    monkeypatch.setattr(scan_log, "MOST_FILES", 3)
    table = made(tmp_path, record_scans=True)
    for n in range(60):
        table.scan(where=f"id = {n}").to_arrow()
    kept = table.indexes.scans()
    files = list((Path(table.path) / "scans").iterdir())
    assert 1 <= len(files) <= 3
    assert all(f.stat().st_size <= 2000 for f in files)
    assert kept[-1].where == "id = 59"
    assert [r.where for r in table.indexes.scans(2)] == ["id = 58", "id = 59"]
    assert table.indexes.scans(since_ms=kept[-1].time_ms + 1) == []


def test_lines_that_are_no_records_are_passed_over(tmp_path: Path) -> None:
    table = made(tmp_path, record_scans=True)
    table.scan(where="id = 1").to_arrow()
    (record,) = table.indexes.scans()
    line = record.to_json()
    assert ScanRecord.from_json(line) == record
    (path,) = (Path(table.path) / "scans").iterdir()
    torn = [line[: len(line) // 2], "", "[]", "null", "7", '{"v":2}', json.dumps({**json.loads(line), "terms": 3})]
    wrong = json.dumps({**json.loads(line), "files_total": "many"})
    path.write_bytes("\n".join([*torn, wrong, line, "\ufffd"]).encode() + b"\xff\xfe\n")
    assert ScanLog(LocalStore(), str(path.parent)).read() == [record]


def test_terms_are_told_of_any_tree() -> None:
    inner = And((Comparison("a", Op.EQ, 1), In("b", (1, 2), True)))
    tree = Or((Not(inner), IsNull("c", True), Like("d", "x", True), Comparison("a", Op.EQ, 5), Between("e", 1, 2)))
    assert [(t.column, t.op) for t in terms_of(tree)] == [
        ("a", "="),
        ("b", "NOT IN"),
        ("c", "IS NOT NULL"),
        ("d", "NOT LIKE"),
        ("e", "BETWEEN"),
    ]
    assert terms_of(None) == ()


def test_taking_a_scan_down_takes_no_time(tmp_path: Path) -> None:
    table = made(tmp_path, record_scans=True)
    scan = table.scan(where="id = 1")
    scan.to_arrow()
    scan._core.record()  # starts nothing any more
    started = time.perf_counter()
    for _ in range(1000):
        scan._core.record()
    assert (time.perf_counter() - started) / 1000 < 0.001  # reading took some milliseconds
