from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long import long

import bitlake.formats.parquet.pages as decode
from bitlake.errors import BitlakeError
from tests.formats.parquet.test_pages import numbers, with_nulls
from tests.formats.parquet_files import Source, parquet, read_rows

# What the writers of bitlake make of these: zstd, version 1, and PLAIN unless a dictionary is small.
FLAT = ("int32", "int64", "float", "double", "decimal9", "date", "ms", "utc", "unique", "string", "binary", "int8")


@st.composite
def zstd_files(draw: st.DrawFn) -> tuple[bytes, Any]:
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    n = draw(st.integers(200, 2_000))
    made = numbers(n, rng)
    names = draw(st.lists(st.sampled_from(FLAT), min_size=1, max_size=6, unique=True))
    fields, arrays = [], []
    for name in names:
        share = draw(st.sampled_from([None, 0.0, 0.0, 0.002]))
        arrays.append(made[name] if share is None else with_nulls(made[name], rng, share))
        fields.append(pa.field(name, made[name].type, nullable=share is not None))
    data = parquet(
        pa.Table.from_arrays(arrays, schema=pa.schema(fields)),
        row_group_size=draw(st.sampled_from([1 << 20, 300])),
        compression="zstd",
        max_rows_per_page=draw(st.sampled_from([1, 16, 50])),
        write_batch_size=16,
        use_dictionary=draw(st.sampled_from([False, ["string", "binary", "int8"]])),
        store_decimal_as_integer=True,
    )
    rows = np.sort(rng.integers(0, n, draw(st.sampled_from([1, 20, n]))))  # some of them twice
    return data, rows


@pytest.mark.exhaustive
@pytest.mark.parametrize("examples", [20, long(50)])
def test_rows_of_many_pages_as_pyarrow(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(zstd_files(), st.sampled_from([1 << 20, 3_000, 1]))
    def run(made: tuple[bytes, Any], block: int) -> None:
        read_as_pyarrow(made, block)

    run()


def read_as_pyarrow(made: tuple[bytes, Any], block: int) -> None:
    data, rows = made
    source = Source(data)
    table = pq.read_table(io.BytesIO(data))
    footer = source.footer()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "BLOCK_BYTES", block)
        patch.setattr("bitlake.formats.parquet.gather.BLOCK_BYTES", block)
        for _ in range(2):  # the second knows which columns are not to be gathered
            found, _ = read_rows(footer, source.fetch_ranges, rows, table.column_names)
            assert found.equals(table.take(pa.array(rows)))
            found.validate(full=True)


PLAIN = pa.table({"id": np.arange(5_000), "code": [f"{i:012d}" for i in range(5_000)]})
ROWS = np.arange(3, 5_000, 70)


def _watched(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The columns that pyarrow decodes, read by read."""
    seen: list[list[str]] = []
    decoded = decode._decoded

    def watched(reader: Any, columns: Any, values: Any) -> Any:
        seen.append([c.name for c in columns])
        return decoded(reader, columns, values)

    monkeypatch.setattr(decode, "_decoded", watched)
    return seen


def test_plain_pages_are_not_decoded_and_texts_of_many_lengths_are(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _watched(monkeypatch)
    table = PLAIN.append_column("name", [[str(i) for i in range(5_000)]])
    table = table.append_column("holes", [[None if i == 4_000 else i for i in range(5_000)]])
    options = {"compression": "zstd", "max_rows_per_page": 100, "write_batch_size": 100, "use_dictionary": False}
    source = Source(parquet(table, **options))
    footer = source.footer()
    for _ in range(2):
        found, _ = read_rows(footer, source.fetch_ranges, ROWS, table.column_names)
        assert found.equals(table.take(pa.array(ROWS)))
    assert seen == [["name", "holes"], ["name", "holes"]] and footer.cache.not_gathered == {2, 3}
    few, _ = read_rows(footer, source.fetch_ranges, ROWS[:2], ["id", "code"])
    assert few.equals(table.select(["id", "code"]).take(pa.array(ROWS[:2]))) and seen[2] == ["id", "code"]


@pytest.mark.parametrize("codec", ["zstd", "snappy", "none"])
def test_damaged_pages_end_in_an_error_or_in_rows(codec: str) -> None:
    options = {"max_rows_per_page": 100, "write_batch_size": 100, "use_dictionary": False}
    data = parquet(PLAIN, compression=codec, **options)
    footer = Source(data).footer()
    read_rows(footer, Source(data).fetch_ranges, ROWS, ["id", "code"])
    pages = [p for key in ((0, 0), (0, 1)) for p in footer.cache.pages[key].offsets.tolist()]
    random = np.random.default_rng(5)
    for page in pages:
        damaged = bytearray(data)
        damaged[page + int(random.integers(0, 24))] ^= int(random.integers(1, 256))
        with contextlib.suppress(BitlakeError):
            found, _ = read_rows(Source(bytes(damaged)).footer(), Source(bytes(damaged)).fetch_ranges, ROWS, ["code"])
            found.validate(full=False)
            assert found.num_rows == len(ROWS)


def test_a_page_that_is_longer_or_shorter_than_its_header_says_is_corrupt() -> None:
    data = parquet(PLAIN, compression="zstd", max_rows_per_page=100, write_batch_size=100, use_dictionary=False)
    source = Source(data)
    footer = source.footer()
    read_rows(footer, source.fetch_ranges, ROWS, ["id"])
    first = int(footer.cache.pages[0, 0].offsets[2])
    assert data[first + 2] == 0x15  # then the uncompressed size, two bytes
    for change in (2, -2):
        damaged = bytearray(data)
        damaged[first + 3] += change
        broken = Source(bytes(damaged))
        with pytest.raises(BitlakeError, match="'id'"):
            read_rows(broken.footer(), broken.fetch_ranges, ROWS, ["id"])
