"""Count what the layout is judged by: files, lines of code, import cycles, lazy imports, caches of modules …

    make counts                  or: python scripts/counts.py [--verbose]
    make counts ARGS=--lazy      what each lazy import of our own modules defers

A line of code holds a token that is neither a comment nor part of a docstring.  An import counts wherever it stands,
inside functions too, but not under ``TYPE_CHECKING``.  A cycle is a set of modules that import each other.  A module
has a single importer if only one module imports it, and that one is in the same folder.  A cache of a module is a
container that is empty when the module is imported, or a function that remembers any number of results
(docs/decisions/0002-rooms.md says what may stay).
"""

from __future__ import annotations

import argparse
import ast
import functools
import io
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "bitlake"
LONGEST_FILE, LONGEST_FUNCTION = 800, 60
_CACHES = {"Cache", "CacheBudget", "Caches"}
_CONTAINERS = {
    "ChainMap",
    "Counter",
    "OrderedDict",
    "WeakKeyDictionary",
    "WeakSet",
    "WeakValueDictionary",
    "bytearray",
    "defaultdict",
    "deque",
    "dict",
    "list",
    "local",
    "set",
}
"""Types whose values, made empty, fill while a process runs."""
REGISTRIES = {
    "bitlake.metadata.options.OPTIONS": "the options, filled by the module itself",
    "bitlake.engine.procedures.procedure.PROCEDURES": "the procedures, filled by imports of their modules",
    "bitlake.sql.duckdb_expressions.TRANSLATORS": "how nodes of a query are translated, filled by imports of modules",
    "bitlake.formatting._representations": "how objects show themselves, filled by imports",
    "bitlake.io.object_store._memories": "the files of memory://, which are nowhere else",
    "bitlake.io.object_store._conditional_buckets": "servers that passed the trial of conditional writes",
    "bitlake.formats.orc._idle": "idle processes that decode ORC, four at most",
    "bitlake.expressions.spark_dialect.SparkSql.Tokenizer.COMMANDS": "replaces a constant of sqlglot's and stays empty",
}
"""Containers of modules that are no caches."""
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def docstring_lines(tree: ast.AST) -> set[int]:
    """The line numbers of all docstrings, of attributes too."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        for child in getattr(node, "body", None) or [] if not isinstance(node, ast.Lambda | ast.IfExp) else []:
            if (
                isinstance(child, ast.Expr)
                and isinstance(child.value, ast.Constant)
                and isinstance(child.value.value, str)
            ):
                lines.update(range(child.lineno, (child.end_lineno or child.lineno) + 1))
    return lines


def code_lines(text: str, tree: ast.AST) -> int:
    """How many lines of a module hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(tree))


def module_name(path: Path) -> str:
    """The dotted name of a file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(tree: ast.AST, package: str, modules: Mapping[str, Path]) -> Iterator[tuple[str, bool]]:
    """Each import that runs: the module of ours or the distribution's package, and whether it is inside a function."""

    def targets(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
            return
        base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        origin = ".".join([*base, *filter(None, [node.module])])
        for alias in node.names:
            yield f"{origin}.{alias.name}" if f"{origin}.{alias.name}" in modules else origin

    def walk(node: ast.AST, lazy: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
                for other in child.orelse:
                    yield from walk(other, lazy)
            elif isinstance(child, ast.Import | ast.ImportFrom):
                yield from ((target, lazy) for target in targets(child))
            elif not isinstance(child, ast.expr):  # which holds no statement
                inside = lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
                yield from walk(child, inside)

    yield from walk(tree, False)


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for target in graph[node]:
            if target not in order:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], order[target])
        if low[node] == order[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                found.append(sorted(component))

    for node in graph:
        if node not in order:
            visit(node)
    return found


def idle_lazy_imports() -> list[str]:
    """Lazy imports of our own modules that defer nothing: the importer's own imports load the module already."""
    every = module_imports()
    eager = {name: {t for t, lazy in targets if not lazy and t in every} for name, targets in every.items()}

    def loaded(name: str) -> set[str]:
        found, todo = set(), [name]
        while todo:
            new = eager[todo.pop()] - found
            found |= new
            todo += new
        return found

    return [f"{n}: {t}" for n, targets in every.items() for t, lazy in targets if lazy and t in loaded(n)]


_COST = """
import importlib, sys, time
importlib.import_module(sys.argv[1])
started = time.process_time()
importlib.import_module(sys.argv[2])
print(time.process_time() - started)
"""


def print_lazy_costs() -> None:
    """Print the processor time that each lazy import of our own modules defers, the least of three, in milliseconds."""
    modules = module_imports()
    pairs = {(name, t) for name, targets in modules.items() for t, lazy in targets if lazy and t in modules}
    for name, target in sorted(pairs):
        command = [sys.executable, "-c", _COST, name, target]
        costs = [float(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(3)]
        print(f"{1000 * min(costs):>7.1f}  {name}: {target}", flush=True)


@functools.cache
def module_imports() -> dict[str, list[tuple[str, bool]]]:
    """The imports of each module, as :func:`imports` gives them."""
    modules = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
    packages = {name: name if path.name == "__init__.py" else name.rpartition(".")[0] for name, path in modules.items()}
    return {n: list(imports(ast.parse(path.read_text()), packages[n], modules)) for n, path in modules.items()}


def import_graph() -> dict[str, set[str]]:
    """Which modules of ours each module imports, lazy imports included."""
    found = module_imports()
    return {name: {target for target, _ in targets if target in found} - {name} for name, targets in found.items()}


def _callee(node: ast.expr) -> str:
    """``f`` of ``f``, ``m.f``, ``f(…)``, ``f[T](…)`` and ``f(…)(…)``."""
    if isinstance(node, ast.Call):
        return _callee(node.func)
    if isinstance(node, ast.Subscript):
        return _callee(node.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_unbounded(node: ast.expr) -> bool:
    """Whether a decorator, or a call that makes a function of another, remembers any number of results."""
    if _callee(node) == "cache":
        return True
    if _callee(node) != "lru_cache" or not isinstance(node, ast.Call):
        return False
    call = node.func if isinstance(node.func, ast.Call) else node
    sizes = [*call.args, *(k.value for k in call.keywords if k.arg == "maxsize")]
    return any(isinstance(s, ast.Constant) and s.value is None for s in sizes)


def module_caches(tree: ast.Module) -> Iterator[str]:
    """The names of a module's caches, and of those of its classes."""

    def is_cache(value: ast.expr | None) -> bool:
        if isinstance(value, ast.Dict | ast.List):
            return not (value.keys if isinstance(value, ast.Dict) else value.elts)
        if not isinstance(value, ast.Call):
            return False
        name = _callee(value)
        empty = all(isinstance(a, ast.Constant | ast.Name) for a in value.args)
        return name in _CACHES or (name in _CONTAINERS and empty) or _is_unbounded(value)

    def walk(body: list[ast.stmt], prefix: str) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and is_cache(node.value):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (f"{prefix}{ast.unparse(t)}" for t in targets)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if node.args.args and any(_is_unbounded(d) for d in node.decorator_list):
                    yield f"{prefix}{node.name}()"
            elif isinstance(node, ast.ClassDef | ast.If | ast.With | ast.Try):
                yield from walk(node.body, f"{prefix}{node.name}." if isinstance(node, ast.ClassDef) else prefix)

    yield from (name for name in walk(tree.body, "") if name != "__all__")


def all_module_caches() -> list[str]:
    """The caches of all modules."""
    found = [
        f"{module_name(path)}.{name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for name in module_caches(ast.parse(path.read_text()))
    ]
    return [name for name in found if name not in REGISTRIES]


def main() -> None:
    """Print the counts; with ``--verbose`` what they count."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--lazy", action="store_true", help="measure what each lazy import defers, and nothing else")
    arguments = parser.parse_args()
    if arguments.lazy:
        print_lazy_costs()
        return
    verbose = arguments.verbose
    modules = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
    graph = import_graph()
    importers: dict[str, set[str]] = defaultdict(set)
    for name, targets in graph.items():
        for target in targets:
            importers[target].add(name)
    long_files, long_functions = [], []
    lazy = [f"{name}: {target}" for name, targets in module_imports().items() for target, inside in targets if inside]
    lines = 0
    for name, path in modules.items():
        text = path.read_text()
        tree = ast.parse(text)
        lines += code_lines(text, tree)
        if len(text.splitlines()) > LONGEST_FILE:
            long_files.append(f"{name}: {len(text.splitlines())}")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    long_functions.append(f"{name}.{node.name}: {length}")
    single = [
        f"{name} <- {next(iter(users))}"
        for name, users in sorted(importers.items())
        if len(users) == 1
        and next(iter(users)).rpartition(".")[0] == name.rpartition(".")[0]
        and modules[name].name != "__init__.py"
    ]
    own = [entry for entry in lazy if entry.partition(": ")[2] in modules]
    rows: list[tuple[str, int, list[str]]] = [
        ("files", len(modules), []),
        (f"files over {LONGEST_FILE} lines", len(long_files), long_files),
        (f"functions over {LONGEST_FUNCTION} lines", len(long_functions), long_functions),
        ("lines of code", lines, []),
        ("import cycles, lazy imports included", len(cycles(graph)), [" ".join(c) for c in cycles(graph)]),
        ("lazy imports of bitlake's own modules", len(own), own),
        ("lazy imports of other packages", len(lazy) - len(own), sorted(set(lazy) - set(own))),
        ("modules with a single importer in their folder", len(single), single),
        ("caches of modules", len(all_module_caches()), all_module_caches()),
    ]
    for what, count, entries in rows:
        print(f"{count:>7,}  {what}")
        for entry in entries if verbose else []:
            print(f"           {entry}")


if __name__ == "__main__":
    main()
