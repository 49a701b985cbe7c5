"""What ON matched, kept by Spark, so that the target is read and joined once: pairs of a source's and a target's row.

Rows that no target row matches are those without a pair, and what WHEN MATCHED makes of a source row alone (as
``UPDATE SET *`` does) comes from the source and the number of the clause: the target is not looked at again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from bitlake.expressions.sql_text import quoted
from bitlake.spark.context import EngineContext
from bitlake.spark.errors import spark_errors
from bitlake.spark.merge_clauses import ACTION, Clause, action, value_items
from bitlake.spark.merge_source import Source
from bitlake.spark.query import query
from bitlake.spark.target import Target

PAIR = "__bitlake_pair"
"""The column of a pair's row of the source."""
_CLAUSE = "__bitlake_clause"
_ALIAS = "__bitlake_pairs"


@dataclass(frozen=True, slots=True)
class Pairs:
    """Rows of (file, position, action, :data:`PAIR`), where file and position are NULL if no clause is for them."""

    frame: DataFrame
    view: str

    @property
    def item(self) -> str:
        """The pairs as an item of FROM."""
        return f"{quoted(self.view)} AS {quoted(_ALIAS)}"

    def on(self, source: Source) -> str:
        """What a row of the source and its pairs have in common."""
        return f"ON {source.row} = {quoted(_ALIAS, PAIR)}"


@contextmanager
def kept_pairs(context: EngineContext, frame: DataFrame, doing: str) -> Iterator[Pairs]:
    """Pairs that Spark keeps for the block."""
    with spark_errors(doing):
        frame = frame.persist(StorageLevel.MEMORY_AND_DISK)
        known = frame.selectExpr(quoted(PAIR), f"action AS {quoted(_CLAUSE)}")
    try:
        with context.views([known]) as (view,):
            yield Pairs(frame, view)
    finally:
        frame.unpersist()


def rows_of_source(
    target: Target, source: Source, pairs: Pairs, updating: Sequence[Clause], missing: Sequence[Clause]
) -> tuple[DataFrame, list[Clause]]:
    """The parts of new rows (as of ``items``) that need nothing of the target, and the clauses that number them.

    ``updating`` are clauses of WHEN MATCHED whose values are of the source alone.
    """
    above = 1 + max((c.number for c in updating), default=-1)
    inserting = [replace(c, number=above + c.number) for c in missing]
    clause, pair = quoted(_ALIAS, _CLAUSE), quoted(_ALIAS, PAIR)
    matched = [replace(c, condition=f"{clause} = {c.number}") for c in updating]
    unmatched = [replace(c, condition=f"{pair} IS NULL AND ({c.condition or 'true'})") for c in inserting]
    chosen = [f"{action([*matched, *unmatched])} AS {ACTION}"]
    chosen += [*value_items(target, matched), *value_items(target, unmatched)]
    join = "LEFT JOIN" if missing else "JOIN"
    text = f"{target.with_} SELECT {', '.join(chosen)} FROM {source.item} {join} {pairs.item} {pairs.on(source)}"
    return query(target.context, text.lstrip()), [*updating, *inserting]
