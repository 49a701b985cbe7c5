"""Primary-key tables made in SQL, and deletion vectors switched by procedures."""

from __future__ import annotations

import pyarrow as pa
import pytest
from long import exhaustive

import bitlake
from bitlake.errors import InvalidRequest, NotFound

pytestmark = pytest.mark.spark


def ask(lake: bitlake.Lake, text: str) -> list[list[object]]:
    return [list(row) for row in lake.sql(text).collect()]


def test_a_table_with_a_key_is_shown_and_made_again(lake: bitlake.Lake) -> None:
    lake.sql(
        "CREATE TABLE k (id BIGINT, day STRING, n INT, PRIMARY KEY (day, id) NOT ENFORCED) PARTITIONED BY (day) "
        "TBLPROPERTIES ('merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum', 'bucket' = '2')"
    )
    schema = lake.table("k").schema
    assert (schema.primary_keys, schema.partition_keys) == (("day", "id"), ("day",))
    assert [f.type.nullable for f in schema.fields] == [False, False, True]
    ((text,),) = ask(lake, "SHOW CREATE TABLE k")
    assert isinstance(text, str)
    lake.sql("DROP TABLE k")
    lake.sql(text)
    again = lake.table("k").schema
    assert (again.fields, again.primary_keys, again.options) == (schema.fields, schema.primary_keys, schema.options)
    assert ["Primary key", "day, id", ""] in ask(lake, "DESCRIBE EXTENDED k")


@pytest.mark.parametrize(
    ("ddl", "why"),
    [
        ("id INT, n STRING", "'sum' takes numbers, and column 'n' is STRING"),
        ("id INT, n ARRAY<INT>", "'sum' takes numbers, and column 'n' is ARRAY<INT>"),
    ],
)
def test_what_paimon_forbids_is_refused_in_sql(lake: bitlake.Lake, ddl: str, why: str) -> None:
    options = "'merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum'"
    with pytest.raises(InvalidRequest, match=why):
        lake.sql(f"CREATE TABLE k ({ddl}, PRIMARY KEY (id) NOT ENFORCED) TBLPROPERTIES ({options})")
    lake.sql(f"CREATE TABLE k ({ddl}, PRIMARY KEY (id) NOT ENFORCED)")
    with pytest.raises(InvalidRequest, match=why):
        lake.sql(f"ALTER TABLE k SET TBLPROPERTIES ({options})")


def test_vectors_are_switched_by_procedures(lake: bitlake.Lake) -> None:
    lake.sql("CREATE TABLE k (id INT, n INT, PRIMARY KEY (id) NOT ENFORCED) TBLPROPERTIES ('bucket' = '2')")
    table = lake.table("k")
    for i in range(3):
        table.upsert(pa.table({"id": range(i * 10, i * 10 + 50), "n": [i] * 50}, schema=table.arrow_schema))
    wanted = ask(lake, "SELECT * FROM k ORDER BY id")
    with pytest.raises(InvalidRequest, match=r"enable_deletion_vectors\(table\)"):
        lake.sql("ALTER TABLE k SET TBLPROPERTIES ('deletion-vectors.enabled' = 'true')")
    assert ask(lake, "CALL sys.enable_deletion_vectors('k')") == [[1]]
    assert ask(lake, "SELECT * FROM k ORDER BY id") == wanted
    assert lake.table("k").schema.options["deletion-vectors.enabled"] == "true"
    table.upsert(pa.table({"id": [0], "n": [9]}, schema=table.arrow_schema))
    assert ask(lake, "SELECT n FROM k WHERE id = 0") == [[9]]
    assert ask(lake, "CALL sys.disable_deletion_vectors(table => 'k')") == [[2]]
    assert ask(lake, "SELECT * FROM k ORDER BY id") == [[0, 9], *wanted[1:]]
    with pytest.raises(NotFound, match="nope"):
        lake.sql("CALL sys.enable_deletion_vectors('nope')")


@pytest.mark.parametrize("key", ["PRIMARY KEY (id) NOT ENFORCED", ""])
@pytest.mark.parametrize("vectors", [exhaustive("true"), "false"])
def test_buckets_are_rescaled_on_spark(lake: bitlake.Lake, key: str, vectors: str) -> None:
    options = f"'bucket' = '2', 'deletion-vectors.enabled' = '{vectors}'" + ("" if key else ", 'bucket-key' = 'id'")
    lake.sql(f"CREATE TABLE k (id INT NOT NULL, n STRING{', ' + key if key else ''}) TBLPROPERTIES ({options})")
    lake.sql("INSERT INTO k SELECT cast(id AS INT), concat('n', id) FROM range(500)")
    lake.sql("DELETE FROM k WHERE id < 20")
    wanted = ask(lake, "SELECT * FROM k ORDER BY id")
    assert len(wanted) == 480
    assert ask(lake, "CALL sys.rescale('k', 3)") == [[True]]
    assert ask(lake, "SELECT * FROM k ORDER BY id") == wanted
    assert {e.total_buckets for e in lake.table("k")._core.state().entries()} == {3}
    lake.sql("INSERT INTO k VALUES (0, 'again')")
    assert ask(lake, "SELECT n FROM k WHERE id = 0") == [["again"]]
    lake.sql("ALTER TABLE k SET TBLPROPERTIES ('bucket' = '4')")
    with pytest.raises(bitlake.BitlakeError, match="INSERT OVERWRITE"):
        lake.sql("INSERT INTO k VALUES (1, 'refused'), (2, 'x'), (3, 'y')")
    assert ask(lake, "CALL sys.rescale('k')") == [[True]]
    assert {e.total_buckets for e in lake.table("k")._core.state().entries()} == {4}
    assert len(ask(lake, "SELECT * FROM k")) == 481
