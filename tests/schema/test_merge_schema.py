"""What ``write.merge-schema`` makes of a schema: Paimon's rules of columns that are new, wider, or narrower."""

from __future__ import annotations

import pytest

from bitlake.errors import InvalidRequest
from bitlake.metadata.schema import AddColumn, Names, RetypeColumn, SchemaChange, TableSchema, assign_ids
from bitlake.schema.evolution import MergeSchema, merged_changes
from bitlake.sql.ddl import parse_ddl_type

ON, WIDER, ANY = MergeSchema(True), MergeSchema(True, True), MergeSchema(True, True, True)


def changes(table: str, rows: str, how: MergeSchema) -> tuple[SchemaChange, ...]:
    fields, highest = assign_ids([("c", parse_ddl_type(table), None)])
    schema = TableSchema(0, fields, highest, (), (), {})
    return merged_changes("t", schema, [("C", parse_ddl_type(rows))], how)


def test_new_columns_and_members_are_added() -> None:
    fields, highest = assign_ids([("a", parse_ddl_type("INT"), None)])
    schema = TableSchema(0, fields, highest, (), (), {})
    text = parse_ddl_type("STRING")
    assert merged_changes("t", schema, [("b", text), ("A", text)], ON) == (AddColumn(("b",), text),)
    inner = "STRUCT<x: INT, y: STRING>"
    added = parse_ddl_type("STRING")
    assert changes("STRUCT<x: INT>", inner, ON) == (AddColumn(("c", "y"), added),)
    assert changes("ARRAY<STRUCT<x: INT>>", f"ARRAY<{inner}>", ON) == (AddColumn(("c", "element", "y"), added),)
    assert changes("MAP<INT, STRUCT<x: INT>>", f"MAP<INT, {inner}>", ON) == (AddColumn(("c", "value", "y"), added),)
    assert changes(inner, "STRUCT<x: INT>", ON) == ()


def test_names_are_taken_as_written_first_and_without_folding_only_so() -> None:
    fields, highest = assign_ids([("a", parse_ddl_type("INT"), None), ("A", parse_ddl_type("STRING"), None)])
    schema = TableSchema(0, fields, highest, (), (), {})
    wide, text = parse_ddl_type("BIGINT"), parse_ddl_type("STRING")
    for names in Names:
        assert merged_changes("t", schema, [("a", wide)], WIDER, names) == (RetypeColumn(("a",), wide),)
    inner = parse_ddl_type("STRUCT<x: INT>"), parse_ddl_type("STRUCT<X: STRING>")
    schema = TableSchema(0, assign_ids([("s", inner[0], None)])[0], 1, (), (), {})
    assert merged_changes("t", schema, [("s", inner[1])], ON, Names.EXACT) == (AddColumn(("s", "X"), text),)
    assert merged_changes("t", schema, [("s", inner[1])], ON) == ()


@pytest.mark.parametrize(
    ("table", "rows", "made"),
    [
        ("INT", "BIGINT", "BIGINT"),
        ("INT", "DOUBLE", "DOUBLE"),
        ("BIGINT", "INT", None),
        ("DECIMAL(10, 2)", "DECIMAL(12, 2)", "DECIMAL(12, 2)"),
        ("DECIMAL(10, 2)", "DECIMAL(8, 2)", None),
        ("VARCHAR(5)", "STRING", "STRING"),
        ("INT", "INT", None),
    ],
)
def test_widening(table: str, rows: str, made: str | None) -> None:
    assert changes(table, rows, ON) == ()
    expected = () if made is None else (RetypeColumn(("c",), parse_ddl_type(made)),)
    assert changes(table, rows, WIDER) == expected


@pytest.mark.parametrize(
    ("table", "rows"), [("STRING", "DATE"), ("BIGINT", "DATE"), ("DECIMAL(10, 2)", "DECIMAL(12, 3)")]
)
def test_what_could_lose_is_refused(table: str, rows: str) -> None:
    with pytest.raises(InvalidRequest, match="without loss"):
        changes(table, rows, WIDER)


def test_explicit_casts() -> None:
    assert changes("BIGINT", "INT", ANY) == (RetypeColumn(("c",), parse_ddl_type("INT")),)
    assert changes("STRING", "DATE", ANY) == (RetypeColumn(("c",), parse_ddl_type("DATE")),)


def test_each_option_needs_the_one_before() -> None:
    one, two, three = "write.merge-schema", "write.merge-schema.type-widening", "write.merge-schema.explicit-cast"
    assert MergeSchema.of({}) == MergeSchema()
    assert MergeSchema.of({two: "true", three: "true"}) == MergeSchema()
    assert MergeSchema.of({one: "TRUE", three: "true"}) == ON
    assert MergeSchema.of({one: "true", two: "true", three: "true"}) == ANY
    with pytest.raises(InvalidRequest, match="true or false"):
        MergeSchema.of({one: "yes"})
