"""Convert Spark's errors to bitlake's: the message says what to do, and the JVM's stack stays in the cause."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.logger import PySparkLogger

from bitlake.errors import (
    REPORTED,
    BitlakeError,
    CorruptError,
    InvalidRequest,
    NotFound,
    StorageUnavailable,
    UnsupportedFeature,
)
from bitlake.metadata.schema import MissingColumn, MissingTable

_NAMED = (
    "USER_RAISED_EXCEPTION",
    "EXCEED_LIMIT_LENGTH",
    "NOT_NULL_ASSERT_VIOLATION",
    "DUPLICATED_MAP_KEY",
    "INVALID_FORMAT",
)
"""Error conditions, or their beginnings, that the data or the query cause, beside those of :data:`_DATA_STATES`."""
_DATA_STATES = ("21", "22")
"""The SQLSTATE classes "cardinality violation" and "data exception"."""
_CONDITION_OR_STATE = re.compile(r"(?:^|: )\[([A-Z][A-Z\d_.]*)\]|SQLSTATE: (\w{5})", re.M)
_RAISED = re.compile(rf"\bbitlake\.errors\.({'|'.join(REPORTED)}): (.*)")
_SPARK_FILES = re.compile(r"FAILED_READ_FILE|FILE_NOT_EXIST|Could not read footer")
_translating: ContextVar[bool] = ContextVar("bitlake_translating", default=False)


def _untranslated(record: logging.LogRecord) -> bool:
    return not _translating.get()


# PySpark logs errors, with the JVM's whole stack, on top of raising them: not those that are raised again in other
# words. The loggers must be made by PySpark's own class, or PySpark itself fails on them later.
for _name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
    PySparkLogger.getLogger(_name).addFilter(_untranslated)

_MISSING_TABLE = re.compile(r"\[TABLE_OR_VIEW_NOT_FOUND\] The table or view (\S+) cannot be found")
_NAME = r"`(?:[^`]|``)*`"
_MISSING_COLUMN = re.compile(
    rf"\[UNRESOLVED_(?:USING_)?COLUMN\w*[^`]*({_NAME}(?:\.{_NAME})*) cannot be resolved[^\[]*(?:\[(.*?)\]\. SQLSTATE)?"
)

_NO_MODULE = re.compile(r"\bModuleNotFoundError: No module named '(bitlake|numpy|pyarrow)\b")
_MODULE_MISSING = (
    "the Python of Spark's workers has no {}: install the same version of bitlake where the executors run and name "
    "that Python (PYSPARK_PYTHON, spark.pyspark.python), or its packages (PYTHONPATH), before the session starts"
)
_PYTHON_ERROR = re.compile(r"^Traceback \(most recent call last\):\n(?:[ ].*\n|\n)*(\S.*)", re.M)
_NO_JVM = (
    "Spark's Java process does not answer; it was killed, or ran out of memory: restart Python (a notebook's kernel), "
    "since PySpark does not start another one"
)


@contextmanager
def one_message() -> Iterator[None]:
    """Make PySpark's worker report an error of bitlake as one message, without the traceback of the process.

    The worker reads the variable when it reports the error, which ends its process.
    """
    try:
        yield
    except BitlakeError:
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        if spec is not None and spec.name.startswith("pyspark."):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


@contextmanager
def spark_errors(doing: str) -> Iterator[None]:
    """Turn what Spark raises in the block into bitlake's errors; ``doing`` says what was being done."""
    token = _translating.set(True)
    try:
        yield
    except BitlakeError:
        raise
    except ParseException as e:
        raise InvalidRequest(f"{doing}: {_first(e)}") from e
    except AnalysisException as e:
        raised = _RAISED.search(str(e))
        if raised is not None:  # while a data source was opened
            raise REPORTED[raised.group(1)](raised.group(2).strip()) from e
        missing = _MISSING_TABLE.search(str(e))
        if missing is not None:
            raise MissingTable(missing.group(1).replace("`", "")) from e
        column = _MISSING_COLUMN.search(str(e))
        if column is not None:
            offered = re.findall(rf"{_NAME}(?:\.{_NAME})*", column.group(2) or "")
            raise MissingColumn(_unquoted(column.group(1)), [_unquoted(o) for o in offered]) from e
        kind = NotFound if "NOT_FOUND" in str(e) else InvalidRequest
        raise kind(f"{doing}: {_first(e)}") from e
    except (PySparkException, Py4JError, ConnectionError) as e:
        if _is_lost(e):
            raise StorageUnavailable(f"{doing}: {_NO_JVM}") from e
        text = str(e)
        module = _NO_MODULE.search(text)
        if module is not None:
            raise InvalidRequest(f"{doing}: {_MODULE_MISSING.format(module.group(1))}") from e
        raised = _RAISED.search(text)
        if raised is not None:
            raise REPORTED[raised.group(1)](raised.group(2).strip()) from e
        if _SPARK_FILES.search(text):
            raise CorruptError(f"{doing}: {_first(e)}") from e
        if "UNSUPPORTED_DATA_TYPE_FOR_ARROW_CONVERSION" in text:
            raise UnsupportedFeature(f"{doing}: {_first(e)} Cast the column to STRING.") from e
        data = _data_error(text)
        if data is not None:
            condition, message = data
            raise InvalidRequest(message if condition == "USER_RAISED_EXCEPTION" else f"{doing}: {message}") from e
        raise StorageUnavailable(f"{doing}: Spark failed: {_first(e)}") from e
    finally:
        _translating.reset(token)


def _data_error(text: str) -> tuple[str, str] | None:
    """The condition and the message of an error that the data or the query causes; None for another one."""
    condition, start = "", 0
    for match in _CONDITION_OR_STATE.finditer(text):
        named = condition.startswith(_NAMED)  # its message is a user's, and may look like other conditions
        if match[1] is not None and not named:
            condition, start = match[1], match.end()
        elif match[2] is not None and condition and (named or match[2].startswith(_DATA_STATES)):
            return condition, " ".join(text[start : match.start()].split())
    if condition.startswith(_NAMED):
        return condition, text[start:].split("\n", 1)[0].strip()
    return None


def _is_lost(error: Exception) -> bool:
    """Whether the Java process gave no answer: py4j's error of that kind, or its general one without a Java stack."""
    if isinstance(error, (ConnectionError, Py4JNetworkError)):
        return True
    return type(error) is Py4JError and "Trace:" not in str(error)


def _unquoted(name: str) -> str:
    return ".".join(part[1:-1].replace("``", "`") for part in re.findall(_NAME, name))


def _first(error: Exception) -> str:
    """The first lines of an error, without the JVM's stack, and the error that ends a Python worker's traceback."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    kept = []
    for line in lines:
        if line.startswith(("at ", "JVM stacktrace", "'", "+-", "== SQL")) or "Traceback" in line:
            break
        kept.append(line)
    raised = _PYTHON_ERROR.search(text)
    if raised is not None and raised.group(1) not in kept:
        kept.append(raised.group(1))
    return " ".join(kept) or (lines[0] if lines else type(error).__name__)
