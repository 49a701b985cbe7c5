"""Pages of the documentation that are made from the code: options, SQL, procedures, commands, Python, formats."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import click
from docs_statements import checked
from docs_text import code, markdown, sentence, table

import bitlake
from bitlake.cli.app import cli
from bitlake.cli.run import LAKE_OPTIONS, Argument, LakeOption
from bitlake.engine.procedures import PROCEDURES
from bitlake.io import object_store_options, webhdfs
from bitlake.metadata import options as table_options
from bitlake.metadata.option_types import Option
from bitlake.metadata.options import OPTIONS
from bitlake.system_tables.tables import TABLES, VIEWS


def options() -> str:
    """Table options by their first word."""
    docs = option_docs()
    groups: dict[str, list[Option[object]]] = {}
    for option in sorted(OPTIONS.values(), key=lambda o: o.name):
        groups.setdefault(option.name.partition(".")[0], []).append(option)
    small = sorted(o.name for g in groups.values() if len(g) < 3 for o in g)
    out = [
        "# Table options\n",
        "Options are set by `CREATE TABLE … TBLPROPERTIES ('name' = 'value')` and changed by `ALTER TABLE …\n"
        "SET TBLPROPERTIES`; in Python by `create_table(options=…)` and `table.alter_options(…)`. Others that Paimon\n"
        "knows are kept as they are given. Options marked *fixed* cannot change once a table has rows.\n",
        "Which indexes a table has is told by `file-index.<type>.columns = a, b, m[key]` (types `bloom-filter`,\n"
        "`bitmap`, `range-bitmap`, `bsi`) and `file-index.<type>.<column>.<option>`; options of one column are\n"
        "`fields.<column>.…`.\n",
    ]
    for name, group in [*((n, g) for n, g in groups.items() if len(g) >= 3), ("others", _named(groups, small))]:
        rows = [
            (code(o.name), docs[o.name] + (" *Fixed.*" if o.immutable else ""), o.allowed, code(_default(o)))
            for o in group
        ]
        out.append(f"## {name}\n\n" + table(("Option", "What it does", "Takes", "Default"), rows))
    return "\n".join(out)


def option_docs() -> dict[str, str]:
    """What each table option does, by its name: the text below its declaration."""
    body = ast.parse(inspect.getsource(table_options)).body
    docs = {}
    for declared, text in itertools.pairwise(body):
        if isinstance(declared, ast.Assign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            option = getattr(table_options, ast.unparse(declared.targets[0]))
            if isinstance(option, Option):
                docs[option.name] = " ".join(str(text.value.value).split())
    return docs


def _named(groups: dict[str, list[Option[object]]], names: list[str]) -> list[Option[object]]:
    every = {o.name: o for g in groups.values() for o in g}
    return [every[n] for n in names]


def _default(option: Option[object]) -> str | None:
    if option.default_text is not None:
        return option.default_text
    return None if option.default is None else str(option.default)


def storage() -> str:
    """How to reach stores."""
    out = ["# Storage options\n", markdown(object_store_options.StoreOptions.__doc__).split("\n\n", 1)[1]]
    out.append(
        "Give them as `bitlake.connect(url, storage_options={…})`, or as `spark.hadoop.…` of the Spark session.\n"
    )
    titles = {"s3": "S3 and what speaks it", "gcs": "Google Cloud Storage", "azure": "Azure", "memory": "Memory"}
    for kind, title in titles.items():
        schemes = ", ".join(f"`{s}://`" for s, k in object_store_options.KINDS.items() if k == kind)
        own = object_store_options._OWN[kind].split()
        out.append(f"## {title}\n\nAddresses: {schemes}\n")
        if own:
            names = object_store_options._NAMES[kind]
            spelt = {own_name: [n for n, o in names.items() if o == own_name] for own_name in {*own, *names.values()}}
            rows = [(code(n), ", ".join(map(code, sorted(spelt.get(n, [])))) or "–") for n in sorted(spelt)]
            out.append(table(("Option", "Also as Paimon and Hadoop spell it"), rows))
            prefixes = ", ".join(map(code, object_store_options._PREFIXES[kind]))
            out.append(f"Each may have one of the prefixes {prefixes} before it.\n")
    client = ", ".join(map(code, object_store_options._CLIENT.split()))
    out.append(f"## All object stores\n\nThe client itself takes {client}.\n")
    out.append("## HDFS\n\n" + markdown(webhdfs.HdfsOptions.__doc__).split("\n\n", 1)[1])
    return "\n".join(out)


def sql() -> str:
    """The statements, by example, and the system tables."""
    out = [
        "# SQL\n",
        "`lake.sql(text)` takes the statements below and any `SELECT` that Spark takes, over lake tables and\n"
        "temporary views together. What is about none of the lake's tables goes to Spark as it is. Each example here\n"
        "is parsed when this page is made.\n",
    ]
    for title, examples in checked().items():
        out.append(f"## {title}\n\n```sql\n" + ";\n".join(examples) + ";\n```\n")
    systems = [(code(f"t${n}"), ", ".join(code(f.name) for f in m.fields)) for n, m in sorted(TABLES.items())]
    views = [(code(f"t${n}"), sentence(v.__doc__)) for n, v in sorted(VIEWS.items())]
    out.append("## System tables\n\nEach is read with its name in backticks: `` SELECT * FROM `t$files` ``.\n")
    out.append(table(("Table", "Columns"), systems))
    out.append(table(("View of the rows", "What it is"), views))
    return "\n".join(out)


def procedures() -> str:
    """Procedures with their arguments."""
    out = [
        "# Procedures\n",
        "Arguments are given by position or by name: `CALL sys.expire_snapshots(table => 't', retain_max => 10)`. "
        "`SHOW PROCEDURES` lists the same in SQL. Those in square brackets may be left out.\n",
    ]
    for p in sorted(PROCEDURES.values(), key=lambda p: p.name):
        rows = [(code(a.name), "yes" if a.required else "", a.doc) for a in p.parameters]
        out.append(f"## {p.name}\n\n{p.doc}\n\n```sql\nCALL {p.signature}\n```\n")
        out.append(table(("Argument", "Needed", "What it is"), rows) if rows else "")
    return "\n".join(out)


def commands() -> str:
    """The command line."""
    out = ["# The command `bitlake`\n", (cli.help or "") + "\n"]
    rows = [(_names(option), option.help or "") for option in LAKE_OPTIONS]
    out.append("## Options of every command\n\n" + table(("Option", "What it does"), rows))
    context = click.Context(cli, info_name="bitlake")
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        out.append(_command(name, command, 2))
        if isinstance(command, click.Group):
            out += [_command(f"{name} {n}", c, 3) for n, c in command.commands.items()]
    return "\n".join(out)


def _command(name: str, command: click.Command, level: int) -> str:
    """A command with its own arguments and options."""
    usage = " ".join(command.collect_usage_pieces(click.Context(command, info_name=f"bitlake {name}")))
    help_text = inspect.cleandoc(command.help or "")
    text = f"{'#' * level} {name}\n\n{help_text}\n\n```console\nbitlake {name} {usage}\n```\n\n"
    rows = [
        (_names(p), _description(p), _parameter_default(p)) for p in command.params if not isinstance(p, LakeOption)
    ]
    return text + (table(("Argument or option", "What it is", "Default"), rows) if rows else "")


def _names(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Argument):
        return code(parameter.human_readable_name)
    return ", ".join(map(code, parameter.opts))


def _description(parameter: click.Parameter) -> str:
    return parameter.description if isinstance(parameter, Argument) else getattr(parameter, "help", None) or ""


def _parameter_default(parameter: click.Parameter) -> str:
    values = parameter.to_info_dict()["default"]
    return code(values) if isinstance(values, str | int) and not isinstance(values, bool) else code(None)


CLASSES: dict[str, tuple[str, str, str, str]] = {
    "python-lake": ("Lake", "bitlake.lake:Lake", "Lake", "databases, tables, SQL and DataFrames"),
    "python-table": ("Table", "bitlake.table.table:Table", "Table", "read, write and alter one table"),
    "python-table-indexes": (
        "table.indexes",
        "bitlake.table.indexes:TableIndexes",
        "table.indexes",
        "file indexes and advice on them",
    ),
    "python-table-history": (
        "table.history",
        "bitlake.table.history:TableHistory",
        "table.history",
        "snapshots, tags, branches, rollback",
    ),
    "python-table-maintenance": (
        "table.maintenance",
        "bitlake.table.maintenance:TableMaintenance",
        "table.maintenance",
        "compaction, expiry, verification, repair",
    ),
    "python-scan": ("Scan", "bitlake.table.scan:Scan", "Scan", "rows described but not read: refine, explain, read"),
    "python-plan": ("Plan", "bitlake.scan.plan:Plan", "Plan", "what a scan reads, and why not the rest"),
}
"""A page for each class of the public face: title, class, the name before its members, what it is for."""
RESULTS: dict[str, tuple[str, ...]] = {
    "bitlake.expressions.condition:Column": (
        *("between", "contains", "endswith", "is_not_null", "is_null", "isin", "like", "startswith"),
        *("abs", "cast", "coalesce", "date_trunc", "day", "hour", "length", "lower", "month", "substring", "trim"),
        *("upper", "year"),
    ),
    "bitlake.expressions.condition:Condition": (),
    "bitlake.scan.dataset:ScanDataset": ("count_rows", "files", "filter", "get_fragments", "scanner"),
    "bitlake.metadata.snapshot:Snapshot": ("to_json",),
    "bitlake.metadata.schema:TableSchema": ("bucket_keys", "field", "field_names", "num_buckets", "to_json"),
    "bitlake.snapshot.tags:Tag": (),
    "bitlake.snapshot.expiry:Expiry": (),
    "bitlake.snapshot.orphan_files:Orphan": (),
    "bitlake.fileindex.registry:IndexSpec": (),
    "bitlake.write.index_rewrite:Rewritten": (),
    "bitlake.scan.plan:PlannedFile": ("chosen_rows", "row_count", "whole"),
    "bitlake.scan.plan:SkippedFile": ("row_count", "size"),
    "bitlake.scan.plan:ScanMetrics": ("as_dict",),
    "bitlake.tools.explain.explanation:Explanation": (
        *("bytes_read", "files_left_out", "text", "to_dict", "to_html", "to_json"),
    ),
    "bitlake.tools.explain.explanation:QueryExplanation": ("text", "to_dict", "to_html", "to_json"),
    "bitlake.tools.advise.advice:Advice": (
        *("apply", "build_seconds", "index_bytes", "layout_statements", "statements", "text", "to_dict"),
    ),
    "bitlake.tools.verify:VerifyReport": ("codes", "errors", "ok", "text", "to_dict", "warnings"),
    "bitlake.tools.verify.repair:Repair": ("text", "to_dict"),
    "bitlake.tools.report:TableReport": ("to_dict", "to_html", "to_json"),
    "bitlake.tools.inspect.inspection:Inspection": ("faults", "text", "to_dict", "to_json"),
    "bitlake.tools.scan_log:ScanRecord": ("bytes_touched", "skipping_rate", "to_json"),
    "bitlake.spark.dml.merge:MergeBuilder": (
        *("execute", "when_matched_delete", "when_matched_update", "when_not_matched_by_source_delete"),
        *("when_not_matched_by_source_update", "when_not_matched_insert"),
    ),
}
"""Classes of what the public methods return, each with its members for users besides its fields."""


def face() -> list[type]:
    """The classes of the public face."""
    return [_loaded(place) for _, place, _, _ in CLASSES.values()]


def public_classes() -> Iterator[tuple[type, Sequence[str]]]:
    """The classes of the reference, each with the names of its members: all of the face's, of results those listed."""
    for kind in face():
        yield kind, [name for name, _ in _public(kind)]
    for place, members in RESULTS.items():
        yield _loaded(place), members


ARGUMENTS = (
    ("`Time`", "ISO text (`2026-01-03 08:00`), a `datetime` or `date`, or milliseconds since the epoch"),
    ("`Moment`", "a snapshot's id, a tag's name, or a `Tag`"),
    (
        "`Rows`",
        "an Arrow table, record batch, reader or dataset; a data frame of pandas, Polars, DuckDB or Spark; "
        "an iterable of Arrow batches",
    ),
    (
        "`Where`",
        "Spark SQL text, a condition of `bitlake.col`, a list of terms `(column, operator, value)`, "
        "or a `pyarrow.compute` expression",
    ),
    ("`Args`", "values of parameters in SQL text: a mapping for `:name`, a list for `?`"),
    ("`ColumnName`", "a column's name, or a path into a struct: `address.city` or `('address', 'city')`"),
    ("`ColumnType`", "an Arrow type, or Spark's text: `DECIMAL(10, 2)`"),
    ("`OrderItem`", "a column, `(column, 'desc')`, or `(column, 'desc', 'last')` for the place of NULLs"),
)
"""The names of types in signatures that stand for several."""
EXAMPLES = """
Each example runs in the tests as it stands, on a new copy of one lake, ``lake``, at 12:00 on 2026-01-04 (UTC).  It has
three tables, each of two commits: ``table`` is ``orders`` below, partitioned by day, with a bitmap index on ``status``;
``customers`` has the primary key ``customer_id``; ``payments`` has 40,000 rows in no order.  ``scan`` is
``table.scan()``, ``rows`` one more order, ``schema`` the Arrow schema of orders.  Three dots stand for what differs
from run to run.

========  ======  ======  ==========
order_id  status  amount  day
========  ======  ======  ==========
1         NEW      10.00  2026-01-01
2         PAID     25.50  2026-01-01
3         NEW       7.25  2026-01-02
4         SENT    120.00  2026-01-02
5         PAID     60.00  2026-01-03
6         NEW      33.00  2026-01-03
========  ======  ======  ==========
"""
"""What the names in examples are; ``tests/test_examples.py`` makes them."""


def python() -> str:
    """The entry point, and where the classes, the values that they return and the errors are."""
    out = ["# Python\n", "The public face; what is not here may change.\n"]
    out += [_function("bitlake.connect", bitlake.connect, 2), _function("bitlake.col", bitlake.col, 2)]
    out.append(_function("bitlake.register", bitlake.register, 2))
    rows = [(f"[`{title}`]({page}.md)", use) for page, (title, _, _, use) in CLASSES.items()]
    rows.append(("[returned values](python-results.md)", "snapshots, schemas, plans of expiry, reports"))
    out.append("## Classes\n\n" + table(("Class", "For"), rows))
    out.append("## Types of arguments\n\n" + table(("Type", "Values"), ARGUMENTS))
    out.append("## Examples\n\n" + markdown(EXAMPLES))
    errors = [n for n in sorted(bitlake.__all__) if _is_error(getattr(bitlake, n))]
    out.append("## Version\n\n`bitlake.__version__` is the version of the package, a string.\n")
    described = [(code(n), sentence(getattr(bitlake, n).__doc__)) for n in errors]
    out.append("## Errors\n\n" + table(("Error", "When"), described))
    return "\n".join(out)


def _is_error(found: object) -> bool:
    return inspect.isclass(found) and issubclass(found, Exception)


def _loaded(place: str) -> type:
    module, _, name = place.partition(":")
    loaded: type = getattr(importlib.import_module(module), name)
    return loaded


_TABLES = "[Which tables the examples use](python.md#examples)\n"


def class_page(name: str) -> str:
    """The page of one class of the public face."""
    title, place, owner, _ = CLASSES[name]
    kind = _loaded(place)
    return "\n".join(
        [f"# {title}\n", markdown(kind.__doc__), _TABLES, *_fields(kind), *_members(owner, _public(kind), 2)]
    )


def results() -> str:
    """The classes of returned values, with their fields."""
    out = ["# Returned values\n", "Public methods return these values; none is created by hand.\n", _TABLES]
    for place, members in RESULTS.items():
        kind = _loaded(place)
        out.append(f"## {kind.__name__}\n\n{markdown(kind.__doc__)}")
        out += _fields(kind)
        out += _members(kind.__name__, [(name, getattr(kind, name)) for name in members], 3)
    return "\n".join(out)


def _public(kind: type) -> list[tuple[str, object]]:
    """The public properties and methods of a class, by name."""
    return [
        (name, member)
        for name, member in sorted(inspect.getmembers(kind))
        if not name.startswith("_") and (isinstance(member, property) or inspect.isroutine(member))
    ]


def _fields(kind: type) -> Iterator[str]:
    """A table of a dataclass' public fields."""
    if dataclasses.is_dataclass(kind):
        rows = [(code(f.name), code(str(f.type))) for f in dataclasses.fields(kind) if not f.name.startswith("_")]
        if rows:
            yield table(("Field", "Type"), rows)


def _members(owner: str, members: Iterable[tuple[str, object]], depth: int) -> Iterator[str]:
    for name, member in members:
        if isinstance(member, property):
            yield f"{'#' * depth} {owner}.{name} {{ .property }}\n\n{markdown(member.__doc__)}"
        elif callable(member):
            yield _function(f"{owner}.{name}", inspect.unwrap(member), depth)


def _function(name: str, found: Callable[..., object], depth: int) -> str:
    shown = str(_plain(inspect.signature(found)))
    short = name.rpartition(".")[2]
    if len(short) + len(shown) > 88 and "(" in shown:
        inside, _, back = shown[1:].rpartition(")")
        shown = "(\n    " + ",\n    ".join(_split(inside)) + ",\n)" + back
    return f"{'#' * depth} {name}\n\n```python\n{short}{shown}\n```\n\n{markdown(found.__doc__)}"


class _Bare:
    """An annotation that shows as it is written."""

    def __init__(self, text: object) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text if isinstance(self._text, str) else inspect.formatannotation(self._text)


def _plain(found: inspect.Signature) -> inspect.Signature:
    """A signature without ``self``, and its annotations as they are written."""
    shown = [p for p in found.parameters.values() if p.name not in ("self", "cls")]
    empty = inspect.Parameter.empty
    shown = [p if p.annotation is empty else p.replace(annotation=_Bare(p.annotation)) for p in shown]
    back = found.return_annotation
    return inspect.Signature(shown, return_annotation=back if back is empty else _Bare(back))


def _split(text: str) -> list[str]:
    parts, deep = [""], 0
    for c in text:
        deep += (c in "[({") - (c in "])}")
        if c == "," and not deep:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts]


FORMATS = (
    ("Files of a table", ("metadata.paths", "metadata.snapshot", "metadata.schema", "snapshot.branches",
                          "snapshot.tags", "snapshot.consumers", "snapshot.removal_markers", "tools.scan_log")),
    ("Manifests", ("metadata.manifest", "metadata.index_manifest", "metadata.stats", "codec.binary_row")),
    ("File indexes", ("fileindex.container", "fileindex.keyed", "fileindex.bloom_filter", "fileindex.bitmap",
                      "fileindex.range_bitmap", "fileindex.bsi", "fileindex.payload")),
    ("Deletion vectors and hash indexes", ("tableindex.deletion_vectors", "tableindex.hash_index")),
)  # fmt: skip


def formats() -> str:
    """How bytes lie: what the modules say at their tops."""
    out = [
        "# Formats\n",
        "The format is Apache Paimon's. These notes stand at the top of the modules that read and write each.\n",
    ]
    for title, modules in FORMATS:
        out.append(f"## {title}\n")
        for name in modules:
            doc = importlib.import_module(f"bitlake.{name}").__doc__
            out.append(f"### bitlake.{name}\n\n{markdown(doc)}")
    return "\n".join(out)


PAGES: dict[str, Callable[[], str]] = {
    "sql": sql,
    "procedures": procedures,
    "options": options,
    "storage-options": storage,
    "python": python,
    **{name: functools.partial(class_page, name) for name in CLASSES},
    "python-results": results,
    "commands": commands,
    "formats": formats,
}
"""The pages, by the names of their files."""
