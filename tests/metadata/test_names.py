"""Which names are the same, as written or in any case."""

from __future__ import annotations

import pytest

from bitlake.errors import InvalidRequest, NotFound
from bitlake.metadata.schema import Names, TableSchema, assign_ids
from bitlake.types import parse_type


def test_names_are_the_same() -> None:
    assert Names.FOLDED.same("Id", "iD") and not Names.EXACT.same("Id", "iD") and Names.EXACT.same("Id", "Id")
    assert Names.FOLDED.clear(["a", "A", "Bc"]) == {"bc": "Bc"}
    assert Names.EXACT.clear(["a", "A", "Bc", "Bc"]) == {"a": "a", "A": "A"}


def test_a_table_is_refused_whose_columns_a_session_cannot_tell_apart() -> None:
    Names.EXACT.check("t", ["a", "A"])
    Names.FOLDED.check("t", ["a", "b"])
    with pytest.raises(InvalidRequest, match="'t' has columns 'a' and 'A'.*SET spark.sql.caseSensitive = true"):
        Names.FOLDED.check("t", ["a", "b", "A"])


def test_a_column_is_found_as_written_first() -> None:
    fields, highest = assign_ids([(n, parse_type("INT"), None) for n in ("a", "A", "b")])
    schema = TableSchema(0, fields, highest, (), (), {})
    assert [schema.field(n).id for n in ("a", "A", "B")] == [0, 1, 2]
    assert schema.field("b", Names.EXACT).id == 2
    with pytest.raises(NotFound, match="no column 'B'; did you mean b"):
        schema.field("B", Names.EXACT)
