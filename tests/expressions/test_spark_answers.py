"""Terms and conditions against the answers that Spark gave, which are recorded."""

from __future__ import annotations

import pytest
import spark_answers
from long import every
from spark_answers import Group

from bitlake.errors import EvaluationFailed
from bitlake.expressions.binder import bind
from bitlake.expressions.parser import parse_predicate
from bitlake.expressions.sql_text import to_sql

RECORDED = spark_answers.recorded()
NAMES = [f"{g.seed} {g.kind} {g.zone}" for g in RECORDED]
PARTS = 8


@pytest.mark.parametrize("part", every(2, range(PARTS)))
@pytest.mark.parametrize("group", RECORDED, ids=NAMES)
def test_terms_have_spark_s_types_and_values(group: Group, part: int) -> None:
    rows = group.rows
    for text, kind, expected in group.terms[part::PARTS]:
        term = spark_answers.bound_term(text, group.zone)
        assert spark_type(str(term.type)) == kind, text
        if expected is None:
            with pytest.raises(EvaluationFailed):
                spark_answers.values(term, rows)
        else:
            assert spark_answers.values(term, rows) == expected, text


@pytest.mark.parametrize("part", every(2, range(PARTS)))
@pytest.mark.parametrize("group", RECORDED, ids=NAMES)
def test_conditions_are_true_where_spark_s_are(group: Group, part: int) -> None:
    rows = group.rows
    for text, expected in group.conditions[part::PARTS]:
        assert spark_answers.true_rows(text, rows, group.zone) == expected, text
        bound = bind(parse_predicate(text, group.zone), spark_answers.FIELDS, group.zone)
        printed = to_sql(bound, spark_answers.FIELDS)
        assert spark_answers.true_rows(printed, rows, group.zone) == expected, (text, printed)


_TYPES = {"TIMESTAMP(6)": "timestamp_ntz", "TIMESTAMP(6) WITH LOCAL TIME ZONE": "timestamp", "BYTES": "binary"}


def spark_type(kind: str) -> str:
    """Spark's name of a type."""
    return _TYPES.get(kind, kind.lower().replace(", ", ","))
