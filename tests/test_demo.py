"""The demo's data: the same on every machine, and as skewed as its description says."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pyarrow.compute as pc

from bitlake.demo import SCHEMA, orders

DIGEST = "7172d1f442f6047f2e4e8dca115c2858c8595c77de68e4069f06e942492afc66"


def test_the_same_rows_every_time() -> None:
    table = orders(5_000)
    assert table.schema.equals(SCHEMA)
    assert table.slice(17, 1).to_pylist() == orders(5_000).slice(17, 1).to_pylist()
    digest = hashlib.sha256(repr(table.to_pydict()).encode()).hexdigest()
    assert digest == DIGEST, "numpy's draws or the generator changed: figures are no longer comparable"


def test_a_thousand_pending_orders_side_by_side() -> None:
    table = orders(700_000)
    pending = table.filter(pc.equal(table["status"], "PENDING"))["order_id"]
    assert pending.to_pylist() == list(range(600_000, 601_000))
    shares = {r["values"]: r["counts"] / 700_000 for r in pc.value_counts(table["status"]).to_pylist()}
    assert abs(shares["COMPLETED"] - 0.6) < 0.01 and abs(shares["RETURNED"] - 0.05) < 0.01


def test_values_lie_in_their_ranges() -> None:
    table = orders(50_000)
    table.validate(full=True)
    assert pc.all(pc.is_in(table["region"], pa.array(["US", "EU", "ASIA", "LATAM", "MEA"]))).as_py()
    assert pc.min_max(table["user_id"]).as_py()["max"] < 500_000
    assert pc.min(pc.utf8_length(table["payload"])).as_py() == pc.max(pc.utf8_length(table["payload"])).as_py() == 48
    assert orders(0).num_rows == 0
