from __future__ import annotations

import pytest

from bitlake.errors import InvalidRequest
from bitlake.sql.ddl import parse_ddl_type, type_to_ddl

CASES = [
    ("boolean", "BOOLEAN"),
    ("BYTE", "TINYINT"),
    ("long", "BIGINT"),
    ("real", "FLOAT"),
    ("DOUBLE PRECISION", "DOUBLE"),
    ("DEC", "DECIMAL(10, 0)"),
    ("numeric(5)", "DECIMAL(5, 0)"),
    ("DECIMAL(38,18)", "DECIMAL(38, 18)"),
    ("string", "STRING"),
    ("CHAR(3)", "CHAR(3)"),
    ("varchar(20)", "VARCHAR(20)"),
    ("BINARY", "BYTES"),
    ("date", "DATE"),
    ("timestamp", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    ("TIMESTAMP_LTZ", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    ("timestamp_ntz", "TIMESTAMP(6)"),
    ("ARRAY<ARRAY<ARRAY<INT>>>", "ARRAY<ARRAY<ARRAY<INT>>>"),
    ("MAP<STRING, ARRAY<INT>>", "MAP<STRING NOT NULL, ARRAY<INT>>"),
    (
        "STRUCT<a: INT NOT NULL, `b c` MAP<INT,STRUCT<x:INT>>>",
        "ROW<`a` INT NOT NULL, `b c` MAP<INT NOT NULL, ROW<`x` INT>>>",
    ),
]


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[c[0] for c in CASES])
def test_types_read_and_print(text: str, expected: str) -> None:
    made = parse_ddl_type(text)
    assert str(made) == expected
    assert parse_ddl_type(type_to_ddl(made)) == made


def test_members_keep_comments() -> None:
    made = parse_ddl_type("STRUCT<a: INT COMMENT 'it\\'s'>")
    assert type_to_ddl(made) == "STRUCT<a: INT COMMENT 'it\\'s'>"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "INTT",
        "ARRAY",
        "ARRAY<INT",
        "ARRAY<INT>>",
        "STRUCT<>",
        "STRUCT<a INT, a INT>",
        "DECIMAL(5, 6)",
        "INT INT",
        "CHAR(0)",
    ],
)
def test_wrong_types(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_ddl_type(text)
