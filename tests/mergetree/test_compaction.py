"""Compactions against a plain model: every engine, with deletion vectors and without, whatever unit is picked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from long import long
from lsm_bucket import BucketTable

from bitlake.merge import sort_merge_reader as stream
from bitlake.mergetree.universal_compaction import pick_full_compaction
from bitlake.scan import column_reader as fetch

DV = {"deletion-vectors.enabled": "true"}
GROUP = {"merge-engine": "partial-update", "fields.g.sequence-group": "a,t"}
SUM = {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum", "fields.b.aggregate-function": "max"}

ADDS, ALL = [0, 0, 2], [0, 0, 0, 2, 3, 1]
LOOKUPS: dict[str, tuple[dict[str, str], Sequence[int]]] = {
    "deduplicate": ({}, ALL),
    "ignore-delete": ({"ignore-delete": "true"}, ALL),
    "sequence": ({"sequence.field": "g"}, ALL),
    "descending": ({"sequence.field": "g,b", "sequence.field.sort-order": "descending"}, ALL),
    "partial-update": ({"merge-engine": "partial-update"}, ADDS),
    "partial-remove": ({"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}, ALL),
    "groups": (GROUP, ALL),
    "groups-sequence": ({**GROUP, "sequence.field": "b"}, ADDS),
    "aggregation": (SUM, ADDS),
    "aggregation-retract": (
        {**SUM, "fields.b.ignore-retract": "true", "fields.t.aggregate-function": "last_value"},
        ALL,
    ),
    "listagg": ({**SUM, "fields.t.aggregate-function": "listagg"}, ADDS),
}
SHAPES: list[tuple[dict[str, str], Sequence[str]]] = [
    ({}, ("k",)),
    ({"target-file-size": "1 kb"}, ("k",)),
    ({"num-sorted-run.compaction-trigger": "2", "num-levels": "6"}, ("k", "x")),
    ({"target-file-size": "1 kb", "file.format": "avro"}, ("x", "k")),
    ({"file.format.per.level": "0:avro", "deletion-vectors.bitmap64": "true"}, ("k",)),
]


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows at a time, so that chunks are cut."""
    monkeypatch.setattr(fetch, "_BATCH_ROWS", 7)
    monkeypatch.setattr(stream, "MEMORY", 1)


def _lookup_cases() -> list[Any]:
    """Each engine with each producer, and one of two seeds in turn; with the other in ``make long``."""
    cases = []
    for number, case in enumerate(LOOKUPS):
        for producer in ("none", "lookup"):
            seed = (number + (producer == "none")) % 2
            cases += [(case, producer, seed), long(case, producer, 1 - seed)]
    return cases


@pytest.mark.exhaustive
@pytest.mark.parametrize(("case", "producer", "seed"), _lookup_cases())
@pytest.mark.parametrize("rounds", [3, long(6)])
def test_with_deletion_vectors(
    case: str, producer: str, seed: int, rounds: int, tmp_path: Path, small_batches: None
) -> None:
    options, kinds = LOOKUPS[case]
    # Each engine and producer meets two shapes of table; together they meet all.
    shape = (list(LOOKUPS).index(case) + 2 * seed + (producer == "none")) % len(SHAPES)
    more, keys = SHAPES[shape]
    dedup = seed == 1
    asked = {"changelog-producer": producer, "changelog-producer.row-deduplicate": str(dedup).lower()}
    table = BucketTable(tmp_path, {**DV, **options, **more, **asked}, keys, shape)
    for _ in range(rounds):
        for _ in range(table.random.randint(1, 3)):
            table.write(kinds)
        unit = table.unit()
        if unit is None:
            continue
        changelog = table.compact(unit)
        wanted = table.model.compact(table.pending, dedup)
        table.pending = []
        table.check_once()
        assert sorted(changelog, key=repr) == sorted(wanted if producer == "lookup" else [], key=repr)
    unit = pick_full_compaction(table.runs, table.context.schema, has_vector=lambda n: n in table.vectors())
    if unit is not None:
        table.compact(unit)
        table.model.compact(table.pending)
        table.check_once()
        assert not table.vectors()
