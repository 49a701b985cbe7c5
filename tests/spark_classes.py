"""Spark's classes for the sessions of tests (:mod:`bitlake.spark.java`), and their Java options.

``make test`` runs this once: not every Java can keep classes.
"""

from __future__ import annotations

from bitlake.errors import BitlakeError
from bitlake.spark.java import archive_options, write_class_archive

# A session lasts minutes, and each query is new code: on two cores Java's optimising compiler and its concurrent
# collector take more time than they give back, and a heap that begins small is collected again and again.
_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -Xms768m -Xmn512m -XX:MetaspaceSize=512m"
)
# In a session of an hour the optimising compiler gives back more than it takes.
_JAVA_FOR_HOURS = "-XX:ReservedCodeCacheSize=512m -XX:+UseSerialGC -Xms1600m -Xmn1g -XX:MetaspaceSize=512m"


def java_options(for_hours: bool = False) -> str:
    """The options of a session of tests, for ``SPARK_SUBMIT_OPTS``."""
    return f"{_JAVA_FOR_HOURS if for_hours else _JAVA} {archive_options()}"


if __name__ == "__main__":
    try:
        write_class_archive(java_options="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    except BitlakeError as e:
        print(f"Spark sessions of the tests start without an archive of classes: {e}")
