"""What a procedure is, and how its arguments are read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from bitlake.errors import InvalidRequest
from bitlake.file_store_table import FileStoreTable
from bitlake.metadata.option_types import parse_duration_ms
from bitlake.spark.context import EngineContext
from bitlake.sql.parser import parse_table_name


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a procedure."""

    name: str
    required: bool = False
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure: what it takes, what it does."""

    name: str
    parameters: tuple[Parameter, ...]
    doc: str
    run: Callable[[EngineContext, dict[str, Any]], DataFrame]

    @property
    def signature(self) -> str:
        """How to call it."""
        inner = ", ".join(p.name if p.required else f"[{p.name}]" for p in self.parameters)
        return f"sys.{self.name}({inner})"


TABLE = Parameter("table", True, "the table, as 'db.table'")
OPTIONS = Parameter("options", False, "table options for this call, as 'name=value,name=value'")
DRY_RUN = Parameter("dry_run", False, "true: only look")
PARALLELISM = Parameter("parallelism", False, "how much is done at a time, at the most")


def table_of(context: EngineContext, name: Any) -> FileStoreTable:
    """The table an argument names; ``$branch_b`` may follow."""
    if not isinstance(name, str):
        raise InvalidRequest(f"a table name must be text, such as 'db.orders', and is {name!r}")
    if "$" in name and "`" not in name:
        name = ".".join(f"`{part}`" for part in name.split("."))
    return context.session_table(context.identify(parse_table_name(name)))


def epoch_millis(context: EngineContext, text: Any) -> int:
    """A time given as text, in the session's time zone unless it names one."""
    try:
        at = datetime.fromisoformat(str(text))
    except ValueError as e:
        raise InvalidRequest(f"invalid timestamp '{text}'; expected a time such as '2024-01-31 12:00:00'") from e
    return int((at if at.tzinfo else at.replace(tzinfo=ZoneInfo(context.timezone))).timestamp() * 1000)


def moment(context: EngineContext, given: Any) -> int:
    """A time given as ms since the epoch, or as text."""
    return given if isinstance(given, int) else epoch_millis(context, given)


def pattern(arguments: dict[str, Any], name: str) -> re.Pattern[str] | None:
    """An argument that is a regular expression; None if it is not given or empty."""
    given = text(arguments, name)
    if given is None or not given.strip():
        return None
    try:
        return re.compile(given)
    except re.error as e:
        raise InvalidRequest(f"'{name}' = '{given}' is not a valid regular expression: {e}") from e


def integer(arguments: dict[str, Any], name: str) -> int | None:
    """An argument that is a whole number."""
    value = arguments.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise InvalidRequest(f"'{name}' must be a whole number, and is {value!r}")
    return value


def workers(arguments: dict[str, Any], name: str = "parallelism") -> int | None:
    """How much is done at a time, at least 1; None if nothing is said."""
    value = integer(arguments, name)
    if value is not None and value < 1:
        raise InvalidRequest(f"'{name}' must be at least 1, and is {value}")
    return value


def text(arguments: dict[str, Any], name: str) -> str | None:
    """An argument that is text; numbers are taken as they are written."""
    value = arguments.get(name)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise InvalidRequest(f"'{name}' must be text, and is {value!r}")


def needed(arguments: dict[str, Any], name: str) -> str:
    """An argument that must be text, and is there."""
    found = text(arguments, name)
    if found is None or not found.strip():
        raise InvalidRequest(f"'{name}' must not be empty")
    return found


def flag(arguments: dict[str, Any], name: str) -> bool:
    """An argument that is true or false, also as text; false by default."""
    value = arguments.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise InvalidRequest(f"'{name}' must be true or false, and is {value!r}")


def duration(arguments: dict[str, Any], name: str) -> timedelta | None:
    """A duration such as '1 d'."""
    found = text(arguments, name)
    if found is None:
        return None
    try:
        return timedelta(milliseconds=parse_duration_ms(found))
    except ValueError as e:
        raise InvalidRequest(f"'{name}' is a duration such as '12 h' or '1 d', not '{found}'") from e


def options_of(arguments: dict[str, Any], name: str = "options") -> dict[str, str]:
    """Table options given as 'name=value,name=value'."""
    out = {}
    for pair in filter(None, (p.strip() for p in (text(arguments, name) or "").split(","))):
        key, sign, value = pair.partition("=")
        if not sign or not key.strip():
            raise InvalidRequest(f"'{name}' are name=value between commas, and '{pair}' is not")
        out[key.strip()] = value.strip()
    return out


def done(context: EngineContext, result: bool = True) -> DataFrame:
    """The result of procedures that only tell that they ran."""
    return context.rows([("result", T.BooleanType())], [(result,)])
