"""Paimon (Java) opens every table whose options bitlake took, and goes on with tables whose mode bitlake switched."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest
from interop.rows import rows_of

import bitlake

pytestmark = pytest.mark.interop

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])


def _options_taken() -> tuple[list[dict[str, str]], pa.Schema]:
    """The cases of tests/mergetree/test_create_primary_key.py, which cannot be imported by name."""
    path = Path(__file__).parent.parent / "mergetree" / "test_create_primary_key.py"
    spec = importlib.util.spec_from_file_location("created_primary_key", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ALLOWED, module.MORE


def test_java_opens_tables_with_all_options_that_are_taken(java: ModuleType, tmp_path: Path) -> None:
    """Paimon checks a table's options whenever it opens one."""
    lake = bitlake.connect(tmp_path)
    allowed, columns = _options_taken()
    for i, options in enumerate(allowed):
        table = lake.create_table(f"t{i}", columns, options={"primary-key": "id", **options})
        found = dict(java.schema(tmp_path, f"default.t{i}"))
        assert list(found) == list(table.schema.field_names)
        assert found["id"] == "INT NOT NULL"


@pytest.mark.parametrize("options", [{"bucket": "2"}, {"bucket": "-1"}], ids=["fixed", "dynamic"])
def test_modes_are_switched_between_turns(java: ModuleType, tmp_path: Path, options: dict[str, str]) -> None:
    table = bitlake.connect(tmp_path).create_table("t", SCHEMA, options={"primary-key": "k", **options})
    model: dict[int, str] = {}

    def ours(low: int, word: str) -> None:
        new = {k: f"{word}{k}" for k in range(low, low + 60, 2)}
        table.upsert(pa.table({"k": list(new), "v": list(new.values())}, schema=SCHEMA))
        model.update(new)
        gone = [k for k in range(low, low + 60, 14) if k in model]
        table.upsert(pa.table({"k": gone, "v": [None] * len(gone)}, schema=SCHEMA), kinds=["-D"] * len(gone))
        for k in gone:
            del model[k]

    def theirs(low: int, word: str) -> None:
        # A writer of dynamic buckets has to be told of them; the peer writes fixed ones only.
        if table.schema.num_buckets == -1:
            return
        new = {k: f"{word}{k}" for k in range(low, low + 40, 3)}
        gone = [k for k in range(low, low + 40, 13) if k in model and k not in new]
        java.write(tmp_path, "default.t", [*(("+I", kv) for kv in new.items()), *(("-D", (k, None)) for k in gone)])
        model.update(new)
        for k in gone:
            del model[k]

    def check(when: str) -> None:
        wanted = sorted(model.items())
        assert sorted(rows_of(table.scan().to_arrow())) == wanted, f"{when}: bitlake"
        assert sorted(java.dump(tmp_path, "default.t")) == wanted, f"{when}: Java"

    for turn, switch in enumerate(
        (table.maintenance.enable_deletion_vectors, table.maintenance.disable_deletion_vectors) * 2
    ):
        ours(turn * 10, "b")
        theirs(turn * 10 + 5, "j")
        check(f"before switch {turn}")
        switch()
        check(f"after switch {turn}")
        theirs(turn * 10 + 1, "J")
        ours(turn * 10 + 8, "B")
        check(f"some writes after switch {turn}")
