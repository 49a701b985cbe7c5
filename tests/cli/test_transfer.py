"""Import and export as processes: files of every kind, there and back."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import json
import os
import subprocess
import sys
import threading
import types
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli.conftest import Cli, environment, orders

import bitlake
from bitlake.cli import text_files, transfer
from bitlake.cli.text_files import BadRows
from bitlake.errors import InvalidRequest


def rows_of(table: pa.Table) -> list[dict[str, object]]:
    return sorted(table.to_pylist(), key=lambda r: r["order_id"])  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["o.parquet", "o.csv", "o.jsonl"])
def test_there_and_back(cli: Cli, lake: bitlake.Lake, tmp_path: Path, name: str) -> None:
    file = str(tmp_path / name)
    said = cli("export", "orders", file, "-w", "order_id < 50", "--json").json
    assert said["rows"] == 50 and said["bytes"] == Path(file).stat().st_size
    cli("export", "orders", file, code=1)
    target = "back_" + name.partition(".")[2]
    made = cli("import", target, file, "--create", "--json").json
    assert (made["created"], made["rows"], made["snapshot"]) == (True, 50, 1)
    assert rows_of(lake.table(target).scan().to_arrow()) == rows_of(orders(0, 50))
    assert cli("import", target, file).out.startswith(f"default.{target}: 50 rows of 1 file, snapshot 2, ")
    cli("import", target, file, "--overwrite")
    assert lake.table(target).scan().count() == 50
    lake.drop_table(target)


def test_days_and_times_of_json(cli: Cli, lake: bitlake.Lake, tmp_path: Path) -> None:
    lines = ['{"day": "2024-01-01", "at": "2024-01-01 10:00:00", "n": 1}', '{"day": null, "at": "2024-01-02", "n": 2}']
    file = tmp_path / "d.json"
    file.write_text("\n".join(lines))
    cli("import", "days", str(file), "--create")
    cli("import", "days", "-", "-f", "json", stdin='{"day": "2024-02-29"}\n')
    rows = lake.table("days").scan().to_arrow()
    assert [str(t) for t in rows.schema.types] == ["date32[day]", "timestamp[us]", "int64"]
    assert [str(v) for v in rows["day"].to_pylist()] == ["2024-01-01", "None", "2024-02-29"]
    said = cli("import", "days", "-", "-f", "json", stdin='{"day": "29.2.2024"}\n', code=1).err
    assert "column 'day'" in said and "29.2.2024" in said
    lake.drop_table("days")


def test_export_to_a_folder_that_is_not_there(cli: Cli, tmp_path: Path) -> None:
    said = cli("export", "orders", str(tmp_path / "no" / "o.csv"), code=1).err
    assert f"folder not found: {tmp_path / 'no'}; create it" in said and "Errno" not in said


def test_export_to_stdout(cli: Cli) -> None:
    out = cli("export", "orders", "-", "-f", "json", "-c", "order_id,amount", "-w", "order_id in (7, 8)").out
    assert [json.loads(line) for line in out.splitlines()] == [
        {"order_id": 7, "amount": None},
        {"order_id": 8, "amount": 2.0},
    ]
    out = cli("export", "orders", "-", "-f", "csv", "--tag", "monday", "-c", "status", "--limit", "2").out
    assert list(csv.reader(io.StringIO(out))) == [["status"], ["PENDING"], ["SHIPPED"]]


def test_csv_by_its_header_or_by_position(cli: Cli, lake: bitlake.Lake, tmp_path: Path) -> None:
    lake.create_table("people", pa.schema([("id", pa.int32()), ("name", pa.string()), ("born", pa.date32())]))
    (tmp_path / "a.csv").write_text('Name,ID\n"Ada, Countess",1\n"",2\n,3\n')
    (tmp_path / "b.tsv").write_text("4\tAlan\t1912-06-23\n5\t-\t\n")
    with gzip.open(tmp_path / "c.csv.gz", "wt") as f:
        f.write("id,born\n6,1906-12-09\n")
    (tmp_path / "none.csv").write_text("name,id\n")
    cli("import", "people", *(str(tmp_path / n) for n in ("a.csv", "none.csv", "c.csv.gz")))
    cli("import", "people", str(tmp_path / "b.tsv"), "--no-header", "--null", "-")
    found = sorted(lake.table("people").scan().to_arrow().to_pylist(), key=lambda r: r["id"])
    assert [(r["name"], str(r["born"])) for r in found] == [
        ("Ada, Countess", "None"), ("", "None"), (None, "None"),
        ("Alan", "1912-06-23"), (None, "None"), (None, "1906-12-09"),
    ]  # fmt: skip
    lake.drop_table("people")


def test_what_cannot_be_imported(cli: Cli, lake: bitlake.Lake, tmp_path: Path) -> None:
    before = lake.table("users").snapshot
    (tmp_path / "bad.csv").write_text("id,name\n1,a\nx,b\n")
    err = cli("import", "users", str(tmp_path / "bad.csv"), code=1).err
    assert "bad.csv, column 'id': " in err and "'x'" in err
    (tmp_path / "semi.csv").write_text("id;name\n1;a\n")
    assert "; use --delimiter ';'" in cli("import", "users", str(tmp_path / "semi.csv"), code=1).err
    (tmp_path / "more.csv").write_text("id,nam\n1,a\n")
    assert "column 'nam'; the table has id, name" in cli("import", "users", str(tmp_path / "more.csv"), code=1).err
    (tmp_path / "no.parquet").write_bytes(b"PAR1nothing")
    assert "no.parquet" in cli("import", "users", str(tmp_path / "no.parquet"), code=1).err
    assert "--create creates it" in cli("import", "nobody", str(tmp_path / "bad.csv"), code=1).err
    assert "file not found: nowhere.csv" in cli("import", "users", "nowhere.csv", code=1).err
    assert "use --format" in cli("import", "users", "-", code=1).err
    (tmp_path / "list.json").write_text('[{"id": 1}]')
    assert "one JSON array" in cli("import", "users", str(tmp_path / "list.json"), code=1).err
    assert lake.table("users").snapshot == before and "nobody" not in lake.tables()


def test_a_table_made_of_a_file(cli: Cli, lake: bitlake.Lake, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    rows = pa.table({"k": [1, 2, 2], "day": ["a", "a", "b"], "v": pa.array(["x", "y", "z"]).dictionary_encode()})
    pq.write_table(rows, folder / "1.parquet")
    pq.write_table(rows, folder / "2.parquet")
    options = [
        "--primary-key",
        "k,day",
        "--partition-by",
        "day",
        "--table-option",
        "bucket=1",
        "--type",
        "k=INT",
    ]
    assert cli("import", "made", str(folder), "--create", *options, "--json").json["files"] == 2
    described = cli("describe", "made", "--json").json
    assert (described["primary_key"], described["partitioned_by"]) == (["k", "day"], ["day"])
    assert [c["type"] for c in described["columns"]] == ["INT", "STRING", "STRING"]
    assert lake.table("made").scan().count() == 3  # rows of a key are one
    lake.drop_table("made")
    cli("import", "made", str(folder), "--primary-key", "k", code=2)
    piped = '{"a": 1, "b": {"c": [1, 2]}}\n'
    assert cli("import", "piped", "-", "-f", "json", "--create", "--json", stdin=piped).json["rows"] == 1
    assert lake.table("piped").scan().to_arrow().to_pylist() == [{"a": 1, "b": {"c": [1, 2]}}]
    lake.drop_table("piped")


def test_errors_of_csv_name_row_and_column(cli: Cli, lake: bitlake.Lake, tmp_path: Path) -> None:
    """The header is row 1, as in an editor."""
    lake.create_table("rows", pa.table({"id": [0], "amount": [0.5]}))
    values, short = tmp_path / "values.csv", tmp_path / "short.csv"
    values.write_text("id,amount\n1,2.5\n2,x\n")
    short.write_text("1,2.5\n2\n")
    err = cli("import", "rows", str(values), code=1).err
    assert f"{values}, column 'amount': CSV conversion error to double: invalid value 'x' (row 3)" in err
    err = cli("import", "rows", str(short), "--no-header", code=1).err
    assert f"{short}: CSV parse error: Expected 2 columns, got 1: 2 (row 2)" in err
    assert lake.table("rows").count() == 1


def imported(cli: Cli, table: str, file: Path, text: str | bytes, *more: str) -> str:
    """The error of a file that is not imported."""
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return cli("import", table, str(file), *more, code=1).err


def test_errors_name_row_and_column(cli: Cli, lake: bitlake.Lake, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("day", pa.date32()), ("s", pa.string())])
    lake.create_table("strict", schema)
    file = tmp_path / "f.jsonl"
    good = '{"id": 1, "day": "2024-01-01"}\n\n' * 3
    assert f"{file}, column 'id': changed from number to string (row 7)" in imported(
        cli, "strict", file, good + '{"id": "x"}\n'
    )
    assert f"{file}, column 'day': " in (err := imported(cli, "strict", file, good + '{"id": 1, "day": "May"}'))
    assert "'May'" in err and "(row 7)" in err
    assert f"{file}, column 'extra': not among the table's columns, id, day, s (row 7)" in imported(
        cli, "strict", file, good + '{"id": 2, "extra": 1}\n{"id": "x"}\n'
    )
    null = imported(cli, "strict", file, good + '{"id": null}\n' + good)
    assert f"{file}, column 'id': NOT NULL, but 1 of its values are NULL (row 7)" in null
    columns = tmp_path / "f.csv"
    assert f"{columns}, column 'id': NOT NULL" in (err := imported(cli, "strict", columns, "id,s\n1,a\n,b\n"))
    assert "(row 3)" in err
    pq.write_table(pa.table({"id": [1, None, 3]}), rows := tmp_path / "f.parquet")
    assert (
        f"{rows}, column 'id': NOT NULL, but 1 of its values are NULL (row 2)"
        in cli("import", "strict", str(rows), code=1).err
    )
    assert lake.table("strict").snapshot is None
    lake.drop_table("strict")


def test_bad_rows_are_skipped(cli: Cli, lake: bitlake.Lake, tmp_path: Path) -> None:
    """Good rows mean the same as in a file without bad ones: NULL, quoted text, dates."""
    kinds = [pa.field("id", pa.int64(), nullable=False), ("day", pa.date32()), ("ok", pa.bool_()), ("s", pa.string())]
    lake.create_table("some", pa.schema(kinds))
    lines = [
        ("1,2024-01-01,true,x", True),
        ('2,,,""', True),
        ("3,2024-02-30,true,x", False),
        ("4,2024-01-02", False),
        ('5,NA,false,"two\nlines, ""quoted"""', True),
        ("six,2024-01-02,true,x", False),
        ('7,2024-01-03,"true","NA"', True),
        (",2024-01-03,true,x", False),
        ("8,2024-01-03,maybe,x", False),
        ('9,2024-01-03,"",x', False),
        ("10,2024-01-04,false,", True),
    ]
    bad, fine = tmp_path / "bad.csv", tmp_path / "fine.csv"
    bad.write_text("id,day,ok,s\n" + "".join(f"{line}\n" for line, _ in lines))
    fine.write_text("id,day,ok,s\n" + "".join(f"{line}\n" for line, good in lines if good))
    cli("import", "some", str(fine), "--null", "NA")
    expected = lake.table("some").to_arrow().sort_by("id").to_pylist()
    assert [r["id"] for r in expected] == [1, 2, 5, 7, 10] and expected[3]["s"] == "NA"
    refused = cli("import", "some", str(bad), "--null", "NA", "--skip-bad", "5", code=1).err
    assert "(row 11); --skip-bad leaves out at most 5 rows" in refused
    done = cli("import", "some", str(bad), "--null", "NA", "--skip-bad", "6", "--overwrite", "--json").json
    assert lake.table("some").to_arrow().sort_by("id").to_pylist() == expected
    assert (done["rows"], done["skipped"]) == (5, 6)
    assert sorted(int(t.rpartition("(row ")[2].rstrip(")")) for t in done["skipped_rows"]) == [4, 5, 7, 9, 10, 11]
    shown = cli("import", "some", str(bad), "--null", "NA", "--skip-bad", "9").out
    assert "skipped 6 rows:" in shown and f"{bad}, column 'day': CSV conversion error to date32" in shown
    lake.drop_table("some")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_rows_are_skipped_in_each_block(
    lake: bitlake.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Rows keep their numbers beyond the first block."""
    monkeypatch.setattr(transfer, "_BLOCK", 100)
    monkeypatch.setattr(transfer, "_ROWS", 7)
    ids = [None if i % 10 == 3 else i for i in range(95)]
    file = tmp_path / f"rows.{kind}"
    if kind == "csv":
        file.write_text("id,s\n" + "".join(f"{'x' if i is None else i},a\n" for i in ids) + "1\n")
    elif kind == "jsonl":
        file.write_text("".join(json.dumps({"id": i, "s": "a"}) + "\n" for i in ids))
    else:
        pq.write_table(pa.table({"id": ids, "s": ["a"] * 95}), file)
    table = lake.create_table(f"blocks_{kind}", pa.schema([pa.field("id", pa.int64(), False), ("s", pa.string())]))
    bad = BadRows(100)
    sources = transfer.find_sources([str(file)], None, transfer.CsvStyle(), {})
    rows, _ = transfer._write_rows(table, sources, False, bad)
    assert rows == 85 and sorted(table.to_arrow(["id"]).column(0).to_pylist()) == [i for i in ids if i is not None]
    first = 2 if kind == "csv" else 1
    expected = [first + i for i in range(3, 95, 10)] + [97] * (kind == "csv")
    assert sorted(int(t.rpartition("(row ")[2].rstrip(")")) for t in bad.shown) == expected
    lake.drop_table(f"blocks_{kind}")


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_exported_binary_values_and_times_are_imported(lake: bitlake.Lake, tmp_path: Path, kind: str) -> None:
    """Bug: the hexadecimal digits of binary values were stored as text, and JSON with a TIME was refused."""
    values = [b"", b"\x00\xff", None, b"ab", bytes(range(256))]
    times = [dt.time(1, 2, 3), None, dt.time(0), dt.time(23, 59, 59, 999000), dt.time(12)]
    rows = pa.table({"id": range(5), "b": values, "t": pa.array(times, pa.time32("ms"))})
    table = lake.create_table(f"binary_{kind}", rows)
    file = tmp_path / f"f.{kind}"
    with file.open("wb") as f:
        transfer.write(f, kind, table.scan().schema, table.scan().to_batches())
    sources = transfer.find_sources([str(file)], None, transfer.CsvStyle(), {})
    copy = lake.create_table(f"copy_{kind}", rows.schema)
    assert transfer._write_rows(copy, sources, False, BadRows(0))[0] == 5
    assert copy.to_arrow().sort_by("id").to_pylist() == rows.to_pylist()
    for digits in ("abc", "0g", "0 0"):
        file.write_text(
            f"id,b\n1,00\n2,{digits}\n" if kind == "csv" else f'{{"id": 1}}\n{{"id": 2, "b": "{digits}"}}\n'
        )
        with pytest.raises(InvalidRequest, match=rf"column 'b': '{digits}' is not binary.*\(row [23]\)"):
            transfer._write_rows(copy, sources, False, BadRows(0))
    for name in (f"binary_{kind}", f"copy_{kind}"):
        lake.drop_table(name)


def test_binary_values_inside_of_others_are_not_imported_as_text(lake: bitlake.Lake, tmp_path: Path) -> None:
    table = lake.create_table("inner_binary", pa.schema([("l", pa.list_(pa.binary()))]))
    file = tmp_path / "f.json"
    file.write_text('{"l": ["00ff"]}\n')
    sources = transfer.find_sources([str(file)], None, transfer.CsvStyle(), {})
    with pytest.raises(InvalidRequest, match="column 'l' has binary values inside"):
        transfer._write_rows(table, sources, False, BadRows(0))
    lake.drop_table("inner_binary")


def test_a_file_whose_name_is_not_utf8(lake: bitlake.Lake, tmp_path: Path) -> None:
    """Bug: a UnicodeEncodeError of Arrow, since a command line has such a name with surrogates."""
    file = tmp_path / os.fsdecode(b"caf\xe9.csv")
    file.write_text("id\n1\n2\n")
    table = lake.create_table("odd_name", pa.schema([("id", pa.int64())]))
    sources = transfer.find_sources([str(file)], None, transfer.CsvStyle(), {})
    assert transfer._write_rows(table, sources, False, BadRows(0))[0] == 2
    lake.drop_table("odd_name")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_failed_import_reads_its_file_once(
    lake: bitlake.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A second read, to find the bad row, doubled the time, and standard input has none."""
    opened: list[str] = []

    def counted(source: transfer.Source) -> object:
        opened.append(source.path)
        return open_source(source)

    open_source = transfer.Source._opened
    monkeypatch.setattr(transfer.Source, "_opened", counted)
    table = lake.create_table(f"once_{kind}", pa.schema([pa.field("id", pa.int64(), False)]))
    file = tmp_path / f"f.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"id": [1, None]}), file)
    else:
        file.write_text("id\n1\nx\n" if kind == "csv" else '{"id": 1}\n{"id": "x"}\n')
    with pytest.raises(InvalidRequest, match=rf"column 'id': .*\(row {3 if kind == 'csv' else 2}\)"):
        transfer._write_rows(
            table, transfer.find_sources([str(file)], None, transfer.CsvStyle(), {}), False, BadRows(0)
        )
    assert opened == [str(file)]
    lake.drop_table(table.name)


class Watched(io.BytesIO):
    """Standard input that notes the threads that read it."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.readers: set[int] = set()

    def read(self, size: int | None = -1) -> bytes:
        self.readers.add(threading.get_ident())
        return super().read(size)


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_standard_input_is_read_by_one_thread(
    lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch, kind: str, create: bool
) -> None:
    """A thread of Arrow's that still held standard input when the interpreter ended aborted the process."""
    monkeypatch.setattr(transfer, "_BLOCK", 1000)
    lines = [json.dumps({"id": i}) if kind == "json" else str(i) for i in range(5000)]
    stdin = Watched("\n".join(["id"] * (kind == "csv") + lines).encode())
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=stdin))
    (source,) = transfer.find_sources(["-"], transfer.Format(kind), transfer.CsvStyle(), {})
    table = lake.create_table("piped", source.schema() if create else pa.schema([("id", pa.int64())]))
    assert transfer._write_rows(table, [source], False, BadRows(0))[0] == 5000
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(5000))
    assert stdin.readers == {threading.get_ident()}
    lake.drop_table("piped")


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
@pytest.mark.parametrize("bad", [False, True])
def test_parsers_hold_no_python_object(
    lake: bitlake.Lake, monkeypatch: pytest.MonkeyPatch, kind: str, bad: bool
) -> None:
    """A thread of a CSV parser that let go of Python's bytes when the interpreter had ended aborted the process."""
    inputs: list[pa.BufferReader] = []
    arrow_reader = text_files.arrow_reader

    def kept(text: bytes) -> pa.BufferReader:
        held = sys.getrefcount(text)
        inputs.append(arrow_reader(text))
        assert sys.getrefcount(text) == held
        return inputs[-1]

    for module in (transfer, text_files):
        monkeypatch.setattr(module, "arrow_reader", kept)
    data = io.BytesIO()
    if kind == "parquet":
        pq.write_table(pa.table({"id": [1, None if bad else 2]}), data)
    else:
        values = ["1", '"x"' if bad else "2"]
        lines = ["id", *values] if kind == "csv" else [f'{{"id": {v}}}' for v in values]
        data.write("\n".join(lines).encode())
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(data.getvalue())))
    (source,) = transfer.find_sources(["-"], transfer.Format(kind), transfer.CsvStyle(), {})
    table = lake.create_table("held", source.schema() if not bad else pa.schema([pa.field("id", pa.int64(), False)]))
    assert transfer._write_rows(table, [source], False, BadRows(1))[0] == 2 - bad
    assert inputs
    lake.drop_table("held")


def test_a_pipe_that_is_not_read_to_its_end(lake: bitlake.Lake, home: Path) -> None:
    """The process ends with the error of the first row, and not by a signal."""
    lake.create_table("early", pa.schema([("id", pa.int64())]))
    small = "import sys; from bitlake.cli import app, transfer; transfer._BLOCK = 1 << 16; sys.exit(app.main())"
    line = [sys.executable, "-c", small, "import", "early", "-", "-f", "json", "--lake", lake.path]
    text = b'{"id": "x"}\n' + b'{"id": 1}\n' * 200_000
    done = subprocess.run(line, check=False, input=text, capture_output=True, env=environment(home))
    assert (done.returncode, b"column 'id': changed from number to string (row 1)" in done.stderr) == (1, True)
    lake.drop_table("early")


NOT_FINITE = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf", "+INF": "inf", "-INF": "-inf", "nan": "nan"}


def test_json_makes_a_table_with_numbers_that_are_not_finite(cli: Cli, lake: bitlake.Lake, tmp_path: Path) -> None:
    """Bug: types were inferred only where a column's values were all numbers or all texts."""
    file = tmp_path / "t.json"
    file.write_text(
        '{"d": "nan", "s": "NaN", "day": "2024-02-29"}\n{"d": 2.5, "s": "x", "day": "2024-03-01"}\n{"d": -Infinity}'
    )
    cli("import", "not_finite", str(file), "--create")
    rows = lake.table("not_finite").scan().to_arrow()
    assert rows.schema.types == [pa.float64(), pa.string(), pa.date32()]
    assert str(rows["d"].to_pylist()) == "[nan, 2.5, -inf]" and rows["s"].to_pylist() == ["NaN", "x", None]
    whole = pa.struct([("x", pa.float64()), ("n", pa.float64())])
    types = [("d", pa.float64()), ("l", pa.list_(pa.float64())), ("st", whole), ("n", pa.int64())]
    numbers = [{"d": 1, "l": [1], "st": {"x": 1, "n": 2}, "n": 1}]
    numbers += [{"d": float("nan"), "l": [2, float("inf")], "st": {"x": float("nan"), "n": 3}, "n": 2}]
    lake.create_table("numbers", pa.schema(types)).append(pa.Table.from_pylist(numbers, pa.schema(types)))
    cli("export", "numbers", str(file), "--overwrite")
    cli("import", "numbers_again", str(file), "--create")
    again = lake.table("numbers_again").scan().to_arrow()
    assert again.schema.equals(pa.schema(types)) and str(again.to_pylist()) == str(
        lake.table("numbers").scan().to_arrow().to_pylist()
    )
    for name in ("not_finite", "numbers", "numbers_again"):
        lake.drop_table(name)


def test_json_has_numbers_that_are_not_finite_and_maps(cli: Cli, lake: bitlake.Lake, tmp_path: Path) -> None:
    """As Spark's reader takes them, and as export writes them."""
    types = [("id", pa.int32()), ("d", pa.float64()), ("f", pa.float32()), ("l", pa.list_(pa.float64()))]
    types += [("m", pa.map_(pa.string(), pa.float64())), ("days", pa.map_(pa.string(), pa.list_(pa.date32())))]
    lake.create_table("maps", pa.schema(types))
    lines = [f'{{"id": 1, "d": "{text}", "f": "{text}", "l": ["{text}", 1]}}' for text in NOT_FINITE]
    lines += [
        '{"id": 2, "d": NaN, "f": -Infinity, "l": null}',
        '{"id": 3, "d": 1.5, "m": {"a": 1, "b": "NaN", "c": null}}',
    ]
    lines += ['{"id": 4, "m": {}, "days": {"x": ["2024-02-29", null], "y": null}}']
    file = tmp_path / "t.json"
    file.write_text("\n".join(lines))
    cli("import", "maps", str(file))
    rows = lake.table("maps").scan().to_arrow().to_pylist()
    first = [r for r in rows if r["id"] == 1]
    assert [[str(r["d"]), str(r["f"]), str(r["l"])] for r in first] == [
        [v, v, f"[{v}, 1.0]"] for v in NOT_FINITE.values()
    ]
    others = {r["id"]: r for r in rows if r["id"] != 1}
    assert (str(others[2]["d"]), others[2]["f"], others[2]["l"]) == ("nan", float("-inf"), None)
    assert others[3]["d"] == 1.5 and str(others[3]["m"]) == "[('a', 1.0), ('b', nan), ('c', None)]"
    assert others[4]["m"] == [] and others[4]["days"] == [("x", [dt.date(2024, 2, 29), None]), ("y", None)]
    cli("export", "maps", str(tmp_path / "again.json"))
    lake.create_table("maps_again", lake.table("maps").scan().to_arrow().schema)
    cli("import", "maps_again", str(tmp_path / "again.json"))
    assert str(lake.table("maps_again").scan().to_arrow().to_pylist()) == str(rows)
    for name in ("maps", "maps_again"):
        lake.drop_table(name)


def test_decimals_of_maps_in_json_keep_all_digits(cli: Cli, lake: bitlake.Lake, tmp_path: Path) -> None:
    kinds = [("m", pa.map_(pa.string(), pa.decimal128(30, 2))), ("f", pa.map_(pa.string(), pa.float64()))]
    lake.create_table("wide_maps", pa.schema(kinds))
    file = tmp_path / "t.json"
    file.write_text('{"m": {"a": 12345678901234567890.12, "b": 1e2, "c": "3.1", "d": -7}, "f": {"x": 0.1, "y": 1e308}}')
    cli("import", "wide_maps", str(file))
    (row,) = lake.table("wide_maps").scan().to_arrow().to_pylist()
    assert [str(v) for _, v in row["m"]] == ["12345678901234567890.12", "100.00", "3.10", "-7.00"]
    assert dict(row["f"]) == {"x": 0.1, "y": 1e308}
    lake.drop_table("wide_maps")


def test_bad_values_of_maps_and_floats_in_json(cli: Cli, lake: bitlake.Lake, tmp_path: Path) -> None:
    kinds = [("id", pa.int32()), ("d", pa.float64()), ("m", pa.map_(pa.string(), pa.int32())), ("s", pa.string())]
    lake.create_table("bad_maps", pa.schema(kinds))
    bad = {
        '{"id": 2, "d": "many"}': "'d'",
        '{"id": 3, "m": [1]}': "column 'm': [1] is not a value of type map",
        '{"id": 4, "m": {"a": "x"}}': "column 'm': \"x\" is not a value of type int32",
        '{"id": 5, "m": {"a": 1.5}}': "column 'm': 1.5 is not",
        '{"id": 6, "m": {"a": true}}': "column 'm': true is not",
        '{"id": 7, "other": 1}': "column 'other': not among the table's columns",
        '{"id": 8, "s": 1}': "'s'",
        '{"id": 9} {"id": 10}': "",
        '{"id": 11, "m": {"a": 3000000000}}': "column 'm'",
    }
    good = ['{"id": 1, "d": "NaN", "m": {"a": 1}, "s": "NaN"}', "", '{"id": 12, "d": 2}']
    file = tmp_path / "t.json"
    file.write_text("\n".join([good[0], *bad, *good[1:]]))
    done = cli("import", "bad_maps", str(file), "--skip-bad", str(len(bad)), "--json").json
    assert (done["rows"], done["skipped"]) == (2, len(bad))
    for shown, (number, why) in zip(done["skipped_rows"], enumerate(bad.values(), 2), strict=True):
        assert why in shown and shown.endswith(f"(row {number})")
    rows = lake.table("bad_maps").scan().to_arrow().to_pylist()
    assert str(rows[0]) == "{'id': 1, 'd': nan, 'm': [('a', 1)], 's': 'NaN'}" and rows[1]["id"] == 12
    lake.drop_table("bad_maps")


def test_keys_of_maps_in_json(cli: Cli, lake: bitlake.Lake, tmp_path: Path) -> None:
    """JSON names members by text: keys are the text that export writes of them."""
    keys: dict[str, tuple[pa.DataType, list[Any]]] = {
        "i": (pa.int32(), [1, -20]),
        "d": (pa.float64(), [1.5, float("inf")]),
        "b": (pa.bool_(), [True, False]),
        "n": (pa.decimal128(30, 2), [Decimal("12345678901234567890.12")]),
        "day": (pa.date32(), [dt.date(2024, 2, 29)]),
        "at": (pa.timestamp("us"), [dt.datetime(2024, 2, 29, 1, 2, 3, 4)]),
    }
    schema = pa.schema([(name, pa.map_(kind, pa.int32())) for name, (kind, _) in keys.items()])
    row = {name: [(v, 7) for v in values] for name, (_, values) in keys.items()}
    lake.create_table("keys", schema).append(pa.Table.from_pylist([row], schema))
    file = tmp_path / "t.json"
    cli("export", "keys", str(file))
    lake.create_table("keys_again", schema)
    bad = ['{"i": {"x": 1}}', '{"i": {"1.5": 1}}', '{"d": {"1": 1, "1.0": 2}}', '{"b": {"null": 1}}']
    bad += ['{"day": {"1": 2}}']
    file.write_text("\n".join([file.read_text().strip(), *bad]))
    done = cli("import", "keys_again", str(file), "--skip-bad", str(len(bad)), "--json").json
    assert (done["rows"], done["skipped"]) == (1, len(bad)), done
    assert lake.table("keys_again").scan().to_arrow().to_pylist() == [row]
    for name in ("keys", "keys_again"):
        lake.drop_table(name)


def test_numbers_that_are_not_finite_without_quotes(cli: Cli, lake: bitlake.Lake, tmp_path: Path) -> None:
    lake.create_table("unquoted", pa.schema([("d", pa.float64()), ("s", pa.string())]))
    values = ("NaN", "Infinity", "+Infinity", "-Infinity", "+INF", "-INF")
    bad = ('{"d": INF}', '{"d": nan}', '{"d": +NaN}')
    file = tmp_path / "t.json"
    lines = [f'{{"d": {v}, "s": "x\\" {v}, \\\\"}}' for v in values]
    file.write_text("\n".join([*lines, *bad]))
    done = cli("import", "unquoted", str(file), "--skip-bad", "9", "--json").json
    assert (done["rows"], done["skipped"]) == (len(values), len(bad))
    rows = lake.table("unquoted").scan().to_arrow().to_pylist()
    assert [str(r["d"]) for r in rows] == ["nan", "inf", "inf", "-inf", "inf", "-inf"]
    assert [r["s"] for r in rows] == [f'x" {v}, \\' for v in values]
    lake.drop_table("unquoted")
