from __future__ import annotations

import inspect
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from long import some

from bitlake.errors import CorruptError
from bitlake.formats.parquet.footer import BYTE_ARRAY, DOUBLE, INT32, INT64, Footer, read_footer
from bitlake.formats.parquet.page_index import groups_that_may_hold, plain_bytes

pytestmark = pytest.mark.skipif(
    "bloom_filter_options" not in inspect.signature(pq.ParquetWriter.__init__).parameters,
    reason="this pyarrow writes no bloom filters",
)
ROWS = 6_000
NAMES = ("big", "small", "text", "plain")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    order = np.random.default_rng(1).permutation(ROWS) - ROWS // 2
    table = pa.table(
        {
            "big": order * 1_000_003,
            "small": pa.array(order, pa.int32()),
            "text": [f"k{i}é" for i in order],
            "plain": order,
        }
    )
    path = tmp_path_factory.mktemp("files") / "x.parquet"
    filters = dict.fromkeys(NAMES[:3], True)
    pq.write_table(table, path, row_group_size=2_000, bloom_filter_options=filters)
    return path.read_bytes()


def asked(data: bytes, name: str, values: Sequence[int | str]) -> tuple[list[bool] | None, list[int]]:
    footer = read_footer(lambda offset, n: data[offset : offset + n], len(data))
    sizes: list[int] = []

    def fetch(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        sizes.extend(n for _, n in ranges)
        return [data[offset : offset + n] for offset, n in ranges]

    leaf = footer.column(name).leaf
    encoded = [plain_bytes(footer.leaves[leaf].physical or 0, v) for v in values]
    return groups_that_may_hold(footer, leaf, [e for e in encoded if e is not None], fetch), sizes


def groups_of(data: bytes, name: str, tmp_path: Path) -> list[list[int | str]]:
    path = tmp_path / "y.parquet"
    path.write_bytes(data)
    file = pq.ParquetFile(path)
    return [file.read_row_group(i, [name])[name].to_pylist() for i in range(file.num_row_groups)]


@pytest.mark.parametrize("name", some(NAMES[:3], "small", "text"))
def test_no_group_that_holds_a_value_is_denied_and_most_others_are(data: bytes, name: str, tmp_path: Path) -> None:
    groups = groups_of(data, name, tmp_path)
    passed = 0
    for number, values in enumerate(groups):
        for value in values[::50]:
            held, sizes = asked(data, name, [value])
            assert held is not None and held[number]
            assert sum(sizes) <= 3 * (64 + 32)
            passed += sum(held) - 1
    assert passed < 0.1 * 3 * len(groups[0][::50])


def test_a_list_is_held_where_one_of_its_values_is(data: bytes, tmp_path: Path) -> None:
    groups = groups_of(data, "big", tmp_path)
    held, _ = asked(data, "big", [groups[0][3], groups[2][5]])
    assert held is not None and held[0] and held[2]
    absent, _ = asked(data, "big", [7, 8])
    assert absent is not None and not all(absent)


def test_a_column_without_a_filter_is_not_looked_up(data: bytes) -> None:
    assert asked(data, "plain", [1]) == (None, [])


def test_plain_encodings() -> None:
    assert plain_bytes(INT32, -2) == b"\xfe\xff\xff\xff"
    assert plain_bytes(INT64, 1) == struct.pack("<q", 1)
    assert plain_bytes(BYTE_ARRAY, "é") == "é".encode()
    for physical, value in ((INT32, 2**31), (INT64, 2**63), (DOUBLE, 1), (INT64, "a"), (BYTE_ARRAY, 1)):
        assert plain_bytes(physical, value) is None


def offset_of(data: bytes) -> int:
    footer: Footer = read_footer(lambda offset, n: data[offset : offset + n], len(data))
    at = footer.row_groups[0].chunks[footer.column("big").leaf].bloom_offset
    assert at is not None
    return at


@pytest.mark.parametrize("damage", range(12))
def test_a_damaged_header_is_reported_or_read_as_it_is(data: bytes, damage: int) -> None:
    wrong = bytearray(data)
    wrong[offset_of(data) + damage] ^= 0x5F
    try:
        held, _ = asked(bytes(wrong), "big", [7])
    except CorruptError:
        return
    assert held is not None and len(held) == 3


def test_a_filter_that_does_not_fit_is_reported(data: bytes) -> None:
    at = offset_of(data)
    wrong = data[:at] + b"\x15\xfe\xff\xff\xff\x0f" + data[at + 6 :]
    with pytest.raises(CorruptError):
        asked(wrong, "big", [7])
