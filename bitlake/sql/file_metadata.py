"""Spark's metadata of a row's file: the hidden column ``_metadata`` and ``input_file_name()``.

A view over a DataFrame cannot have a hidden column.  So the tables whose ``_metadata`` a query names get a column of
that name, and the query's stars leave it out.  ``input_file_name()`` and its siblings become references to it where
their SELECT reads one lake table; elsewhere they stay Spark's, which knows them of its own file reader only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlglot import exp

from bitlake.expressions.sql_text import quoted
from bitlake.metadata.schema import Names
from bitlake.sql import scope
from bitlake.sql.text import Edit, SqlText

METADATA = "_metadata"
FIELDS = tuple(
    "file_path file_name file_size file_block_start file_block_length file_modification_time row_index".split()
)
"""The members of Spark's ``_metadata`` of Parquet files, in its order."""

# Spark writes the local file system as file:/ in _metadata.file_path, and as file:/// in input_file_name().
FUNCTIONS = {
    "input_file_name": ("file_path", "regexp_replace(_metadata.file_path, '^file:/+', 'file:///')"),
    "input_file_block_start": ("file_block_start", "_metadata.file_block_start"),
    "input_file_block_length": ("file_block_length", "_metadata.file_block_length"),
}
WORDS = frozenset((METADATA, *FUNCTIONS))
"""Identifiers (lower case); a query without any of them reads no file metadata."""

IsLake = Callable[[exp.Table], bool]
"""Whether a table node names a lake table that has no column ``_metadata`` of its own."""


@dataclass(slots=True)
class FileMetadata:
    """The edits of a query, and the columns its tables must give, by where their names start in the edited text."""

    text: SqlText
    fields: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """The members of ``_metadata`` that a table's rows need."""
    by_spark: bool = False
    """Whether a function is left to Spark, which knows it only of files that its own reader reads."""
    named: SqlText | None = None
    """The query with its functions, where their replacement changes names that Spark makes of a column's text."""


def take_file_metadata(text: SqlText, tree: exp.Expr, is_lake: IsLake, names: Names = Names.FOLDED) -> FileMetadata:
    """Edit a query so that the file of a row is an ordinary column; see the module."""
    taken = _Taken(text, tree, is_lake, names)
    taken.take_references()
    taken.take_functions()
    taken.take_stars()
    return taken.result()


class _Taken:
    """Gathers the edits of one query."""

    def __init__(self, text: SqlText, tree: exp.Expr, is_lake: IsLake, names: Names) -> None:
        self._names = names
        self._text = text
        self._at = {t.start: n for n, t in enumerate(text.tokens)}
        self._tree = tree
        self._is_lake = is_lake
        self._edits: list[Edit] = []
        self._stars: list[Edit] = []
        self._needs: dict[int, tuple[exp.Table, set[str]]] = {}
        self._by_spark = False
        self._renames = False

    def take_references(self) -> None:
        """Find the tables that references to ``_metadata`` mean."""
        for column in self._tree.find_all(exp.Column):
            words = [self._names.key(p.name) for p in column.parts]
            if METADATA not in words or column.find_ancestor(exp.Star) is not None:
                continue
            at = words.index(METADATA)
            member = words[at + 1] if len(words) > at + 1 else None
            for table in self._meant(column, words[at - 1] if at else None):
                self._need(table, FIELDS if member not in FIELDS else (member,))

    def _need(self, table: exp.Table, fields: tuple[str, ...]) -> None:
        self._needs.setdefault(id(table), (table, set()))[1].update(fields)

    def _meant(self, column: exp.Column, qualifier: str | None) -> list[exp.Table]:
        select = column.find_ancestor(exp.Select)
        while select is not None:
            tables = [t for t in _tables(select) if self._is_hidden_of(t, select)]
            if qualifier is not None:
                tables = [t for t in tables if self._names.same(t.alias_or_name, qualifier)]
            elif self._is_covered(select):
                return []  # a derived table's column of this name comes first
            if tables:
                natural = any(scope.is_natural(j) for j in select.args.get("joins") or ())
                return [] if natural and len(tables) > 1 else tables
            select = select.find_ancestor(exp.Select)
        return []

    def _is_covered(self, select: exp.Select) -> bool:
        """Whether a derived table or a common table expression of a SELECT may have a column ``_metadata``."""
        ctes = (scope.cte_of(t, self._names) for t in _tables(select))
        return any(_gives_metadata(d, self._names) for d in [*_derived(select), *filter(None, ctes)])

    def _is_hidden_of(self, table: exp.Table, select: exp.Select) -> bool:
        """Whether Spark finds the hidden column of a table here: aliases of columns and PIVOT cover it."""
        return not scope.renames(table) and not scope.pivots(select) and self._is_lake(table)

    def take_functions(self) -> None:
        """Replace the functions that mean the one table of their SELECT."""
        for call in self._tree.find_all(exp.Anonymous):
            function = FUNCTIONS.get(call.name.lower())
            at = self._at.get(call.meta.get("start", -1))
            if function is None or call.expressions or at is None:
                continue
            select = call.find_ancestor(exp.Select)
            tables = [] if select is None else _tables(select)
            if select is None or len(tables) != 1 or _derived(select) or not self._is_hidden_of(tables[0], select):
                self._by_spark = True
                continue
            member, expression = function
            self._need(tables[0], (member,))
            name = ""
            if call.parent is select and call.arg_key == "expressions":
                name = f" AS {quoted(f'{call.name.lower()}()')}"
            elif not _has_name(call, select):
                self._renames = True
            self._edits.append((call.meta["start"], self._text.tokens[at + 2].end + 1, expression + name))

    def take_stars(self) -> None:
        """Leave the column out of the stars that would hold it."""
        for star in self._tree.find_all(exp.Star):
            select = star.find_ancestor(exp.Select)
            start = star.meta.get("start")
            if select is None or start is None or isinstance(star.parent, exp.Count):
                continue
            hidden = [t for t in _tables(select) if id(t) in self._needs and not _is_semi(t)]
            if isinstance(star.parent, exp.Column):
                qualifier = star.parent.parts[-2].name
                hidden = [t for t in hidden if self._names.same(t.alias_or_name, qualifier)]
            if not hidden:
                continue
            names = ", ".join(quoted(t.alias_or_name, METADATA) for t in hidden)
            at = self._at[start]
            if self._text.words[at + 1 : at + 3] == ["EXCEPT", "("] and star.args.get("except_"):
                end = self._text.tokens[at + 2].end + 1
                self._stars.append((end, end, f"{names}, "))
            else:
                self._stars.append((start + 1, start + 1, f" EXCEPT ({names})"))

    def result(self) -> FileMetadata:
        """The edited text and the tables' new places in it."""
        edits = [*self._edits, *self._stars]
        named = self._text.edit(self._stars) if self._renames else None
        out = FileMetadata(self._text.edit(edits), by_spark=self._by_spark, named=named)
        for table, members in self._needs.values():
            span = scope.span_of(table)
            if span is not None:
                moved = sum(len(new) - (end - start) for start, end, new in edits if end <= span[0])
                out.fields[span[0] + moved] = tuple(f for f in FIELDS if f in members)
        return out


def _tables(select: exp.Select) -> list[exp.Table]:
    """The tables of a SELECT's FROM and joins, in brackets or not."""
    return [t for t in scope.named_tables(select) if t.find_ancestor(exp.Select) is select]


def _derived(select: exp.Select) -> list[exp.Expr]:
    """The queries and lists of values in a SELECT's FROM and joins."""
    return [
        s
        for s in scope.own(select, select, exp.Subquery, exp.Values)
        if isinstance(s.parent, (exp.From, exp.Join, exp.Subquery))
        and (isinstance(s, exp.Values) or isinstance(s.this, exp.Query))
    ]


def _gives_metadata(derived: exp.Expr, names: Names) -> bool:
    """Whether a derived table may have a column ``_metadata``."""
    return any(names.same(p.alias_or_name, METADATA) for s in derived.find_all(exp.Select) for p in s.expressions)


def _is_semi(table: exp.Table) -> bool:
    """Whether a table is only looked into by its join, and so gives no columns."""
    join = table.parent
    return isinstance(join, exp.Join) and (join.kind or "").upper() in ("SEMI", "ANTI")


def _has_name(call: exp.Expr, select: exp.Select) -> bool:
    """Whether a call stands where no column is named after it."""
    node: exp.Expr | None = call
    while node is not None and node.parent is not select:
        if isinstance(node, exp.Alias):
            return True
        node = node.parent
    return node is None or isinstance(node, exp.Alias) or node.arg_key != "expressions"
