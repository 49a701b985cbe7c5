"""How much of a large bitmap index one question reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from long import exhaustive

from bitlake.expressions.tree import Comparison, Op
from bitlake.fileindex.bitmap import BitmapWriter
from bitlake.fileindex.container import encode_container
from bitlake.fileindex.reader import open_index
from bitlake.types import DataField, parse_type

VALUES = 1_000_000


@pytest.mark.parametrize("kind", ["BIGINT", exhaustive("STRING")])
def test_one_of_a_million_values_touches_at_most_64_kb(kind: str) -> None:
    """Strings of 12 characters; the list of blocks holds one key each, so very long keys take more (in any V2)."""
    rows = np.random.default_rng(0).permutation(VALUES)
    column = pa.array(rows) if kind == "BIGINT" else pa.array(np.char.add("user-", np.char.zfill(rows.astype(str), 7)))
    writer = BitmapWriter(parse_type(kind), {"version": "2"})
    writer.add(column)
    data = encode_container({"c": {"bitmap": writer.finish()}})
    fields = [DataField(0, "c", parse_type(kind))]
    for number in (0, 123_456, VALUES - 1, VALUES):
        literal: Any = number if kind == "BIGINT" else f"user-{number:07}"
        touched: list[tuple[int, int]] = []

        def fetch(offset: int, length: int, touched: list[tuple[int, int]] = touched) -> bytes:
            touched.append((offset, length))
            return data[offset : offset + length]

        index = open_index(fetch, len(data), fields, VALUES)
        found = index.evaluate(Comparison("c", Op.EQ, literal))
        assert found.exact
        assert found.positions(VALUES).tolist() == np.flatnonzero(rows == number).tolist()
        assert sum(length for _, length in touched) == index.bytes_read <= 64 * 1024
        assert len(touched) <= 3
        assert index.problems == []
