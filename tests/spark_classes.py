"""Keep the classes of a Spark session in a file that the tests' Java processes map into memory; ``make test`` runs it.

A JVM writes the file when it ends: an AOT cache (Java 25 and later), else a dynamic class archive.  It holds the
classes that were loaded until then, so that the session runs some of everything first.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

STATEMENTS = """
CREATE TABLE a (k INT, v STRING, d DECIMAL(10, 2), p STRING) PARTITIONED BY (p)
INSERT INTO a VALUES (1, 'x', 1.5, 'p'), (2, 'y', 2.5, 'q'), (3, NULL, NULL, 'q')
UPDATE a SET v = 'z' WHERE k = 1
DELETE FROM a WHERE k = 2
CREATE TABLE b (k INT, v ARRAY<STRING>, t TIMESTAMP) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2')
INSERT INTO b SELECT k, array(v), TIMESTAMP '2024-01-01 00:00:00' FROM a
MERGE INTO b USING a ON a.k = b.k WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (k) VALUES (k)
SELECT a.p, count(DISTINCT b.k), max(t) FROM a LEFT JOIN b ON a.k = b.k GROUP BY a.p ORDER BY 1
SELECT k, row_number() OVER (PARTITION BY p ORDER BY k) FROM a WHERE v IN (SELECT v FROM a) UNION ALL SELECT 1, 1
"""


def work() -> None:
    """Use most of what Spark has for tables, then end."""
    import bitlake
    from bitlake.spark.session import get_or_create

    spark = get_or_create()
    folder = tempfile.mkdtemp()
    lake = bitlake.connect(folder, spark=spark)
    for statement in STATEMENTS.strip().splitlines():
        lake.sql(statement).collect()
    frame = spark.createDataFrame([(1, "x"), (2, "y")], "k INT, v STRING")
    frame.write.parquet(f"{folder}/plain")
    spark.read.parquet(f"{folder}/plain").toPandas()
    spark.stop()
    shutil.rmtree(folder)


KINDS = {"aot": "-XX:AOTCacheOutput", "jsa": "-XX:ArchiveClassesAtExit"}
"""The suffix of the file, and the option that writes it; the first that this Java has is used."""

_READ = {"aot": "-XX:AOTCache", "jsa": "-XX:SharedArchiveFile"}
# A session lasts minutes, and each query is new code: on two cores Java's optimising compiler and its concurrent
# collector take more time than they give back, and a heap that begins small is collected again and again.
_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -Xms768m -Xmn512m -XX:MetaspaceSize=512m"
)
# In a session of an hour the optimising compiler gives back more than it takes.
_JAVA_FOR_HOURS = "-XX:ReservedCodeCacheSize=512m -XX:+UseSerialGC -Xms1600m -Xmn1g -XX:MetaspaceSize=512m"


def java_options(for_hours: bool = False) -> str:
    """The options of a session of tests, for ``SPARK_SUBMIT_OPTS``.

    With Spark's classes as a Java process keeps them once it has loaded and verified them, half of what a session takes
    to start: a Java or a Spark that the file is not of ignores it.
    """
    options = _JAVA_FOR_HOURS if for_hours else _JAVA
    for suffix, option in _READ.items():
        classes = Path(sys.prefix, f"spark-classes.{suffix}")
        if classes.exists():
            options += f" -XX:+IgnoreUnrecognizedVMOptions {option}={classes} -Xlog:disable"
    return options


def main(target: Path) -> None:
    """Write ``target`` with the suffix of its kind, alone; if this Java writes neither, print that and succeed."""
    for suffix in KINDS:
        target.with_suffix(f".{suffix}").unlink(missing_ok=True)  # of another Java
    errors = []
    for suffix, option in KINDS.items():
        archive = target.with_suffix(f".{suffix}")
        written = target.with_suffix(f".{suffix}.new")
        written.unlink(missing_ok=True)
        options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable {option}={written}"
        command = [sys.executable, __file__, str(target), "work"]
        environment = {**os.environ, "SPARK_SUBMIT_OPTS": options}
        session = subprocess.run(command, env=environment, capture_output=True, check=False)
        if session.returncode == 0 and written.exists():
            written.replace(archive)
            return
        errors.append(f"no {archive.name}:\n{session.stderr.decode()[-2000:]}")
    print("Spark sessions of the tests start without an archive of classes", *errors, sep="\n")


if __name__ == "__main__":
    work() if sys.argv[2:] == ["work"] else main(Path(sys.argv[1]))
