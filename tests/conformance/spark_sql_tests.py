"""Spark's own SQL tests on the lake and plain Spark: ``python tests/conformance/spark_sql_tests.py FOLDER [NAME …]``.

``FOLDER`` holds Spark's ``sql-tests/inputs`` (any copy of it); it is not part of this repository.  Every statement runs
in two sessions.  A temporary view or table that a file makes becomes a table of the lake in one and stays Spark's in
the other; their queries must answer the same.  ``NAME`` limits the files to those whose path contains it.  ``--tables``
is a file of CREATE TABLE statements for the tables that Spark's suite makes itself (``testdata``, ``onek`` …).
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import bitlake
from bitlake.errors import BitlakeError, InvalidRequest
from bitlake.sql.parser import split_statements

sys.path.insert(0, str(Path(__file__).resolve().parent))

from compare import Answer
from quick_session import QUICK, start

_MADE = re.compile(
    r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:(TEMPORARY|TEMP)\s+VIEW|(TABLE))\s+(?:IF\s+NOT\s+EXISTS\s+)?(\w+)\b", re.I
)
_DROPPED = re.compile(r"DROP\s+(?:VIEW|TABLE)\s+(?:IF\s+EXISTS\s+)?(\w+)\s*$", re.I)
_FILLED = re.compile(r"\bINSERT\s+(?:INTO|OVERWRITE)\s+(?:TABLE\s+)?(\w+)", re.I)
_MAY_FILL = re.compile(r"(?:INSERT|WITH|FROM)\b", re.I)
_QUERY = re.compile(r"\s*(?:--[^\n]*\n\s*)*(SELECT|WITH|FROM|TABLE|VALUES|\(|DESCRIBE\s+QUERY|EXECUTE)", re.I)
_IMMEDIATE_WRITE = re.compile(r"EXECUTE\s+IMMEDIATE\s+'\s*(INSERT|CREATE|DROP)", re.I)
_OF_SESSION = re.compile(r"\s*(SET|RESET|DECLARE|DROP\s+TEMPORARY\s+(VARIABLE|FUNCTION))\b", re.I)
_IMPORT = re.compile(r"^--IMPORT (.+)$", re.M)
_SET = re.compile(r"^--SET (.+)$", re.M)
_AT_END = re.compile(r";[ \t]*$", re.M)
_DELIMITED = re.compile(r"^--QUERY-DELIMITER-(?:START|END).*$", re.M)
_FULL = re.compile(r"\bspark_catalog\.(default\.(\w+))", re.I)
_UNSTABLE = re.compile(
    r"\b(rand\w*|uuid|now|current_(?:timestamp|date|time|user|database|schema|catalog)|localtimestamp|first|last|any_value"
    r"|monotonically_increasing_id|input_file_\w+|spark_partition_id|tablesample|shuffle|version|explain)\b",
    re.I,
)


def read_file(path: Path, root: Path) -> tuple[dict[str, str], list[str]]:
    """A file's settings and statements, with those of the files that it imports.

    ``--IMPORT`` names a file, ``--SET`` settings, and ``--QUERY-DELIMITER`` encloses a statement with semicolons.
    """
    text = path.read_text(encoding="utf-8")
    settings = {"spark.sql.ansi.enabled": "false"} if "nonansi" in path.relative_to(root).parts else {}
    statements: list[str] = []
    for name in _IMPORT.findall(text):
        imported, more = read_file(root / name.strip(), root)
        settings = imported | settings
        statements += more
    for line in _SET.findall(text):
        pairs = (pair.split("=", 1) for pair in line.split(","))
        settings |= {key.strip(): value.strip() for key, value in pairs}
    for i, part in enumerate(_DELIMITED.split(text)):
        part = "\n".join(line for line in part.split("\n") if not line.startswith("--"))
        if i % 2:
            statements.append(part.strip().removesuffix(";"))
            continue
        try:
            statements += split_statements(part)
        except InvalidRequest:  # one of them has a literal that is wrong
            statements += filter(None, map(str.strip, _AT_END.split(part)))
    return settings, statements


class Files:
    """Two sessions, and the names that stand for lake tables in one of them."""

    def __init__(self, spark: SparkSession, folder: str, tables: str = "") -> None:
        self.base, self.folder = spark, folder
        creates = split_statements(tables)
        self.tables = {m.group(3).lower(): text for text in creates if (m := _MADE.match(text)) is not None}
        self.counts: Counter[str] = Counter()
        self.number = 0

    def run(self, path: Path, root: Path, shown: str) -> None:
        """Run a file's statements in both."""
        self.number += 1
        self.plain, own = self.base.newSession(), self.base.newSession()
        self.lake = bitlake.connect(f"{self.folder}/lake{self.number}", spark=own)
        self.mine: set[str] = set()
        self.of_lake: set[str] = set()
        self.changed: dict[str, str] = {}
        settings, statements = read_file(path, root)
        text = ";".join(statements)
        for session in (self.plain, own):
            for key, value in settings.items():
                session.conf.set(key, value)
            session.udf.register("udf", lambda value: None if value is None else str(value), "string")
        for name, create in self.tables.items():
            if re.search(rf"\b{name}\b", text, re.I):
                self._statement(create, shown)
        for statement in statements:
            self._statement(statement, shown)
        for name in self.mine:
            for kind in ("VIEW", "TABLE"):
                self._quiet(lambda kind=kind, name=name: self.plain.sql(f"DROP {kind} IF EXISTS {name}"))

    def _quiet(self, run: object) -> bool:
        try:
            run()  # type: ignore[operator]
        except (BitlakeError, PySparkException, Py4JJavaError):
            return False
        return True

    def _statement(self, text: str, shown: str) -> None:
        made, dropped = _MADE.match(text), _DROPPED.match(text)
        filled = _FILLED.findall(text) if _MAY_FILL.match(text) else []
        if not (made or filled):
            # Once for a run of INSERTs.
            for name, statement in self.changed.items():
                self._copy(name, statement)
            self.changed.clear()
        if made or filled:
            if self._quiet(lambda: self.plain.sql(text).collect()):
                self.changed |= dict.fromkeys([made.group(3).lower()] if made else map(str.lower, filled), text)
        elif dropped:
            name = dropped.group(1).lower()
            self._quiet(lambda: self.plain.sql(text))
            self._quiet(lambda: self.lake.sql(f"DROP TABLE IF EXISTS {name}"))
            self._quiet(lambda: self.lake.spark.sql(f"DROP VIEW IF EXISTS {name}"))
        elif _OF_SESSION.match(text):
            self._quiet(lambda: self.plain.sql(text))
            self._quiet(lambda: self.lake.sql(text))
        elif _QUERY.match(text) and not _UNSTABLE.search(text) and not _IMMEDIATE_WRITE.match(text):
            self._query(text, shown)
        else:
            self.counts["not compared"] += 1

    def _copy(self, name: str, statement: str) -> None:
        """The rows of a name of the plain session as a table of the lake; as a view if the lake has no such types.

        What cannot be read, the statement makes in the lake too.
        """
        self.mine.add(name)
        self._quiet(lambda: self.lake.sql(f"DROP TABLE IF EXISTS {name}"))
        self._quiet(lambda: self.lake.spark.sql(f"DROP VIEW IF EXISTS {name}"))
        if not self._quiet(lambda: self.plain.table(name)):
            self.counts["not compared"] += 1  # CREATE TABLE IDENTIFIER(…)
            self._quiet(lambda: self.lake.sql(statement))
            return
        rows = self.plain.table(name)
        # The same rows in the other session, which sees none of this one's views.
        self.number += 1
        path = f"{self.folder}/rows{self.number}"
        if not self._quiet(lambda: rows.write.parquet(path)):
            self.counts["tables that Parquet cannot hold"] += 1
            self._quiet(lambda: self.lake.sql(statement))
            return
        copy = self.lake.spark.read.schema(rows.schema).parquet(path)
        # Paimon's strings have no collation.
        if " collate " not in rows.schema.simpleString() and self._quiet(lambda: self.lake.write(copy, name)):
            self.counts["tables of the lake"] += 1
            self.of_lake.add(name)
        else:
            self.counts["tables that the lake refuses"] += 1
            self._quiet(lambda: self.lake.sql(f"DROP TABLE IF EXISTS {name}"))
            copy.createOrReplaceTempView(name)

    def _query(self, text: str, shown: str) -> None:
        in_lake = _FULL.sub(lambda m: f"bitlake.{m[1]}" if m[2].lower() in self.of_lake else m[0], text)
        ours, sparks = Answer(lambda: self.lake.sql(in_lake)), Answer(lambda: self.plain.sql(text))
        if ours.agrees(sparks):
            self.counts["refused by both" if ours.error else "agree"] += 1
            self.counts["agree on no rows"] += not ours.error and not ours.rows
            return
        self.counts["differ"] += 1
        print(f"--- {shown}\n{text}\n  lake:  {ours}\n  Spark: {sparks}", flush=True)


def main() -> int:
    """Run the files; 1 if an answer differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=86400)
    parser.add_argument("--skip", type=int, default=0, help="leave out the first files")
    parser.add_argument("--tables", type=Path, default=None)
    given = parser.parse_args()
    tables = "" if given.tables is None else given.tables.read_text(encoding="utf-8")
    files = sorted(p for p in given.folder.rglob("*.sql") if not given.names or any(n in str(p) for n in given.names))
    with tempfile.TemporaryDirectory() as folder:
        spark = start(folder, **QUICK)
        runs, end, done = Files(spark, folder, tables), time.monotonic() + given.seconds, 0
        for path in files[given.skip :]:
            if time.monotonic() > end:
                break
            runs.run(path, given.folder, str(path.relative_to(given.folder)))
            done += 1
            print(f"{done} of {len(files)} files, {runs.counts}", file=sys.stderr, flush=True)
        print(f"{done} of {len(files)} files: " + ", ".join(f"{n} {what}" for what, n in sorted(runs.counts.items())))
        spark.stop()
    return int(runs.counts["differ"] > 0)


if __name__ == "__main__":
    sys.exit(main())
