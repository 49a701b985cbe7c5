"""``get_json_object`` in the process: what Spark returns, and what only Spark can tell."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from json_documents import PATHS, document

from bitlake.errors import InvalidRequest
from bitlake.expressions import json_path
from bitlake.expressions.binder import bind
from bitlake.expressions.evaluate import evaluate
from bitlake.expressions.json_path import json_values, path_names, path_text
from bitlake.expressions.parser import parse_predicate
from bitlake.expressions.terms import Refused
from bitlake.types import DataField, parse_type

FIELDS = [DataField(0, "p", parse_type("STRING"))]
UNKNOWN = object()


def value(text: str | None, path: str = "$.a") -> object:
    values, unknown = json_values(pa.array([text], pa.string()), path_names(path))
    return UNKNOWN if unknown[0] else values[0].as_py()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ('{"a": "x"}', "x"),
        ('{"a": ""}', ""),
        ('{"a": 12345678901234567890123}', "12345678901234567890123"),
        ('{"a": -7, "b": 1e9}', "-7"),
        ('{"a": true}', "true"),
        ('{"a": null}', None),
        ('{"b": 1}', None),
        # Of keys that occur twice, the first that is not null.
        ('{"a": null, "a": 2, "a": 3}', "2"),
        # A key may be escaped, and so may a value; a lone surrogate leaves no value.
        ('{"\\u0061": "\\ud83d\\ude00\\n\\/\\u00e9\\u20ac"}', "😀\n/é€"),
        ('{"a": "\\ud83d"}', None),
        ('{"b": "\\ud83d", "a": 1}', "1"),
        # What follows the root is not read; what is wrong before its end makes it NULL.
        ('{"a": 1} x', "1"),
        ('{"a": 1, x', None),
        ('{"a": 1, "b": "\\x"}', None),
        ('{"a": 1, "b": [1}', None),
        ('{"a": 1,}', None),
        ('{"a": 1 "b": 2}', None),
        ('{"a": 1, "b": 01}', None),
        ('{"a": 1, "b": NaN}', None),
        ('{"a": "x\ty"}', "x\ty"),
        ('[{"a": 1}]', None),
        ("", None),
        ("\ufeff{}", None),
        # What Spark formats again, or accepts beside JSON.
        ('{"a": 1.50}', UNKNOWN),
        ('{"a": 1e3}', UNKNOWN),
        ('{"a": -0}', UNKNOWN),
        ('{"a": {}}', UNKNOWN),
        ('{"a": [1]}', UNKNOWN),
        ("{'a': 1}", UNKNOWN),
        ('{"a": "it\'s"}', "it's"),
        ('{"a": 1, "b": ' + "[" * 1001 + "]" * 1001 + "}", UNKNOWN),
        ('{"a": 1, "b": ' + "9" * 1001 + "}", UNKNOWN),
        ('{"a": 1, "' + "k" * 50_001 + '": 2}', UNKNOWN),
        ('{"a": "' + "x" * 1_000_000 + '"}', "x" * 1_000_000),
    ],
)
def test_the_value_is_spark_s(text: str | None, expected: object) -> None:
    assert value(text) is expected if expected is UNKNOWN else value(text) == expected


def test_a_path_leads_through_objects() -> None:
    assert value('{"a": {"b": {"c": "x"}}}', "$.a.b.c") == "x"
    assert value('{"a": {"c": 1}, "a": {"b": 2}}', "$.a.b") == "2"
    assert value('{"a": [{"b": 1}]}', "$.a.b") is None
    assert value('{"a": "b", "b": 1}', "$.a.b") is None
    assert value('{"x": {"a": 1}}', "$.a") is None
    assert path_text(path_names("$['a-b'].é")) == "$.a-b.é"


@pytest.mark.parametrize("path", ["", "$", "a.b", "$.", "$.a[0]", "$.*", "$.a b", "$['a'", "$['a.b']", "$.a.", "$..a"])
def test_another_path_is_refused(path: str) -> None:
    with pytest.raises(Refused, match="not a path of names"):
        path_names(path)
    with pytest.raises(InvalidRequest, match="not a path of names"):
        bind(parse_predicate(f'get_json_object(p, "{path}") = 1'), FIELDS)


@pytest.mark.exhaustive
def test_texts_do_not_depend_on_their_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(7)
    texts = [None if draw.random() < 0.05 else document(draw) for _ in range(150)]
    sliced = pa.array(["{", *texts, '"'], pa.string()).slice(1, 150)
    for path in PATHS:
        names = path_names(path)
        alone = [json_values(pa.array([t], pa.string()), names) for t in texts]
        for size in (1 << 20, 50):  # also in chunks of about one text
            monkeypatch.setattr(json_path, "_CHUNK_BYTES", size)
            values, unknown = json_values(sliced, names)
            assert values.to_pylist() == [v[0].as_py() for v, _ in alone]
            assert unknown.tolist() == [bool(u[0]) for _, u in alone]


def test_a_condition_fails_for_a_value_that_only_spark_can_tell() -> None:
    bound = bind(parse_predicate("get_json_object(p, '$.a') = 'x'"), FIELDS)
    table = pa.table({"p": ['{"a": "x"}', None, "x"]})
    assert evaluate(bound, table, FIELDS).to_pylist() == [True, None, None]
    with pytest.raises(InvalidRequest, match=r"get_json_object\(p, '\$.a'\): only Spark can tell"):
        evaluate(bound, pa.table({"p": ['{"a": 0.5}']}), FIELDS)
