"""Views that a jdbc catalog keeps, as Paimon does: rows of the table ``paimon_views``.

``catalog_key, database_name, view_name`` are the key, ``view_schema`` is JSON: fields (as in a table's schema), query,
dialects (the query by engine: ``spark``), comment, options.  The table is made with the first view.
Source: Paimon's JdbcUtils and ViewSchema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bitlake.errors import AlreadyExists, CorruptError, NotFound, StorageUnavailable
from bitlake.io.sql_database import SqlDatabase
from bitlake.metadata.java_json import dumps
from bitlake.types import DataField
from bitlake.types.datatypes import field_to_json

_TABLE = (
    "CREATE TABLE IF NOT EXISTS paimon_views (catalog_key VARCHAR(255) NOT NULL, database_name VARCHAR(255) NOT NULL, "
    "view_name VARCHAR(255) NOT NULL, view_schema TEXT NOT NULL, PRIMARY KEY (catalog_key, database_name, view_name))"
)
_OF_DATABASE = "catalog_key = ? AND database_name = ?"
_OF_VIEW = f"{_OF_DATABASE} AND view_name = ?"
_DIALECT = "spark"


@dataclass(frozen=True, slots=True)
class View:
    """A query by a name: its text as Spark reads it, and the columns it gave when it was made."""

    query: str
    fields: Sequence[DataField] = ()
    comment: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """As the catalog keeps it."""
        out: dict[str, object] = {
            "fields": [field_to_json(f) for f in self.fields],
            "query": self.query,
            "dialects": {_DIALECT: self.query},
            "options": dict(self.options),
        }
        if self.comment is not None:
            out["comment"] = self.comment
        return dumps(out)


class JdbcViews:
    """The views of one catalog key; databases and tables are the catalog's to look after."""

    def __init__(self, database: SqlDatabase, catalog_key: str) -> None:
        self._database = database
        self._key = catalog_key
        self._there = False

    def names(self, database: str) -> list[str]:
        """The names of a database's views, sorted."""
        if not self._ready():
            return []
        with self._database.transaction() as t:
            rows = t.rows(f"SELECT view_name FROM paimon_views WHERE {_OF_DATABASE}", (self._key, database))
        return sorted(str(name) for (name,) in rows)

    def find(self, database: str, name: str) -> str | None:
        """The query of a view as Spark reads it; None if there is no such view."""
        if not self._ready():
            return None
        with self._database.transaction() as t:
            rows = t.rows(f"SELECT view_schema FROM paimon_views WHERE {_OF_VIEW}", (self._key, database, name))
        if not rows:
            return None
        try:
            kept = json.loads(rows[0][0])
            return str(kept.get("dialects", {}).get(_DIALECT) or kept["query"])
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise CorruptError(f"view '{database}.{name}' of the catalog cannot be read ({e})", 0) from e

    def create(self, database: str, name: str, view: View, *, replace: bool = False) -> None:
        """Keep a view; raises :class:`AlreadyExists` unless it may ``replace`` one."""
        if not self._ready():
            with self._database.transaction(write=True) as t:
                t.run(_TABLE)
            self._there = True
        place = (self._key, database, name)
        with self._database.transaction(write=True) as t:
            if replace:
                t.run(f"DELETE FROM paimon_views WHERE {_OF_VIEW}", place)
            elif t.rows(f"SELECT 1 FROM paimon_views WHERE {_OF_VIEW}", place):
                raise AlreadyExists(f"view '{database}.{name}' exists already: say CREATE OR REPLACE VIEW")
            t.run(
                "INSERT INTO paimon_views (catalog_key, database_name, view_name, view_schema) VALUES (?, ?, ?, ?)",
                (*place, view.to_json()),
            )

    def alter_dialect(self, database: str, name: str, action: str, engine: str, query: str | None) -> None:
        """Add an engine's query to a view, update it, or drop it (``action``); all else about the view stays.

        Raises :class:`NotFound` for a view, or an engine's query, that is not there, and :class:`AlreadyExists`.
        """
        view = f"view '{database}.{name}'"
        if self.find(database, name) is None:
            raise NotFound(f"{view} does not exist")
        place = (self._key, database, name)
        with self._database.transaction(write=True) as t:
            ((text,),) = t.rows(f"SELECT view_schema FROM paimon_views WHERE {_OF_VIEW}", place)
            kept = json.loads(text)
            queries = dict(kept.get("dialects") or {})
            if action == "add" and engine in queries:
                raise AlreadyExists(f"{view} has a query for '{engine}' already: update it")
            if action != "add" and engine not in queries:
                raise NotFound(f"{view} has no query for '{engine}'; it has: {', '.join(sorted(queries)) or 'none'}")
            if query is None:
                del queries[engine]
            else:
                queries[engine] = query
            made = dumps({**kept, "dialects": queries})
            t.run(f"UPDATE paimon_views SET view_schema = ? WHERE {_OF_VIEW}", (made, *place))

    def drop(self, database: str, name: str | None = None) -> None:
        """Forget a view, or with no name all of a database; raises :class:`NotFound` for a view that is not there."""
        if name is None and not self._ready():
            return
        if name is not None and self.find(database, name) is None:
            raise NotFound(f"view '{database}.{name}' does not exist")
        with self._database.transaction(write=True) as t:
            if name is None:
                t.run(f"DELETE FROM paimon_views WHERE {_OF_DATABASE}", (self._key, database))
            else:
                t.run(f"DELETE FROM paimon_views WHERE {_OF_VIEW}", (self._key, database, name))

    def _ready(self) -> bool:
        """Whether the table is there; asked in a transaction of its own, which an error would end."""
        if not self._there:
            try:
                with self._database.transaction() as t:
                    t.rows("SELECT 1 FROM paimon_views LIMIT 1")
                self._there = True
            except StorageUnavailable:
                return False
        return self._there
