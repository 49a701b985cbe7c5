"""Deletion vectors that bitlake wrote, of both widths, take out the same rows when Paimon (Java) reads."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest
from caches import forget

import bitlake
from bitlake.metadata.index_manifest import DELETION_VECTORS, IndexFileEntry, encode_index_manifest
from bitlake.tableindex.deletion_vectors import DeletionVector, encode_index_file

pytestmark = pytest.mark.interop

ROWS = 200_000


def delete_by_hand(root: Path, table: bitlake.Table, vectors: dict[str, DeletionVector]) -> None:
    """Commit vectors as a DELETE does: an index file, an index manifest, a snapshot with the same data files."""
    schema = root / "schema" / "schema-0"
    made = json.loads(schema.read_text())
    made["options"]["deletion-vectors.enabled"] = "true"
    schema.write_text(json.dumps(made))
    state = table._core.state()
    assert state.snapshot is not None
    data, places = encode_index_file(vectors)
    (root / "index").mkdir()
    (root / "index" / "index-a-0").write_bytes(data)
    partition = state.entries()[0].partition
    entry = IndexFileEntry(partition, 0, DELETION_VECTORS, "index-a-0", len(data), len(places), places)
    (root / "manifest" / "index-manifest-a-0").write_bytes(encode_index_manifest([entry]))
    after = replace(state.snapshot, id=state.snapshot.id + 1, index_manifest="index-manifest-a-0")
    (root / "snapshot" / f"snapshot-{after.id}").write_text(after.to_json())
    (root / "snapshot" / "LATEST").write_text(str(after.id))


@pytest.mark.parametrize("wide", [False, True], ids=["32-bit", "64-bit"])
def test_java_leaves_out_the_same_rows(java: ModuleType, tmp_path: Path, wide: bool) -> None:
    lake = bitlake.connect(str(tmp_path))
    table = lake.create_table("t", pa.schema([("id", pa.int64())]))
    rng = np.random.default_rng(9)
    gone = {
        0: np.flatnonzero(rng.random(ROWS) < 0.3),  # bitsets
        1: np.arange(1000, 150_000),  # runs
        2: rng.choice(ROWS, 500, replace=False),  # arrays
        3: np.zeros(0, np.int64),
    }
    for i in gone:
        table.append(pa.table({"id": np.arange(ROWS) + i * ROWS}))
    paths = [f.path for f in table.scan().plan().files]
    files = table.scan(columns=["id", "__paimon_file_path"]).to_arrow()
    vectors = {}
    kept = []
    for path in paths:
        ids = files.filter(pa.compute.equal(files.column(1), path)).column(0).to_numpy()
        number = int(ids[0]) // ROWS
        vectors[Path(path).name] = DeletionVector.of(gone[number], wide)
        kept.append(np.delete(ids, gone[number]))
    delete_by_hand(tmp_path / "default.db" / "t", table, {k: v for k, v in vectors.items() if v.rows})
    forget()
    wanted = np.sort(np.concatenate(kept))
    found = lake.table("t").scan()
    assert np.array_equal(np.sort(found.to_arrow().column(0).to_numpy()), wanted)
    assert found.count() == len(wanted)
    theirs = np.sort(np.array([r[0] for r in java.dump(tmp_path, "default.t")]))
    assert np.array_equal(theirs, wanted)
