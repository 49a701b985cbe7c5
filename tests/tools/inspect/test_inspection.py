"""Looking into files: what is told equals what is known of them, with offsets; only what is shown is read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import events
from fixtures import copy_warehouse, warehouse
from long import exhaustive
from store_wrappers import CountingStore

import bitlake
from bitlake.errors import InvalidRequest, NotFound
from bitlake.io.local import LocalStore
from bitlake.table.table import Table
from bitlake.tools.inspect.inspection import Inspection, inspect_file
from bitlake.tools.inspect.tree import Node


@pytest.fixture(scope="module")
def paimon() -> bitlake.Lake:
    return bitlake.connect(str(warehouse()))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    options = {
        "file-index.bitmap.columns": "status,region",
        "file-index.range-bitmap.columns": "amount",
        "file-index.bloom-filter.columns": "id",
        "file-index.bsi.columns": "id",
        "file-index.in-manifest-threshold": "0b",
    }
    made = bitlake.connect(str(tmp_path / "lake")).create_table("t", events().schema, options=options)
    made.append(events(1000))
    return made


def data_file(table: Table) -> str:
    return table._core.state().entries()[0].file.file_name


def within(node: Node, size: int) -> None:
    """Every part lies in the file, and parts with a place inside of their parent's."""
    for part in node.walk():
        if part.offset is not None and part.size is not None:
            assert 0 <= part.offset <= part.offset + part.size <= size, part.name
            for child in part.children:
                if child.offset is not None and child.size is not None:
                    assert part.offset <= child.offset <= child.offset + child.size <= part.offset + part.size


def checked(found: Inspection) -> Inspection:
    assert (not found.faults and found.remark is None) or "embedded" in str(found.remark)
    within(found.root, found.size)
    assert found.bytes_read <= found.size
    told = json.loads(found.to_json())
    assert told["kind"] == found.kind and told["tree"]["size"] == found.size
    assert found.text().startswith(found.path)
    return found


@pytest.mark.exhaustive
def test_every_file_of_every_fixture_is_understood() -> None:
    kinds = set()
    for file in sorted((warehouse() / "default.db").rglob("*")):
        if file.is_file() and not file.name.endswith(".crc"):
            found = checked(inspect_file(str(file), limit=2))
            kinds.add(found.kind)
    assert kinds >= {
        "snapshot", "schema", "hint", "manifest list", "manifest", "index manifest", "file index", "deletion vectors",
        "hash index", "Parquet data file", "ORC data file", "Avro file", "tag",
    }  # fmt: skip


def test_a_snapshot_is_shown_with_the_place_of_each_member(paimon: bitlake.Lake) -> None:
    table = paimon.table("partitioned")
    snapshot = table.snapshot
    assert snapshot is not None
    found = checked(table.maintenance.inspect(f"snapshot-{snapshot.id}"))
    data = Path(found.path).read_bytes()
    for member in found.root.children:
        assert member.offset is not None and member.size is not None
        text = data[member.offset : member.offset + member.size].decode()
        name, _, value = text.partition(" : ")
        assert json.loads(name) == member.name
        if "" in member.facts:
            assert json.loads(value) == member.facts[""]
    assert found.root.find("totalRecordCount").facts[""] == snapshot.total_record_count
    assert table.maintenance.inspect("LATEST").root.find("id").facts[""] == str(snapshot.id)
    fields = checked(table.maintenance.inspect("schema-0", offset=1, limit=2)).root.find("fields")
    assert [f.name for f in fields.children] == ["status", "amount"] and fields.more == 4


def test_manifests_tell_every_change_page_by_page(paimon: bitlake.Lake) -> None:
    table = paimon.table("partitioned")
    live = sorted(e.file.file_name for e in table._core.state().entries())
    names = [p.name for p in Path(table.path, "manifest").iterdir() if p.name.startswith("manifest-")]
    lists = [checked(table.maintenance.inspect(n)) for n in names if "list" in n]
    manifests = {n: checked(table.maintenance.inspect(n, limit=1000)) for n in names if "list" not in n}
    for found in lists:
        for block in found.root.children[1:]:
            for meta in block.children:
                entries = manifests[meta.name].root
                assert entries.facts["entries"] == meta.facts["added"] + meta.facts["deleted"]
                assert manifests[meta.name].size == meta.facts["bytes"]
    changes = [e.name.split(" ") for m in manifests.values() for b in m.root.children[1:] for e in b.children]
    added, deleted = ({f for k, f in changes if k == kind} for kind in ("ADD", "DELETE"))
    assert sorted(added - deleted) == live
    name, whole = next((n, m) for n, m in manifests.items() if m.root.facts["entries"] >= 4)
    every = [e.name for b in whole.root.children[1:] for e in b.children]
    paged = checked(table.maintenance.inspect(name, offset=1, limit=2))
    assert [e.name for b in paged.root.children[1:] for e in b.children] == every[1:3]
    assert paged.root.more == len(every) - 2
    one = checked(table.maintenance.inspect(name, limit=1)).root.children[1].children[0]
    assert {c.name for c in one.children} >= {"statistics of id", "statistics of amount"}
    assert one.facts["partition"].startswith("dt=2024-01-0")


def test_vectors_tell_the_rows_that_are_deleted(paimon: bitlake.Lake) -> None:
    for name in ("append_dv", "append_dv_bitmap64"):
        table = paimon.table(name)
        snapshot = table.snapshot
        assert snapshot is not None and snapshot.index_manifest is not None
        listed = checked(table.maintenance.inspect(snapshot.index_manifest)).root
        entries = [e for b in listed.children[1:] for e in b.children]
        frames = [
            f for e in entries for f in checked(table.maintenance.inspect(e.name)).root.children if f.name != "version"
        ]
        # What the manifest says of each vector is what is found at its place.
        assert {(f.name, f.offset, f.facts["deleted"]) for f in frames} == {
            (r.name, r.facts["vector at"], r.facts["deleted"]) for e in entries for r in e.children
        }
        scan = table.scan()
        gone = {f.path.rsplit("/", 1)[1]: f for f in scan.plan().files}
        for frame in frames:
            file = gone[frame.name]
            everything = set(range(file.row_count)) - set(file.selection.positions(file.row_count).tolist())
            shown = {r for a, b in frame.facts["rows"] for r in range(a, b + 1)}
            assert shown <= everything and frame.facts["deleted"] == len(everything) == file.deleted
            assert frame.facts["bits"] == (64 if "64" in name else 32)


def test_hashes_are_four_bytes_each(paimon: bitlake.Lake) -> None:
    table = paimon.table("pk_dynamic_bucket")
    name = next(p.name for p in Path(table.path, "index").iterdir() if p.name.startswith("index-"))
    found = checked(table.maintenance.inspect(name, offset=3, limit=2))
    hashes = np.frombuffer(Path(found.path).read_bytes(), ">i4")
    assert found.root.facts["hashes"] == len(hashes) and found.root.more == len(hashes) - 2
    assert [(n.offset, n.facts["hash"]) for n in found.root.children] == [(12, hashes[3]), (16, hashes[4])]


def test_parquet_parts_are_where_arrow_finds_them(table: Table) -> None:
    name = data_file(table)
    found = checked(table.maintenance.inspect(name))
    meta = pq.read_metadata(found.path)
    for g in range(meta.num_row_groups):
        group = found.root.find(f"row group {g}")
        for c in range(meta.num_columns):
            told, known = group.children[c], meta.row_group(g).column(c)
            start = known.dictionary_page_offset or known.data_page_offset
            assert (told.name, told.offset, told.size) == (known.path_in_schema, start, known.total_compressed_size)
            assert told.facts["values"] == known.num_values
    assert found.root.find("footer").size == meta.serialized_size
    pages = checked(table.maintenance.inspect(name, column="STATUS"))
    chunk = pages.root.find("row group 0", "status")
    assert chunk.size == sum(p.size or 0 for p in chunk.children)  # nothing lies between pages
    rows = [p for p in chunk.children if p.name.startswith("page")]
    assert sum(p.facts["rows"] for p in rows) == 1000 and rows[0].facts["first row"] == 0
    assert all(p.facts["kind"].startswith("data page") for p in rows)
    with_bounds = checked(table.maintenance.inspect(name, column="id")).root.find("row group 0", "id", "page 0")
    assert with_bounds.facts["values from"].startswith("0 … ")


def test_pages_without_an_index_are_found_from_one_to_the_next(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": range(10_000)}), file, data_page_size=4096, use_dictionary=False)
    assert pq.ParquetFile(file).metadata.row_group(0).column(0).has_offset_index is False
    found = checked(inspect_file(str(file), column="a", limit=100)).root.find("row group 0", "a")
    assert sum(p.facts["values"] for p in found.children) == 10_000 and len(found.children) > 3
    assert found.size == sum(p.size or 0 for p in found.children)
    few = inspect_file(str(file), column="a", offset=1, limit=2).root.find("row group 0", "a")
    assert few.children == found.children[1:3] and few.more is None


@pytest.mark.parametrize(
    "fixture", ["bitmap_v1", "bitmap_v2", exhaustive("bitmap_v2_small_blocks"), "range_bitmap", "bsi"]
)
def test_the_rows_of_a_value_are_those_that_have_it(paimon: bitlake.Lake, fixture: str) -> None:
    """Against the data itself, for every value of a few columns, and NULL."""
    table = paimon.table(fixture)
    name = data_file(table)
    path = table.scan().plan().files[0].path
    data = pq.read_table(path)
    for column in ("c_int", "c_str", "c_date", "c_ts"):
        if fixture == "bsi" and column == "c_str":
            continue
        values = data.column(column).to_pylist()
        for value in [v for v in dict.fromkeys(values) if column != "c_ts" or v is not None][:12]:
            (told,) = table.maintenance.inspect(name, column=column, value=value, limit=1000).rows
            rows = [r for a, b in told.runs for r in range(a, b + 1)]
            assert rows == [i for i, v in enumerate(values) if v == value] and told.answer == "rows"
            assert told.count == len(rows) and told.more == 0
    assert table.maintenance.inspect(name, column="c_int", value=123456789).rows[0].answer == "none"


def test_a_value_may_be_written_as_sql_reads_it(table: Table) -> None:
    name = data_file(table)
    amount = events(1000).column("amount").to_pylist()
    (told,) = table.maintenance.inspect(name, column="amount", value=str(amount[7])).rows
    assert told.index == "range-bitmap" and told.runs[0][0] == amount.index(amount[7])
    bloom, bsi = sorted(table.maintenance.inspect(name, column="id", value="77").rows, key=lambda r: r.index)
    assert (bloom.answer, bsi.answer, bsi.runs) == ("maybe", "rows", ((77, 77),))
    assert "may be there" in str(bloom) and str(bsi) == "bsi(id), id = '77': exactly 1 rows: 77"
    bloom, bsi = sorted(table.maintenance.inspect(f"{name}.index", column="id", value=5000).rows, key=lambda r: r.index)
    assert bloom.answer == "none" or bloom.answer == "maybe"
    assert bsi.answer == "none" and "surely in no row" in str(bsi)
    (null,) = table.maintenance.inspect(name, column="region", value=None, limit=3).rows
    assert null.runs == ((0, 0), (7, 7), (14, 14)) and null.count == 143 and null.more == 140
    with pytest.raises(InvalidRequest, match="which column"):
        table.maintenance.inspect(name, value=1)
    with pytest.raises(NotFound, match="no index of column 'nope'"):
        table.maintenance.inspect(name, column="nope", value=1)
    with pytest.raises(InvalidRequest, match="abc"):
        table.maintenance.inspect(name, column="id", value="abc")


def test_values_of_a_map_have_indexes_of_their_own(paimon: bitlake.Lake) -> None:
    table = paimon.table("map_key_index")
    name = data_file(table)
    told = table.maintenance.inspect(f"{name}.index")
    columns = [c.name for c in told.root.children if c.name.endswith("]")]
    assert columns
    data = pq.read_table(table.scan().plan().files[0].path)
    for column in columns:
        top, key = column[:-1].split("[")
        values = [dict(m or []).get(key) for m in data.column(top).to_pylist()]
        for value in [v for v in dict.fromkeys(values) if v is not None][:4]:
            for answer in table.maintenance.inspect(name, column=column, value=value, limit=1000).rows:
                rows = [r for a, b in answer.runs for r in range(a, b + 1)]
                assert rows == [i for i, v in enumerate(values) if v == value] or answer.answer == "maybe"


def test_values_of_an_index_are_paged(table: Table) -> None:
    name = data_file(table) + ".index"
    found = checked(table.maintenance.inspect(name, column="status"))
    block = found.root.find("status", "bitmap", "blocks", "block 0")
    statuses = events(1000).column("status").to_pylist()
    assert {v.name: v.facts["rows"] for v in block.children} == {s: statuses.count(s) for s in set(statuses)}
    second = checked(table.maintenance.inspect(name, column="status", offset=1, limit=1))
    assert [v.name for v in second.root.find("status", "bitmap", "blocks", "block 0").children] == ["S1"]
    assert second.root.find("status", "bitmap", "blocks").more == 3
    slices = checked(table.maintenance.inspect(name, column="amount", limit=3)).root.find("amount", "range-bitmap")
    ordered = sorted(set(events(1000).column("amount").to_pylist()))
    keys = slices.find("dictionary", "keys")
    assert [float(k.name) for k in keys.children] == ordered[:3] and keys.more == len(ordered) - 3
    assert slices.find("slices", "rows not NULL").facts["rows"] == 1000


def test_an_embedded_index_is_found_where_its_file_would_be(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path / "lake"))
    table = lake.create_table("t", events().schema, options={"file-index.bitmap.columns": "status"})
    table.append(events(50))
    name = data_file(table)
    found = checked(table.maintenance.inspect(f"{name}.index"))
    assert found.remark is not None and "embedded" in found.remark and found.kind == "file index"
    assert table.maintenance.inspect(name, column="status", value="S1").rows[0].count == 12
    plain = lake.create_table("u", events().schema)
    plain.append(events(5))
    with pytest.raises(NotFound, match="no file index"):
        plain.maintenance.inspect(data_file(plain), column="status", value="x")


def test_bytes_of_a_region(table: Table) -> None:
    name = data_file(table)
    found = table.maintenance.inspect(name, hex=(0, 20))
    assert found.hex is not None
    lines = str(found.hex).splitlines()
    assert lines[0].startswith("00000000  50 41 52 31 ") and "|PAR1" in lines[0] and len(lines) == 2
    assert lines[1].startswith("00000010  ") and len(lines[1].split("|")[1]) == 4
    assert found.bytes_read <= 4096 and json.loads(found.to_json())["hex"]["offset"] == 0
    with pytest.raises(InvalidRequest, match="the file has"):
        table.maintenance.inspect(name, hex=(10**9, 5))


def test_only_what_is_shown_is_read(tmp_path: Path) -> None:
    """A page of a large file costs its footer, not its data."""
    file = tmp_path / "bucket-0" / "x.parquet"
    file.parent.mkdir()
    rows = 300_000
    pq.write_table(pa.table({"a": np.random.default_rng(1).integers(0, 1 << 60, rows)}), file, compression="none")
    store = CountingStore(LocalStore())
    found = inspect_file(str(file), store=store, column="a", limit=3)
    assert store.bytes_read == found.bytes_read < 64 * 1024 < found.size
    entries = bitlake.connect(str(tmp_path / "lake")).create_table("t", events().schema)
    for _ in range(3):
        entries.append(events(10))
    with pytest.raises(NotFound, match="looked for as"):
        entries.maintenance.inspect("snapshot-99")
    with pytest.raises(InvalidRequest, match="negative"):
        entries.maintenance.inspect("snapshot-1", limit=-1)


def test_a_file_under_another_name_is_known_by_its_content(tmp_path: Path) -> None:
    copy_warehouse(tmp_path, "append_dv")
    folder = tmp_path / "default.db" / "append_dv"
    vectors = next((folder / "index").glob("index-*"))
    (folder / "index" / "backup").write_bytes(vectors.read_bytes())
    assert inspect_file(str(folder / "index" / "backup")).kind == "deletion vectors"
    manifest = next((folder / "manifest").glob("manifest-list-*"))
    (folder / "data-1.parquet").write_bytes(manifest.read_bytes())
    found = inspect_file(str(folder / "data-1.parquet"))
    assert found.kind == "manifest list" and "the name is that of a Parquet data file" in str(found.remark)
    (folder / "thing").write_bytes(b"\x00\x01\x02")
    assert "as hex" in inspect_file(str(folder / "thing")).root.facts["note"]


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "snapshot").mkdir()
    with pytest.raises(NotFound, match="snapshot is a folder; name one file in it"):
        inspect_file(str(tmp_path / "snapshot"))
