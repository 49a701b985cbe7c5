"""What a command loads: nothing that it does not need, since that is nearly all of its time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli.conftest import environment

import bitlake

HEAVY = (
    "pyspark",
    "py4j",
    "pandas",
    "pydantic",
    "numpy",
    "pyarrow",
    "sqlglot",
    "fastavro",
    "obstore",
    "prompt_toolkit",
    "bitlake.table.writes",
)
NO_SPARK = ("pyspark", "py4j", "pandas", "pydantic", "obstore", "prompt_toolkit")


def loaded(home: Path, lake: bitlake.Lake, arguments: list[str]) -> set[str]:
    code = (
        "import json, sys; from bitlake.cli.app import main; code = main(sys.argv[1:]);"
        f"print(json.dumps([code, [m for m in {HEAVY} if m in sys.modules]]), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True, text=True, env=environment(home, BITLAKE_LAKE=lake.path), cwd=home, check=True,
    )  # fmt: skip
    code, found = json.loads(done.stderr.splitlines()[-1])
    assert code == 0
    return set(found)


@pytest.mark.parametrize(
    "line",
    ["tables", "tables --names --json", "describe orders", "history orders", "tag list orders", "branch list orders"],
)
def test_metadata_needs_no_arrays(lake: bitlake.Lake, home: Path, line: str) -> None:
    assert loaded(home, lake, line.split()) == set()


def test_the_doctor_only_looks(lake: bitlake.Lake, home: Path) -> None:
    assert loaded(home, lake, ["doctor"]) == set()


@pytest.mark.parametrize("line", ["files orders", "files orders --tag monday --json"])
def test_files_are_listed_from_manifests_alone(lake: bitlake.Lake, home: Path, line: str) -> None:
    assert loaded(home, lake, line.split()) == {"fastavro"}


@pytest.mark.parametrize("name", ["snapshot-1", "schema-0", "tag-monday"])
def test_files_of_json_are_inspected_as_such(lake: bitlake.Lake, home: Path, name: str) -> None:
    assert loaded(home, lake, ["inspect", "-t", "orders", name]) == set()


@pytest.mark.parametrize("line", ["explain orders", "verify orders --quick"])
def test_only_conditions_are_parsed(lake: bitlake.Lake, home: Path, line: str) -> None:
    assert not loaded(home, lake, line.split()) & {"sqlglot", *NO_SPARK}


@pytest.mark.parametrize("line", ["explain orders -w amount<3", "verify orders --quick"])
def test_data_needs_no_spark(lake: bitlake.Lake, home: Path, line: str) -> None:
    assert not loaded(home, lake, line.split()) & set(NO_SPARK)


@pytest.mark.parametrize("line", ["explain orders -w amount<3", "explain orders --files --tag monday"])
def test_explaining_loads_nothing_that_writes(lake: bitlake.Lake, home: Path, line: str) -> None:
    assert "bitlake.table.writes" not in loaded(home, lake, line.split())
