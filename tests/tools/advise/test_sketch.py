"""Distinct counts by sketches and by growth, against exact ones."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from bitlake.tools.advise.questions import (
    SIZE,
    DistinctSketch,
    Growth,
    drawn,
    growth_of,
    hash_values,
    profile,
    set_size,
    unite,
)


@pytest.mark.parametrize("distinct", [0, 1, 100, SIZE - 1, SIZE, 10_000, 500_000])
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_a_sketch_counts_numbers(distinct: int, step: int) -> None:
    values = pa.array(np.arange(distinct, dtype=np.int64) * step)
    found = DistinctSketch.of(np.repeat(hash_values(values), 2)).estimate
    assert found == distinct if distinct < SIZE else abs(found / distinct - 1) < 0.1


def test_parts_unite_to_the_whole_in_any_order() -> None:
    values = pa.array([f"customer {i % 30_000}" for i in range(60_000)])
    parts = [DistinctSketch.of(hash_values(values.slice(at, 10_000))) for at in range(0, 60_000, 10_000)]
    whole = DistinctSketch.of(hash_values(values))
    for given in (parts, parts[::-1]):
        assert DistinctSketch.union(given).hashes.tolist() == whole.hashes.tolist()
    assert abs(whole.estimate / 30_000 - 1) < 0.1
    assert DistinctSketch.union([]).estimate == 0


@pytest.mark.parametrize(
    "values",
    [
        pa.array([True, False]),
        pa.array([1, 2, 3], pa.int8()),
        pa.array([1.5, -2.5, 0.0], pa.float32()),
        pa.array([Decimal("1.5"), Decimal("2.5")], pa.decimal128(38, 1)),
        pa.array([dt.date(2024, 1, 1), dt.date(1960, 1, 1)]),
        pa.array([dt.time(1), dt.time(2)], pa.time32("ms")),
        pa.array([1, 2], pa.timestamp("ns", "UTC")),
        pa.array([b"a", b"", b"\x00"], pa.binary()),
        pa.array(["ä", "", "x" * 100]),
    ],
    ids=lambda v: str(v.type),
)
def test_values_of_every_flat_type_have_hashes_of_their_own(values: pa.Array) -> None:
    hashes = hash_values(values)
    assert hashes.dtype == np.uint64 and len(set(hashes.tolist())) == len(values)
    assert hash_values(pa.concat_arrays([values, values])).tolist() == [*hashes.tolist(), *hashes.tolist()]


def test_zeros_of_both_signs_are_one_value() -> None:
    assert len(set(hash_values(pa.array([0.0, -0.0])).tolist())) == 1


def test_a_profile_counts_exactly() -> None:
    random = np.random.default_rng(4)
    numbers = random.integers(0, 50, 20_000)
    column = pa.array(numbers, mask=random.random(20_000) < 0.1)
    found = profile(column)
    valid = column.drop_null().to_numpy()
    names, counts = np.unique(valid, return_counts=True)
    assert (found.rows, found.nulls, found.distinct) == (20_000, column.null_count, len(names))
    assert {v.value: v.rows for v in found.top} == dict(
        sorted(zip(names.tolist(), counts.tolist(), strict=True), key=lambda i: -i[1])[: len(found.top)]
    ) or sorted(v.rows for v in found.top) == sorted(counts.tolist())[-len(found.top) :]
    assert found.spread == 1.0  # each of 50 values is in each of 5 blocks
    assert 0.4 < found.ascending < 0.6
    assert found.cuts[0] == 0 and found.cuts[-1] == 49 and list(found.cuts) == sorted(found.cuts)


def test_order_and_clusters_are_seen() -> None:
    ordered = profile(pa.array(np.arange(40_960) // 100))
    assert ordered.ascending == 1.0 and ordered.spread < 0.15  # in one of ten blocks
    clustered = profile(pa.array(np.arange(40_960) // 4096 % 5))
    assert clustered.distinct == 5 and abs(clustered.spread - 0.2) < 1e-9
    constant = profile(pa.array([None] * 10, pa.string()))
    assert (constant.distinct, constant.nulls, constant.cuts) == (0, 10, ())


@pytest.mark.parametrize(
    ("kind", "real"),
    [("set", 50_000), ("keys", 1_000_000), ("dates", 1_000_000 // 2000), ("few", 7), ("large set", 630_000)],
)
def test_a_sample_foretells_the_distinct_values_of_a_table(kind: str, real: int) -> None:
    """A million rows, of which four runs of 32,768 are seen."""
    random = np.random.default_rng(8)
    number = np.arange(1_000_000)
    columns = {
        "set": lambda: random.integers(0, 50_000, len(number)),
        "keys": lambda: number,
        "dates": lambda: number // 2000,
        "few": lambda: random.integers(0, 7, len(number)),
        "large set": lambda: random.integers(0, 1_000_000, len(number)),
    }
    values = columns[kind]()
    parts = [profile(pa.array(values[at : at + 32_768])) for at in (100_000, 350_000, 600_000, 900_000)]
    found = unite("c", parts, len(number))
    assert real / 1.5 <= found.distinct <= real * 1.5


def test_growth_of_one_run_and_of_nothing() -> None:
    values = np.random.default_rng(1).integers(0, 100_000, 131_072)
    found = unite("c", [profile(pa.array(values))], 1_000_000)
    assert 80_000 <= found.distinct <= 120_000
    assert unite("c", [profile(pa.nulls(5, pa.int32()))], 100).distinct == 0
    assert growth_of([], 0) == Growth(1.0, 0.0)
    assert abs(set_size(1000, drawn(1000, 400)) / 400 - 1) < 1e-6
