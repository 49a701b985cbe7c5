from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bitlake.errors import CorruptError, NotFound, UnsupportedFeature
from bitlake.formats.parquet.footer import parse_footer
from tests.formats.parquet_files import Source, parquet

TABLE = pa.table({"a": np.arange(100), "n": [{"x": i, "y": [i]} for i in range(100)], "s": ["t"] * 100})
DATA = parquet(TABLE, row_group_size=40)


def test_a_footer_as_pyarrow_sees_it() -> None:
    footer = Source(DATA).footer()
    metadata = pq.read_metadata(pa.BufferReader(DATA))
    assert (footer.rows, len(footer.row_groups), len(footer.leaves)) == (100, 3, 4)
    assert [g.first_row for g in footer.row_groups] == [0, 40, 80]
    assert footer.created_by == metadata.created_by and footer.type_ordered == (True,) * 4
    assert footer.schema.equals(TABLE.schema)
    assert [(c.leaf, c.leaf_end, c.flat) for c in footer.columns.values()] == [
        (0, 1, True),
        (1, 3, False),
        (3, 4, True),
    ]
    for g in range(3):
        for i in range(4):
            theirs, ours = metadata.row_group(g).column(i), footer.row_groups[g].chunks[i]
            assert theirs.path_in_schema == b".".join(ours.path).decode()
            assert theirs.total_compressed_size == ours.compressed and theirs.num_values == ours.values
            assert (theirs.dictionary_page_offset, theirs.data_page_offset) == (
                ours.dictionary_offset,
                ours.data_offset,
            )
    with pytest.raises(NotFound, match="'b'"):
        footer.column("b")


@pytest.mark.parametrize("prefetch", [0, 100, 1 << 20])
def test_any_prefetch_reads_the_same_footer(prefetch: int) -> None:
    source = Source(DATA)
    assert source.footer(prefetch=prefetch).raw == Source(DATA).footer().raw
    assert len(source.asked) == (1 if prefetch > 1000 else 2)


def test_what_is_not_a_footer() -> None:
    for data in (b"", b"PAR1PAR1", b"x" * 100, DATA[:-8] + b"\xff\xff\xff\x7fPAR1", DATA[:-8] + b"\0\0\0\0PAR1"):
        with pytest.raises(CorruptError):
            Source(data).footer()
    with pytest.raises(UnsupportedFeature):
        Source(DATA[:-4] + b"PARE").footer()


def test_chunks_outside_the_file_are_refused() -> None:
    footer = Source(DATA).footer()
    with pytest.raises(CorruptError, match="outside the file"):
        parse_footer(footer.raw, len(footer.raw) + 20)
