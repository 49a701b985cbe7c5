"""The steps of planning account for every file, and the plan's totals are sums over their results."""

from __future__ import annotations

from collections import Counter

import pytest
from fixtures import warehouse

import bitlake
from bitlake.scan.plan import Plan, ScanMetrics, StepName


def scan_of(name: str, where: str | None = None) -> bitlake.Scan:
    table = bitlake.connect(str(warehouse())).table(name)
    return table.scan() if where is None else table.scan(where=where)


def read_files(plan: Plan) -> list[str]:
    """The names of the data files that a plan reads, merged ones too."""
    members = [m for f in plan.files for m in ((f,) if f.merge is None else f.merge.files)]
    return [f.entry.file.file_name for f in members]


SCANS = [
    ("append_bucketed", "order_id = 7"),
    ("append_bucketed", "status = 'no such'"),
    ("append_dv", "order_id > 3"),
    ("pk_mor", "order_id = 1"),
    ("pk_mor", "status = 'A1'"),
    ("pk_dv", "order_id < 10"),
    ("pk_dv", None),
]


@pytest.mark.parametrize(("name", "where"), SCANS)
@pytest.mark.parametrize("limit", [None, 2])
def test_every_file_is_kept_or_skipped_by_one_step(name: str, where: str | None, limit: int | None) -> None:
    scan = scan_of(name, where)
    plan = (scan if limit is None else scan.limit(limit)).plan()
    live = [e.file.file_name for e in scan._core.state.entries()]
    skipped = [f.entry.file.file_name for s in plan.steps for f in s.skipped]
    merged = Counter(live) - Counter(skipped) - Counter(read_files(plan))
    assert not merged or limit is not None  # files of a merged section that the limit skips are listed as one
    assert Counter(skipped) + Counter(read_files(plan)) <= Counter(live)
    assert list(plan.skipped) == [f for s in plan.steps for f in s.skipped]


@pytest.mark.parametrize(("name", "where"), SCANS)
def test_metrics_are_sums_over_the_steps(name: str, where: str | None) -> None:
    plan = scan_of(name, where).plan()
    files: Counter[str] = Counter()
    sizes = 0
    for step in plan.steps:
        files.update({reason.value: n for reason, n in step.skipped_files().items()})
        sizes += sum(step.skipped_bytes().values())
        assert step.skipped_files() == Counter(f.reason for f in step.skipped)
        assert sum(step.skipped_bytes().values()) == sum(f.size for f in step.skipped)
    assert plan.metrics.files_skipped == files
    assert plan.metrics.data_bytes == sizes + sum(f.entry.file.file_size for f in plan.files)
    assert plan.metrics.index_bytes_read == sum(s.index_bytes for s in plan.steps)


def test_a_step_keeps_what_the_next_one_is_given() -> None:
    """Steps return new values: what a step kept still holds after the later ones have narrowed it."""
    plan = scan_of("append_dv").plan()
    first, vectors = plan.steps
    assert (first.name, vectors.name) == (StepName.METADATA, StepName.VECTORS)
    assert all(f.whole and not f.deleted for f in first.kept)
    assert sum(f.deleted for f in vectors.kept) > 0
    assert tuple(vectors.kept) == plan.files


def test_sections_that_are_read_whole_are_not_listed_as_skipped() -> None:
    """Positions of merged rows need whole sections; such a plan once listed 11 of 8 files, three of them twice."""
    scan = scan_of("pk_mor", "order_id = 1").select(["order_id", "__paimon_row_index"])
    plan = scan.plan()
    assert plan.metrics.files == len(scan._core.state.entries())
    assert not {f.entry.file.file_name for f in plan.skipped} & set(read_files(plan))


def test_metrics_count_from_zero() -> None:
    assert not any(ScanMetrics().as_dict().values())
