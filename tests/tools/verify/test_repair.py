"""Repairing makes anew what can be, says what it cannot, changes no row, and nothing at all unless it is told to."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import verify_damage as damage
import verify_tables as made
from caches import forget
from verify_tables import Patient

from bitlake.errors import InvalidRequest
from bitlake.table.table import Table


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    known: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in known:
            known[name] = tmp_path_factory.mktemp(name) / "lake"
            getattr(made, name)(known[name])
        return known[name]

    return of


@pytest.fixture
def patient(templates: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Patient]:
    def of(name: str) -> Patient:
        shutil.copytree(templates(name), tmp_path / name)
        forget()
        return Patient(made.opened(tmp_path / name))

    return of


def rows_of(table: Table) -> list[dict[str, Any]]:
    forget()
    found: list[dict[str, Any]] = table.scan().to_arrow().sort_by("id").to_pylist()
    return found


def files_of(p: Patient) -> dict[str, bytes]:
    return {str(f): f.read_bytes() for f in p.root.rglob("*") if f.is_file()}


REPAIRED: list[tuple[str, Callable[[Patient], str]]] = [
    ("append", lambda p: damage.write(p, "snapshot/LATEST", "42")),
    ("append", lambda p: damage.write(p, "snapshot/EARLIEST", "2")),
    ("append", lambda p: damage.write(p, "branch/branch-dev/snapshot/LATEST", "42")),
    ("append", lambda p: p.remove(damage.index_of(p))),
    ("append", lambda p: p.cut(damage.index_of(p))),
    ("append", lambda p: p.flip(damage.index_of(p), -3)),
    ("append", damage.other_index),
    ("vectors", lambda p: p.remove(damage.index_of(p))),
    ("dynamic", lambda p: p.remove(p.index("HASH")[0])),
    ("dynamic", lambda p: p.cut(p.index("HASH")[0], 0.9)),
    ("dynamic", damage.lacking_hash),
    ("dynamic", damage.other_hashes),
]


@pytest.mark.parametrize(("table", "harm"), REPAIRED)
def test_it_is_well_again(patient: Callable[[str], Patient], table: str, harm: Callable[[Patient], str]) -> None:
    p = patient(table)
    rows = rows_of(p.table)
    harm(p)
    forget()
    report = p.table.maintenance.verify()
    assert report.findings
    before = files_of(p)
    plan = p.table.maintenance.repair(report)
    assert not plan.done
    assert plan.actions
    assert not plan.left
    assert files_of(p) == before, "a dry run changes nothing"
    assert "nothing was changed" in plan.text()
    done = p.table.maintenance.repair(report, dry_run=False)
    assert done.done
    assert done.actions == plan.actions
    forget()
    latest = max(s.id for s in p.table.history.snapshots())
    after = p.table.maintenance.verify(snapshots=[latest])
    assert not after.findings, after.text()
    assert not [f for f in p.table.maintenance.verify().findings if f.code.startswith("hint")]
    assert rows_of(p.table) == rows
    assert p.table.scan(where="id = 30").to_arrow().num_rows == 1


def test_a_rebuilt_index_is_used_and_a_dropped_one_is_not(patient: Callable[[str], Patient]) -> None:
    p = patient("append")
    p.cut(damage.index_of(p))
    forget()
    where = "v = 'value 3'"
    broken = p.table.scan(where=where).plan().problems
    p.table.maintenance.repair(dry_run=False)
    forget()
    rebuilt = p.table.scan(where=where).plan().problems
    assert (len(broken), len(rebuilt)) == (1, 0)
    p.cut(damage.index_of(p, 1))
    forget()
    p.table.maintenance.repair(dry_run=False, indexes="drop")
    forget()
    assert not p.table.maintenance.verify(snapshots=[p.last()]).findings
    assert not p.table.scan(where=where).plan().problems
    assert [s.commit_kind for s in p.table.history.snapshots()][-2:] == ["COMPACT", "COMPACT"]


def test_what_nothing_else_knows_is_left(patient: Callable[[str], Patient]) -> None:
    p = patient("append")
    p.remove(p.index("DELETION_VECTORS")[0])
    p.cut(p.data()[0])
    p.cut(damage.index_of(p))
    forget()
    plan = p.table.maintenance.repair()
    assert not plan.actions, "an index is not built from a data file that is damaged itself"
    assert {f.code for f in plan.left} >= {"vectors-missing", "data-unreadable", "index-unreadable"}
    assert "takes a decision or a copy" in plan.text()


def test_a_table_that_is_well(patient: Callable[[str], Patient]) -> None:
    p = patient("bucketed")
    before = files_of(p)
    assert p.table.maintenance.repair().text() == "Table 't': nothing to repair."
    assert p.table.maintenance.repair(dry_run=False).snapshot is None
    assert files_of(p) == before


def test_what_it_does_not_know(patient: Callable[[str], Patient]) -> None:
    with pytest.raises(InvalidRequest, match="'rebuild'"):
        patient("bucketed").table.maintenance.repair(indexes="guess")  # type: ignore[arg-type]


def test_after_a_repair_only_a_warning_tells_of_older_snapshots(patient: Callable[[str], Patient]) -> None:
    """The lost index of a snapshot that is not the last goes with it: nobody has to act, and nothing else is wrong."""
    p = patient("append")
    for tag in list(p.table.history.tags()):
        p.table.history.delete_tag(tag)
    p.table.history.delete_branch("dev")
    p.remove(damage.index_of(p))
    forget()
    before = p.table.maintenance.verify()
    assert not before.ok
    assert p.table.maintenance.repair(before, dry_run=False).done
    forget()
    report = p.table.maintenance.verify()
    assert report.ok, report.text()
    assert [(f.code, f.severity, f.past) for f in report.findings] == [("index-missing", "warning", True)]
    assert f"snapshot {p.last()}" not in report.findings[0].snapshots
    assert "expire" in report.text()
    again = p.table.maintenance.repair(report)
    assert not again.actions
    asked = p.table.maintenance.verify(snapshots=[p.last() - 1])
    assert not asked.ok, "of a snapshot that is asked about by itself, it is a fault"


def test_an_index_embedded_in_older_manifests_only_is_told_as_such(patient: Callable[[str], Patient]) -> None:
    """Manifests never change: the snapshot that repaired the index is not blamed, and again there is nothing to do."""
    p = patient("embedded")
    p.table.history.create_tag("old")
    entry = p.data()[1]
    p.change_file(p.data()[0].name, embedded_index=(entry.file.embedded_index or b"")[:-1] + b"?")
    forget()
    before = p.table.maintenance.verify()
    assert not before.ok and before.last == ("snapshot 1",)
    assert p.table.maintenance.repair(before, dry_run=False).snapshot == 2
    forget()
    report = p.table.maintenance.verify()
    [finding] = report.findings
    assert (finding.code, finding.severity, finding.past) == ("index-unreadable", "warning", True)
    assert finding.snapshots == ("snapshot 1", "tag old") and report.last == ("snapshot 2",)
    assert "these tags are deleted" in finding.remedy and "reading them needs the whole file" in finding.remedy
    assert not p.table.maintenance.repair(report).actions
    assert rows_of(p.table) == made.rows(0, 40).to_pylist()
