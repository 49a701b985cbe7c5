"""Temporary views over lake tables, which follow their tables.

Spark keeps a view's plan, which reads a table's files as they were.  Before a statement that names a view whose tables
have changed since, the view is made again from its text, under the database and the settings of its creation, which
Spark's own views keep, too.  A view that Spark replaced or dropped is left to it.

Sessions of Spark Connect do not say whether they replaced a view: there, views stay as they were made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession

from bitlake.errors import InvalidRequest, NotFound
from bitlake.scan.scan import TableScan
from bitlake.spark.context import EngineContext
from bitlake.sql import statements as st
from bitlake.sql.parser import parse_statement
from bitlake.sql.table_references import TableUse, find_names
from bitlake.sql.text import SqlText, TableName
from bitlake.sql.time_travel import PLACE

_KEPT = ("spark.sql.", "spark.paimon.")
"""The settings that give a view's text its meaning begin so."""
Version = tuple[int | None, int] | None
"""A table's snapshot and schema; None for what may change without either."""


@dataclass(frozen=True, slots=True)
class _View:
    """A temporary view as it was made."""

    context: EngineContext
    name: str
    text: SqlText
    """The statement that made it."""
    database: str
    settings: Mapping[str, str]
    tables: Mapping[TableName, Version]
    views: Mapping[str, int]
    """The temporary views that it reads, with what their plans are known by."""
    plan: int
    """The identity of Spark's plan of it."""


def follow(
    context: EngineContext, name: str, query: SqlText, uses: Sequence[TableUse], scans: Sequence[TableScan]
) -> None:
    """Remember a view of a query over these tables that the statement that runs has just made."""
    views = _views(context.spark)
    views.pop(_key(name), None)
    plan = _plan(context, name)
    tables = {
        use.name: _version(use.name, scan)
        for use, scan in zip(uses, scans, strict=True)
        if not use.name.table.startswith(PLACE)  # a moment, or changes between two, stay what they are
    }
    if plan is None:
        return
    named = {use.name.table for use in find_names(query, context.names) if context.is_temporary(use.name)}
    plans = {view: found for view in named if (found := _plan(context, view)) is not None}
    if (tables or plans) and not _reach(views, plans, _key(name)):  # else its text means itself
        settings = _meaning(context)
        views[_key(name)] = _View(context, name, context.original, context.database, settings, tables, plans, plan)


def follow_renamed(context: EngineContext, old: str, new: str) -> None:
    """Follow a view under the name that the statement that runs has just given it."""
    views = _views(context.spark)
    view, plan = views.pop(_key(old), None), _plan(context, new)
    if view is not None and plan is not None:
        views[_key(new)] = replace(view, name=new, plan=plan)


def _reach(views: Mapping[str, _View], names: Iterable[str], key: str) -> bool:
    """Whether views read one, directly or by another view."""
    keys = set(map(_key, names))
    return key in keys or any(_reach(views, views[k].views, key) for k in keys & views.keys())


def refresh(spark: SparkSession, text: SqlText, create: Callable[[EngineContext, st.CreateView], Any]) -> None:
    """Make the views again that a statement names and whose tables have changed."""
    views, folded = _views(spark), text.casefold()
    if not any(key in folded for key in views):
        return
    try:
        names = _names(text)
    except InvalidRequest:
        return  # the parser, or Spark, reports what is wrong
    for name in names:
        _refresh(views, name, create)


def _names(text: SqlText) -> set[str]:
    """The names without a database that a statement reads from, folded."""
    found = {_key(u.name.table) for u in find_names(text) if u.name.catalog is None and u.name.database is None}
    words = text.words
    if words[:1] == ["DROP"]:
        return found
    # MERGE INTO … USING v, INSERT INTO … TABLE v, CACHE TABLE v
    after = (text.tokens[at + 1] for at, word in enumerate(words[:-1]) if word in ("USING", "TABLE"))
    return found | {_key(text.name(token)) for token in after}


def _refresh(views: dict[str, _View], key: str, create: Callable[[EngineContext, st.CreateView], Any]) -> None:
    """Make a view again if it, or a view that it reads, must be."""
    view = views.get(key)
    if view is None:
        return
    if _plan(view.context, view.name) != view.plan:
        del views[key]
        return
    for name in view.views:
        _refresh(views, _key(name), create)
    read = {name: _plan(view.context, name) for name in view.views}
    with _as_made(view):
        view.context.begin()
        if read != view.views or any(_changed(view.context, *table) for table in view.tables.items()):
            statement = parse_statement(view.context.begin(view.text), wall_clocks=view.context.wall_clocks)
            assert isinstance(statement, st.CreateView | st.AlterView)
            create(view.context, st.CreateView(view.name, statement.query, replace=True))


def _changed(context: EngineContext, name: TableName, version: Version) -> bool:
    try:
        return version is None or _version(name, context.scan(name)) != version
    except NotFound:
        return True  # making the view says what is missing


def _version(name: TableName, scan: TableScan) -> Version:
    if "$" in name.table or type(scan) is not TableScan:
        return None
    return scan.state.snapshot_id, scan.state.schema.id


@contextmanager
def _as_made(view: _View) -> Iterator[None]:
    """The database and the settings as they were when a view was made."""
    context = view.context
    database = context.database
    context.refresh()
    now = _meaning(context)
    differing = [name for name in {*now, *view.settings} if now.get(name) != view.settings.get(name)]
    context.database = view.database
    try:
        for name in differing:
            context.set(name, view.settings.get(name))
        yield
    finally:
        context.database = database
        for name in differing:
            context.set(name, now.get(name))


def _meaning(context: EngineContext) -> dict[str, str]:
    spark = context.spark
    return {
        name: value
        for name, value in context.settings.items()
        if name.startswith(_KEPT) and spark.conf.isModifiable(name)
    }


def _plan(context: EngineContext, name: str) -> int | None:
    """Return the identity of a temporary view's plan; None for other names, and where the session does not give it."""
    if not context.classic:
        return None
    session: Any = context.spark
    view = session._jsparkSession.sessionState().catalog().getRawTempView(name)
    return int(session._jvm.java.lang.System.identityHashCode(view.get())) if view.isDefined() else None


def _views(spark: SparkSession) -> dict[str, _View]:
    """The views of a session, which belong to it: other lakes name them, too."""
    views: dict[str, _View] = vars(spark).setdefault("_bitlake_followed_views", {})
    return views


def _key(name: str) -> str:
    return name.casefold()
