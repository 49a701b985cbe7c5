from __future__ import annotations

import json
from dataclasses import replace

import pytest
from fixtures import warehouse

from bitlake.errors import CorruptError, InvalidRequest, NotFound, UnsupportedFeature
from bitlake.metadata.java_json import dumps, flat
from bitlake.metadata.schema import TableSchema, assign_ids, near
from bitlake.metadata.snapshot import Snapshot
from bitlake.types import ArrayType, DataField, RowType, parse_type


def test_every_fixture_schema_is_rewritten_to_the_byte() -> None:
    files = sorted(warehouse().glob("default.db/*/schema/schema-*"))
    files += sorted(warehouse().glob("default.db/*/branch/*/schema/schema-*"))
    assert len(files) >= 50
    for f in files:
        schema = TableSchema.from_json(f.read_bytes(), str(f))
        assert schema.to_json().encode() == f.read_bytes()
        assert f.name == f"schema-{schema.id}"


def test_every_fixture_snapshot_and_tag_is_rewritten_to_the_byte() -> None:
    files = [f for f in warehouse().glob("default.db/**/snapshot-*") if f.is_file()]
    files += [f for f in warehouse().glob("default.db/**/tag-*") if f.is_file()]
    assert len(files) >= 170
    for f in files:
        assert Snapshot.from_json(f.read_bytes(), str(f)).to_json().encode() == f.read_bytes()


def test_jackson_text() -> None:
    assert dumps({"a": [], "b": {}, "c": [{"d": 1}, True], "e": None}) == (
        '{\n  "a" : [ ],\n  "b" : { },\n  "c" : [ {\n    "d" : 1\n  }, true ],\n  "e" : null\n}'
    )
    assert dumps('q"\\\n\x01é\x7f') == '"q\\"\\\\\\n\\u0001é\x7f"'
    assert json.loads(dumps({"k\t": "v\x1f"})) == {"k\t": "v\x1f"}


def make(**changes: object) -> TableSchema:
    fields, highest = assign_ids([(n, parse_type("INT"), None) for n in ("id", "Dt", "user_id")])
    return TableSchema(0, fields, highest, **changes)  # type: ignore[arg-type]


def test_conveniences() -> None:
    schema = make(partition_keys=("Dt",), primary_keys=("Dt", "id"), options={"bucket": "4"})
    assert schema.bucket_keys == ("id",)
    assert [f.name for f in schema.partition_fields] == ["Dt"]
    assert schema.num_buckets == 4
    assert schema.field("dt").name == "Dt"
    with pytest.raises(NotFound, match="did you mean user_id"):
        schema.field("userid")
    more = schema.with_options({"bucket-key": "user_id", "x": "y"}, ["bucket"])
    assert dict(more.options) == {"bucket-key": "user_id", "x": "y"}
    assert more.bucket_keys == ("user_id",)
    later = more.next(fields=more.fields[:1], highest_field_id=0, comment="c")
    assert (later.id, later.highest_field_id, len(later.fields), later.comment) == (1, 2, 1, "c")
    assert later.time_millis > 0
    kind = parse_type("INT")
    with pytest.raises(InvalidRequest, match="could be any"):
        TableSchema(0, (DataField(0, "aB", kind), DataField(1, "Ab", kind)), 1).field("ab")


def test_ids_of_nested_fields_come_after_their_children() -> None:
    int_type = parse_type("INT")

    def row(*fields: tuple[str, object]) -> RowType:
        return RowType(tuple(DataField(-1, n, t) for n, t in fields))  # type: ignore[arg-type]

    fields, highest = assign_ids(
        [
            ("a", int_type, None),
            ("b", int_type, "words"),
            ("st", row(("x", int_type), ("y", int_type), ("z", row(("d", int_type)))), None),
            ("m", int_type, None),
            ("aa", ArrayType(row(("k", int_type), ("v", ArrayType(int_type)))), None),
        ]
    )
    struct = fields[2].type
    assert isinstance(struct, RowType)
    assert [f.id for f in fields] == [0, 1, 2, 7, 8]
    assert [f.id for f in struct.fields] == [3, 4, 6]
    inner = struct.fields[2].type
    assert isinstance(inner, RowType)
    assert inner.fields[0].id == 5
    assert highest == 10
    assert fields[1].description == "words"


def test_old_versions_get_the_defaults_of_their_time() -> None:
    text = make().to_json()
    first = TableSchema.from_json(text.replace('"version" : 3,', "").encode())
    assert dict(first.options) == {"bucket": "1", "file.format": "orc"}
    second = TableSchema.from_json(text.replace('"version" : 3', '"version" : 2').encode())
    assert dict(second.options) == {"file.format": "orc"}
    with pytest.raises(UnsupportedFeature, match="version 4"):
        TableSchema.from_json(text.replace('"version" : 3', '"version" : 4').encode())


@pytest.mark.parametrize(
    "bad",
    [b"", b"{", b"[]", b'{"id": 1}', b'{"id": "x"}', b'{"id":0,"fields":[{}],"highestFieldId":0}', b"\xff"],
)
def test_damage_is_named(bad: bytes) -> None:
    for read in (TableSchema.from_json, Snapshot.from_json):
        with pytest.raises(CorruptError, match="some/path"):
            read(bad, "some/path")


def test_key_columns_must_exist() -> None:
    text = make(partition_keys=("nope",)).to_json().encode()
    with pytest.raises(CorruptError, match="nope"):
        TableSchema.from_json(text)


def test_unknown_members_and_explicit_nulls_are_ignored() -> None:
    path = next(warehouse().glob("default.db/append_plain/snapshot/snapshot-1"))
    value = json.loads(path.read_bytes())
    snapshot = Snapshot.from_json(json.dumps({**value, "newer": [1], "watermark": None}).encode())
    assert snapshot == Snapshot.from_json(path.read_bytes())


def test_a_schema_without_a_time_is_of_the_epoch() -> None:
    """Paimon reads a missing ``timeMillis`` as 0."""
    value = json.loads(make().to_json())
    del value["timeMillis"]
    schema = TableSchema.from_json(json.dumps(value).encode())
    assert schema.time_millis == 0
    assert TableSchema(0, schema.fields, schema.highest_field_id).time_millis == 0


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"fields": [{"id": 0, "name": "a", "type": "INT"}, {"id": 1, "name": "a", "type": "INT"}]}, "named 'a'"),
        (
            {
                "fields": [
                    {
                        "id": 0,
                        "name": "r",
                        "type": {"type": "ROW", "fields": [{"id": i, "name": "x", "type": "INT"} for i in (1, 2)]},
                    }
                ]
            },
            "named 'x'",
        ),
    ],
)
def test_two_fields_of_one_name(damage: dict, message: str) -> None:
    """A schema with two columns of one name ended in Arrow's KeyError."""
    whole = {"version": 3, "id": 0, "highestFieldId": 9, "partitionKeys": [], "primaryKeys": [], "options": {}} | damage
    with pytest.raises(CorruptError, match=message):
        TableSchema.from_json(json.dumps(whole).encode())


@pytest.mark.parametrize(("kind", "depth"), [("ARRAY", 63), ("ARRAY", 64), ("ARRAY", 400), ("ROW", 63), ("ROW", 64)])
def test_nesting_has_a_limit(kind: str, depth: int) -> None:
    """A type nested 400 levels deep ended in a RecursionError where it was first used."""
    made: object = "INT"
    for _ in range(depth):
        inner = {"element": made} if kind == "ARRAY" else {"fields": [{"id": 1, "name": "x", "type": made}]}
        made = {"type": kind, **inner}
    whole = {"version": 3, "id": 0, "highestFieldId": 9, "partitionKeys": [], "primaryKeys": [], "options": {}}
    data = json.dumps(whole | {"fields": [{"id": 0, "name": "a", "type": made}]}).encode()
    if depth < 64:
        assert TableSchema.from_json(data).field_names == ("a",)
    else:
        with pytest.raises(CorruptError, match="64 levels"):
            TableSchema.from_json(data)


@pytest.mark.parametrize("millis", [2**63 - 1, -(2**63), 253_402_214_400_001, -62_135_510_400_001])
def test_a_snapshot_of_an_impossible_time(millis: int) -> None:
    """`t$snapshots` ended in an OverflowError."""
    path = next(f for f in sorted(warehouse().glob("default.db/*/snapshot/snapshot-1")))
    snapshot = json.loads(path.read_bytes()) | {"timeMillis": millis}
    with pytest.raises(CorruptError, match="timeMillis"):
        Snapshot.from_json(json.dumps(snapshot).encode())


def stored(**changes: object) -> bytes:
    """A snapshot file of a fixture with other members; None leaves one out."""
    value = json.loads(next(iter(sorted(warehouse().glob("default.db/*/snapshot/snapshot-1")))).read_bytes()) | changes
    return json.dumps({k: v for k, v in value.items() if v is not None}).encode()


@pytest.mark.parametrize("millis", [253_402_214_400_000, -62_135_510_400_000, 0])
def test_the_first_and_last_time_of_a_snapshot(millis: int) -> None:
    assert Snapshot.from_json(stored(timeMillis=millis)).time_millis == millis


def test_what_older_releases_leave_out_of_a_snapshot() -> None:
    found = Snapshot.from_json(stored(version=None, totalRecordCount=None, deltaRecordCount=None))
    assert (found.version, found.total_record_count, found.delta_record_count) == (1, 0, 0)
    assert repr(found).endswith(", 0 rows)")
    assert Snapshot.from_json(stored(version=3)).version == 3
    with pytest.raises(UnsupportedFeature, match="snapshot version 4 is newer than 3"):
        Snapshot.from_json(stored(version=4))


@pytest.mark.parametrize(("member", "value", "word"), [
    ("id", "1", "a whole number"), ("id", True, "a whole number"), ("id", 1.5, "a whole number"),
    ("commitUser", 5, "text"), ("indexManifest", [], "text"), ("properties", [], "an object"),
    ("properties", {"a": 1}, "map texts to texts"), ("watermark", "x", "a whole number"),
])  # fmt: skip
def test_members_of_another_type(member: str, value: object, word: str) -> None:
    with pytest.raises(CorruptError, match=f"'{member}' must .*{word}"):
        Snapshot.from_json(stored(**{member: value}))


def test_missing_and_misspelt_members() -> None:
    for member in ("id", "schemaId", "baseManifestList", "commitUser", "commitIdentifier", "commitKind", "timeMillis"):
        with pytest.raises(CorruptError, match=f"'{member}' is missing"):
            Snapshot.from_json(stored(**{member: None}))
    # One character of a member that is missing makes it damage, two or another length make it a later version's.
    for name, damaged in (
        ("indexManifesu", True),
        ("iodexManifest", True),
        ("indexManifests", False),
        ("inxedManifest", False),
    ):
        data = stored(indexManifest=None, **{name: "x"})
        if damaged:
            with pytest.raises(CorruptError, match=f"'{name}' is not a member; 'indexManifest' is missing"):
                Snapshot.from_json(data)
        else:
            assert Snapshot.from_json(data).index_manifest is None
    assert Snapshot.from_json(stored(indexManifest="index-manifest-1", indexManifesu="x")).index_manifest is not None


def test_a_json_file_takes_16_mib_at_most() -> None:
    for size, match in ((16 << 20, "'id' is missing"), ((16 << 20) + 1, "16,777,217 bytes of JSON")):
        data = b'{"x":"' + b"a" * (size - 8) + b'"}'
        assert len(data) == size
        with pytest.raises(CorruptError, match=match):
            Snapshot.from_json(data)


def test_nested_text_is_indented_by_its_objects() -> None:
    """Arrays add no indentation of their own; on one line there are no blanks at all."""
    value = {"a": [[{"b": {"c": 1}}], ("x", None, False)], "d": {}}
    assert dumps(value) == (
        '{\n  "a" : [ [ {\n    "b" : {\n      "c" : 1\n    }\n  } ], [ "x", null, false ] ],\n  "d" : { }\n}'
    )
    assert flat(value) == '{"a":[[{"b":{"c":1}}],["x",null,false]],"d":{}}'
    assert dumps("\x00\x0b\x1f\x20") == '"\\u0000\\u000B\\u001F "' == flat("\x00\x0b\x1f\x20")


@pytest.mark.parametrize("count", [0, 1, 19, 20, 21])
def test_a_hint_names_up_to_20_names(count: int) -> None:
    names = [f"column{i}" for i in range(count)]
    hint = f"; there are {', '.join(names)}" if 0 < count <= 20 else ""
    assert near("zzz", names) == hint
    assert near("Column1", ["COLUMN1", "other"]) == "; did you mean COLUMN1?"
    assert near("name5", ["name1", "name2", "name3", "name4"]).count("name") == 3, "the three that are most alike"


def test_what_makes_a_schema_another_one() -> None:
    """Columns, keys, id and time of creation do, options and comments do not."""
    base = make(partition_keys=("Dt",), primary_keys=("Dt", "id"), time_millis=7)
    assert base.is_version(base.with_options({"x": "y"})) and base.is_version(replace(base, comment="words"))
    others = [
        replace(base, id=1),
        replace(base, time_millis=8),
        replace(base, partition_keys=()),
        replace(base, primary_keys=("id",)),
    ]
    renamed = (replace(base.fields[0], name="other"), *base.fields[1:])
    retyped = (replace(base.fields[0], type=parse_type("BIGINT")), *base.fields[1:])
    numbered = (replace(base.fields[0], id=9), *base.fields[1:])
    others += [replace(base, fields=fields) for fields in (renamed, retyped, numbered, base.fields[:2])]
    assert not any(base.is_version(other) or other.is_version(base) for other in others)


def test_snapshots_and_schemas_are_keys_of_dictionaries() -> None:
    """Without their maps, which are no keys."""
    snapshots = [Snapshot.from_json(stored(properties={"a": "b"})), Snapshot.from_json(stored(properties={"a": "c"}))]
    schemas = [make(options={"a": "b"}), make(options={"a": "c"})]
    assert len(set(snapshots)) == 2 == len({*schemas})
    assert hash(snapshots[0]) == hash(snapshots[1]) and hash(schemas[0]) == hash(schemas[1])


def test_a_snapshot_with_other_lists() -> None:
    found = Snapshot.from_json(stored(changelogManifestList="c", changelogManifestListSize=5, changelogRecordCount=6))
    other = found.with_lists(("base", 10), ("delta", 20))
    assert (other.base_manifest_list, other.base_manifest_list_size) == ("base", 10)
    assert (other.delta_manifest_list, other.delta_manifest_list_size) == ("delta", 20)
    assert (other.changelog_manifest_list, other.changelog_manifest_list_size, other.changelog_record_count) == (
        None,
    ) * 3
    assert other.commit_kind == "OVERWRITE" and other.id == found.id


def test_properties_without_members_are_kept() -> None:
    """Paimon reads an empty map, and writes it again; without the member it writes none."""
    for text in (stored(properties={}), stored()):
        snapshot = Snapshot.from_json(text)
        again = json.loads(snapshot.to_json())
        assert snapshot.properties == {} and again.get("properties") == json.loads(text).get("properties")
        assert Snapshot.from_json(snapshot.to_json().encode()) == snapshot
