from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long import every, exhaustive
from pyroaring import BitMap

from bitlake.errors import BitlakeError, CorruptError, InvalidRequest, UnsupportedFeature
from bitlake.expressions.tree import Comparison, In, IsNull, Op
from bitlake.fileindex.bsi import BsiReader, BsiWriter, supports
from bitlake.fileindex.container import read_header
from bitlake.fileindex.keyed import Key
from bitlake.fileindex.registry import IndexBuilder, IndexSpec
from bitlake.types import DataField, parse_type
from tests.fileindex.payloads import check_every_comparison, column, leaf_of, parsed, truth, written_in_parts
from tests.fixtures import payloads

LINES = [p for p in payloads() if p["index"] == "bsi"]


def written(kind: str, array: pa.Array) -> bytes:
    writer = BsiWriter(parse_type(kind), {})
    writer.add(array)
    return writer.finish()


def reader(kind: str, data: bytes, rows: int) -> BsiReader:
    return BsiReader(parse_type(kind), lambda o, n: data[o : o + n], len(data), rows)


def test_an_index_that_only_compares_wrongly_differs_from_the_rebuilt_one() -> None:
    class Shifted(BsiReader):
        def compared(self, op: Op, key: Key) -> BitMap | None:
            rows = super().compared(op, key)
            return None if rows is None else rows ^ BitMap([0])

    data = written("INT", pa.array([3, 1, None, 2], pa.int32()))
    stored = Shifted(parse_type("INT"), lambda o, n: data[o : o + n], len(data), 4)
    assert reader("INT", data, 4).difference(reader("INT", data, 4)) is None
    assert stored.difference(reader("INT", data, 4)) is not None


@pytest.mark.parametrize("line", every(4, LINES), ids=lambda p: p["type"])
def test_bytes_and_answers_are_paimons(line: dict[str, Any]) -> None:
    kind, values = parsed(line)
    if "error" in line and not supports(kind):
        with pytest.raises(InvalidRequest):
            BsiWriter(kind, line["options"])
        return
    array = column(kind, values)
    if "error" in line:
        with pytest.raises(UnsupportedFeature):
            BsiWriter(kind, {}).add(array)
        return
    for data in written_in_parts(array, lambda: BsiWriter(kind, line["options"])):
        assert data.hex() == line["bytes"]
    made = BsiReader(kind, lambda o, n: data[o : o + n], len(data), len(values))
    for predicate, answer in line["answers"]:
        leaf = leaf_of(kind, predicate)
        if leaf is None:
            continue
        got, want = made.test(leaf), truth(leaf, values)
        if got is None:
            continue
        rows = got.positions(len(values)).tolist()
        assert set(want) <= set(rows)
        if got.exact:
            assert rows == want
            if isinstance(answer, list):
                assert rows == answer


@pytest.mark.parametrize("examples", [30, exhaustive(100)])
def test_against_brute_force(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(
        st.lists(st.one_of(st.none(), st.integers(-5, 5), st.integers(-(2**63) + 1, 2**63 - 1)), max_size=50),
        st.lists(st.one_of(st.integers(-6, 6), st.integers(-(2**63), 2**63 - 1)), max_size=4),
    )
    def run(rows: list[int | None], literals: list[int]) -> None:
        made = reader("BIGINT", written("BIGINT", pa.array(rows, pa.int64())), len(rows))
        literals += [v for v in rows[:2] if v is not None]
        check_every_comparison(made, rows, literals)

    run()


def test_truncated_timestamps_are_supersets() -> None:
    rows = [1000, 1999, 2000, None]
    made = reader("TIMESTAMP(9)", written("TIMESTAMP(9)", pa.array(rows, pa.timestamp("ns"))), 4)
    for op in (Op.EQ, Op.LT, Op.LE, Op.GT, Op.GE):
        leaf = Comparison("c", op, 1999)
        got = made.test(leaf)
        assert got is not None and not got.exact and set(truth(leaf, rows)) <= set(got.positions(4).tolist())
    assert made.test(Comparison("c", Op.NE, 1999)) is None


def test_a_file_with_the_least_long_goes_without_the_index() -> None:
    fields = [DataField(0, "v", parse_type("BIGINT"))]
    builder = IndexBuilder([IndexSpec("v", "bsi", {}), IndexSpec("v", "bitmap", {})], fields)
    builder.add(pa.table({"v": [1, -(2**63)]}))
    builder.add(pa.table({"v": [2]}))
    assert set(read_header(builder.finish()).columns["v"]) == {"bitmap"}
    assert len(builder.problems) == 1 and "'bsi' of column 'v' is not written" in str(builder.problems[0])
    builder = IndexBuilder([IndexSpec("v", "bsi", {})], fields)
    builder.add(pa.table({"v": [-(2**63)]}))
    assert builder.finish() == b""


def test_another_files_index_and_future_versions() -> None:
    data = written("INT", pa.array([1, 2, None]))
    with pytest.raises(CorruptError, match="3 rows"):
        reader("INT", data, 4).test(IsNull("c"))
    with pytest.raises(UnsupportedFeature, match="version 3"):
        reader("INT", b"\3" + data[1:], 3).test(IsNull("c"))


@pytest.mark.parametrize("payloads", [300, exhaustive(1500)])
def test_mutated_payloads_never_crash(payloads: int) -> None:
    rng = random.Random(9)
    rows = [rng.choice([None, *range(-5, 9)]) for _ in range(60)]
    good = written("INT", pa.array(rows))
    for _ in range(payloads):
        data = bytearray(good)
        for _ in range(rng.randint(1, 2)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        cut = bytes(data[: rng.randrange(len(data))]) if rng.random() < 0.2 else bytes(data)
        for leaf in (IsNull("c"), In("c", (3, -2)), Comparison("c", Op.LT, 2)):
            try:
                got = reader("INT", cut, len(rows)).test(leaf)
            except BitlakeError:
                continue
            assert got is None or got.is_empty or got.positions(len(rows))[-1] < len(rows)
