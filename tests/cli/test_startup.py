"""What a command loads: nothing that it does not need, since that is nearly all of its time."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

from cli.conftest import environment

import bitlake

HEAVY = (
    "pyspark",
    "py4j",
    "pandas",
    "pydantic",
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.parquet",
    "sqlglot",
    "fastavro",
    "obstore",
    "urllib3",
    "prompt_toolkit",
    "rich",
    "bitlake.table.writes",
    "duckdb",
    "pyarrow.dataset",
    "bitlake.engine.ddl",
    "bitlake.engine.procedures",
)
ARRAYS = {"numpy", "pyarrow", "fastavro"}
_RUN = """
import json, sys
from bitlake.cli.app import main

codes = [main(json.loads(line)) for line in sys.argv[2:]]
found = [m for m in json.loads(sys.argv[1]) if m in sys.modules]
print(json.dumps([codes, found]), file=sys.stderr)
"""


def loaded(home: Path, lake: bitlake.Lake, *lines: str) -> set[str]:
    """What is loaded after these commands, which one process runs one after the other."""
    asked = [json.dumps(line.split()) for line in lines]
    done = subprocess.run(
        [sys.executable, "-c", _RUN, json.dumps(HEAVY), *asked],
        capture_output=True, text=True, env=environment(home, BITLAKE_LAKE=lake.path), cwd=home, check=True,
    )  # fmt: skip
    codes, found = json.loads(done.stderr.splitlines()[-1])
    assert not any(codes), done.stderr
    return set(found)


def files_named(lake: bitlake.Lake, pattern: str) -> str:
    return next(f.name for f in sorted(Path(lake.table("orders").path).rglob(pattern)))


def test_metadata_needs_no_arrays(lake: bitlake.Lake, home: Path) -> None:
    lines = ["describe orders", "history orders", "tables", "tag list orders", "branch list orders", "doctor"]
    assert loaded(home, lake, *lines) == {"rich"}


def test_what_draws_no_table_needs_no_rich(lake: bitlake.Lake, home: Path) -> None:
    files = [f"inspect -t orders {name}" for name in ("snapshot-1", "schema-0", "tag-monday", "LATEST")]
    assert loaded(home, lake, "tables --names", "tables --json", "describe orders --json", *files) == set()


def test_files_are_listed_from_manifests_alone(lake: bitlake.Lake, home: Path) -> None:
    plans = [f"expire orders --dry-run --what {what}" for what in ("snapshots", "tags", "orphans")]
    names = ["tag create orders x", "tag delete orders x", "branch create orders y", "branch delete orders y"]
    lines = ["files orders --json", "files orders --tag monday --json", *plans, *names]
    assert loaded(home, lake, *lines) == {"fastavro"}


def test_manifests_are_inspected_without_arrays(lake: bitlake.Lake, home: Path) -> None:
    names = [files_named(lake, p) for p in ("manifest-list-*-0", "manifest-[!l]*")]
    assert loaded(home, lake, *(f"inspect -t orders {name}" for name in names)) <= {"fastavro"}


def test_data_is_inspected_without_kernels(lake: bitlake.Lake, home: Path) -> None:
    assert loaded(home, lake, f"inspect -t orders {files_named(lake, '*.parquet')}") <= ARRAYS


def test_only_conditions_are_parsed(lake: bitlake.Lake, home: Path) -> None:
    """And nothing is computed by Arrow's kernels, which take long to load, nor is anything ready to write."""
    lines = ["explain orders", "explain orders --files --tag monday", "verify orders --quick", "report orders r.html"]
    assert loaded(home, lake, *lines) == ARRAYS


def test_conditions_load_no_more_than_their_parser(lake: bitlake.Lake, home: Path) -> None:
    lines = ["explain orders -w amount<3", "explain orders -w status='LOST'", "files orders --json"]
    assert loaded(home, lake, *lines) == {*ARRAYS, "sqlglot"}


def test_reading_loads_nothing_that_writes(lake: bitlake.Lake, home: Path) -> None:
    lines = ["export orders all.json --overwrite -w amount<3", "explain orders --analyze", "verify orders"]
    assert loaded(home, lake, *lines) == {*ARRAYS, "sqlglot", "pyarrow.compute", "pyarrow.parquet"}


def test_a_query_that_metadata_answer_loads_no_engine(lake: bitlake.Lake, home: Path) -> None:
    (home / "answered.sql").write_text("SELECT status, count(*) FROM orders GROUP BY status")
    assert loaded(home, lake, "sql -f answered.sql") == {*ARRAYS, "sqlglot", "pyarrow.compute"}
    (home / "computed.sql").write_text("SELECT status, sum(amount) FROM orders GROUP BY status")
    computed = loaded(home, lake, "sql -f computed.sql")
    assert computed <= {*ARRAYS, "sqlglot", "pyarrow.compute", "pyarrow.parquet", "pyarrow.dataset", "duckdb", "rich"}


_KERNELS = """
from bitlake.lazy_modules import compute as pc, orc, parquet as pq
import copy, pickle, pyarrow as pa, sys
assert not {"pyarrow._compute", "pyarrow._parquet", "pyarrow._orc", "pyarrow.fs"} & set(sys.modules)
again = pickle.loads(pickle.dumps(pc))
assert copy.copy(again)._module == "pyarrow.compute" and "pyarrow.compute" not in sys.modules
assert pc.sum(pa.array([1, 2, 3])).as_py() == 6 and "pyarrow.parquet" not in sys.modules
import pyarrow.compute, pyarrow.orc, pyarrow.parquet
assert pc.multiply is again.multiply is pyarrow.compute.multiply
assert pq.ParquetFile is pyarrow.parquet.ParquetFile and orc.ORCFile is pyarrow.orc.ORCFile
try:
    pc.nothing_of_the_kind
except AttributeError as e:
    assert "nothing_of_the_kind" in str(e)
print("right")
"""


def test_arrow_modules_are_imported_by_their_first_use() -> None:
    done = subprocess.run([sys.executable, "-c", _KERNELS], capture_output=True, text=True, check=False)
    assert done.stdout == "right\n", done.stderr


def test_click_is_used_by_its_public_names() -> None:
    """typer's private attributes were patched here, and stand-ins for modules put into sys.modules."""
    for file in sorted(Path(bitlake.__file__).parent.joinpath("cli").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("click"):
                assert not [p for p in (*(node.module or "").split("."), *(a.name for a in node.names)) if p[0] == "_"]
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                own = node.value.id in ("self", "cls")
                assert own or not node.attr.startswith("_") or node.attr.startswith("__"), f"{file}:{node.lineno}"
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                assert ast.unparse(node.value) != "sys.modules", f"{file}:{node.lineno}"
