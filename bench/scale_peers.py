"""What does a plan of very many files cost beside pyiceberg, deltalake and DuckLake, on one generated list of files?

    BITLAKE_SCALE_PEERS_PYTHON=python python -m bench.scale_peers [FILES]        1,000,000 files by default; no Spark

``BITLAKE_SCALE_FILES`` is the number of files for ``make bench CASES=scale_peers``.  The variable above names the
Python of an environment with ``pyiceberg[sql-sqlite,pyarrow,pyiceberg-core]==0.12.*``, ``deltalake==1.6.*`` and
``duckdb==1.5.5 duckdb-extension-ducklake==1.5.5`` (or another DuckDB in which ``LOAD ducklake`` works).  Missing peers
are skipped.

No data file exists.  The list has 50 files in each partition, with bounds of two columns: those of ``order_id`` are in
random order, and those of ``user_id`` nearly the same in all files.  The libraries write the list in 40 commits;
DuckLake's catalog is filled by SQL.  Each plan runs in a process of its own, after the same plan of a small table.  The
first plan opens the table, and later ones look for newer commits.  This module runs in both environments: functions
import the packages that only one of them has.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib.metadata
import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.machine import peak_memory

if TYPE_CHECKING:
    from bench.cases import Bench
    from bench.measure import Result

FILES, IN_PARTITION, SMALL = 1_000_000, 50, 200
ROWS = 500
"""Rows of a data file."""
_COMMITS, _ROUNDS, _TIMEOUT = 40, 5, 3600
_ENOUGH = 20
"""Wall seconds of later plans after which a process plans no more."""
_SHARE = 5_000
"""The range leaves one file in 5,000."""
_ROOT = Path(__file__).resolve().parent.parent
_SCHEMA = pa.schema([pa.field("part", pa.int32(), nullable=False), ("order_id", pa.int64()), ("user_id", pa.int64())])


@dataclass(frozen=True, slots=True)
class Question:
    """What is planned: a condition as SQL (None: everything), how many files are left, and whether paths are listed."""

    where: str | None
    left: int
    paths: bool = False


def questions(files: int) -> dict[str, Question]:
    """The questions to a table of that many files."""
    left = max(1, files // _SHARE)
    low = files // 2 * ROWS
    return {
        "plan of one partition": Question(f"part = {files // IN_PARTITION // 2}", IN_PARTITION),
        "plan of a range": Question(f"order_id >= {low} AND order_id < {low + left * ROWS}", left),
        "plan of everything, counted": Question(None, files),
        "plan of everything, paths as strings": Question(None, files, paths=True),
    }


# --- the list, and the same list as metadata of each format -----------------------------------------------------------


def write_list(to: Path, files: int) -> None:
    """The list of files: always the same one."""
    import numpy as np

    rng, number = np.random.default_rng(1), np.arange(files)
    low = rng.permutation(files) * ROWS
    columns = {
        "path": [f"part={n // IN_PARTITION}/data-{n:08x}-5f4f-4c11-9d8c-0d3bd47c1f5e-0.parquet" for n in range(files)],
        "part": (number // IN_PARTITION).astype("int32"),
        "size": 40_000 + number % 1000,
        "order_low": low,
        "order_high": low + ROWS - 1,
        "user_low": rng.integers(50, size=files),
        "user_high": 10**6 + number,
    }
    pq.write_table(pa.table(columns), to)


def _batches(listed: Path) -> Iterator[list[dict[str, Any]]]:
    """The files of each commit."""
    table = pq.read_table(listed)
    share = -(-table.num_rows // _COMMITS)
    for first in range(0, table.num_rows, share):
        yield table.slice(first, share).to_pylist()


def make_bitlake(folder: Path, listed: Path) -> None:
    """A Paimon table by bitlake's commits."""
    import bitlake
    from bench.planning import COLUMNS, entries
    from bitlake.codec.binary_row import encode_row_with_arity
    from bitlake.metadata.stats import build_stats, stats_modes

    (like,) = entries(bitlake.connect(str(folder)).create_table("like", COLUMNS).schema, 1)
    table = bitlake.connect(str(folder)).create_table("files", _SCHEMA, partition_by=["part"])
    fields, types = table.schema.fields[1:], [f.type for f in table.schema.partition_fields]
    modes = stats_modes(replace(table.schema, fields=fields, partition_keys=()))
    for batch in _batches(listed):
        made = []
        for f in batch:
            bounds = [f["order_low"], f["user_low"]], [f["order_high"], f["user_high"]]
            told = {"file_name": f["path"].rpartition("/")[2], "file_size": f["size"], "embedded_index": None}
            told["value_stats"], _ = build_stats(fields, *bounds, [0, 0], modes)
            file = replace(like.file, **told, value_stats_cols=("order_id", "user_id"))  # "part" needs no statistics
            made.append(replace(like, partition=encode_row_with_arity(types, (f["part"],)), file=file))
        table._core.commit_files(table._core.state(), made, "WRITE")


def make_iceberg(folder: Path, listed: Path) -> None:
    """An Iceberg table by pyiceberg's appends, each with a manifest."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.conversions import to_bytes
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.typedef import Record
    from pyiceberg.types import IntegerType, LongType, NestedField

    fields = [
        NestedField(1, "part", IntegerType(), required=True),
        NestedField(2, "order_id", LongType(), required=False),
        NestedField(3, "user_id", LongType(), required=False),
    ]
    spec = PartitionSpec(PartitionField(source_id=1, field_id=1000, transform=IdentityTransform(), name="part"))
    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("d")
    table = catalog.create_table("d.files", Schema(*fields), partition_spec=spec)
    bound, same = functools.partial(to_bytes, LongType()), {"content": DataFileContent.DATA, "sort_order_id": None}
    same |= {"file_format": FileFormat.PARQUET, "record_count": ROWS}
    same |= {"value_counts": {2: ROWS, 3: ROWS}, "null_value_counts": {2: 0, 3: 0}}
    for batch in _batches(listed):
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            for f in batch:
                file = {"file_path": f"{table.location()}/data/{f['path']}", "file_size_in_bytes": f["size"]}
                file["lower_bounds"] = {2: bound(f["order_low"]), 3: bound(f["user_low"])}
                file["upper_bounds"] = {2: bound(f["order_high"]), 3: bound(f["user_high"])}
                append.append_data_file(DataFile.from_args(**same, **file, partition=Record(f["part"])))


def make_delta(folder: Path, listed: Path) -> None:
    """A Delta table by deltalake's transactions, with a checkpoint after the last."""
    from deltalake import DeltaTable, Schema
    from deltalake.transaction import AddAction, PostCommitHookProperties

    schema = Schema.from_arrow(_SCHEMA)
    table = DeltaTable.create(str(folder / "files"), schema, partition_by=["part"])
    hooks = PostCommitHookProperties(create_checkpoint=False)
    for batch in _batches(listed):
        actions = []
        for f in batch:
            stats = {
                "numRecords": ROWS,
                "minValues": {"order_id": f["order_low"], "user_id": f["user_low"]},
                "maxValues": {"order_id": f["order_high"], "user_id": f["user_high"]},
                "nullCount": {"order_id": 0, "user_id": 0},
            }
            partition = {"part": str(f["part"])}
            actions.append(AddAction(f["path"], f["size"], partition, 1_760_000_000_000, True, json.dumps(stats)))
        table.create_write_transaction(actions, "append", schema, ["part"], post_commithook_properties=hooks)
        table.update_incremental()
    table.create_checkpoint()


@functools.cache
def _duckdb() -> Any:
    """A connection with DuckLake's extension: from the package, or as DuckDB installed it."""
    import duckdb

    connection = duckdb.connect()
    package = importlib.util.find_spec("duckdb_extension_ducklake")
    folders = (package.submodule_search_locations or ()) if package else ()
    found = [f for folder in folders for f in Path(folder).glob(f"extensions/v{duckdb.__version__}/*.duckdb_extension")]
    connection.execute(f"LOAD '{found[0]}'" if found else "LOAD ducklake")
    return connection


def _attach(folder: Path) -> tuple[Any, str]:
    """A connection and the catalog's name in it."""
    _duckdb().execute(f"ATTACH 'ducklake:{folder}/catalog.ducklake' AS {folder.name} (DATA_PATH '{folder}/data')")
    return _duckdb(), f"__ducklake_metadata_{folder.name}"


def make_ducklake(folder: Path, listed: Path) -> None:
    """A DuckLake table whose catalog, a DuckDB database, gets the rows by SQL: DuckLake itself would read the files."""
    connection, catalog = _attach(folder)
    connection.execute(f"CREATE TABLE {folder.name}.files (part INTEGER, order_id BIGINT, user_id BIGINT)")
    connection.execute(f"ALTER TABLE {folder.name}.files SET PARTITIONED BY (part)")
    ids = f"SELECT table_id, partition_id, begin_snapshot FROM {catalog}.ducklake_partition_info"
    table, spec, snapshot = connection.execute(ids).fetchone()
    connection.execute(f"DETACH {folder.name}; ATTACH '{folder}/catalog.ducklake' AS c")
    of_files = f"FROM read_parquet('{listed}', file_row_number = true) ORDER BY file_row_number"
    columns = (
        "data_file_id, table_id, begin_snapshot, path, path_is_relative, file_format, record_count, file_size_bytes"
    )
    connection.execute(
        f"INSERT INTO c.ducklake_data_file ({columns}, footer_size, row_id_start, partition_id) SELECT file_row_number,"
        f" {table}, {snapshot}, path, true, 'parquet', {ROWS}, size, 376, file_row_number * {ROWS}, {spec} {of_files};"
        f"INSERT INTO c.ducklake_file_partition_value SELECT file_row_number, {table}, 0, part::VARCHAR {of_files}"
    )
    for column, low, high in ((1, "part", "part"), (2, "order_low", "order_high"), (3, "user_low", "user_high")):
        connection.execute(
            f"INSERT INTO c.ducklake_file_column_stats SELECT file_row_number, {table}, {column}, 1000, {ROWS}, 0,"
            f" {low}::VARCHAR, {high}::VARCHAR, NULL, NULL {of_files}"
        )
    connection.execute("CHECKPOINT c; DETACH c")


# --- plans ------------------------------------------------------------------------------------------------------------


def open_bitlake(folder: Path) -> Callable[[Question], int]:
    """Plans of the Paimon table."""
    import bitlake

    table = bitlake.connect(str(folder)).table("files")

    def plan(asked: Question) -> int:
        made = table.scan(where=asked.where).plan()
        return len(made.paths) if asked.paths else len(made.files)

    return plan


def open_iceberg(folder: Path) -> Callable[[Question], int]:
    """Plans of the Iceberg table: pyiceberg makes an object of each file, and counts only by listing."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    table = catalog.load_table("d.files")

    def plan(asked: Question) -> int:
        scan = table.refresh().scan(row_filter=asked.where) if asked.where else table.refresh().scan()
        if asked.paths:
            return len([task.file.file_path for task in scan.plan_files()])
        return sum(1 for _ in scan.plan_files())

    return plan


def open_delta(folder: Path) -> Callable[[Question], int]:
    """Plans of the Delta table."""
    from deltalake import DeltaTable

    table = DeltaTable(str(folder / "files"))

    def plan(asked: Question) -> int:
        table.update_incremental()
        if asked.where is None and not asked.paths:
            return int(table.get_add_actions().num_rows)
        return len(table.file_uris(file_pruning_predicate=asked.where))

    return plan


def open_ducklake(folder: Path) -> Callable[[Question], int]:
    """Plans of the DuckLake table: its list of all files, or the statement by which a scan finds its files."""
    connection, catalog = _attach(folder)

    def plan(asked: Question) -> int:
        if asked.where is None:
            what = "data_file" if asked.paths else "count(*)"
            rows = connection.execute(f"SELECT {what} FROM ducklake_list_files('{folder.name}', 'files')").fetchall()
            return len(rows) if asked.paths else int(rows[0][0])
        return len(connection.execute(_ducklake_statement(catalog, asked.where)).fetchall())

    return plan


def _ducklake_statement(catalog: str, where: str) -> str:
    """The statement by which the extension asks for files by the statistics of one column."""
    name, _, low, *rest = where.split()
    column, kind = (1, "INTEGER") if name == "part" else (2, "BIGINT")
    holds = f"TRY_CAST(max_value AS {kind}) >= {low} AND TRY_CAST(min_value AS {kind}) "
    holds += f"< {rest[-1]}" if rest else f"<= {low}"
    now = f"(SELECT max(snapshot_id) FROM {catalog}.ducklake_snapshot)"
    alive = f"table_id = 1 AND {now} >= begin_snapshot AND ({now} < end_snapshot OR end_snapshot IS NULL)"
    return f"""
        WITH stats AS MATERIALIZED (SELECT data_file_id, value_count, max_value, min_value
            FROM {catalog}.ducklake_file_column_stats WHERE column_id = {column} AND table_id = 1)
        SELECT data_file_id, path, path_is_relative, file_size_bytes, footer_size, row_id_start, deleted
        FROM {catalog}.ducklake_data_file LEFT JOIN (SELECT data_file_id, path AS deleted
            FROM {catalog}.ducklake_delete_file WHERE {alive}) USING (data_file_id)
        WHERE {alive} AND (data_file_id NOT IN (SELECT data_file_id FROM stats) OR data_file_id IN
            (SELECT data_file_id FROM stats WHERE (value_count IS NULL OR value_count > 0)
             AND (max_value IS NULL OR min_value IS NULL OR ({holds}))))"""


@dataclass(frozen=True, slots=True)
class Engine:
    """A format's writer and planner, and the packages that they need."""

    make: Callable[[Path, Path], None]
    open: Callable[[Path], Callable[[Question], int]]
    packages: tuple[str, ...]


ENGINES = {
    "bitlake": Engine(make_bitlake, open_bitlake, ()),
    "pyiceberg": Engine(make_iceberg, open_iceberg, ("pyiceberg", "pyiceberg-core")),
    "deltalake": Engine(make_delta, open_delta, ("deltalake",)),
    "DuckLake": Engine(make_ducklake, open_ducklake, ("duckdb",)),
}


def measure_here(engine: Engine, home: Path, files: int, name: str) -> dict[str, float]:
    """CPU and wall seconds of the first plan and the median of later ones, and the process's peak memory in MB."""
    small = engine.open(home / "small")
    for _ in range(2):
        small(questions(SMALL)[name])
    gc.collect()
    asked, taken, plan = questions(files)[name], [], None
    for _ in range(1 + _ROUNDS):
        used, started = time.process_time(), time.perf_counter()
        plan = plan or engine.open(home / "large")
        left = plan(asked)
        taken.append((time.process_time() - used, time.perf_counter() - started))
        if left != asked.left:
            raise AssertionError(f"{name}: {left} files are left, not {asked.left}")
        if sum(wall for _, wall in taken[1:]) > _ENOUGH:
            break
    cpu, wall = zip(*taken, strict=True)
    again = {"again": statistics.median(cpu[1:]), "wall again": statistics.median(wall[1:]), "runs": len(taken) - 1}
    return {"cpu": cpu[0], "wall": wall[0], **again, "peak": peak_memory()}


# --- processes and report ---------------------------------------------------------------------------------------------


def _versions() -> dict[str, str]:
    """The engines of this environment, and their versions."""
    found = {}
    for name, engine in ENGINES.items():
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = ", ".join(f"{p} {importlib.metadata.version(p)}" for p in engine.packages)
    if "DuckLake" in found:
        import duckdb

        extension = "SELECT extension_version FROM duckdb_extensions() WHERE extension_name = 'ducklake'"
        try:
            found["DuckLake"] += f", ducklake {_duckdb().execute(extension).fetchone()[0]}"
        except duckdb.Error:  # the extension is not published for this version
            del found["DuckLake"]
    return found


def _ask(python: str, **request: Any) -> dict[str, Any]:
    """Answer a request in a new process of that environment."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    command = [python, "-m", "bench.scale_peers", "--request", json.dumps(request)]
    done = subprocess.run(command, cwd=_ROOT, env=kept, check=True, stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT)
    return json.loads(done.stdout.splitlines()[-1])


def _answer(op: str, engine: str = "", home: str = "", files: int = 0, question: str = "") -> dict[str, Any]:
    """What :func:`_ask` asks for."""
    if op == "versions":
        return _versions()
    if op == "measure":
        return measure_here(ENGINES[engine], Path(home), files, question)
    started = time.perf_counter()
    for size in ("small", "large"):
        (Path(home) / size).mkdir(parents=True)
        ENGINES[engine].make(Path(home) / size, Path(home).parent / f"{size}.parquet")
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "bytes": sum(f.stat().st_size for f in Path(home, "large").rglob("*") if f.is_file())}


def results(folder: Path, files: int, say: Callable[[str], None]) -> list[Result]:
    """Each question to each engine; bitlake's time and memory should not exceed a peer's."""
    from bench.measure import Result

    peers = os.environ.get("BITLAKE_SCALE_PEERS_PYTHON", "")
    versions = _ask(peers, op="versions") if peers else {}
    for name in [n for n in ENGINES if n not in versions and n != "bitlake"]:
        say(f"scale_peers: skipping {name}: BITLAKE_SCALE_PEERS_PYTHON names no environment with it")
    others = [name for name in versions if name != "bitlake"]
    if not others:
        return []
    costs, lines = _costs(folder, files, {"bitlake": sys.executable} | dict.fromkeys(others, peers), say), []
    for (question, found), name in itertools.product(costs.items(), others):
        ours, theirs, of = found["bitlake"], found[name], f"{files:,} files: {question}"
        for key, what, unit in (("cpu", "first", "s"), ("again", "again", "s"), ("peak", "peak memory", "MB")):
            runs = int(theirs["runs"]) if key == "again" else 1
            lines.append(Result(f"{of}, {what}", unit, ours[key], theirs[key], versions[name], 1.0, runs))
    return lines


def _costs(
    folder: Path, files: int, pythons: dict[str, str], say: Callable[[str], None]
) -> dict[str, dict[str, dict[str, float]]]:
    """What each question costs each engine, as :func:`measure_here` returns it; all files are removed afterwards."""
    costs: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(dir=folder.parent.resolve(), prefix=folder.name) as home:
        for size, count in (("small", SMALL), ("large", files)):
            write_list(Path(home) / f"{size}.parquet", count)
        for name, python in pythons.items():
            made = _ask(python, op="make", engine=name, home=f"{home}/{name}")
            say(f"{name}: {files:,} files written in {made['seconds']:.0f} s, {made['bytes'] / 1e6:.1f} MB")
        for question, (name, python) in itertools.product(questions(files), pythons.items()):
            asked = {"engine": name, "home": f"{home}/{name}", "files": files, "question": question}
            costs.setdefault(question, {})[name] = cost = _ask(python, op="measure", **asked)
            say(f"{question}: {name}: " + ", ".join(f"{k} {v:.4g}" for k, v in cost.items()))
    return costs


def scale_peers(bench: Bench) -> list[Result]:
    """What does a plan of a million files cost beside pyiceberg, deltalake and DuckLake?"""
    return results(bench.folder / "scale_peers", int(os.environ.get("BITLAKE_SCALE_FILES", FILES)), bench.say)


def main() -> None:
    """Without Spark and the rest of the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale_peers", description=__doc__)
    parser.add_argument("files", type=int, nargs="?", default=FILES)
    parser.add_argument("--request", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.request:
        print(json.dumps(_answer(**json.loads(chosen.request))))
        return
    from bench.measure import print_report

    say = functools.partial(print, flush=True)
    print_report(results(Path(tempfile.gettempdir()) / "scale_peers", chosen.files, say), {}, 0)


if __name__ == "__main__":
    main()
