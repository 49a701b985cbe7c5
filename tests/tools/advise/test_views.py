"""``advise``, ``explain`` and ``report`` agree on a table and a condition, as they ask the same policy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from long import exhaustive, long

from bitlake.table.table import Table
from bitlake.tools.advise import policy
from bitlake.tools.advise.advice import Advice
from bitlake.tools.advise.advisor import index_sizes
from bitlake.tools.advise.policy import ScanCost
from bitlake.tools.advise.questions import Query
from bitlake.tools.report import gather
from bitlake.tools.scan_log import record_of
from tests.tools.advise.tables import stored

ROWS = 120_000
RUN = 50
NOBODY = 10**11 + 1
ASK = "Ask for advice on indexes"


@functools.cache
def places(seed: int, rows: int = ROWS) -> pa.Table:
    """Runs of rows with near values, in no order: files and pages span nearly all values."""
    random = np.random.default_rng(seed)
    runs = np.repeat(random.permutation(rows // RUN), RUN)
    return pa.table(
        {
            "id": np.arange(rows) + rows * seed,
            "city": [f"the city of {n:06} on the coast" for n in runs],
            "cents": runs * 20 + random.integers(0, 20, rows),
            "amount": runs + random.random(rows),
            "user": random.integers(0, 1 << 40, rows) * 2,
            "status": random.choice(["A", "B"], rows),
            "day": [f"2024-01-0{1 + seed}"] * rows,
            "payload": pa.array([random.bytes(32) for _ in range(rows)]),
        }
    )


def two_files(folder: Path, rows: int = ROWS, **options: str) -> Table:
    return stored(folder, pa.concat_tables([places(0, rows), places(1, rows)]), 2, options=options)


def partitioned(folder: Path) -> Table:
    return stored(folder, pa.concat_tables([places(0), places(1)]), 2, partition_by=("day",))


def indexed(folder: Path, rows: int = ROWS) -> Table:
    """One index serves its column, one lets files pass that hold no such row, two are declared and not built."""
    bloom = "file-index.bloom-filter.columns"
    table = two_files(folder, rows, **{"file-index.range-bitmap.columns": "amount", bloom: "cents"})
    table.alter_options({"file-index.bitmap.columns": "status", bloom: "cents,user"})
    table.alter_options({"file-index.bloom-filter.user.fpp": "0.01"})
    return table


def merged(folder: Path) -> Table:
    """Files that overlap by key are read whole, whatever an index says."""
    rows = places(0, 20_000)
    table = stored(folder, rows, primary_key=("id",), options={"bucket": "1", "write-only": "true"})
    table.upsert(rows)
    return table


def small(folder: Path) -> Table:
    return stored(folder, places(0, 500))


TABLES: dict[str, Callable[[Path], Table]] = {f.__name__: f for f in (two_files, partitioned, indexed, merged, small)}
WHERE = (
    f"user = {NOBODY}",
    "amount > 150 AND amount < 152",
    "cents = 1501",
    "city = 'the city of 000077 on the coast'",
    "city LIKE '%00007%' OR cents = 5",
    "status = 'A'",
    "status IN ('A', 'B') AND amount >= 0",
    "day = '2024-01-01'",
    "day = '2024-01-01' AND amount < 3",
    "id < 100",
    "user IS NULL",
)


def advised(table: Table, where: str) -> Advice:
    return table.indexes.advise([Query(where, ("id",))], engine="python")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("kind", "which"),
    [
        *[("two_files", slice(0, None, 2)), ("partitioned", slice(1, None, 2)), ("indexed", slice(None))],
        *[("merged", slice(None)), ("small", slice(None)), long("two_files", slice(None))],
        long("partitioned", slice(None)),
    ],
    ids=str,
)
def test_three_views_agree(kind: str, which: slice, tmp_path: Path) -> None:
    table = TABLES[kind](tmp_path)
    for where in WHERE[which]:
        check(table, where)


def check(table: Table, where: str) -> None:
    scan = table.scan(["id"], where=where)
    advice, read, planned = advised(table, where), scan.explanation(analyze=True), scan.explanation()

    # A trial decides in advise, and in explanations of scans that were read: the same indexes, reasons, statements.
    recommended = {c.column: c for c in advice.columns if c.to_build is not None}
    assert {a.column for a in read.advice} == {*recommended}, where
    for a in read.advice:
        column = recommended[a.column]
        changes = policy.option_changes(table.schema.options, [column], table.schema.fields)
        assert (a.index, a.why) == (column.index, column.reason)
        assert list(a.statements) == policy.statements(advice.table, [column], *changes)

    # Metadata decides in the others: they recommend the advisor, and rule out nothing that a trial recommends.
    name, indexes = table._core.name, gather(table._core.state()).indexes
    assert {*recommended} <= {a.column for a in planned.advice} | {i.column for i in indexes if i.files}, where
    asked = f"CALL sys.advise(table => '{name}', queries => 'SELECT id FROM {name} WHERE "
    assert all(call.startswith(asked) for a in planned.advice for call in a.statements)
    record = record_of(read.plan, time_ms=0, engine="python", was_read=True, masked=False)
    asks = [a for a in gather(table._core.state(), [record]).actions if a.title == ASK]
    assert asks or not recommended, where
    assert not asks or asks[0].sql == (f"CALL sys.advise(table => '{name}', recorded => true)",)
    # The rows that matched may show that no index could save much; they never show the opposite.
    assert planned.advice or not asks or any(i.column in where for i in indexes if i.files), where


def test_indexes_that_are_declared_and_missing(tmp_path: Path) -> None:
    table = indexed(tmp_path, 30_000)
    (action,) = (a for a in gather(table._core.state()).actions if a.title == "Build indexes that are missing")
    found = advised(table, f"user = {NOBODY}")
    call = "CALL sys.rewrite_file_index(table => 'default.t')"
    assert action.sql == (call,) and found.statements() == [call] and not found.set_options
    assert f"{action.why}: {call} builds it" in found.notes
    (missing,) = table.scan(["id"], where=f"user = {NOBODY}").explanation(analyze=True).advice
    assert (missing.index, missing.statements) == ("bloom-filter", (call,))
    before = len(table.scan(["id"], where=f"user = {NOBODY}").plan().files)
    assert found.apply().measured is not None and not table.scan(["id"], where=f"user = {NOBODY}").plan().files
    assert before == 2 and gather(table._core.state()).actions == ()
    assert table.scan(["id"], where=f"user = {NOBODY}").explanation(analyze=True).advice == ()


@pytest.mark.parametrize(
    "where", [f"user = {NOBODY}", exhaustive("amount > 150 AND amount < 152"), long("cents = 1501")]
)
def test_following_an_explanation_helps(tmp_path: Path, where: str) -> None:
    table = two_files(tmp_path)
    before = table.scan(["id"], where=where).explanation(analyze=True)
    (advice,) = before.advice
    advised(table, where).apply()
    after = table.scan(["id"], where=where).explanation(analyze=True)
    m = after.plan.metrics
    saved = (before.bytes_read or 0) - m.data_bytes_read - m.index_bytes_read
    assert advice.bytes / 2 <= saved <= 2 * advice.bytes
    assert not [a for a in after.advice if a.column == advice.column]


def test_what_a_scan_read_shows_whether_an_index_could_save() -> None:
    mb = 1 << 20
    assert policy.could_save(ScanCost(mb, 1000, 1000, 10))
    assert not policy.could_save(ScanCost(mb, 1000, 1000, 900)), "nearly every row that is left matches"
    assert not policy.could_save(ScanCost(4096, 1000, 1000, 0)), "one request reads more"
    assert policy.could_save(ScanCost(mb, 1000, 1000, None)), "nobody knows how many match"
    assert not policy.could_save(ScanCost(mb, 10, 1000, None)), "indexes leave few rows of the files"


@pytest.mark.parametrize("threshold", ["1 b", "10 mb"])
def test_one_figure_for_the_bytes_of_an_index(tmp_path: Path, threshold: str) -> None:
    """The payload's length, in an index file or embedded; advise counted the header of an index file as well."""
    options = {
        "file-index.bitmap.columns": "city",
        "file-index.bloom-filter.columns": "user",
        "file-index.in-manifest-threshold": threshold,
    }
    rows = pa.concat_tables([places(0, 6_000), places(1, 6_000)])
    table = stored(tmp_path, rows, 2, options=options)
    told = {(i.column, i.kind): i.size for i in gather(table._core.state()).indexes}
    assert told == index_sizes(table._core) and set(told) == {("city", "bitmap"), ("user", "bloom-filter")}
    advice = table.indexes.advise(["city = 'x'", "user = 4"])
    tried = {(t.column, t.index_type): t.index_bytes for c in advice.columns for t in c.tried}
    assert {name: tried[name] for name in told} == told
