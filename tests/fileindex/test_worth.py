from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

import bitlake
from bitlake.fileindex.worth import pages_spared
from bitlake.table.plan import PlannedFile

ROWS = 200_000


def test_rows_far_apart_have_pages_to_spare() -> None:
    assert pages_spared(BitMap(range(0, 4096 * 50, 4096)), 0.6) == pytest.approx(20)
    assert pages_spared(BitMap(range(10)), 0.5) == pytest.approx(2**-10)
    assert pages_spared(BitMap(), 0.5) == 0


def test_an_index_of_half_of_the_rows_is_asked_where_others_leave_few(tmp_path: Path) -> None:
    at = np.arange(ROWS)
    rows = pa.table(
        {
            "mode": pa.array(np.where(at % 9_001 == 0, "rare", "often")),
            "run": pa.array(np.where(at < 40, "first", "later")),
            "flag": pa.array(np.where((at * 2_654_435_761) % 1_000 < 500, "N", "R")),
        }
    )
    kinds = {"file-index.bitmap.columns": "mode,run,flag"}
    table = bitlake.connect(str(tmp_path)).create_table("t", rows.schema, options=kinds)
    table.append(rows)

    def planned(where: str) -> PlannedFile:
        return table.scan(where=where).plan().files[0]

    half = planned("flag = 'N'")
    assert half.whole and "it would leave about 50 % of the rows" in half.spared[0]
    rare = planned("flag = 'N' AND mode = 'rare'")
    kept = rows.filter(pa.array((at % 9_001 == 0) & ((at * 2_654_435_761) % 1_000 < 500)))
    assert rare.selection.exact and not rare.spared and rare.chosen_rows == kept.num_rows > 0
    assert table.scan(where="flag = 'N' AND mode = 'rare'").to_arrow().cast(kept.schema).equals(kept)
    # These rows are in one page, with or without half of them.
    near = planned("flag = 'N' AND run = 'first'")
    assert near.chosen_rows == 40 and near.pruned_by == ("bitmap(run)",) and near.spared
