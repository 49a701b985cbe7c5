"""``bitlake sql`` as a process: one session for a file of statements, with Spark from the first that needs it."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from cli.conftest import Cli, Done

import bitlake

SCRIPT = """\
-- a comment; with a semicolon
CREATE TABLE made (k INT, v STRING, d DECIMAL(20, 2));
INSERT INTO made VALUES (1, 'a;b', 12345678901234567.10), (2, NULL, NULL);
SELECT * FROM made ORDER BY k;
SELECT k AS x, v AS x FROM made WHERE k = 1;
SELECT explode(array(k, 7)) AS e FROM made WHERE k = 1;
SELECT * FROM mad;
SELECT 'never';
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT 1 / 0 AS q", "error: running 'SELECT 1 / 0 AS q': Division by zero. "),
        ("SELECT CAST(status AS INT) FROM orders", 'of the type "STRING" cannot be cast to "INT"'),
        ("SELECT raise_error('no more')", "error: no more"),
        ("SELECT make_interval(1, 2)", "Cast the column to STRING."),
    ],
)
def test_an_error_of_values_is_one_line(cli: Cli, text: str, message: str) -> None:
    """Bug: it was called a bug in bitlake, with exit code 3 and the JVM's stack, and it ended the shell."""
    done = cli("sql", "--engine", "spark", text, code=1)
    (line,) = [line for line in done.err.splitlines() if not line.startswith("WARNING: ")]  # the JVM's own
    assert line.startswith("error: ") and message in line


@pytest.mark.spark
@pytest.mark.slow
def test_a_file_of_statements(cli: Cli, lake: bitlake.Lake, tmp_path: Path) -> None:
    """It stops at the first that fails, names it, and what came before is told and stays."""
    (tmp_path / "script.sql").write_text(SCRIPT)
    done = cli("sql", "-f", str(tmp_path / "script.sql"), "--json", code=1)
    _, _, rows, twice, exploded = done.json["statements"]
    assert [c["name"] for c in rows["columns"]] == ["k", "v", "d"]
    assert rows["rows"] == [[1, "a;b", "12345678901234567.10"], [2, None, None]]
    assert twice["rows"] == [[1, "a;b"]] and [c["name"] for c in twice["columns"]] == ["x", "x"]
    assert exploded["rows"] == [[1], [7]]
    assert "statement 6: " in done.err and "did you mean made?" in done.err
    assert lake.table("made").scan().count() == 2
    lake.drop_table("made")


@pytest.mark.spark
@pytest.mark.slow
def test_statements_from_a_pipe_as_csv(cli: Cli) -> None:
    done: Done = cli("sql", "--format", "csv", stdin="SELECT status, count(*) n FROM orders GROUP BY status ORDER BY 1")
    assert list(csv.reader(io.StringIO(done.out))) == [
        ["status", "n"], ["LOST", "30"], ["PENDING", "30"], ["SHIPPED", "30"],
    ]  # fmt: skip


def test_literals_are_read_in_the_zone_of_the_option(cli: Cli) -> None:
    query = "SELECT hour(TIMESTAMP '2024-07-01 00:00:00Z') AS h"
    assert cli("--timezone", "Asia/Tokyo", "sql", "--engine", "duckdb", query, "--json").json["statements"][0][
        "rows"
    ] == [[9]]


def test_what_is_no_command_line(cli: Cli) -> None:
    cli("sql", "SELECT 1", "--file", "x.sql", code=2)
    cli("sql", "  -- nothing", code=2)
    cli("sql", "SELECT 1", "--format", "xml", code=2)
    assert "file not found: nowhere.sql" in cli("sql", "--file", "nowhere.sql", code=1).err
