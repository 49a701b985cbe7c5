"""Which types a column may change to."""

from __future__ import annotations

import pytest

from bitlake.types import ArrayType, DataField, DataType, MapType, RowType, parse_type
from bitlake.types.casts import why_not_cast

P = parse_type
IMPLICIT = [
    ("TINYINT", "BIGINT"),
    ("INT", "DECIMAL(5, 0)"),
    ("DECIMAL(10, 2)", "FLOAT"),
    ("FLOAT", "DOUBLE"),
    ("VARCHAR(5)", "VARCHAR(3)"),
    ("CHAR(5)", "STRING"),
    ("BINARY(3)", "BYTES"),
    ("TIMESTAMP(6)", "DATE"),
    ("TIMESTAMP(6)", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    ("INT NOT NULL", "INT"),
]
EXPLICIT = [
    ("BIGINT", "INT"),
    ("DOUBLE", "FLOAT"),
    ("STRING", "INT"),
    ("STRING", "CHAR(3)"),
    ("INT", "STRING"),
    ("INT", "BOOLEAN"),
    ("BOOLEAN", "DOUBLE"),
    ("BYTES", "BINARY(3)"),
    ("STRING", "TIMESTAMP(6)"),
    ("DATE", "TIMESTAMP(6)"),
    ("TIMESTAMP(6)", "INT"),
    ("BIGINT", "TIMESTAMP(3)"),
    ("DATE", "STRING"),
]
NEVER = [
    ("INT", "DATE"),
    ("DATE", "INT"),
    ("BOOLEAN", "DATE"),
    ("DOUBLE", "BOOLEAN"),
    ("INT", "BYTES"),
    ("DOUBLE", "TIMESTAMP(6)"),
    ("TIMESTAMP(6)", "DECIMAL(10, 2)"),
    ("TIMESTAMP(6)", "TINYINT"),
    # Paimon knows how to print these as exactly the nullable STRING only.
    ("DATE", "VARCHAR(10)"),
    ("TIMESTAMP(6) NOT NULL", "STRING NOT NULL"),
    ("VARIANT", "STRING"),
    ("STRING", "VARIANT"),
    ("TIME(0)", "TIME(3)"),
]


@pytest.mark.parametrize(("source", "target"), IMPLICIT)
def test_implicit(source: str, target: str) -> None:
    assert why_not_cast(P(source), P(target), explicit=False) is None
    assert why_not_cast(P(source), P(target), explicit=True) is None


@pytest.mark.parametrize(("source", "target"), EXPLICIT)
def test_explicit(source: str, target: str) -> None:
    assert "disable-explicit-type-casting" in (why_not_cast(P(source), P(target), explicit=False) or "")
    assert why_not_cast(P(source), P(target), explicit=True) is None


@pytest.mark.parametrize(("source", "target"), NEVER)
def test_never(source: str, target: str) -> None:
    assert why_not_cast(P(source), P(target), explicit=True)


def test_nested_types() -> None:
    ints: DataType = ArrayType(P("INT"))
    row = RowType((DataField(0, "a", ints),))
    assert why_not_cast(ints, ArrayType(P("INT"), False), explicit=False) is None
    assert "column.element" in (why_not_cast(ints, ArrayType(P("BIGINT")), explicit=True) or "")
    assert "column.value" in (why_not_cast(MapType(P("INT"), ints), MapType(P("INT"), P("INT")), explicit=True) or "")
    assert "column.member" in (why_not_cast(row, RowType(()), explicit=True) or "")
    assert why_not_cast(row, P("STRING"), explicit=True) is None
    assert "disable" in (why_not_cast(row, P("STRING"), explicit=False) or "")
    assert "VARIANT" in (why_not_cast(ArrayType(P("VARIANT")), P("STRING"), explicit=True) or "")
    assert why_not_cast(P("STRING"), ints, explicit=True)
    assert why_not_cast(ints, P("INT"), explicit=True)
