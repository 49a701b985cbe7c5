"""Tables with indexes that Paimon lacks, of expressions, members and text: Paimon (Java) and pypaimon read, filter,
rewrite and compact them.

Generated cases (`make full-counts` runs 200) vary the kind of table, the indexes, their place, rows and conditions.
"""

from __future__ import annotations

import operator
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from interop.rows import comparable, rows_of, same_rows

import bitlake
from tests.long import full

pytestmark = pytest.mark.interop

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string()), ("n", pa.int32())])
OPTIONS = {
    "file-index.bitmap.columns": "s",
    "bitlake.index.low": "bitmap(lower(s))",
    "bitlake.index.quoted": "bitmap(replace(s, '\\'', '\"'))",
    "bitlake.index.digit": "bsi(n % 10)",
    "bitlake.index.part": "ngram(s)",
}
WORDS = ["Ada", "O'Neil", "éCOLE", "日本", "", 'x"y']
PLACES = {"embedded": "100 mb", "separate": "1 b"}


def write(warehouse: Path, place: str) -> tuple[bitlake.Table, list[tuple[object, ...]]]:
    lake = bitlake.connect(str(warehouse))
    lake.create_database("db")
    table = lake.create_table("db.t", SCHEMA, options=OPTIONS | {"file-index.in-manifest-threshold": PLACES[place]})
    texts = [None, *WORDS] * 10
    parts = [
        pa.table([list(range(i * 50, i * 50 + 50)), texts[i : i + 50], list(range(50))], schema=SCHEMA)
        for i in range(3)
    ]
    for part in parts:
        table.append(part)
    assert {c.files_indexed for c in table.indexes.coverage()} == {3}
    return table, [r for part in parts for r in rows_of(part)]


@pytest.mark.parametrize("place", PLACES)
def test_java_reads_filters_and_writes_on(tmp_path: Path, java: ModuleType, place: str) -> None:
    table, rows = write(tmp_path, place)
    same_rows(java.dump(tmp_path, "db.t"), rows)
    for word in WORDS:
        same_rows(java.dump(tmp_path, "db.t", s=word), [r for r in rows if r[1] == word])
    java.append(tmp_path, "db.t", [(1000, "ADA", 7)])
    assert table.count("lower(s) = 'ada'") == sum(r[1] == "Ada" for r in rows) + 1
    files = {c.spec.name or c.spec.column: (c.files, c.files_indexed) for c in table.indexes.coverage()}
    assert files["low"] == (4, 3)  # Paimon's own file has the index of the column alone
    assert files["s"] == (4, 4)
    table.indexes.rebuild()
    assert {(c.files, c.files_indexed) for c in table.indexes.coverage()} == {(4, 4)}


@pytest.mark.parametrize("native", [False, True], ids=["python", "rust"])
@pytest.mark.parametrize("place", PLACES)
def test_pypaimon_reads_and_filters(tmp_path: Path, pypaimon: ModuleType, place: str, native: bool) -> None:
    _, rows = write(tmp_path, place)
    same_rows(pypaimon.dump(tmp_path, "db.t", native), rows)
    for word in WORDS:
        same_rows(pypaimon.dump(tmp_path, "db.t", native, s=word), [r for r in rows if r[1] == word])


# --- generated cases --------------------------------------------------------------------------------------------------

CASES = full(6, 200)
MEMBERS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("s", pa.string()),
        ("n", pa.int32()),
        ("tags", pa.list_(pa.string())),
        ("m", pa.map_(pa.string(), pa.int32())),
    ]
)
TEXTS = [*WORDS, "ADA", "ada lovelace", "order 4711 is closed", "über ORDER", "é\u0301", "😀 ok", "%_\\", "x" * 300]
TAGS = ["a", "b", "日", ""]
KINDS: dict[str, dict[str, str]] = {
    "append": {"compaction.min.file-num": "2"},
    "bucketed": {"bucket": "2", "bucket-key": "id"},
    "keyed": {"bucket": "1"},
    "vectors": {"bucket": "1", "deletion-vectors.enabled": "true"},
}
PAIMONS = {
    "file-index.bitmap.columns": "s",
    "file-index.bloom-filter.columns": "s,id",
    "file-index.bsi.columns": "n",
    "file-index.range-bitmap.columns": "n",
}
PAIMONS_NAMES = {"bitmap(s)", "bloom-filter(s)", "bloom-filter(id)", "bsi(n)", "range-bitmap(n)"}
ADDED = {
    "low": "bitmap(lower(s))",
    "quoted": "bloom-filter(replace(s, '\\'', '\"'))",
    "part": "bitmap(substring(s, 1, 3))",
    "size": "bsi(length(s))",
    "digit": "range-bitmap(n % 10)",
    "grams": "ngram(s)",
    "words": "tokens(s)",
    "tag": "bitmap(element(tags))",
    "key": "bloom-filter(keys(m))",
}
CONDITIONS: dict[str, Callable[[Any], Any]] = {
    "lower(s) = 'ada'": lambda r: r[1] is not None and r[1].lower() == "ada",
    "replace(s, '\\'', '\"') = 'O\"Neil'": lambda r: r[1] == "O'Neil",
    "substring(s, 1, 3) = 'ord'": lambda r: (r[1] or "").startswith("ord"),
    "length(s) > 20": lambda r: len(r[1] or "") > 20,
    "n % 10 = 3": lambda r: r[2] is not None and r[2] % 10 == 3,
    "s LIKE '%4711 is%'": lambda r: "4711 is" in (r[1] or ""),
    "has_token(s, 'ORDER')": lambda r: "ORDER" in (r[1] or "").split(),
    "array_contains(tags, '日')": lambda r: "日" in (r[3] or ()),
    "map_contains_key(m, 'k1')": lambda r: "k1" in dict(r[4] or ()),
}
OPERATORS = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, ">=": operator.ge}
Leaf = tuple[str, str, list[Any]]


def random_rows(rng: random.Random, first: int, count: int) -> pa.Table:
    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.1 else value

    # Few distinct texts in some files, so that others have none of them.
    texts = rng.sample(TEXTS, rng.randrange(1, len(TEXTS)))
    rows = [
        {
            "id": first + i,
            "s": maybe(rng.choice(texts)),
            "n": maybe(rng.randrange(60)),
            "tags": maybe(rng.sample(TAGS, rng.randrange(3))),
            "m": maybe([(f"k{k}", k) for k in rng.sample(range(4), rng.randrange(3))]),
        }
        for i in range(count)
    ]
    return pa.Table.from_pylist(rows, schema=MEMBERS)


def random_leaf(rng: random.Random) -> Leaf:
    column = rng.choice(["id", "s", "n"])
    values = {"id": range(160), "s": TEXTS, "n": range(70)}[column]
    sign = rng.choice([*OPERATORS, "in", "isnull", "notnull"])
    count = {"in": rng.randrange(1, 4), "isnull": 0, "notnull": 0}.get(sign, 1)
    return column, sign, rng.sample(list(values), count)


def holds(leaf: Leaf, row: tuple[Any, ...]) -> bool:
    column, sign, values = leaf
    value = row[MEMBERS.get_field_index(column)]
    if sign in ("isnull", "notnull"):
        return (value is None) == (sign == "isnull")
    if value is None:
        return False
    return value in values if sign == "in" else bool(OPERATORS[sign](value, values[0]))


def same_after(rows: list[Any], found: list[Any], leaves: list[Leaf]) -> None:
    """What a reader's pruning lets through are rows of the table, and all that match.

    Of a key that does not match, a file with a newer row may be left out, so that an older row comes through.
    """
    keys = [leaf for leaf in leaves if leaf[0] == "id"]
    count = Counter(comparable(r) for r in found if all(holds(leaf, r) for leaf in keys))
    assert count <= Counter(map(comparable, rows)), leaves
    matches = [r for r in rows if all(holds(leaf, r) for leaf in leaves)]
    same_rows([r for r in found if all(holds(leaf, r) for leaf in leaves)], matches)


class Case:
    """A table that bitlake writes with random indexes, and the rows that it must have.  Mutable."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.folder = folder
        self.kind = list(KINDS)[seed % len(KINDS)]
        self.keyed = self.kind in ("keyed", "vectors")
        self.names = rng.sample(sorted(ADDED), rng.randrange(1, 6))
        paimons = rng.sample(sorted(PAIMONS), rng.randrange(1, 3))
        options = KINDS[self.kind] | {o: PAIMONS[o] for o in paimons}
        options |= {f"bitlake.index.{name}": ADDED[name] for name in self.names}
        options |= {"bitlake.index.grams.n": str(rng.randrange(3, 6))} if "grams" in self.names else {}
        options |= {"file-index.in-manifest-threshold": rng.choice(list(PLACES.values()))}
        lake = bitlake.connect(str(folder))
        lake.create_database("db")
        key = ["id"] if self.keyed else []
        self.table = lake.create_table("db.t", MEMBERS, primary_key=key, options=options)
        self.rows: list[Any] = []
        for part in range(rng.randrange(2, 4)):
            data = random_rows(rng, 40 * part, rng.randrange(20, 60) if self.keyed else 40)
            self.table.append(data) if not self.keyed else self.table.upsert(data)
            self.put(rows_of(data))
        if self.kind == "vectors":
            self.table.maintenance.compact()

    def put(self, rows: list[Any]) -> None:
        if self.keyed:
            self.rows = list(({r[0]: r for r in self.rows} | {r[0]: r for r in rows}).values())
        else:
            self.rows = [*self.rows, *rows]

    def files(self) -> set[str]:
        return {f.path for f in self.table.scan().plan().files}

    def coverage(self) -> dict[str, tuple[int, int]]:
        return {c.spec.name or c.spec.column: (c.files_indexed, c.files) for c in self.table.indexes.coverage()}

    def check(self, read: Callable[[list[Leaf]], list[Any]]) -> None:
        """A reader finds all rows, and those of two random conditions."""
        same_rows(read([]), self.rows)
        for _ in range(2):
            leaves = [random_leaf(self.rng) for _ in range(self.rng.randrange(1, 3))]
            same_after(self.rows, read(leaves), leaves)

    def check_ours(self) -> None:
        for where, matches in CONDITIONS.items():
            same_rows(rows_of(self.table.scan(where=where).to_arrow()), [r for r in self.rows if matches(r)])

    def check_lost(self, before: set[str]) -> None:
        """The indexes that Paimon lacks are missing from the files that it wrote, and from no other."""
        files = self.files()
        kept = len(files & before)
        shown = self.coverage()
        assert {name: shown[name] for name in self.names} == dict.fromkeys(self.names, (kept, len(files)))
        listed = bitlake.connect(str(self.folder)).sql("SHOW INDEXES FROM db.t", engine="duckdb").to_pylist()
        named = {x["index_name"]: (x["files_indexed"], x["files"]) for x in listed if x["index_name"]}
        assert named == {name: shown[name] for name in self.names}
        explained = [f for where in CONDITIONS for f in self.table.scan(where=where).plan().files]
        used = {index for f in explained if f.path not in before for index in f.pruned_by}
        assert {index for index in used if not index.startswith("page bounds")} <= PAIMONS_NAMES
        self.check_ours()


def java_cases(case: Case, java: ModuleType) -> None:
    def read(leaves: list[Leaf]) -> list[Any]:
        return java.read(case.folder, "db.t", leaves).rows

    case.check(read)
    before = case.files()
    new = [(500 + i, case.rng.choice(TEXTS), 3, None, None) for i in range(3)]
    java.write(case.folder, "db.t", [("+I", row) for row in new], full=True)
    case.put(new)
    case.check(read)
    assert case.files() != before
    if case.kind != "bucketed":
        assert not case.files() & before  # Paimon compacted all files into new ones
    case.check_lost(before)
    case.table.indexes.rebuild()
    assert all(indexed == files for indexed, files in case.coverage().values())
    case.check_ours()
    case.check(read)


def pypaimon_cases(case: Case, pypaimon: ModuleType) -> None:
    def read(leaves: list[Leaf], native: bool = False) -> list[Any]:
        return rows_of(pypaimon.read(case.folder, "db.t", leaves, native))

    case.check(read)
    case.check(lambda leaves: read(leaves, native=True))
    if not case.keyed:
        before = case.files()
        pypaimon.overwrite(case.folder, "db.t", pypaimon.read(case.folder, "db.t"))
        case.check(read)
        assert not case.files() & before
        case.check_lost(before)


@pytest.mark.parametrize("seed", range(CASES))
def test_java_reads_rewrites_and_compacts_generated_tables(tmp_path: Path, java: ModuleType, seed: int) -> None:
    case = Case(tmp_path, seed)
    case.check_ours()
    java_cases(case, java)


@pytest.mark.parametrize("seed", range(CASES))
def test_pypaimon_reads_and_rewrites_generated_tables(tmp_path: Path, pypaimon: ModuleType, seed: int) -> None:
    pypaimon_cases(Case(tmp_path, seed), pypaimon)
