"""The lake on Spark Connect: SQL, the data source and streams, from a client of a local server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc")
pytestmark = [pytest.mark.spark, pytest.mark.long]
ROOT = Path(__file__).resolve().parents[2]


def test_sql_source_and_streams(tmp_path: Path) -> None:
    said = answers(tmp_path)
    rows = dict(zip(statements(), said, strict=False))
    assert rows["SELECT count(*), max(id) FROM t"] == [[12, 101]]
    assert rows["SELECT id FROM t WHERE v = '{x}' AND length('{') = 1"] == [[100]]
    assert said[5] == [[0, "v0"], [1, "v1"]]
    assert said[6][0][0] == 1
    assert said[7][0][0] == 2
    assert said[11] == [[0, "v0"], [1, "z"], [2, "k2"], [101, "y"]]
    assert said[12] == [[10]]
    assert said[13] == [[4]]
    assert rows["SELECT id, v FROM few ORDER BY id"] == [[0, "v0"], [1, "z"]]
    assert rows["SELECT nope FROM t"].startswith("NotFound")
    assert rows["SELECT * FROM nowhere"].startswith("MissingTable")
    assert "Physical Plan" in rows["EXPLAIN SELECT * FROM t"][0][0]
    parameters, (source, written, streamed) = said[len(rows) : -3], said[-3:]
    assert parameters[:5] == [[[1], [3]], [[1], [3]], [[2]], [[101]], [[1]]]
    assert isinstance(parameters[5], str)  # both kinds of parameters
    assert parameters[6:] == [[["z"]], [[5]], [[0], [1]]]
    assert source == [[101, "y"]]
    assert written == 3
    assert streamed == ["None", 12]  # all that was ever appended: ids 0 to 9, 100 (deleted since), 101


def statements() -> tuple[str, ...]:
    import connect_client

    return connect_client.STATEMENTS


def answers(folder: Path) -> list[Any]:
    """What the client prints, line by line."""
    client = ROOT / "tests" / "connect_client.py"
    done = subprocess.run(
        [sys.executable, str(client), str(folder)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(("[", '"')) or line.isdigit()]
