"""Declare procedures, and read their arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import pyarrow as pa

from bitlake import arguments
from bitlake.engine.session import Columns, Session, result
from bitlake.errors import InvalidRequest
from bitlake.file_store_table import FileStoreTable
from bitlake.metadata.option_types import parse_duration_ms, timedelta_of
from bitlake.snapshot.time_travel import epoch_millis
from bitlake.sql.parser import parse_table_name


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a procedure."""

    name: str
    required: bool = False
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call, each read by its name."""

    session: Session
    values: Mapping[str, Any]

    def get(self, name: str) -> Any:
        """An argument as it was given; None if it was not."""
        return self.values.get(name.lower())

    def table(self, name: str = "table") -> FileStoreTable:
        """The table an argument names; ``$branch_b`` may follow."""
        return table_of(self.session, self.get(name))

    def moment(self, name: str) -> int | None:
        """A time given as ms since the epoch, or as text."""
        given = self.get(name)
        return given if isinstance(given, int) else self.time(name)

    def time(self, name: str) -> int | None:
        """A time given as text, in the session's time zone unless it names one, in ms since the epoch."""
        given = self.get(name)
        return None if given is None else epoch_millis(str(given), self.session.timezone)

    def pattern(self, name: str) -> re.Pattern[str] | None:
        """An argument that is a regular expression; None if it is not given or empty."""
        given = self.text(name)
        if given is None or not given.strip():
            return None
        try:
            return re.compile(given)
        except re.error as e:
            raise InvalidRequest(f"'{name}' = '{given}' is not a valid regular expression: {e}") from e

    def integer(self, name: str) -> int | None:
        """An argument that is a whole number."""
        value = self.get(name)
        return None if value is None else arguments.whole(f"'{name}'", value)

    def workers(self, name: str = "parallelism") -> int | None:
        """Return the number of tasks at a time, at least 1; None if it is not given."""
        value = self.integer(name)
        if value is not None and value < 1:
            raise InvalidRequest(f"'{name}' must be at least 1, and is {value}")
        return value

    def text(self, name: str) -> str | None:
        """An argument that is text; numbers are taken as they are written."""
        value = self.get(name)
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        raise InvalidRequest(f"'{name}' must be text, and is {value!r}")

    def needed(self, name: str) -> str:
        """An argument that must be text, and is given."""
        value = self.text(name)
        if value is None or not value.strip():
            raise InvalidRequest(f"'{name}' must not be empty")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """An argument that is true or false, also as text."""
        value = self.get(name)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        raise InvalidRequest(f"'{name}' must be true or false, and is {value!r}")

    def duration(self, name: str) -> timedelta | None:
        """A duration such as '1 d'."""
        given = self.text(name)
        if given is None:
            return None
        try:
            return timedelta_of(parse_duration_ms(given))
        except ValueError as e:
            raise InvalidRequest(f"'{name}' is a duration such as '12 h' or '1 d', not '{given}'") from e

    def options(self, name: str = "options") -> dict[str, str]:
        """Table options given as 'name=value,name=value'."""
        out = {}
        for pair in filter(None, (p.strip() for p in (self.text(name) or "").split(","))):
            key, sign, value = pair.partition("=")
            if not sign or not key.strip():
                raise InvalidRequest(f"'{name}' are name=value between commas, and '{pair}' is not")
            out[key.strip()] = value.strip()
        return out

    def rows(self, columns: Columns, *rows: Sequence[Any]) -> pa.Table:
        """Rows that the procedure returns."""
        return result(columns, rows)


def table_of(session: Session, name: Any) -> FileStoreTable:
    """The table of a name; ``$branch_b`` may follow."""
    arguments.text("a table name", name)
    if "$" in name and "`" not in name:
        name = ".".join(f"`{part}`" for part in name.split("."))
    return session.session_table(session.identify(parse_table_name(name)))


@dataclass(frozen=True, slots=True)
class Procedure:
    """A procedure: what it takes, what it does.  ``run`` returns None where the result is only that it ran."""

    name: str
    parameters: tuple[Parameter, ...]
    doc: str
    run: Callable[[Arguments], pa.Table | None]

    @property
    def signature(self) -> str:
        """The text of a call, with all parameters."""
        inner = ", ".join(p.name if p.required else f"[{p.name}]" for p in self.parameters)
        return f"sys.{self.name}({inner})"


TABLE = Parameter("table", True, "the table, as 'db.table'")
OPTIONS = Parameter("options", False, "table options for this call, as 'name=value,name=value'")
DRY_RUN = Parameter("dry_run", False, "true: only look")
PARALLELISM = Parameter("parallelism", False, "how much is done at a time, at the most")
PROCEDURES: dict[str, Procedure] = {}
"""Every procedure by name, once the modules beside this one are imported."""
Run = TypeVar("Run", bound=Callable[[Arguments], pa.Table | None])


def procedure(*parameters: Parameter) -> Callable[[Run], Run]:
    """Declare a function as the procedure of its name; its docstring says what it does."""

    def declare(run: Run) -> Run:
        name = run.__name__.lstrip("_")
        PROCEDURES[name] = Procedure(name, parameters, " ".join((run.__doc__ or "").split()), run)
        return run

    return declare
