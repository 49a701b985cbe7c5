"""``lake.merge(…)``: a MERGE INTO put together by calls, with a DataFrame or a table as its source."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from bitlake.errors import InvalidRequest
from bitlake.expressions.sql_text import quoted

_numbers = itertools.count()
Run = Callable[[str], DataFrame]


@dataclass(frozen=True, slots=True)
class MergeBuilder:
    """A MERGE statement; every call gives a new one, :meth:`execute` runs it.

    Conditions and values are Spark SQL text in which the rows are called ``target`` and ``source``, or what ``alias``
    and ``source_alias`` say.  Of several clauses, the first one whose condition holds is taken, as in SQL.
    """

    run: Run
    target: str
    source: DataFrame | str
    on: str
    alias: str = "target"
    source_alias: str = "source"
    clauses: tuple[str, ...] = ()

    def when_matched_update(self, set: Mapping[str, str] | None = None, condition: str | None = None) -> MergeBuilder:
        """Set columns of rows that match (None: all columns, to those of the source)."""
        return self._with("MATCHED", condition, f"UPDATE SET {_assignments(set)}")

    def when_matched_delete(self, condition: str | None = None) -> MergeBuilder:
        """Delete rows that match."""
        return self._with("MATCHED", condition, "DELETE")

    def when_not_matched_insert(
        self, values: Mapping[str, str] | None = None, condition: str | None = None
    ) -> MergeBuilder:
        """Insert rows of the source that match none (None: all their columns)."""
        if values is None:
            return self._with("NOT MATCHED", condition, "INSERT *")
        if not values:
            raise InvalidRequest("an insert needs values; leave 'values' out for all columns of the source")
        columns = ", ".join(map(quoted, values))
        return self._with("NOT MATCHED", condition, f"INSERT ({columns}) VALUES ({', '.join(values.values())})")

    def when_not_matched_by_source_update(self, set: Mapping[str, str], condition: str | None = None) -> MergeBuilder:
        """Set columns of rows that no row of the source matches."""
        return self._with("NOT MATCHED BY SOURCE", condition, f"UPDATE SET {_assignments(set)}")

    def when_not_matched_by_source_delete(self, condition: str | None = None) -> MergeBuilder:
        """Delete rows that no row of the source matches."""
        return self._with("NOT MATCHED BY SOURCE", condition, "DELETE")

    def execute(self) -> DataFrame:
        """Run it; returns the numbers of rows, as MERGE INTO does.  Nothing has happened before."""
        if not self.clauses:
            raise InvalidRequest("a merge needs a clause, such as when_matched_update()")
        if isinstance(self.source, str):
            return self.run(self._text(self.source))
        view = f"__bitlake_source_{next(_numbers)}"
        self.source.createOrReplaceTempView(view)
        try:
            return self.run(self._text(view))
        finally:
            self.source.sparkSession.catalog.dropTempView(view)

    def _with(self, when: str, condition: str | None, action: str) -> MergeBuilder:
        also = "" if condition is None else f" AND ({condition})"
        return replace(self, clauses=(*self.clauses, f"WHEN {when}{also} THEN {action}"))

    def _text(self, source: str) -> str:
        parts = [
            f"MERGE INTO {self.target} AS {quoted(self.alias)}",
            f"USING {source} AS {quoted(self.source_alias)}",
            f"ON {self.on}",
            *self.clauses,
        ]
        return "\n".join(parts)


def _assignments(values: Mapping[str, str] | None) -> str:
    if values is None:
        return "*"
    if not values:
        raise InvalidRequest("an update needs columns to set; leave 'set' out for all columns of the source")
    return ", ".join(f"{quoted(name)} = {value}" for name, value in values.items())
