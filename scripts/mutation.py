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
import it, directly or by another module of its room: a test of a constant may execute no line of the file.

Each mutant is a forked process; no file is changed.  One process of a room imports the product, collects the room's
tests and forks for each mutant, where the mutated function gets its other code object.  A mutant of a line that runs
before the first test (at import or collection) starts in a process that has imported nothing instead, where an import
hook compiles the mutated module.  A mutant that takes more than five times the processor time of its tests and ten
seconds more, or ten times their time and a minute more, counts as killed; the report shows these apart.

What keeps the counts honest: a control, the room without a mutation, must survive all tests of the room in such a fork,
and one module of it by the import hook; every recorded test must be found by name, as a test that does not exist would
look like a kill; and a mutant whose line no test executes counts as live.
"""

from __future__ import annotations

import argparse
import ast
import copy
import functools
import gc
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import resource
import select
import signal
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".mutation"
EQUIVALENT = ROOT / "tests" / "mutation" / "equivalent.txt"
CONTROL = -1
"""The node number of a site that is left as it is."""
_BROKEN = 99
"""Exit code of a mutant's process that failed outside of pytest."""
_MEMORY = 8 << 30
"""Bytes of address space a mutant may take, so that one that counts upwards for ever harms nothing else."""


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
    *(f"tests/write/test_{name}.py" for name in ("append_*", "commit*", "replaced_table")),
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
    "metadata": Room(("bitlake/metadata/*.py",), ("tests/metadata", "tests/formats/test_writers.py")),
    "merge": Room(
        ("bitlake/merge/*.py", "bitlake/schema/merge_spec.py", "bitlake/schema/validation.py"), _MERGETREE_TESTS
    ),
    "mergetree": Room(("bitlake/mergetree/*.py",), _MERGETREE_TESTS),
    "planning": Room(
        (
            "bitlake/snapshot/manifests.py",
            "bitlake/scan/page_pruning.py",
            "bitlake/snapshot/partitions.py",
            "bitlake/scan/plan*.py",
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


_MUTABLE = (ast.Compare, ast.BinOp, ast.AugAssign, ast.BoolOp, ast.UnaryOp, ast.Constant)


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


def sites(room: str, among: Collection[str] | None = None) -> list[Site]:
    """Every place of a room's files that can be mutated; of the files ``among`` if given."""
    found = []
    for path in sorted({p for pattern in ROOMS[room].sources for p in ROOT.glob(pattern)}):
        if among is not None and str(path.relative_to(ROOT)) not in among:
            continue
        tree = ast.parse(path.read_text())
        statements = {id(n): s for s in ast.walk(tree) if isinstance(s, ast.stmt) for n in _own_expressions(s)}
        bodies = {id(n) for f in ast.walk(tree) if isinstance(f, _FUNCTIONS) for s in f.body for n in ast.walk(s)}
        for number, (function, node) in enumerate(_nodes(tree)):
            if not isinstance(node, _MUTABLE):
                continue
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
    """What a coverage run depends on: the product, the room's tests, the modules that tests share, and this script."""
    digest = hashlib.sha256()
    tests = [p for t in _tests(room) for p in ([ROOT / t] if t.endswith(".py") else (ROOT / t).rglob("*.py"))]
    shared = [*(ROOT / "tests").glob("*.py"), *(ROOT / "tests").rglob("conftest.py")]
    for path in sorted({Path(__file__), *(ROOT / "bitlake").rglob("*.py"), *shared, *tests}):
        digest.update(f"{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _twins(room: str) -> list[str]:
    """The rooms that have the same tests, this one too."""
    return [r for r in ROOMS if ROOMS[r].tests == ROOMS[room].tests]


@dataclass(frozen=True)
class Covered:
    """What the coverage run of a room recorded."""

    lines: dict[str, dict[int, list[str]]]
    """The tests that execute each line of each file."""
    early: dict[str, set[int]]
    """The lines of each file that run before the first test."""
    seconds: dict[str, float]
    """The seconds that each test takes."""


def covered(room: str) -> Covered:
    """What the tests of a room execute."""
    return _covered(_twins(room)[0])


@functools.cache
def _covered(room: str) -> Covered:
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


def _read(store: Path) -> Covered:
    known = json.loads(store.read_text())
    lines = {p: {int(n): t for n, t in lines.items()} for p, lines in known["lines"].items()}
    return Covered(lines, {p: set(numbers) for p, numbers in known["early"].items()}, known["seconds"])


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
    early: dict[str, list[int]] = {}
    patterns = [pattern for twin in _twins(room) for pattern in ROOMS[twin].sources]
    for path in sorted({p for pattern in patterns for p in ROOT.glob(pattern)}):
        contexts = data.contexts_by_lineno(str(path))
        everything = sorted({t for tests in contexts.values() for t in tests if t})
        # The context "" is an import: whatever executes the file may depend on that line.
        name = str(path.relative_to(ROOT))
        lines[name] = {n: everything if "" in tests else tests for n, tests in contexts.items()}
        early[name] = [n for n, tests in contexts.items() if "" in tests]
    known = {"digest": _digest(room), "lines": lines, "early": early, "seconds": recorder.seconds}
    store.write_text(json.dumps(known))
    return 0


def _pytest_options() -> list[str]:
    options = ["-q", "-x", "-n0", "-p", "no:cacheprovider", "-m", "not interop and not cluster and not spark"]
    # Captured in memory: forks would share a file.
    return [*options, "--tb=line", "--capture=sys"]


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
    recorded = covered(site.room)
    of_file, seconds = recorded.lines.get(site.path, {}), recorded.seconds
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


def _by_import(site: Site, tests: Sequence[str]) -> int:
    """Run tests in a process that has imported nothing of the product, with the mutated module."""
    import pytest

    sys.meta_path.insert(0, _Hook(site))
    return 0 if pytest.main([*_pytest_options(), *tests]) == 0 else 1


def _replaced(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The code objects, nested ones too, that a mutation changed, each with its mutated one."""
    if old != new:
        yield old, new
        inner = [[c for c in code.co_consts if isinstance(c, CodeType)] for code in (old, new)]
        for pair in zip(*inner, strict=True):
            yield from _replaced(*pair)


def _mutate_loaded(site: Site) -> None:
    """Give the functions of the loaded product that the mutation changes their other code."""
    source = (ROOT / site.path).read_text()
    path = str(ROOT / site.path)
    changed = dict(_replaced(compile(source, path, "exec"), compile(_mutated(source, site.node), path, "exec")))
    gc.unfreeze()  # tests/conftest.py freezes what is loaded, and get_objects() leaves that out
    functions = [f for f in gc.get_objects() if isinstance(f, FunctionType) and f.__code__ in changed]
    if not functions:
        raise LookupError(f"no function of {site.key} is loaded")
    for function in functions:
        function.__code__ = changed[function.__code__]


def _in_session(session: Any, site: Site, tests: Sequence[str]) -> int:
    """Run tests that a pytest session has collected, with the mutated function; ends at the first failure."""
    if site.node != CONTROL:
        _mutate_loaded(site)
    by_name = {item.nodeid: item for item in session.items}
    session.items = [by_name[t] for t in tests]
    for item, following in zip(session.items, [*session.items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            break
    session.config.hook.pytest_sessionfinish(session=session, exitstatus=int(bool(session.testsfailed)))
    return int(bool(session.testsfailed))


@dataclass(frozen=True)
class Task:
    """A mutant, its tests, and the room whose process runs it, None: one that has imported nothing."""

    site: Site
    tests: tuple[str, ...]
    room: str | None

    @classmethod
    def of(cls, site: Site) -> Task:
        """Run a site's tests where its mutation can be seen."""
        first, last = site.statement
        early = covered(site.room).early.get(site.path, set()) & {site.line, *range(first, last + 1)}
        return cls(site, tuple(tests_of(site)), None if site.imported or early else _twins(site.room)[0])

    def fate(self, run_tests: Callable[[Site, Sequence[str]], int]) -> str:
        """Run the mutant in a fork."""
        seconds = sum(covered(self.site.room).seconds.get(t, 0.0) for t in self.tests)
        pid = os.fork()
        if pid == 0:
            code = _BROKEN
            try:
                os.setsid()
                _quiet(WORK / f"mutant-{os.getpid()}.log")
                resource.setrlimit(resource.RLIMIT_CPU, (int(10 + 5 * seconds),) * 2)
                resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
                code = run_tests(self.site, self.tests)
            except BaseException:
                traceback.print_exc()
                raise
            finally:
                sys.stderr.flush()
                os._exit(code)
        deadline = time.monotonic() + 60 + 10 * seconds
        while not (done := os.waitpid(pid, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                os.killpg(pid, signal.SIGKILL)
            time.sleep(0.01)
        code = os.waitstatus_to_exitcode(done[1])
        if code == _BROKEN:
            return "broken"
        (WORK / f"mutant-{pid}.log").unlink(missing_ok=True)
        return {0: "survived", -signal.SIGXCPU: "timeout", -signal.SIGKILL: "timeout"}.get(code, "killed")


class _Serving:
    """A pytest plugin that, instead of running the collected tests, forks for each mutant it is asked for."""

    def __init__(self, names: Iterable[str], serve: Callable[[Callable[[Site, Sequence[str]], int]], None]) -> None:
        self.names = set(names)
        self.serve = serve

    def pytest_runtestloop(self, session: Any) -> bool:
        if missing := self.names - {item.nodeid for item in session.items}:
            raise SystemExit(f"tests do not have the names of the coverage run: {', '.join(sorted(missing))}")
        self.serve(functools.partial(_in_session, session))
        return True


class Server:
    """A process that forks for mutants: of a room, whose product and tests it has loaded, or of none."""

    def __init__(self, room: str | None, tasks: Sequence[Task], fates: int) -> None:
        self.room = room
        requests, self.requests = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(requests)
            return
        try:
            os.close(self.requests)
            serve = functools.partial(self._serve, os.fdopen(requests), tasks, fates)
            if room is None:
                serve(_by_import)
            else:
                _quiet(WORK / f"{room}.log")
                _collect(room, serve)
        finally:
            os._exit(1)

    @staticmethod
    def _serve(
        requests: Iterable[str], tasks: Sequence[Task], fates: int, run_tests: Callable[[Site, Sequence[str]], int]
    ) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing waits for the forks below
        for line in requests:
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.write(fates, f"{line.strip()} {tasks[int(line)].fate(run_tests)}\n".encode())
                os._exit(0)
        os._exit(0)

    def ask(self, number: int) -> None:
        """Run one of the tasks; its fate arrives in the pipe."""
        os.write(self.requests, f"{number}\n".encode())

    def check(self) -> None:
        """Raise if the process has ended."""
        if os.waitpid(self.pid, os.WNOHANG)[0]:
            raise SystemExit(f"the tests of {self.room} cannot be run; see {WORK / (self.room or '')}.log")

    def close(self) -> None:
        """End the process."""
        os.close(self.requests)
        os.waitpid(self.pid, 0)


def _collect(room: str, serve: Callable[[Callable[[Site, Sequence[str]], int]], None]) -> None:
    import pytest

    pytest.main([*_pytest_options(), *_tests(room)], plugins=[_Serving(covered(room).seconds, serve)])


def run_tasks(tasks: Sequence[Task], jobs: int, end: float = float("inf")) -> Iterator[tuple[Task, str]]:
    """The fate of each task (killed, timeout or survived) as it becomes known; starts none after ``end``."""
    read, write = os.pipe()
    arrived = ""
    servers: dict[str | None, Server] = {}
    todo, running = list(reversed(range(len(tasks)))), 0
    try:
        while todo or running:
            if time.monotonic() > end:
                todo.clear()
            while todo and running < jobs:
                room = tasks[todo[-1]].room
                if room not in servers:
                    servers[room] = Server(room, tasks, write)
                servers[room].ask(todo.pop())
                running += 1
            if not running:
                break
            while "\n" not in arrived:
                if select.select([read], [], [], 1.0)[0]:
                    arrived += os.read(read, 1 << 12).decode()
                for server in servers.values():
                    server.check()
            line, _, arrived = arrived.partition("\n")
            number, fate = line.split()
            task = tasks[int(number)]
            if fate == "broken":
                raise SystemExit(f"{task.site.key}: its process failed outside of the tests; see {WORK}/mutant-*.log")
            running -= 1
            yield task, fate
    finally:
        for server in reversed(servers.values()):  # a later one holds the pipes of those before it
            server.close()
        os.close(read)
        os.close(write)


def check_controls(chosen: Sequence[Site], jobs: int) -> None:
    """Require that each room survives without a mutation: all its tests in a fork, and a module by the import hook."""
    tasks = [task for site in chosen if (task := Task.of(site)).tests]
    cost = {task.site: sum(covered(task.site.room).seconds.get(t, 0.0) for t in task.tests) for task in tasks}
    controls = []
    for room in dict.fromkeys(_twins(task.site.room)[0] for task in tasks):
        quickest = min((t for t in tasks if _twins(t.site.room)[0] == room), key=lambda t: cost[t.site])
        site = replace(quickest.site, node=CONTROL, before="", after="control")
        controls.append(replace(quickest, site=site, room=None))
        if not _passed(room).exists() or _passed(room).read_text() != _digest(room):
            controls.append(Task(site, tuple(covered(room).seconds), room))
    for task, fate in run_tasks(controls, jobs):
        if fate != "survived":
            raise SystemExit(f"tests of {task.site.room} fail without a mutation ({task.site.path}): {fate}")
        if task.room is not None:
            _passed(task.room).write_text(_digest(task.room))


def _passed(room: str) -> Path:
    """Where it is noted for which code and tests a room's control survived."""
    return WORK / f"{room}.control"


def run(chosen: Sequence[Site], jobs: int, explained: Mapping[str, str], *, minutes: float = 0) -> dict[Site, str]:
    """The fate of each mutant: killed, timeout, survived, uncovered, or equivalent, which is explained and not run.

    ``minutes``: start none after that time (0: no limit).  What was run is a sample as well: the order is random.
    """
    end = time.monotonic() + 60 * minutes if minutes else float("inf")
    tasks = [Task.of(site) for site in chosen if site.key not in explained]
    fates = {site: "equivalent" for site in chosen if site.key in explained}
    fates |= {task.site: "uncovered" for task in tasks if not task.tests}
    for task, fate in run_tasks([task for task in tasks if task.tests], jobs, end):
        site = task.site
        fates[site] = fate
        if fate == "survived":
            print(f"survived  {site.path}:{site.line}  {site.function}\n    {site.before} -> {site.after}", flush=True)
    return fates


def equivalents() -> dict[str, str]:
    """The mutants that no test can notice, with the reason."""
    rows = [line for line in EQUIVALENT.read_text().splitlines() if line and not line.startswith("#")]
    return dict(row.rsplit(" | ", 1) for row in rows)


def stale_entries(explained: dict[str, str], population: Sequence[Site]) -> list[str]:
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
    if stale := stale_entries(explained, population):
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
