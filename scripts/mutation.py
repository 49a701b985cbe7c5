"""Mutation run: change one operator of the engine at a time and require that a test of its package notices.

    make mutation                                   300 mutants, a new seed, which is printed
    make mutation MUTANTS=40 SEED=7 ROOMS=fileindex

A *mutant* is the product with one operator of one expression changed: a comparison, an arithmetic or bit operator,
`and` for `or`, a dropped `not`, an integer constant plus one, a negated boolean constant.  Mutants are sampled
uniformly over all sites of the rooms.  A mutant is *killed* if a test of its room fails, *survives* if all pass, and is
*equivalent* if `tests/mutation/equivalent.txt` explains why no test can notice it (it is not run).  The run fails if
less than `--least` percent of the mutants that are not equivalent are killed.

How it stays affordable: the tests of a room run once under coverage, which records the tests that execute each line,
and how long each test took.  A mutant is then given only the tests that execute its line, the quickest first, and the
first failure ends it.  Code that runs at import is given every test that executes its file, and the test files that
import it, directly or by another module of its room: a test of a constant may execute no line of the file.  Each mutant
is a forked process in which an import hook compiles the mutated module; no file is changed.  A mutant that takes more
than five times as long as its tests, and half a minute, counts as killed; the report shows these apart.

What keeps the counts honest: a control, the same module without a mutation, must survive the tests of each room; every
recorded test must still be found by name, as a test that does not exist would look like a kill; and a mutant whose line
no test executes counts as live.
"""

from __future__ import annotations

import argparse
import ast
import copy
import functools
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".mutation"
EQUIVALENT = ROOT / "tests" / "mutation" / "equivalent.txt"
CONTROL = -1
"""The node number of a site that is left as it is."""
_BROKEN = 99
"""Exit code of a mutant's process that failed outside of pytest."""


@dataclass(frozen=True)
class Room:
    """Product files that are mutated, and the tests that have to notice; glob patterns below the root."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


_MERGETREE_TESTS = (
    "tests/merge",
    "tests/schema",
    "tests/mergetree/test_[!k]*.py",
    "tests/mergetree/test_key_value_file.py",
)
"""The tests of merging and of LSM trees; rooms with the same tests share one coverage run.

Tests that start processes are left out: their processes load no mutant.
"""
_TABLE_TESTS = (
    *(f"tests/{room}/test_{name}.py" for room in ("schema", "merge") for name in ("create", "key_ranges")),
    "tests/scan/test_[!s]*.py",
    "tests/scan/test_s[!t]*.py",
    *(f"tests/snapshot/test_{name}.py" for name in ("bad_history", "expiring", "index_changes", "live", "manifests")),
    *(f"tests/snapshot/test_{name}.py" for name in ("partition*", "rollback")),
    *(f"tests/write/test_{name}.py" for name in ("append_*", "commit", "replaced_table")),
    *(f"tests/mergetree/test_{name}.py" for name in ("commit_conflicts", "upsert*")),
    *(f"tests/table/test_{name}.py" for name in ("external_paths", "maintenance")),
    "tests/tools/explain/test_text.py",
)
"""The tests of planning and of commits, without those that start processes."""

ROOMS = {
    "fileindex": Room(("bitlake/fileindex/*.py",), ("tests/fileindex",)),
    "expressions": Room(("bitlake/expressions/*.py",), ("tests/expressions", "tests/metadata/test_stats_columns.py")),
    "codec": Room(("bitlake/codec/*.py",), ("tests/codec",)),
    "tableindex": Room(("bitlake/tableindex/*.py",), ("tests/tableindex",)),
    "metadata": Room(("bitlake/metadata/*.py",), ("tests/metadata",)),
    "merge": Room(
        ("bitlake/merge/*.py", "bitlake/schema/merge_spec.py", "bitlake/schema/validation.py"), _MERGETREE_TESTS
    ),
    "mergetree": Room(("bitlake/mergetree/*.py",), _MERGETREE_TESTS),
    "planning": Room(
        (
            "bitlake/scan/planner.py",
            "bitlake/snapshot/manifests.py",
            "bitlake/scan/page_pruning.py",
            "bitlake/snapshot/partitions.py",
            "bitlake/scan/plan*.py",
            "bitlake/scan/pruning.py",
        ),
        _TABLE_TESTS,
    ),
    "commit": Room(
        (
            "bitlake/write/commit_plan.py",
            "bitlake/write/commit.py",
            "bitlake/snapshot/index_files.py",
            "bitlake/snapshot/manifests.py",
        ),
        _TABLE_TESTS,
    ),
}

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True)
class Site:
    """One place of a file that can be mutated; `node` is its number in the order of :func:`_nodes`."""

    room: str
    path: str
    node: int
    line: int
    function: str
    before: str
    after: str
    imported: bool = False
    """It runs when its file is imported: at module or class level, or in a signature."""
    statement: tuple[int, int] = (0, 0)
    """First and last line of its statement, without the statements in its body."""

    @property
    def key(self) -> str:
        """What identifies the mutant while lines move."""
        return f"{self.path} | {self.function} | {self.before} -> {self.after}"


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

# --- mutants ----------------------------------------------------------------------------------------------------------


def _nodes(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """The executable nodes of a file with the qualified name of their function, in a fixed order."""

    def walk(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "type_comment", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST):
                    continue
                inner = name
                if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    inner = f"{name}.{child.name}".lstrip(".")
                yield inner, child
                yield from walk(child, inner)

    yield from walk(tree, "")


def _mutate(node: ast.AST) -> ast.AST | None:
    """Change the node in place by its one mutation; returns the expression that holds it, None if it has none."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _SWAPS:
        node.ops = [_SWAPS[type(node.ops[0])]()]  # type: ignore[list-item]
        return node
    if isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)) and type(node.op) in _SWAPS:
        if isinstance(node, ast.BinOp) and isinstance(node.left, (ast.JoinedStr, ast.Constant)) and _is_text(node.left):
            return None
        node.op = _SWAPS[type(node.op)]()  # type: ignore[assignment]
        return node
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        node.op = ast.UAdd()
        # `+x` of a bool is an int with the same truth: the operator is dropped without moving nodes.
        return node
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        node.value = not node.value
        return node
    if isinstance(node, ast.Constant) and type(node.value) is int:
        node.value += 1
        return node
    return None


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)))


class _DropNot(ast.NodeTransformer):
    """Replace `+x`, which :func:`_mutate` left for `not x`, by `bool(x)`."""

    def __init__(self, target: ast.AST) -> None:
        self.target = target

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """Replace the target, leave others."""
        if node is not self.target:
            return self.generic_visit(node)
        return ast.copy_location(ast.Call(ast.Name("bool", ast.Load()), [node.operand], []), node)


def _mutated(source: str, number: int) -> ast.Module:
    """The tree of a file with the mutation of one node."""
    tree = ast.parse(source)
    node = next(n for i, (_, n) in enumerate(_nodes(tree)) if i == number)
    _mutate(node)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd):
        tree = _DropNot(node).visit(tree)
    return ast.fix_missing_locations(tree)


def sites(room: str) -> list[Site]:
    """Every place of a room's files that can be mutated."""
    found = []
    for path in sorted({p for pattern in ROOMS[room].sources for p in ROOT.glob(pattern)}):
        tree = ast.parse(path.read_text())
        statements = {id(n): s for s in ast.walk(tree) if isinstance(s, ast.stmt) for n in _own_expressions(s)}
        bodies = {id(n) for f in ast.walk(tree) if isinstance(f, _FUNCTIONS) for s in f.body for n in ast.walk(s)}
        for number, (function, node) in enumerate(_nodes(tree)):
            changed = copy.deepcopy(node)
            if _mutate(changed) is None or (function == "" and isinstance(node, ast.BinOp)):
                continue  # at module level `A | B` is a type
            holder = statements.get(id(node), node)
            if isinstance(node, ast.UnaryOp):
                after = f"bool({ast.unparse(node.operand)})"
            else:
                after = ast.unparse(changed)
            before = ast.unparse(node)
            if isinstance(node, ast.Constant):  # a number alone identifies nothing: its line does
                before, after = f"{before} in `{_head(holder)}`", f"{after}"
            line = getattr(node, "lineno", 1)
            lines = [n.lineno for n in _own_expressions(holder) if isinstance(n, (ast.expr, ast.stmt))]
            name = str(path.relative_to(ROOT))
            statement = (min(lines, default=line), max(lines, default=line))
            found.append(Site(room, name, number, line, function, before, after, id(node) not in bodies, statement))
    return found


def _own_expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement that belong to none of the statements in its body."""
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        yield node
        todo += [c for c in ast.iter_child_nodes(node) if not isinstance(c, ast.stmt)]


def _head(node: ast.AST) -> str:
    lines = ast.unparse(node).splitlines()
    return next((line for line in lines if not line.startswith("@")), "")[:100]


# --- coverage: the tests of each line ---------------------------------------------------------------------------------


def _tests(room: str) -> list[str]:
    files = sorted({str(p.relative_to(ROOT)) for pattern in ROOMS[room].tests for p in ROOT.glob(pattern)})
    return [f for f in files if Path(f).suffix in ("", ".py")]


class _Recorder:
    """A pytest plugin that names the running test to coverage and records durations."""

    def __init__(self, coverage: Any) -> None:
        self.coverage = coverage
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: list[str] = []

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.failed.append(report.nodeid)


def _digest(room: str) -> str:
    """What a coverage run depends on: the product, the room's tests, and the modules that tests share."""
    digest = hashlib.sha256()
    tests = [p for t in _tests(room) for p in ([ROOT / t] if t.endswith(".py") else (ROOT / t).rglob("*.py"))]
    shared = [*(ROOT / "tests").glob("*.py"), *(ROOT / "tests").rglob("conftest.py")]
    for path in sorted({*(ROOT / "bitlake").rglob("*.py"), *shared, *tests}):
        digest.update(f"{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _twins(room: str) -> list[str]:
    """The rooms that have the same tests, this one too."""
    return [r for r in ROOMS if ROOMS[r].tests == ROOMS[room].tests]


def covered(room: str) -> tuple[dict[str, dict[int, list[str]]], dict[str, float]]:
    """The tests that execute each line of each file of a room, and the seconds that each test takes."""
    return _covered(_twins(room)[0])


@functools.cache
def _covered(room: str) -> tuple[dict[str, dict[int, list[str]]], dict[str, float]]:
    store = WORK / f"{room}.json"
    if store.exists() and json.loads(store.read_text())["digest"] == _digest(room):
        return _read(store)
    print(f"{room}: coverage of {', '.join(_tests(room))}", flush=True)
    pid = os.fork()
    if pid == 0:
        os._exit(_record(room, store))
    _, status = os.waitpid(pid, 0)
    if status:
        raise SystemExit(f"the tests of {room} do not pass by themselves; see {WORK / room}.log")
    return _read(store)


def _read(store: Path) -> tuple[dict[str, dict[int, list[str]]], dict[str, float]]:
    known = json.loads(store.read_text())
    return {p: {int(n): t for n, t in lines.items()} for p, lines in known["lines"].items()}, known["seconds"]


def _record(room: str, store: Path) -> int:
    """In a child process: run a room's tests under coverage and store what they execute."""
    import coverage
    import pytest

    _quiet(WORK / f"{room}.log")
    measure = coverage.Coverage(data_file=None, source=[str(ROOT / "bitlake")], config_file=False)
    recorder = _Recorder(measure)
    measure.start()
    code = pytest.main([*_pytest_options(), *_tests(room)], plugins=[recorder])
    measure.stop()
    if code:
        return 1
    data = measure.get_data()
    lines: dict[str, dict[int, list[str]]] = {}
    patterns = [pattern for twin in _twins(room) for pattern in ROOMS[twin].sources]
    for path in sorted({p for pattern in patterns for p in ROOT.glob(pattern)}):
        contexts = data.contexts_by_lineno(str(path))
        everything = sorted({t for tests in contexts.values() for t in tests if t})
        # The context "" is an import: whatever executes the file may depend on that line.
        lines[str(path.relative_to(ROOT))] = {n: everything if "" in tests else tests for n, tests in contexts.items()}
    store.write_text(json.dumps({"digest": _digest(room), "lines": lines, "seconds": recorder.seconds}))
    return 0


def _pytest_options() -> list[str]:
    return ["-q", "-x", "-n0", "-p", "no:cacheprovider", "-m", "not interop and not cluster and not spark", "--tb=line"]


def _quiet(path: Path) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)


# --- running mutants --------------------------------------------------------------------------------------------------


class _Loader(importlib.machinery.SourceFileLoader):
    """Load one module from the mutated tree."""

    code: CodeType | None = None

    def get_code(self, fullname: str) -> CodeType | None:
        return self.code


class _Hook(importlib.abc.MetaPathFinder):
    """Give the mutated module to whatever imports it."""

    def __init__(self, site: Site) -> None:
        self.path = ROOT / site.path
        self.name = _module(site.path)
        source = self.path.read_text()
        tree = ast.parse(source) if site.node == CONTROL else _mutated(source, site.node)
        self.code = compile(tree, str(self.path), "exec")

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        if name != self.name:
            return None
        loader = _Loader(name, str(self.path))
        loader.code = self.code
        return importlib.util.spec_from_file_location(name, self.path, loader=loader)


def tests_of(site: Site) -> list[str]:
    """The tests that execute the site, the quickest first."""
    lines, seconds = covered(site.room)
    of_file = lines.get(site.path, {})
    if site.imported:  # the first test that imports the file executed the line, every test depends on it
        found = {t for tests in of_file.values() for t in tests} | _importing(site, seconds)
    else:  # an expression within a statement of several lines may have no line of its own
        first, last = site.statement
        found = set(of_file.get(site.line, [])) or {t for n in range(first, last + 1) for t in of_file.get(n, [])}
    return sorted(found, key=lambda t: (seconds.get(t, 0.0), t))


def _importing(site: Site, names: Iterable[str]) -> set[str]:
    """The tests in files that import the site's module, or a module of its room that imports it."""
    files = sorted({str(p.relative_to(ROOT)) for pattern in ROOMS[site.room].sources for p in ROOT.glob(pattern)})
    modules = {site.path}
    while more := {f for f in files if f not in modules and _imports(f) & {_module(m) for m in modules}}:
        modules |= more
    wanted = {_module(m) for m in modules}
    return {t for t in names if _imports(t.partition("::")[0]) & wanted}


def _module(path: str) -> str:
    return ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def _imports(path: str) -> frozenset[str]:
    """The modules that a file names in its imports, at any depth of its code."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def _child(site: Site, tests: Sequence[str], log: Path) -> int:
    import pytest

    os.setsid()
    _quiet(log)
    sys.meta_path.insert(0, _Hook(site))
    code = pytest.main([*_pytest_options(), *tests])
    return 0 if code == 0 else 1


def _collect(tests: Sequence[str], log: Path) -> int:
    import pytest

    _quiet(log)
    return int(pytest.main([*_pytest_options(), "--collect-only", *tests]))


def check_controls(chosen: Sequence[Site], jobs: int) -> None:
    """Require that all recorded tests exist, and that a module of each room survives without a mutation."""
    for room in dict.fromkeys(_twins(site.room)[0] for site in chosen):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = _collect(sorted(covered(room)[1]), WORK / f"{room}.log")
            finally:
                os._exit(code)
        if os.waitpid(pid, 0)[1]:
            raise SystemExit(f"tests of {room} do not have the names of the coverage run; see {WORK / room}.log")
    cost = {site: sum(covered(site.room)[1].get(t, 0.0) for t in tests_of(site)) for site in chosen if tests_of(site)}
    # The quickest of each room: that all tests pass without a mutation is known, here the import hook is tried.
    quickest = {site.room: site for site in sorted(cost, key=lambda site: -cost[site])}
    controls = {room: replace(site, node=CONTROL, before="", after="control") for room, site in quickest.items()}
    killed = [
        site.path for site, fate in run(list(controls.values()), jobs, {}, quiet=True).items() if fate == "killed"
    ]
    if killed:
        raise SystemExit(f"tests fail without a mutation: {', '.join(killed)}")


def run(
    chosen: Sequence[Site], jobs: int, explained: Mapping[str, str], *, quiet: bool = False, minutes: float = 0
) -> dict[Site, str]:
    """The fate of each mutant: killed, timeout, survived, uncovered, or equivalent, which is explained and not run.

    ``minutes``: start none after that time (0: no limit).  What was run is a sample as well: the order is random.
    """
    end = time.monotonic() + 60 * minutes if minutes else float("inf")
    fates: dict[Site, str] = {}
    running: dict[int, tuple[Site, float]] = {}
    todo = list(reversed(chosen))
    while todo or running:
        if time.monotonic() > end:
            todo.clear()
        while todo and len(running) < jobs:
            site = todo.pop()
            if site.key in explained:
                fates[site] = "equivalent"
                continue
            tests = tests_of(site)
            if not tests:
                fates[site] = "uncovered"
                continue
            seconds = covered(site.room)[1]
            limit = 30 + 5 * sum(seconds.get(t, 0.0) for t in tests)
            pid = os.fork()
            if pid == 0:
                code = _BROKEN
                try:
                    code = _child(site, tests, WORK / f"mutant-{os.getpid()}.log")
                finally:
                    os._exit(code)
            running[pid] = (site, time.monotonic() + limit)
        for pid in list(running):
            site, deadline = running[pid]
            done, status = os.waitpid(pid, os.WNOHANG)
            if done and os.waitstatus_to_exitcode(status) == _BROKEN:
                raise SystemExit(f"{site.key}: its process failed outside of the tests; see {WORK}/mutant-{pid}.log")
            if done:
                fates[site] = "survived" if status == 0 else "killed"
            elif time.monotonic() > deadline:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                fates[site] = "timeout"
            else:
                continue
            del running[pid]
            (WORK / f"mutant-{pid}.log").unlink(missing_ok=True)
            if fates[site] == "survived" and not quiet:
                print(
                    f"survived  {site.path}:{site.line}  {site.function}\n    {site.before} -> {site.after}", flush=True
                )
        time.sleep(0.02)
    return fates


def equivalents() -> dict[str, str]:
    """The mutants that no test can notice, with the reason."""
    rows = [line for line in EQUIVALENT.read_text().splitlines() if line and not line.startswith("#")]
    return dict(row.rsplit(" | ", 1) for row in rows)


def _stale(explained: dict[str, str], population: Sequence[Site]) -> list[str]:
    """The explained mutants that the code no longer has, as far as their files are in the population."""
    keys, paths = {s.key for s in population}, {s.path for s in population}
    named = {key: key.split(" | ")[0] for key in explained}
    return [k for k, path in named.items() if k not in keys and (path in paths or not (ROOT / path).exists())]


def report(fates: Mapping[Site, str], least: float) -> bool:
    """Print the counts of each room and the mutants that live; returns whether enough were killed."""
    open_ = [s for s, fate in fates.items() if fate in ("survived", "uncovered")]
    print(f"\n{'room':12}{'mutants':>8}{'killed':>8}{'of these by time':>18}{'equivalent':>12}{'live':>6}")
    for room in [r for r in ROOMS if any(s.room == r for s in fates)]:
        of_room = Counter(
            {"survived": "live", "uncovered": "live", "equivalent": "equivalent"}.get(fate, "killed")
            for s, fate in fates.items()
            if s.room == room
        )
        slow = sum(fate == "timeout" for s, fate in fates.items() if s.room == room)
        print(
            f"{room:12}{sum(of_room.values()):>8}{of_room['killed']:>8}{slow:>18}"
            f"{of_room['equivalent']:>12}{of_room['live']:>6}"
        )
    for site in open_:
        print(f"{fates[site]:10}{site.path}:{site.line}\n    {site.key}")
    counted = sum(fate != "equivalent" for fate in fates.values())
    share = 100 * (counted - len(open_)) / counted if counted else 100.0
    print(f"\n{counted - len(open_)} of {counted} mutants that are not equivalent were killed: {share:.1f} %", end="")
    print(f" (at least {least:g} %)")
    return share >= least


def main() -> int:
    """Sample, run, report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--mutants", type=int, default=300)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one")
    parser.add_argument("--rooms", default=",".join(ROOMS), help="comma-separated")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=0.0, help="start no mutant after that time; 0: no limit")
    parser.add_argument("--least", type=float, default=95.0, help="percent of the mutants that must be killed")
    args = parser.parse_args()
    rooms = args.rooms.split(",")
    unknown = [r for r in rooms if r not in ROOMS]
    if unknown:
        parser.error(f"unknown room {', '.join(unknown)}; rooms are {', '.join(ROOMS)}")
    seed = random.SystemRandom().randrange(10**6) if args.seed is None else args.seed
    WORK.mkdir(exist_ok=True)
    os.chdir(ROOT)
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]
    explained = equivalents()
    population = [s for room in rooms for s in sites(room)]
    if stale := _stale(explained, population):
        raise SystemExit(f"{EQUIVALENT.relative_to(ROOT)} names mutants that do not exist: {'; '.join(stale)}")
    chosen = random.Random(seed).sample(population, min(args.mutants, len(population)))
    print(f"seed {seed}: {len(chosen)} of {len(population)} mutants, {args.jobs} at a time", flush=True)
    for room in dict.fromkeys(s.room for s in chosen):
        covered(room)
    _preload()
    check_controls(chosen, args.jobs)
    fates = run(chosen, args.jobs, explained, minutes=args.minutes)
    if len(fates) < len(chosen):
        print(f"\nstopped after {args.minutes:g} minutes: {len(fates)} of {len(chosen)} mutants were run")
    return 0 if report(fates, args.least) else 1


def _preload() -> None:
    """Import what every mutant needs, once before the forks; bitlake itself is imported by each mutant."""
    import numpy
    import pyarrow
    import pyarrow.compute
    import pyarrow.parquet
    import pytest

    assert numpy and pyarrow and pytest
    assert not any(name == "bitlake" or name.startswith("bitlake.") for name in sys.modules)


if __name__ == "__main__":
    sys.exit(main())
