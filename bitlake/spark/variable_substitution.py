"""Spark's substitution of variables in a statement's text: ``${name}``, ``${env:HOME}``, ``${system:user.name}``.

Spark replaces them before it parses a text, in literals, too.  bitlake plans by the text, so it replaces them first.

Source: Spark's ``VariableSubstitution`` and ``ConfigReader``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from bitlake.engine.engine import VARIABLE
from bitlake.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_SESSION = (None, "spark", "sparkconf", "hivevar", "hiveconf")


def substituted(spark: SparkSession, text: str) -> str:
    """Return a text with the values of its variables; one that is not set is empty.

    Raises :class:`InvalidRequest` for a variable whose value contains itself.
    """
    jvm: Any = spark._jvm

    def value_of(prefix: str | None, name: str) -> str | None:
        if prefix in _OF_SESSION:
            return str(spark._jsparkSession.sessionState().conf().getConfString(name, ""))
        if prefix in ("env", "system"):
            found = jvm.System.getenv(name) if prefix == "env" else jvm.System.getProperty(name)
            return None if found is None else str(found)
        return None

    def replaced(part: str, outer: frozenset[str]) -> str:
        def replacement(match: re.Match[str]) -> str:
            reference = match.group(0)
            if reference in outer:
                raise InvalidRequest(f"the variable {reference} contains itself; set it to another value")
            value = value_of(*match.groups())
            return reference if value is None else replaced(value, outer | {reference})

        return VARIABLE.sub(replacement, part)

    return replaced(text, frozenset())
