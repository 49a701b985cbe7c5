"""Paimon's Spark documentation, page "SQL Write", COPY INTO: files into tables, and out of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bitlake.errors import AlreadyExists, InvalidRequest, NotFound

pytestmark = pytest.mark.spark

Run = Callable[[str], list[list[Any]]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def test_csv(run: Run, data: Path) -> None:
    run("CREATE DATABASE my_db; CREATE TABLE my_db.my_table (a INT, b STRING)")
    (data / "a.csv").write_text("1,x\n2,y\n")
    (data / "_hidden.csv").write_text("9,z\n")
    (data / "below").mkdir()
    (data / "below" / "c.csv").write_text("9,z\n")
    load = f"COPY INTO my_db.my_table\nFROM '{data}/'\nFILE_FORMAT = (TYPE = CSV)"
    assert run(f"{load};") == [["a.csv", "LOADED", 2, 2, 0, None]]
    assert run(f"{load};") == [["a.csv", "SKIPPED", 0, 0, 0, None]]
    (data / "b.csv").write_text("3,z\n")
    assert run(f"{load};") == [["a.csv", "SKIPPED", 0, 0, 0, None], ["b.csv", "LOADED", 1, 1, 0, None]]
    assert run("SELECT * FROM my_db.my_table ORDER BY a") == [[1, "x"], [2, "y"], [3, "z"]]
    assert run(f"{load} PATTERN = 'b.*' FORCE = TRUE") == [["b.csv", "LOADED", 1, 1, 0, None]]
    run("CREATE TABLE my_db.users (id INT, name STRING, city STRING DEFAULT 'here')")
    (data / "users").mkdir()
    (data / "users" / "u.csv").write_text("id,name\n1,Ann\n")
    run(f"COPY INTO my_db.users (id, name)\nFROM '{data}/users/'\nFILE_FORMAT = (TYPE = CSV, SKIP_HEADER = 1);")
    assert run("SELECT * FROM my_db.users") == [[1, "Ann", "here"]]
    run("CREATE TABLE my_db.events (a STRING, b STRING, c STRING)")
    (data / "logs").mkdir()
    (data / "logs" / "l.csv").write_text("NULL|\\N|x\n")
    (data / "logs" / "l.txt").write_text("not|this|one\n")
    run(
        f"""
        COPY INTO my_db.events
        FROM '{data}/logs/'
        FILE_FORMAT = (TYPE = CSV, FIELD_DELIMITER = '|', NULL_IF = ('NULL', '\\\\N', ''))
        PATTERN = '.*\\.csv'
        FORCE = FALSE;
        """
    )
    assert run("SELECT * FROM my_db.events") == [[None, None, "x"]]


def test_errors(run: Run, data: Path) -> None:
    run("CREATE TABLE t (a INT, b STRING)")
    (data / "bad.csv").write_text("1,x\nno,y\n3\n")
    (data / "good one.csv").write_text("4,z\n")
    load = f"COPY INTO t FROM '{data}' FILE_FORMAT = (TYPE = CSV)"
    with pytest.raises(InvalidRequest, match=r"bad\.csv has 2 rows that cannot be loaded"):
        run(load)
    assert run("SELECT * FROM t") == []
    good = ["good one.csv", "LOADED", 1, 1, 0, None]
    (bad, other) = run(f"{load} ON_ERROR = SKIP_FILE")
    assert bad[:5] == ["bad.csv", "LOAD_FAILED", 0, 3, 2] and bad[5] and other == good
    assert run("SELECT * FROM t") == [[4, "z"]]
    (bad, other) = run(f"{load} ON_ERROR = CONTINUE")
    assert bad[:5] == ["bad.csv", "PARTIALLY_LOADED", 1, 3, 2] and other[1] == "SKIPPED"
    assert run("SELECT * FROM t ORDER BY a") == [[1, "x"], [4, "z"]]
    with pytest.raises(NotFound, match="folder .* does not exist"):
        run(f"COPY INTO t FROM '{data}/nothing' FILE_FORMAT = (TYPE = CSV)")
    with pytest.raises(InvalidRequest, match="no option 'MODE'"):
        run(f"COPY INTO t FROM '{data}' FILE_FORMAT = (TYPE = CSV, MODE = 'x')")


def test_json_and_parquet(run: Run, data: Path) -> None:
    run("CREATE DATABASE my_db; CREATE TABLE my_db.my_table (a INT, s STRUCT<x: INT>, d DATE)")
    (data / "a.json").write_text('{"d": "2024-01-02", "a": 1, "s": {"x": 2}, "other": 0}\n{"a": 2}\n')
    run(f"COPY INTO my_db.my_table\nFROM '{data}/'\nFILE_FORMAT = (TYPE = JSON);")
    assert run("SELECT a, s.x, CAST(d AS STRING) FROM my_db.my_table ORDER BY a") == [
        [1, 2, "2024-01-02"],
        [2, None, None],
    ]
    run("CREATE TABLE my_db.events (a INT, b STRING)")
    (data / "events").mkdir()
    (data / "events" / "e.json").write_text(json.dumps([{"a": 1}, {"b": "x", "a": 2}], indent=1))
    run(f"COPY INTO my_db.events\nFROM '{data}/events/'\nFILE_FORMAT = (TYPE = JSON, MULTI_LINE = TRUE);")
    assert run("SELECT * FROM my_db.events ORDER BY a") == [[1, None], [2, "x"]]
    (data / "lake").mkdir()
    pq.write_table(pa.table({"B": ["y"], "a": pa.array([3], pa.int64()), "c": [1.0]}), data / "lake" / "p.parquet")
    (data / "lake" / "x.txt").write_text("?")
    parquet = "FILE_FORMAT = (TYPE = PARQUET)\nPATTERN = '.*\\.parquet'\nFORCE = FALSE"
    assert run(f"COPY INTO my_db.events\nFROM '{data}/lake/'\n{parquet};") == [["p.parquet", "LOADED", 1, 1, 0, None]]
    assert run("SELECT * FROM my_db.events WHERE a = 3") == [[3, "y"]]


def test_export(run: Run, tmp_path: Path) -> None:
    run("CREATE DATABASE my_db; CREATE TABLE my_db.users (id INT, name STRING, active BOOLEAN)")
    run("INSERT INTO my_db.users VALUES (1, 'Ann', true), (2, 'Bob', false)")
    out = tmp_path / "export"

    def written(folder: str, ending: str) -> str:
        return "".join(p.read_text() for p in sorted((out / folder).glob(f"part-*{ending}")))

    backup = (
        f"COPY INTO '{out}/users_backup/'\nFROM my_db.users\n"
        "FILE_FORMAT = (TYPE = CSV, HEADER = TRUE, FIELD_DELIMITER = ',')"
    )
    ((path, files, rows),) = run(f"{backup}\nOVERWRITE = TRUE;")
    assert path == f"{out}/users_backup/" and files >= 1 and rows == 2
    assert set(written("users_backup", ".csv").splitlines()) == {"id,name,active", "1,Ann,true", "2,Bob,false"}
    with pytest.raises(AlreadyExists, match="OVERWRITE"):
        run(backup)
    query = "(SELECT id, name FROM my_db.users WHERE active = TRUE)"
    run(f"COPY INTO '{out}/active_users/'\nFROM {query}\nFILE_FORMAT = (TYPE = CSV, HEADER = TRUE);")
    assert written("active_users", ".csv") == "id,name\n1,Ann\n"
    run(f"COPY INTO '{out}/json/'\nFROM {query}\nFILE_FORMAT = (TYPE = JSON)\nOVERWRITE = TRUE;")
    assert json.loads(written("json", ".json")) == {"id": 1, "name": "Ann"}
    parquet = "FILE_FORMAT = (TYPE = PARQUET, COMPRESSION = GZIP)\nOVERWRITE = TRUE"
    run(f"COPY INTO '{out}/data/'\nFROM my_db.users\n{parquet};")
    assert pq.read_table(out / "data").num_rows == 2
    grouped = "(SELECT active, COUNT(*) AS cnt FROM my_db.users GROUP BY active)"
    run(f"COPY INTO '{out}/summary/'\nFROM {grouped}\nFILE_FORMAT = (TYPE = PARQUET);")
    assert pq.read_table(out / "summary")["cnt"].to_pylist() == [1, 1]
    with pytest.raises(InvalidRequest, match="takes a query"):
        run(f"COPY INTO '{out}/x' FROM (INSERT INTO my_db.users VALUES (1, 'x', true)) FILE_FORMAT = (TYPE = CSV)")
