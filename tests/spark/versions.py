"""The same expectations on other PySparks than `make test` has: the oldest one we support, and Spark Connect.

    python tests/spark/versions.py OTHER_PYTHON [--jobs 2]        (`make versions` makes OTHER_PYTHON)

What Paimon answered on all its fixture tables, by ``lake.sql`` and by the data source: classic and on Connect, with
this Python's PySpark and with OTHER_PYTHON's, which also runs the tests of the data source, of streams and of Connect.
Each is a process of its own (a process has either a classic session or a Connect client).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ("test_fixtures.py", "test_fixtures_pk.py", "test_fixtures_source.py")
VERSION = "import pyspark, sys; print(pyspark.__version__, 'on Python', sys.version.split()[0])"


@dataclass(frozen=True)
class Run:
    """Test files of this folder with one Python, on a ``classic`` session or a ``connect`` client."""

    python: str
    session: str
    files: tuple[str, ...]

    def start(self) -> tuple[str, bool, str]:
        """Run them; returns a title, whether all passed, and what pytest said."""
        began = time.monotonic()
        version = subprocess.run([self.python, "-c", VERSION], capture_output=True, text=True, check=False)
        files = [str(Path("tests", "spark", name)) for name in self.files]
        command = [self.python, "-m", "pytest", "-q", "-m", "not interop", "-p", "no:cacheprovider", *files]
        env = {**os.environ, "BITLAKE_TEST_SPARK": self.session, "BITLAKE_TEST_FIXTURES": "all"}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        title = f"PySpark {version.stdout.strip() or '?'}, {self.session}: {time.monotonic() - began:.0f} s"
        return title, done.returncode == 0, done.stdout + done.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", help="the interpreter of an environment with another PySpark")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    given = parser.parse_args()
    runs = [
        Run(given.python, "classic", (*FIXTURES, "test_source.py", "test_streaming.py")),
        Run(given.python, "connect", (*FIXTURES, "test_connect.py")),
        Run(sys.executable, "connect", FIXTURES),
        Run(sys.executable, "classic", FIXTURES),  # the suite asks a part of them
    ]
    passed = True
    with ThreadPoolExecutor(given.jobs) as pool:
        for title, right, said in pool.map(Run.start, runs):
            passed = passed and right
            # Of runs that passed the last line says it all; it also counts what was skipped.
            print(f"{title}\n{said.rstrip().splitlines()[-1] if right else said}", flush=True)
    sys.exit(not passed)


if __name__ == "__main__":
    main()
