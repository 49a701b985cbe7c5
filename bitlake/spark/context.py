"""The session of SQL statements over a lake on Spark: its views, its settings, and cached tables.

The settings are read once for each statement, because each look is a round trip to the JVM.

CACHE TABLE keeps a table's rows in Spark until the table changes (:class:`CachedTables`).
"""

from __future__ import annotations

import itertools
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type

from bitlake.catalog.catalog import Catalog
from bitlake.engine import SessionState
from bitlake.engine.session import Session
from bitlake.errors import InvalidRequest
from bitlake.expressions.literal_lists import with_lists
from bitlake.expressions.sql_text import quoted
from bitlake.io import Store
from bitlake.runtime import CacheName, Executors, Runner
from bitlake.scan.scan import TableScan
from bitlake.snapshot.state import TableState
from bitlake.spark.errors import spark_errors
from bitlake.spark.java_zones import differs_from_java
from bitlake.spark.read.local_relation import held_frame
from bitlake.spark.read.scan import SparkReader, is_lasting
from bitlake.spark.runner import SparkRunner
from bitlake.spark.session import SessionConf
from bitlake.spark.types import spark_type
from bitlake.sql.text import SqlNull, SqlTime
from bitlake.types import arrow_type, time_zone

_numbers = itertools.count()
_KEPT_VIEWS = 16


_ZONES: CacheName[str, bool] = CacheName("time zones of Java")
"""Whether Java has other rules for a zone than this process."""


class EngineContext(Session):
    """The session of SQL statements over a lake that has a session of Spark's."""

    picks_rows = True

    def __init__(self, catalog: Catalog, spark: SparkSession, state: SessionState) -> None:
        super().__init__(catalog, state, SparkReader(spark, catalog.store).frame)
        self._spark = spark
        self._views: Any = None
        # The session owns them: it has the views of all lakes, and may outlive many.
        self._kept: OrderedDict[int, tuple[DataFrame, str]] = vars(spark).setdefault("_bitlake_views", OrderedDict())
        self.conf = SessionConf(spark)
        self.cached = CachedTables(spark, catalog.store)
        for name, value in state.settings.items():
            spark.conf.set(name, value)
        state.spark = self

    @property
    def spark(self) -> SparkSession:
        """Spark's session."""
        return self._spark

    def refresh(self) -> None:
        """Look at the settings once for a statement: each look is a round trip to the JVM."""
        with spark_errors("reading the session's settings"):
            self.conf.refresh()

    @property
    def settings(self) -> Mapping[str, str]:
        """Spark's settings, as of :meth:`refresh`."""
        return self.conf.values

    @property
    def options(self) -> Mapping[str, str]:
        """Those that begin with ``spark.paimon.``."""
        return self.conf.paimon

    def set(self, name: str, value: str | None) -> None:
        """Change a setting; None for its default."""
        if value is None:
            self.spark.conf.unset(name)
        else:
            self.spark.conf.set(name, value)

    def evaluate(self, expression: str) -> str | None:
        """The text of a constant expression of Spark's, session variables among them; None for NULL.

        Raises :class:`InvalidRequest` for an expression that is not constant.
        """
        with spark_errors(f"evaluating {expression}"):
            value = self.spark.sql(f"SELECT CAST(({expression}) AS STRING)").collect()[0][0]
        return None if value is None else str(value)

    def millis(self, expression: str) -> int:
        """A time as Spark understands it, in ms since the epoch: numbers are seconds, text is in the session's zone."""
        with spark_errors(f"reading the time {expression}"):
            rows = self.spark.sql(f"SELECT unix_millis(CAST(({expression}) AS TIMESTAMP_LTZ))").collect()
        millis = rows[0][0]
        if millis is None:
            raise InvalidRequest(f"AS OF takes a time, and {expression} is NULL")
        return int(millis)

    def runner(self, workers: int | None = None) -> Runner:
        """Runs heavy work on the executors."""
        return SparkRunner(self.spark, workers)

    @property
    def executors(self) -> Callable[[], Executors]:
        """Makes what decodes very many manifests for scans: Spark's executors."""
        return partial(SparkRunner, self.spark)

    def partition_arrays(self, state: TableState, spec: Mapping[str, Any]) -> dict[str, pa.Array]:
        """Literals of a PARTITION clause, each as one value of its column, cast by Spark."""
        fields = [state.schema.field(k) for k in spec]
        columns = [
            partition_literal(v).cast(spark_type(f.type)).alias(f.name)
            for f, v in zip(fields, spec.values(), strict=True)
        ]
        with spark_errors(f"table '{state.name}', PARTITION ({', '.join(spec)})"):
            row = self.spark.range(1).select(*columns).toArrow()
        return {f.name: row.column(f.name).cast(arrow_type(f.type)) for f in fields}

    @property
    def classic(self) -> bool:
        """Whether the session is in this process's JVM, and not on the other side of Spark Connect."""
        return getattr(self.spark, "_jsparkSession", None) is not None

    @property
    def matches_engine(self) -> bool:
        """See :attr:`Session.matches_engine`; the rules of the session's time zone must be Java's, too."""
        return super().matches_engine and not self._zone_differs

    @property
    def literal_zone(self) -> str:
        """See :attr:`Session.literal_zone`; ``ENGINE_ONLY`` if Java's rules for the zone differ."""
        return time_zone.ENGINE_ONLY if self._zone_differs else self.timezone

    @property
    def _zone_differs(self) -> bool:
        """Whether Java's rules for the session's time zone differ from this process's.  Cached per zone."""
        if not self.classic:
            return False
        differs, zone = self.catalog.store.caches[_ZONES], self.timezone
        return differs.get_or(zone, lambda: differs_from_java(self.spark, zone), lambda _: 200)

    def over(self, frames: Sequence[DataFrame], text: Callable[[Sequence[str]], str]) -> DataFrame:
        """A query over frames, lazy; ``text`` makes it of the names under which it can name them, in order."""
        if self.classic:
            with self.views(frames) as names:
                return self.spark.sql(with_lists(text(names)))
        # Spark Connect looks views up when rows are asked for: the frames go with the query, in braces.
        names = [f"__bitlake_{next(_numbers)}_" for _ in frames]
        query = with_lists(text(names))
        if names:
            query = query.replace("{", "{{").replace("}", "}}")
        for name in names:
            query = query.replace(name, f"{{{name}}}")
        given: dict[str, Any] = dict(zip(names, frames, strict=True))
        frame = self.spark.sql(query, **given)
        _ = frame.schema  # what is wrong is to be said now, as a classic session does
        return frame

    @contextmanager
    def views(self, frames: Sequence[DataFrame]) -> Iterator[list[str]]:
        """Names under which a query can name these frames, in order, in the block.

        Frames of whole files keep theirs for the next query over the same files: making and dropping a view costs
        some 10 ms.
        """
        names: list[str] = []
        passing: list[tuple[DataFrame, str]] = []
        try:
            for frame in frames:
                kept = self._kept.get(id(frame))
                name = f"__bitlake_{next(_numbers)}" if kept is None else kept[1]
                if kept is None:
                    frame.createOrReplaceTempView(name)
                    if is_lasting(self.catalog.store.caches, frame):
                        self._kept[id(frame)] = (frame, name)
                    else:
                        passing.append((frame, name))
                else:
                    self._kept.move_to_end(id(frame))
                    if self.classic and not self.is_view(name):  # a user dropped all views of the session
                        frame.createOrReplaceTempView(name)
                names.append(name)
            yield names
        finally:
            # A DataFrame over them is analysed by now and holds their plans itself; on Spark Connect it is not.
            for frame, name in passing:
                if self.classic:
                    self.spark.catalog.dropTempView(name)
                else:
                    self._kept[id(frame)] = (frame, name)
            # Not before: a query may name more views than are kept.
            while len(self._kept) > _KEPT_VIEWS:
                _, (_, old) = self._kept.popitem(last=False)
                self.spark.catalog.dropTempView(old)

    def temporary_functions(self) -> frozenset[str]:
        """The names of the functions that a classic session defines, in lower case.

        Some versions of Spark resolve the name of a built-in function to such a one.
        """
        catalog = self._session_catalog()
        if catalog is None:
            return frozenset()
        listed = str(catalog.listTemporaryFunctions())  # List(mine, other.mine)
        return frozenset(re.findall(r"\w+", listed.partition("(")[2].lower()))

    def is_view(self, name: str) -> bool:
        """Whether the session has a temporary view of this name."""
        catalog = self._session_catalog()
        if catalog is None:
            shown = quoted(name)
            return self.spark.catalog.tableExists(shown) and self.spark.catalog.getTable(shown).isTemporary
        # Ten times quicker than tableExists(), which looks for a table too and fails in the JVM if there is none.
        return bool(catalog.getTempView(name).isDefined())

    def _session_catalog(self) -> Any:
        """The catalog of a classic session, in its JVM; None for a session of Spark Connect."""
        session: Any = getattr(self.spark, "_jsparkSession", None)
        if session is not None and self._views is None:
            self._views = session.sessionState().catalog()
        return self._views

    def frame(self, table: pa.Table) -> DataFrame:
        """The small result of a statement as a DataFrame; callers that show or collect it wait for no Spark job."""
        types = T.StructType([T.StructField(f.name, from_arrow_type(f.type), f.nullable) for f in table.schema])
        return held_frame(self.spark, table, types)


def partition_literal(value: Any) -> Column:
    """A literal of a PARTITION clause; Spark evaluates dates and timestamps, in the session's time zone."""
    if isinstance(value, SqlTime):
        return F.expr(str(value.text))
    return F.lit(None if isinstance(value, SqlNull) else value)


# --- cached tables ----------------------------------------------------------------------------------------------------


class CachedTables:
    """The tables that a session cached.  One that was changed since is cached again by the next query that reads it."""

    def __init__(self, spark: SparkSession, store: Store) -> None:
        self._reader = SparkReader(spark, store)
        self._entries: dict[str, tuple[TableState, DataFrame]] = {}

    def add(self, scan: TableScan) -> DataFrame:
        """Cache all rows of a table; they are read when the frame that is returned first is."""
        self.remove(scan.state)
        frame = self._reader.frame(scan.select(scan.state.schema.field_names)).persist()
        self._entries[scan.state.name] = (scan.state, frame)
        return frame

    def remove(self, state: TableState) -> bool:
        """Free the rows of a table; returns whether it was cached."""
        entry = self._entries.pop(state.name, None)
        if entry is not None:
            entry[1].unpersist()
        return entry is not None

    def clear(self) -> None:
        """Free the rows of all tables."""
        for state, _ in list(self._entries.values()):
            self.remove(state)

    def frame(self, scan: TableScan) -> DataFrame | None:
        """The columns of a scan from the cache, all rows of them; None for what is not cached, as level 0."""
        entry = self._entries.get(scan.state.name) if self._entries and type(scan) is TableScan else None
        if entry is None or scan.level_0 or not set(scan.columns) <= set(scan.state.schema.field_names):
            return None
        state, frame = entry
        if state != scan.state:
            if (scan.state.snapshot_id or 0, scan.state.schema.id) < (state.snapshot_id or 0, state.schema.id):
                return None  # an earlier moment
            frame = self.add(TableScan(scan.state, scan.store, scan.state.schema.field_names))
        return frame.select([frame[f"`{c.replace('`', '``')}`"] for c in scan.columns])
