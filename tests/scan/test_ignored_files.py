"""``scan.ignore-corrupt-files`` and ``scan.ignore-lost-files``: queries do without files, writers never do."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from caches import forget

import bitlake
from bitlake.errors import BitlakeError, CorruptError, NotFound

CORRUPT = "scan.ignore-corrupt-files"
LOST = "scan.ignore-lost-files"


def damage(path: Path) -> None:
    path.write_bytes(b"corrupt file")


def cut_to_nothing(path: Path) -> None:
    path.write_bytes(b"")


def table_of(tmp_path: Path, file_format: str = "parquet", **options: str) -> bitlake.Table:
    """Three files of 100 rows: ids 0, 1, …, of which the second's are damaged later."""
    schema = pa.schema([pa.field("i", pa.int64(), nullable=False), ("s", pa.string())])
    table = bitlake.connect(tmp_path).create_table("t", schema, options={"file.format": file_format, **options})
    for start in (0, 100, 200):
        ids = range(start, start + 100)
        table.append(pa.table({"i": ids, "s": [f"s{n % 10}" for n in ids]}, schema=schema))
    return table


def second(table: bitlake.Table) -> Path:
    paths = [f.path for f in table.scan().plan().files]
    return Path(paths[1])


def ids(scan: bitlake.Scan) -> list[int]:
    return sorted(scan.to_arrow().column("i").to_pylist())


REST = [*range(100), *range(200, 300)]


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize(("break_", "option"), [(damage, CORRUPT), (cut_to_nothing, CORRUPT), (os.remove, LOST)])
def test_a_query_does_without_a_file(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    file_format: str,
    break_: Callable[[Path], None],
    option: str,
) -> None:
    # Both options were accepted, and the query failed as without them.
    table = table_of(tmp_path, file_format)
    path = second(table)
    break_(path)
    other = LOST if option == CORRUPT else CORRUPT
    for options in ({}, {other: "true"}, {option: "false"}):
        forget()
        table.alter_options(options, [CORRUPT, LOST] if not options else [])
        with pytest.raises(NotFound if option == LOST else CorruptError, match=path.name):
            table.scan().to_arrow()
    table.alter_options({option: "true"}, [other])
    forget()
    with caplog.at_level(logging.WARNING, "bitlake"):
        scan = table.scan()
        assert ids(scan) == REST
    assert [r.getMessage() for r in caplog.records if path.name in r.getMessage()] != []
    assert len(caplog.records) == 1 and option in caplog.records[0].getMessage()
    assert scan.plan().metrics.files_ignored == 1
    assert ids(table.scan(where="s = 's3'")) == [n for n in REST if n % 10 == 3]
    assert table.scan(["i"], where="s LIKE '%4'").to_arrow().num_rows == 20
    top = table.scan().top_n([("i", "desc")], 150).to_arrow().column("i").to_pylist()
    assert top == sorted(REST, reverse=True)[:150]
    assert table.scan().distinct("s").to_pylist().__len__() == 10


def test_rows_before_the_damage_are_returned(tmp_path: Path) -> None:
    table = table_of(tmp_path, "avro", **{CORRUPT: "true"})
    schema = table.arrow_schema
    table.append(pa.table({"i": range(1000, 60_000), "s": ["x" * 50] * 59_000}, schema=schema))
    path = Path(table.scan(where="i >= 1000").plan().files[0].path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 4000] = bytes(4000)
    path.write_bytes(data)
    found = ids(table.scan())
    assert found == [*range(300), *range(1000, 700 + len(found))] and 1_000 < len(found) < 59_300


@pytest.mark.parametrize("option", [CORRUPT, LOST])
def test_a_file_merged_by_key(tmp_path: Path, option: str) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
    options = {"primary-key": "k", "bucket": "1", "write-only": "true", option: "true"}
    table = bitlake.connect(tmp_path).create_table("t", schema, options=options)
    table.upsert(pa.table({"k": [1, 2], "v": [1, 1]}, schema=schema))
    first = set(Path(table.path).glob("bucket-0/data-*"))
    table.upsert(pa.table({"k": [2, 3], "v": [2, 2]}, schema=schema))
    (new,) = set(Path(table.path).glob("bucket-0/data-*")) - first
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda r: r["k"])[1] == {"k": 2, "v": 2}
    new.unlink() if option == LOST else damage(new)
    forget()
    scan = table.scan()
    assert scan.to_arrow().to_pylist() == [{"k": 1, "v": 1}, {"k": 2, "v": 1}]
    assert scan.plan().metrics.files_ignored == 1


def test_a_deletion_vector_is_never_ignored(tmp_path: Path) -> None:
    table = table_of(tmp_path, **{"deletion-vectors.enabled": "true", CORRUPT: "true", LOST: "true"})
    table.delete("i = 5 OR i = 105")
    (path,) = Path(table.path).glob("index/index-*")
    good = path.read_bytes()
    damage(path)
    forget()
    with pytest.raises(CorruptError):
        table.scan().to_arrow()
    path.unlink()
    forget()
    with pytest.raises(NotFound, match="deleted rows would come back"):
        table.scan().to_arrow()
    path.write_bytes(good)
    forget()
    assert len(ids(table.scan())) == 298


def test_what_is_written_again_must_be_whole(tmp_path: Path) -> None:
    table = table_of(tmp_path, **{CORRUPT: "true", LOST: "true", "compaction.min.file-num": "2"})
    path = second(table)
    good = path.read_bytes()
    for break_ in (damage, os.remove):
        break_(path)
        forget()
        before = table.snapshot
        for write in (
            table.maintenance.compact,
            lambda: table.delete("s = 's3'"),
            lambda: table.update({"s": "new"}, "i = 105"),
        ):
            with pytest.raises(BitlakeError, match=path.name):
                write()
        assert table.snapshot == before
        path.write_bytes(good)
    forget()
    table.maintenance.compact()
    assert ids(table.scan()) == list(range(300))
