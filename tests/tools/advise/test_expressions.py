"""Recorded queries with functions, text tests, arrays, maps and JSON: which index is advised, and what it saves."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from long import some

import bitlake
from tests.tools.advise.test_choices import payload
from tests.tools.advise.test_reality import LITTLE, near

ROWS, FILES = 30_000, 2
MAP = pa.map_(pa.string(), pa.int32())
WORDS = np.array("disk user node pool read write open close sync wait queue lock page heap stack frame".split())


def rows() -> pa.Table:
    random = np.random.default_rng(11)
    number = np.arange(ROWS)
    ids = [f"{i:016x}" for i in random.integers(0, 1 << 62, ROWS)]
    words = WORDS[random.integers(0, len(WORDS), (ROWS, 6))]
    lines = [f"{' '.join(w)} request id={i} code {n % 977}" for w, i, n in zip(words, ids, number, strict=True)]
    # Tags and keys are many, and those of neighbouring rows are the same few.
    near_by = (number // 64 * 4)[:, None] + random.integers(0, 12, (ROWS, 6))
    return pa.table(
        {
            "email": [f"User-{i}-{i[:4]}@Mail.org" for i in ids],
            "message": lines,
            "line": lines,
            "tags": [[f"tag {n}" for n in row] for row in near_by.tolist()],
            "m": pa.array([[(f"key {n}", n) for n in set(row)] for row in near_by.tolist()], MAP),
            "doc": [f'{{"at": "{i}", "user": {{"id": "u{n // 30}"}}}}' for n, i in enumerate(ids)],
            "payload": payload(ROWS),
        }
    )


@pytest.fixture(scope="module")
def all_rows() -> pa.Table:
    return rows()


WORKLOADS = {
    "lower(email)": (["lower(email) = 'user-{0}-{1}@mail.org'"] * 3, {"bitmap", "bloom-filter"}),
    "message": (["message LIKE '%id={0}%'", "message ILIKE '%{0} CODE%'"], {"ngram"}),
    "line": (["has_token(line, '{0}')", "array_contains(split(line, ' '), 'id={0}')"], {"tokens"}),
    "element(tags)": (["array_contains(tags, 'tag 77')", "exists(tags, x -> x = 'tag 1402')"], {"bitmap"}),
    "keys(m)": (["map_contains_key(m, 'key 77')", "map_contains_key(m, 'key 1402')"], {"bitmap"}),
    "get_json_object(doc, '$.user.id')": (
        ["get_json_object(doc, '$.user.id') = 'u77'", "get_json_object(doc, '$.user.id') IN ('u3', 'u799')"],
        {"bitmap", "range-bitmap"},
    ),
}


@pytest.mark.parametrize(
    "source", some(WORKLOADS, *(w for w in WORKLOADS if not w.startswith(("get_json", "message"))))
)
def test_recorded_queries_get_the_index_that_serves_them(all_rows: pa.Table, tmp_path: Path, source: str) -> None:
    queries, kinds = WORKLOADS[source]
    lake = bitlake.connect(tmp_path, record_scans=True)
    (column,) = (name for name in all_rows.schema.names if name in re.findall(r"\w+", source))
    few = all_rows.select([column, "payload"])
    table = lake.create_table("t", few.schema)
    for start in range(0, ROWS, ROWS // FILES):
        table.append(few.slice(start, ROWS // FILES))
    ids = [line.split("id=")[1][:16] for line in all_rows["line"][: len(queries)].to_pylist()]
    for query, value in zip(queries, ids, strict=True):
        assert table.scan(["payload"], query.format(value, value[:4])).to_arrow().num_rows > 0
    advice = table.indexes.advise("recorded", engine="python")
    advised = {c.column: c.index for c in advice.columns if c.action == "add"}
    assert set(advised) == {source} and advised[source] in kinds
    measured = advice.apply().measured
    assert measured is not None
    (index,) = measured.indexes
    assert near(index.estimated_bytes, index.bytes), index
    assert near(measured.estimated_saved, measured.saved) and measured.saved > LITTLE, measured
    assert [(s.column, s.index_type) for s in table.indexes.list()] == [(source, advised[source])]
    again = table.indexes.advise("recorded", engine="python")
    assert {c.column: c.action for c in again.columns if c.index != "none"} == {source: "keep"}
    assert again.statements() == []


def test_advice_reads_queries_that_compute(tmp_path: Path) -> None:
    lake = bitlake.connect(tmp_path)
    lake.create_table("t", pa.table({"id": range(70), "v": [f"v{i % 7}" for i in range(70)]}))
    queries = ["SELECT id FROM t WHERE length(v) > 1 AND v = 'v3'", "SELECT id FROM t WHERE lower(v) = 'x'"]
    advice = lake.advise("t", queries)
    assert {c.column for c in advice.columns} == {"id", "v", "length(v)", "lower(v)"}
    assert [q.question.text for q in advice.questions] == ["v = 'v3' AND length(v) > 1", "lower(v) = 'x'"]
