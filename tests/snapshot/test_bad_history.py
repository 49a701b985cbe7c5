"""What cannot be done with snapshots, tags and branches: a clear error each, and a table that is as it was before."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bitlake
from bitlake.errors import AlreadyExists, BitlakeError, InvalidRequest, NotFound
from bitlake.table.table import Table

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table whose first two snapshots have expired; tags of the third and the last, a branch with a row more."""
    lake = bitlake.connect(str(tmp_path_factory.mktemp("history")))
    table = lake.create_table("t", SCHEMA)
    for i in range(6):
        table.append(pa.table([[i]], schema=SCHEMA))
    table.history.create_tag("third", 3)
    table.history.create_tag("last")
    table.history.create_branch("dev", "third")
    lake.table("t$branch_dev").append(pa.table([[100]], schema=SCHEMA))
    table.maintenance.expire_snapshots(options={"snapshot.num-retained.min": "4", "snapshot.num-retained.max": "4"})
    return lake.path


@pytest.fixture
def lake(template: str, tmp_path: Path) -> bitlake.Lake:
    """A copy of it, to try things on."""
    shutil.copytree(template, tmp_path / "lake")
    return bitlake.connect(str(tmp_path / "lake"))


def everything(lake: bitlake.Lake) -> Any:
    files = {str(p): p.read_bytes() for p in Path(lake.path).rglob("*") if p.is_file()}
    return files, *(lake.table(n).scan().to_arrow().to_pylist() for n in ("t", "t$branch_dev"))


KEPT = "snapshots 3 to 6 are kept"
CASES: list[tuple[Callable[[Table], Any], type[BitlakeError], str]] = [
    # an expired or missing snapshot
    (lambda t: t.scan(snapshot=1), NotFound, rf"no snapshot 1: {KEPT}; 1 has expired .*its tags: last, third\)"),
    (lambda t: t.scan(snapshot=99), NotFound, f"no snapshot 99: {KEPT}$"),
    (lambda t: t.scan(tag="second"), NotFound, "no tag 'second'; its tags: last, third"),
    (lambda t: t.scan(timestamp="2001-01-01 00:00:00"), NotFound, "2001-01-01"),
    (lambda t: t.changes(1, 4), NotFound, "snapshot 2.*has expired|no snapshot 2|snapshots 3 to 6 are kept"),
    (lambda t: t.history.create_tag("x", 1), NotFound, f"no snapshot 1: {KEPT}"),
    (lambda t: t.history.replace_tag("third", 1), NotFound, f"no snapshot 1: {KEPT}"),
    (lambda t: t.history.rollback(1), NotFound, f"no snapshot 1: {KEPT}"),
    (lambda t: t.history.rollback(tag="second"), NotFound, "no tag 'second'"),
    (lambda t: t.history.create_tag("x", timestamp="2200-01-01 00:00:00"), NotFound, "no snapshot committed at 2200"),
    # a tag that exists, or does not
    (lambda t: t.history.create_tag("third"), AlreadyExists, "already has a tag 'third'"),
    (lambda t: t.history.rename_tag("third", "last"), AlreadyExists, "already has a tag 'last'"),
    (lambda t: t.history.rename_tag("second", "x"), NotFound, "no tag 'second'"),
    (lambda t: t.history.delete_tag("second"), NotFound, "no tag 'second'"),
    # rollback past a tag
    (lambda t: t.history.rollback(4), InvalidRequest, "tags last hold later ones; delete these tags first"),
    (lambda t: t.history.rollback(tag="third"), InvalidRequest, "tags last hold later ones"),
    # a branch that exists, does not, or is in use
    (lambda t: t.history.create_branch("dev"), AlreadyExists, "already has a branch 'dev'"),
    (lambda t: t.history.create_branch("x", "second"), NotFound, "no tag 'second'"),
    (lambda t: t.history.create_branch("main"), InvalidRequest, "invalid branch name 'main'"),
    (lambda t: t.history.delete_branch("prod"), NotFound, "no branch 'prod'; its branches: dev"),
    (lambda t: t.history.rename_branch("dev", "main"), InvalidRequest, "invalid branch name"),
    (lambda t: t.history.delete_branch("main"), InvalidRequest, "'main' is table 'default.t' itself"),
    (lambda t: t.history.fast_forward("prod"), NotFound, "no branch 'prod'"),
]


@pytest.mark.parametrize(("call", "kind", "message"), CASES)
def test_the_table_is_as_it_was(
    lake: bitlake.Lake, call: Callable[[Table], Any], kind: type[BitlakeError], message: str
) -> None:
    before = everything(lake)
    with pytest.raises(kind, match=message) as raised:
        call(lake.table("t"))
    assert type(raised.value) is kind
    assert "default.t" in str(raised.value) or "invalid branch name" in str(raised.value)
    assert everything(lake) == before
    lake.table("t").append(pa.table([[7]], schema=SCHEMA))
    assert lake.table("t").scan().count() == len(before[1]) + 1


def test_a_branch_that_is_in_use(lake: bitlake.Lake) -> None:
    before = everything(lake)
    branch = lake.table("t$branch_dev")
    with pytest.raises(InvalidRequest, match="branch 'dev' is in use: this table was opened on it"):
        branch.history.delete_branch("dev")
    with pytest.raises(InvalidRequest, match="branch 'dev' is in use"):
        branch.history.rename_branch("dev", "other")
    assert everything(lake) == before
    lake.table("t").history.delete_branch("dev")
    with pytest.raises(NotFound, match="no branch 'dev'"):
        branch.append(pa.table([[7]], schema=SCHEMA))
    assert lake.table("t").scan().count() == 6
