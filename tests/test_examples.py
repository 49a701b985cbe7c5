"""The examples in docstrings of the public face run as they stand, and no public member is without one.

Each docstring starts with the names that `names` makes, over a lake of its own: nothing depends on another example.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import random
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from long import exhaustive

import bitlake
from bitlake import _clock

ROOT = Path(__file__).resolve().parent.parent
ORDERS = pa.schema({"order_id": pa.int64(), "status": pa.string(), "amount": pa.float64(), "day": pa.date32()})
CUSTOMERS = pa.schema({"customer_id": pa.int64(), "name": pa.string(), "city": pa.string()})
NEEDS_SPARK = {
    "Lake.explain",
    "Lake.explanation",
    "Lake.merge",
    "Lake.plans",
    "Lake.read",
    "Lake.read_stream",
    "Lake.spark",
    "Lake.sql",
    "Lake.write",
    "Lake.write_stream",
    "MergeBuilder",
    "QueryExplanation",
    "Scan.to_spark",
}


def reference() -> Any:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        return importlib.import_module("docs_reference")
    finally:
        sys.path.remove(str(ROOT / "scripts"))


@dataclass(frozen=True)
class Documented:
    """A public class or member, and its docstring."""

    name: str
    doc: str

    @property
    def sources(self) -> str:
        return "".join(e.source for e in doctest.DocTestParser().get_examples(self.doc))


def documented() -> Iterator[Documented]:
    """The package, `connect`, and the classes of the public face and of returned values with their members."""
    yield Documented("bitlake", inspect.getdoc(bitlake) or "")
    for function in (bitlake.connect, bitlake.col):
        yield Documented(function.__name__, inspect.getdoc(function) or "")
    for kind, members in reference().public_classes():
        yield Documented(kind.__name__, inspect.getdoc(kind) or "")
        for name in members:
            yield Documented(f"{kind.__name__}.{name}", inspect.getdoc(getattr(kind, name)) or "")


DOCUMENTED = {d.name: d for d in documented()}
EXAMPLES = {name for name, d in DOCUMENTED.items() if d.sources}


def needs_spark(name: str) -> bool:
    return name in NEEDS_SPARK or name.partition(".")[0] in NEEDS_SPARK


class Clock:
    """A clock that a test sets."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 0
        patch.setattr(_clock, "now_ms", lambda: self.now)
        patch.setattr(_clock, "local_ms", lambda: self.now)

    def set(self, year: int, month: int, day: int, hour: int) -> None:
        self.now = int(datetime(year, month, day, hour, tzinfo=UTC).timestamp() * 1000)


def orders(*rows: tuple[int, str, float, date]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(ORDERS.names, row, strict=True)) for row in rows], schema=ORDERS)


def customers(*rows: tuple[int, str, str]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(CUSTOMERS.names, row, strict=True)) for row in rows], schema=CUSTOMERS)


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with orders, partitioned by day; customers, with a primary key; and payments, in no order.

    Each has two commits.
    """
    folder = tmp_path_factory.mktemp("examples") / "shop"
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock(patch)
        clock.set(2026, 1, 2, 8)
        lake = bitlake.connect(folder)
        options = {"file-index.bitmap.columns": "status", "partition.legacy-name": "false"}
        table = lake.create_table("orders", ORDERS, partition_by=["day"], options=options)
        keyed = lake.create_table("customers", CUSTOMERS, primary_key=["customer_id"], options={"bucket": "1"})
        first, second, third = (date(2026, 1, d) for d in (1, 2, 3))
        table.append(
            orders(
                (1, "NEW", 10.0, first), (2, "PAID", 25.5, first), (3, "NEW", 7.25, second), (4, "SENT", 120.0, second)
            )
        )
        keyed.append(customers((1, "Ada", "London"), (2, "Grace", "New York")))
        clock.set(2026, 1, 3, 8)
        table.append(orders((5, "PAID", 60.0, third), (6, "NEW", 33.0, third)))
        keyed.upsert(customers((2, "Grace", "Boston")))
        ids = random.Random(7).sample(range(1_000_000_000), 40_000)
        payments = lake.create_table("payments", pa.schema({"payment_id": pa.int64(), "amount": pa.float64()}))
        for part in ids[:20_000], ids[20_000:]:
            payments.append(pa.table({"payment_id": part, "amount": [i / 4 for i in range(len(part))]}))
        write_time = clock.now / 1000
    (Path(table.path) / "day=2026-01-03" / "bucket-0" / "data-of-a-killed-writer-0.parquet").write_bytes(b"PAR1")
    for path in folder.rglob("*"):
        os.utime(path, (write_time, write_time))
    return folder


@pytest.fixture
def folder(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the lake in the working folder, at a fixed time."""
    shutil.copytree(shop, tmp_path / "shop")  # with the times of the files
    monkeypatch.chdir(tmp_path)
    Clock(monkeypatch).set(2026, 1, 4, 12)
    return tmp_path / "shop"


def names(folder: Path, spark: Any = None) -> dict[str, Any]:
    """The names that examples use."""
    lake = bitlake.connect(folder, spark=spark, progress=False, record_scans=True)
    table = lake.table("orders")
    new = orders((7, "NEW", 15.0, date(2026, 1, 4)))
    return {
        "bitlake": bitlake,
        "col": bitlake.col,
        "pa": pa,
        "date": date,
        "timedelta": timedelta,
        "lake": lake,
        "table": table,
        "customers": lake.table("customers"),
        "scan": table.scan(),
        "rows": new,
        "schema": ORDERS,
    }


def run(name: str, given: dict[str, Any]) -> None:
    found = DOCUMENTED[name]
    test = doctest.DocTestParser().get_doctest(found.doc, given, name, None, None)
    report: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False).run(test, out=report.append)
    assert not report, "".join(report)


@pytest.mark.parametrize("name", sorted(n for n in EXAMPLES if not needs_spark(n)))
def test_example(name: str, folder: Path) -> None:
    run(name, names(folder))


@pytest.mark.parametrize(
    "name",
    [exhaustive(n) if n in ("Lake.write_stream", "MergeBuilder") else n for n in sorted(filter(needs_spark, EXAMPLES))],
)
def test_example_on_spark(name: str, folder: Path, spark: Any) -> None:
    run(name, names(folder, spark))


def test_every_public_member_has_an_example() -> None:
    """A member of a returned value may be in the example of its class."""
    without = []
    for name in DOCUMENTED:
        kind, _, member = name.partition(".")
        shown = DOCUMENTED[kind].sources if kind not in {k.__name__ for k in reference().face()} else ""
        if name not in EXAMPLES and not re.search(rf"\.{member}\b", shown):
            without.append(name)
    assert not without, f"add an example (>>> …) to the docstrings of {without}"
    assert "SKIP" not in "".join(d.doc for d in DOCUMENTED.values())


def test_examples_that_need_spark_exist() -> None:
    assert set(DOCUMENTED) >= NEEDS_SPARK


def test_the_public_face_is_small() -> None:
    for kind in reference().face():
        members = [n for n, _ in inspect.getmembers(kind) if not n.startswith("_")]
        assert len(members) <= 32, f"{kind.__name__}: {members}"
