"""Views: queries that a catalog keeps by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bitlake.metadata.java_json import dumps
from bitlake.types import DataField
from bitlake.types.datatypes import field_to_json

DIALECT = "spark"
"""The engine whose query of a view is read and written."""


@dataclass(frozen=True, slots=True)
class View:
    """A query in Spark SQL, with the columns it had when the view was created."""

    query: str
    fields: Sequence[DataField] = ()
    comment: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """The text that a catalog stores: Paimon's ``ViewSchema``."""
        out: dict[str, object] = {
            "fields": [field_to_json(f) for f in self.fields],
            "query": self.query,
            "dialects": {DIALECT: self.query},
            "options": dict(self.options),
        }
        if self.comment is not None:
            out["comment"] = self.comment
        return dumps(out)
