"""Keep the classes of a Spark session in a file that the tests' Java processes map into memory; ``make test`` runs it.

A JVM writes the file when it ends.  It holds what was loaded until then, so that some of everything is done first.
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


def main(target: Path) -> None:
    """Write ``target``; where this Java cannot, say so and go on: sessions then start without."""
    made = target.with_suffix(".new")
    made.unlink(missing_ok=True)
    options = (
        f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:cds=off -Xlog:cds+dynamic=off -XX:ArchiveClassesAtExit={made}"
    )
    command = [sys.executable, __file__, str(target), "work"]
    done = subprocess.run(command, env={**os.environ, "SPARK_SUBMIT_OPTS": options}, capture_output=True, check=False)
    if done.returncode == 0 and made.exists():
        made.replace(target)
    else:
        print(f"no {target.name}: Spark sessions of the tests start without\n{done.stderr.decode()[-2000:]}")


if __name__ == "__main__":
    work() if sys.argv[2:] == ["work"] else main(Path(sys.argv[1]))
