"""Create a local Spark session that needs only Python, and register SQL functions in it.

The session finds Java and runs workers on this interpreter.  The functions are temporary SQL functions of Spark's own,
so that no Python runs for each row.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from bitlake.expressions.sql_text import quote
from bitlake.expressions.text_functions import SEPARATOR
from bitlake.progress import in_notebook
from bitlake.spark.java import archive_options, find_java

_KEPT_SETTINGS = 64
"""Sessions of notebooks and of servers set and unset the same few settings, statement by statement."""
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


def _installed() -> bool:
    try:
        importlib.metadata.distribution("bitlake")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def settings(spark: SparkSession | None) -> dict[str, str]:
    """All settings of a session (of the active one without one): Spark's configuration, the ``spark.hadoop.*`` too."""
    session = spark or SparkSession.getActiveSession()
    return {} if session is None else dict(session.conf.getAll)


def known_session() -> SparkSession | None:
    """The active session; in most cases without a round trip to the JVM, which only knows whether it is still active.

    PySpark's ``getActiveSession`` returns the very object, after three round trips.  Spark Connect makes none.
    """
    session: SparkSession | None = None if is_remote() else getattr(SparkSession, "_activeSession", None)
    return session or SparkSession.getActiveSession()


def _session_of_another_thread() -> SparkSession | None:
    """The session of this process, also if it is active in another thread only; None without a session that runs.

    PySpark's builder returns it, too, but first gives it the settings of a new session, such as another time zone.
    """
    session: SparkSession | None = getattr(SparkSession, "_instantiatedSession", None)
    return None if session is None or is_stopped(session) else session


def is_stopped(spark: SparkSession) -> bool:
    """Whether this process stopped the session or its context; asks neither the JVM nor a server."""
    context: Any = getattr(spark, "_sc", None)  # a session of Spark Connect has none
    return bool(getattr(spark, "is_stopped", False)) if context is None else context._jsc is None


def is_same_session(one: SparkSession, other: SparkSession) -> bool:
    """Whether two objects stand for one session; Spark creates an object for each micro-batch of a stream."""
    sessions: list[Any] = [one, other]
    if one is other:
        return True
    if any(getattr(s, "_jsparkSession", None) is None for s in sessions):
        return getattr(one, "session_id", None) == getattr(other, "session_id", one)
    return bool(sessions[0]._jsparkSession.equals(sessions[1]._jsparkSession))


class SessionConf:
    """The settings of a session as they are at the start of each statement, for one round trip to the JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._java: Any = None
        self._seen: OrderedDict[str, Mapping[str, str]] = OrderedDict()
        self.values: Mapping[str, str] = {}
        self.paimon: Mapping[str, str] = {}
        """Those that begin with ``spark.paimon.``."""

    def refresh(self) -> None:
        """Look at the settings again.

        To fetch them takes some 20 ms from a classic session.  Their text takes as long as one setting, so they are
        fetched only for a text that none of the last statements had.
        """
        session: Any = getattr(self._spark, "_jsparkSession", None)
        if session is not None:
            if self._java is None:
                self._java = session.sessionState().conf().settings()
            text = str(self._java.toString())
            values = self._seen.get(text)
            if values is None:
                values = self._seen[text] = self._fetched()
                if len(self._seen) > _KEPT_SETTINGS:
                    self._seen.popitem(last=False)
            else:
                self._seen.move_to_end(text)
        else:
            values = self._fetched()
        if values is self.values:
            return
        self.values = values
        self.paimon = {k: v for k, v in values.items() if k.startswith("spark.paimon.")}

    def _fetched(self) -> Mapping[str, str]:
        values = dict(self._spark.conf.getAll)
        if "spark.sql.session.timeZone" not in values:
            values["spark.sql.session.timeZone"] = str(self._spark.conf.get("spark.sql.session.timeZone"))
        return values


def get_or_create(app_name: str = "bitlake", timezone: str = "UTC", **conf: str) -> SparkSession:
    """The active Spark session, else the one that this process has, or a new local one set up for bitlake.

    A new session uses every core of this machine, this interpreter for Python workers, ``timezone``, and Spark's
    classes where they are kept (:mod:`bitlake.spark.java`).  ``conf`` adds to or overrides its configuration
    (dots in names written as ``__``, or pass ``**{"spark.x": "y"}``).
    """
    existing = SparkSession.getActiveSession() or _session_of_another_thread()
    if existing is not None:
        return existing
    os.environ["JAVA_HOME"] = find_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if not _installed():
        # Run from a source folder: the workers must find the package where this process did.
        places = [str(Path(__file__).resolve().parents[2]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(p for p in places if p))
    # Spark binds to the host's name by default, which a laptop or a container often cannot resolve.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.master": os.environ.get("SPARK_MASTER", "local[*]"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": timezone,
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Small machines: 200 shuffle partitions for a few MB cost more than the work.
        "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
        # Buffers are filled with zeros when they are made: by default 32 MB for each small table of a broadcast join,
        # and 4 MB for the code of each stage, on two cores of 2 GB.
        "spark.buffer.pageSize": "2m",
        "spark.broadcast.blockSize": "512k",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()} {archive_options()}",
    }
    if in_notebook():
        settings["spark.sql.repl.eagerEval.enabled"] = "true"  # a query at the end of a cell shows its first rows
    settings.update({name.replace("__", "."): value for name, value in conf.items()})
    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


_IS_TOKEN = rf"\A[^{SEPARATOR}]+\z"
_BEFORE, _BEHIND = rf"(\A|[{SEPARATOR}])", rf"([{SEPARATOR}]|\z)"
_NOT_A_TOKEN = (
    'raise_error(concat("\'", {0}, "\' is not one token: letters and digits without a separator between them"))'
)
_TOKENS = f"split(text, {quote(f'[{SEPARATOR}]+')})"
_CHECKED = f"CASE WHEN t RLIKE {quote(_IS_TOKEN)} THEN array_contains({_TOKENS}, t) ELSE {_NOT_A_TOKEN.format('t')} END"
_NO_TOKENS = "raise_error('it needs at least one token')"

TOKEN_FUNCTIONS = {
    "has_token": (
        "text STRING, token STRING",
        f"CASE WHEN token IS NULL THEN NULL WHEN token RLIKE {quote(_IS_TOKEN)} "
        f"THEN text RLIKE concat({quote(_BEFORE)}, token, {quote(_BEHIND)}) ELSE {_NOT_A_TOKEN.format('token')} END",
    ),
    "has_all_tokens": (
        "text STRING, tokens ARRAY<STRING>",
        f"CASE WHEN size(tokens) = 0 THEN {_NO_TOKENS} ELSE forall(tokens, t -> {_CHECKED}) END",
    ),
    "has_any_token": (
        "text STRING, tokens ARRAY<STRING>",
        f"CASE WHEN size(tokens) = 0 THEN {_NO_TOKENS} ELSE exists(tokens, t -> {_CHECKED}) END",
    ),
}
"""Parameters and body of each function, as :mod:`bitlake.expressions.text_functions` defines it."""


def names_token_function(text: str) -> bool:
    """Whether a statement may call one of the functions."""
    lower = text.lower()
    return any(name in lower for name in TOKEN_FUNCTIONS)


def register_functions(spark: SparkSession) -> None:
    """Create the functions in a session, once."""
    if "_bitlake_functions" in vars(spark):
        return
    for name, (parameters, body) in TOKEN_FUNCTIONS.items():
        spark.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION {name}({parameters}) RETURNS BOOLEAN RETURN {body}")
    vars(spark)["_bitlake_functions"] = True
