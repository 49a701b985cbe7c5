"""Explanations: numbers add up, agree with what a store saw, with brute force, and what is shown is whole."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from builders import events
from caches import forget
from fixtures import warehouse
from long import exhaustive
from store_wrappers import CountingStore

import bitlake
from bitlake.io.local import LocalStore
from bitlake.table.table import Table
from bitlake.tools.explain.explanation import MOST_FILES, Explanation, Meter, MeteringStore
from bitlake.tools.explain.pages import MOST_CELLS

ROWS = 20_000
NOBODY = 10**11 + 1
INDEXES = {
    "file-index.bitmap.columns": "status",
    "file-index.range-bitmap.columns": "amount",
    "file-index.bloom-filter.columns": "user",
    "file-index.in-manifest-threshold": "0b",
}


def orders(day: int, seed: int) -> pa.Table:
    """Rows of a day: PENDING are 300 rows together, and in odd batches none."""
    random = np.random.default_rng(seed)
    status = random.choice(["DELIVERED", "SENT"], ROWS)
    if seed % 2 == 0:
        status[5000:5300] = "PENDING"
    return pa.table(
        {
            "id": np.arange(ROWS) + ROWS * seed,
            "day": pa.array([f"2024-01-0{day}"] * ROWS),
            "status": pa.array(status),
            "amount": random.random(ROWS) * 100 + 100 * seed,
            "user": random.integers(0, 1 << 40, ROWS) * 2,
            "note": pa.array([f"note {i % 977} of {seed}" for i in range(ROWS)]),
        }
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    lake = bitlake.connect(str(tmp_path_factory.mktemp("explained") / "lake"))
    made = lake.create_table("orders", orders(1, 0).schema, partition_by=["day"], options=INDEXES)
    for seed in range(6):
        made.append(orders(1 + seed // 2, seed))
    return made


def counted(scan: bitlake.Scan) -> tuple[bitlake.Scan, CountingStore]:
    """The scan over a store that counts."""
    store = CountingStore(scan._core.store)
    state = replace(scan._core.state, store=store)
    return bitlake.Scan(replace(scan._core, store=store, state=state, _planned=[])), store


def check(told: Explanation) -> None:
    """What must hold of every explanation."""
    m = told.plan.metrics
    members = sum(len(f.merge.files) if f.merge is not None else 1 for f in told.plan.files)
    assert m.files == members + sum(m.files_skipped.values())
    assert told.steps[0].bytes == m.data_bytes and told.steps[0].files == m.files - m.files_unseen
    left = [s for s in told.steps if s.name not in ("columns that are needed", "pages without a chosen row", "read")]
    assert left[-1].files == members
    assert left[-1].bytes == sum(f.entry.file.file_size for f in told.plan.files)
    planned = [s.bytes for s in told.steps if s.name != "read"]
    assert planned == sorted(planned, reverse=True), told.steps
    assert len(told.files) + told.files_left_out == m.files
    for file in told.files:
        if file.cells:
            ends = [c.first_row + c.rows for c in file.cells]
            assert [c.first_row for c in file.cells] == [0, *ends[:-1]] and ends[-1] == file.rows
            assert len(file.cells) <= MOST_CELLS
    for step in told.leaves:
        assert step.rows_after <= step.rows_before and step.files_emptied <= step.files
    made = told.to_dict()
    assert json.loads(told.to_json()) == json.loads(json.dumps(made))
    assert [s["bytes"] for s in made["left_after"]] == [s.bytes for s in told.steps]
    well_formed(told.to_html())
    assert told.text().startswith("Scan of ")


class _Balance(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        for name, value in attrs:
            assert name not in ("src", "href", "onclick"), f"{tag} {name}={value}: a page loads nothing"
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, tag


def well_formed(html: str) -> list[str]:
    parser = _Balance()
    parser.feed(html)
    assert not parser.open and "script" not in parser.seen
    return parser.seen


@pytest.mark.parametrize(
    "where",
    [
        None,
        "status = 'PENDING'",
        "day <= '2024-01-02' AND status = 'PENDING' AND amount < 350",
        "amount BETWEEN 210 AND 220",
        f"user = {NOBODY}",
        f"user IN ({NOBODY}, 3) OR status = 'PENDING'",
        "day = '2024-01-09'",
        "id >= 70000 AND note LIKE 'note 5%'",
        "status = 'NONE'",
    ],
)
def test_numbers_add_up_and_bytes_are_those_the_store_saw(table: Table, where: str | None) -> None:
    plain = table.scan(["id", "amount", "note"], where=where)
    rows = plain.to_arrow().num_rows
    check(plain.explanation())
    scan, store = counted(plain)
    told = scan.explanation(analyze=True)  # footers and indexes are cached by now
    check(told)
    assert told.plan.metrics.rows_returned == rows
    if "open_input" not in store.calls:  # Arrow's own reads pass by the counting store
        assert sum(p.bytes for p in told.phases) + _asked_again(told) >= store.bytes_read
        tried = sum(p.bytes for p in told.phases if p.name == "advice")
        assert told.bytes_read == _data_bytes(store, told) - tried
        assert (told.bytes_read or 0) <= [s.bytes for s in told.steps if s.name != "read"][-1]
    else:
        assert told.bytes_read is not None and (told.bytes_read > 0) == bool(told.plan.files)


def _asked_again(told: Explanation) -> int:
    return told.plan.metrics.index_bytes_read


def _data_bytes(store: CountingStore, told: Explanation) -> int:
    paths = {p for _, p in store.paths if p.endswith(".parquet")}
    assert paths <= {f.path for f in told.plan.files}
    return store.bytes_read


def test_streamed_bytes_are_counted_too(table: Table) -> None:
    """Whole files are read by Arrow through a file object: its reads are what the file system gives."""
    forget()
    told = table.scan().explanation(analyze=True)
    check(told)
    sizes = sum(f.entry.file.file_size for f in told.plan.files)
    assert 0.8 * sizes < (told.bytes_read or 0) <= 1.2 * sizes + 6 * 131_072
    assert all(set(f.pages()) == {"read"} for f in told.files)
    names = [p.name for p in told.phases]
    assert names == [n for n in ("manifests", "statistics", "indexes", "deletion vectors", *_READING) if n in names]
    assert set(_READING[1:3]) <= set(names)


_READING = ("footers", "read", "decode", "filter")


def test_conditions_tell_the_rows_their_indexes_left(table: Table) -> None:
    told = table.scan(["id"], where="day <= '2024-01-02' AND status = 'PENDING' AND amount < 50").explanation()
    first, second = told.leaves  # that of the partitions alone is not one of rows
    everything = pa.concat_tables(orders(1 + s // 2, s) for s in range(4))
    pending = sum(s == "PENDING" for s in everything["status"].to_pylist())
    both = sum(
        s == "PENDING" and a < 50
        for s, a in zip(everything["status"].to_pylist(), everything["amount"].to_pylist(), strict=True)
    )
    assert (first.condition, first.indexes) == ("status = 'PENDING'", ("bitmap(status)",))
    assert (second.indexes, second.rows_before) == (("range-bitmap(amount)",), first.rows_after)
    assert second.rows_after == both == told.plan.chosen_rows and first.rows_after <= pending
    assert first.files_without == 0 and "bitmap(status)" in told.text()


def test_pages_are_told_by_their_fate(table: Table) -> None:
    told = table.scan(["id", "note"], where="status = 'PENDING'").explanation(analyze=True)
    for file in told.files:
        if file.state == "read":
            hit = [c for c in file.cells if c.first_row < 5300 and c.first_row + c.rows > 5000]
            assert {c.state for c in hit} == {"read"}
            assert {c.state for c in file.cells if c not in hit} == {"file index"}
        else:
            assert file.state == "file index" and not file.cells
    # Only the condition's column is read of all rows, others where a row is wanted.
    late = table.scan(where="note = 'note 5 of 3' AND user > 0").explanation(analyze=True)
    fates = {state for f in late.files for state in f.pages()}
    assert "some columns" in fates or "read" in fates
    gone = table.scan(where="day = '2024-01-01'").explanation()
    assert sum(f.state == "partition" for f in gone.files) == 4


def test_deleted_rows_and_merged_files(tmp_path: Path) -> None:
    lake = bitlake.connect(str(warehouse()))
    for name in ("append_dv", "pk_mor", "pk_dv", "pk_orc_dv", "pk_avro", "partitioned", "schema_evolution"):
        for where in (None, "1 = 1"):
            scan = lake.table(name).scan(where=where)
            for analyze in (False, True):
                told = scan.explanation(analyze=analyze)
                check(told)
                if analyze:
                    assert told.plan.metrics.rows_returned == scan.to_arrow().num_rows
    keyed = lake.table("pk_mor")
    check(keyed.scan(where=f"{keyed.schema.primary_keys[0]} = 3").explanation(analyze=True))


def test_limits_and_first_rows(table: Table) -> None:
    few = table.scan(["id"]).limit(10).explanation(analyze=True)
    check(few)
    assert any(s.name == "limit" for s in few.steps)
    top = table.scan(["id"]).top_n([("amount", "desc")], 5).explanation(analyze=True)
    check(top)
    assert any(s.name == "top n" and s.files < 6 for s in top.steps) and "order by" in top.to_html()


def test_advice_names_the_index_that_was_missing(tmp_path: Path) -> None:
    table = bitlake.connect(str(tmp_path / "lake")).create_table("t", orders(1, 0).schema)
    for seed in range(3):
        table.append(orders(1, seed))

    def advice(where: str, analyze: bool = True) -> list[tuple[str, str]]:
        told = table.scan(["id"], where=where).explanation(analyze=analyze)
        assert all(a.why and a.statements for a in told.advice)
        return [(a.index, a.column) for a in told.advice]

    assert advice(f"user = {NOBODY}") == [("bloom-filter", "user")]
    assert advice("amount < 90") == []  # statistics leave one file, and nearly all of that matches
    assert advice("status <> 'x'") == []  # every row
    # Indexes of these columns save next to nothing, as the test below measures.
    assert advice("status = 'PENDING'") == advice("amount > 150 AND amount < 152") == []
    # Without reading, the plan names what to try; the statement measures it.
    assert advice("status = 'PENDING'", analyze=False) == [("bitmap", "status")]
    assert advice("amount > 150 AND amount < 152", analyze=False) == [("range-bitmap", "amount")]
    assert advice("note = 'x'", analyze=False) == []  # statistics skip all files
    told = table.scan(where=f"user = {NOBODY}").explanation(analyze=True)
    first, second = told.advice[0].statements
    assert "'file-index.bloom-filter.columns' = 'user'" in first and second.startswith("CALL sys.rewrite_file_index")
    # Following it helps.
    before = told.plan.metrics.data_bytes_read
    table.alter_options({"file-index.bloom-filter.columns": "user"})
    table.indexes.rebuild()
    after = table.scan(where=f"user = {NOBODY}").explanation(analyze=True)
    assert after.plan.metrics.data_bytes_read < before / 2 and len(after.plan.files) <= 1


@pytest.mark.parametrize(
    ("where", "column", "index"),
    [("status = 'PENDING'", "status", "bitmap"), exhaustive("amount > 150 AND amount < 152", "amount", "range-bitmap")],
)
def test_what_is_not_advised_would_not_help(tmp_path: Path, where: str, column: str, index: str) -> None:
    """Explanations named these indexes by rules of their own; real ones save nothing to speak of, or cost more."""
    table = bitlake.connect(str(tmp_path / "lake")).create_table("t", orders(1, 0).schema)
    for seed in range(3):
        table.append(orders(1, seed))

    def read() -> int:
        forget()
        m = table.scan(["id"], where=where).explanation(analyze=True).plan.metrics
        return m.data_bytes_read + m.index_bytes_read

    before = read()
    assert table.scan(["id"], where=where).explanation(analyze=True).advice == ()
    table.indexes.create(column, index)
    table.indexes.rebuild()
    assert before - read() < before / 20


def test_what_is_asked_cannot_break_the_page(tmp_path: Path) -> None:
    lake = bitlake.connect(str(tmp_path / "lake"))
    table = lake.create_table("t", pa.schema([("a<b>&\"'", pa.string())]))
    table.append(pa.table({"a<b>&\"'": ["</main><script>alert(1)</script>", "x"]}))
    told = table.scan(where="`a<b>&\"'` = '</main><script>alert(1)</script>'").explanation(analyze=True)
    html = told.to_html()
    well_formed(html)
    assert "<script>" not in html and escape("</main><script>alert(1)</script>") in html
    assert told._repr_html_().startswith("<style>")


def test_large_tables_are_bounded(tmp_path: Path) -> None:
    table = bitlake.connect(str(tmp_path / "lake")).create_table("t", events().schema)
    state = table._core.state()
    table.append(events(10))
    (entry,) = table._core.state().entries()
    del state
    scan = table.scan()
    told = scan.explanation()
    many = replace(told, files=told.files * 500, plan=told.plan)
    assert len(told.files) <= MOST_FILES and entry.file.row_count == 10
    told.plan.metrics.files = 5000
    html = replace(told, files=many.files[:MOST_FILES]).to_html()
    assert html.count("<details>") == MOST_FILES and "4,600 more files are not shown" in html
    assert len(html) < 1_000_000


def test_of_very_many_files_some_are_looked_at(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without reading the scan, footers are read of so many files only, and what they tell is scaled."""
    every = table.scan(["id"]).explanation()
    monkeypatch.setattr("bitlake.tools.explain.explanation.MOST_FILES", 2)
    some = table.scan(["id"]).explanation()
    assert len(some.files) == 2 and some.files_left_out == 4 and "about" in some.text()
    for a, b in zip(every.steps, some.steps, strict=True):
        assert a.name == b.name and b.estimated == (b.name in ("columns that are needed", "pages without a chosen row"))
        assert 0.7 * a.bytes <= b.bytes <= 1.3 * a.bytes
    read = table.scan(["id"]).explanation(analyze=True)
    assert not any(s.estimated for s in read.steps) and len(read.files) == 2
    few = table.scan(where="id < 20000").explanation()
    assert [f.state for f in few.files] == ["read", "statistics"]


def test_who_does_not_ask_pays_nothing(table: Table) -> None:
    """Found when planning is benchmarked: nothing of explanations is even loaded by a scan."""
    code = (
        "import bitlake, sys; lake = bitlake.connect(sys.argv[1]); scan = lake.table('orders').scan(where='id = 7');"
        "scan.to_arrow(); scan.explain()\n"
        "print(sorted(m for m in sys.modules if m.startswith('bitlake.tools.explain')))"
    )
    warehouse_of = str(Path(table.path).parent.parent)
    done = subprocess.run([sys.executable, "-c", code, warehouse_of], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['bitlake.tools.explain', 'bitlake.tools.explain.text']"


def test_a_measuring_store_sees_every_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(range(256)) * 40)
    meter = Meter()
    store = MeteringStore(LocalStore(), meter)
    path = str(tmp_path / "f")
    assert len(store.read(path)) == 10_240 and store.size(path) == 10_240
    assert store.read_range(path, 256, 3) == b"\0\1\2" and store.read_part(path, 0, 100)[1] == 10_240
    meter.phase = "read"
    assert store.read_ranges(path, [(1, 1), (512, 2)]) == [b"\1", b"\0\1"]
    with store.open_input(path) as source:
        source.seek(10_000)
        assert len(source.read()) == 240 and source.size() == 10_240
    assert (meter.of("plan").bytes, meter.of("plan").requests) == (10_343, 3)
    assert meter.of("read").bytes == 243 and meter.ranges[path][:2] == [(1, 1), (512, 2)]
    assert meter.of("filter").bytes == 0


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian package chromium)")
@pytest.mark.parametrize("width", [exhaustive(1280), 400])
def test_the_page_opens_without_overflow(table: Table, tmp_path: Path, width: int) -> None:
    where = "day <= '2024-01-02' AND status IN ('PENDING', 'A-VERY-LONG-WORD-WITHOUT-ANY-SPACE-THAT-GOES-ON-AND-ON')"
    page = table.scan(where=where).explanation(analyze=True).to_html()
    measure = (
        "<script>f.onload=()=>{const d=f.contentDocument.documentElement;"
        "o.textContent='wide '+d.scrollWidth+' of '+d.clientWidth+', '+f.contentDocument.querySelectorAll('svg').length"
        "+' pictures'}</script>"
    )
    frame = f'<iframe id=f width={width} height=900 srcdoc="{escape(page)}"></iframe><p id=o></p>{measure}'
    (tmp_path / "frame.html").write_text(frame)
    assert CHROMIUM is not None
    asked = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done: Any = subprocess.run(
        [CHROMIUM, *asked, profile, f"file://{tmp_path / 'frame.html'}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found = re.search(r"wide (\d+) of (\d+), (\d+) pictures", done.stdout)
    assert found is not None, done.stderr[-2000:]
    wide, room, pictures = map(int, found.groups())
    assert wide <= room <= width and pictures >= 12


def test_no_index_is_missed_where_files_are_merged(tmp_path: Path) -> None:
    """Of files that are merged by key no index is asked: it is neither said to be missing, nor that it would help."""
    lake = bitlake.connect(str(tmp_path / "lake"))
    kept = {"file-index.bitmap.columns": "city", "bucket": "1"}
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("city", pa.string())])
    keyed = lake.create_table("t", schema, primary_key=["id"], options=kept)
    for city in ("Rome", "Oslo"):
        keyed.append(pa.table({"id": [1, 2], "city": [city, city]}, schema=schema))
    told = keyed.scan(where="city = 'Rome'").explanation()
    assert told.advice == ()
    assert "no file: merged by key" in str(told) and "no file: merged by key" in told.to_html()
    assert "files      2 of 2 read" in str(told)
