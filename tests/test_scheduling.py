from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import scheduling
from scheduling import LONG_FILES, SparkInOnePlace


class Process:
    """A test process that does what it is told at once."""

    shutting_down = False

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.files: list[str] = []
        self.told: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.told += indices

    def shutdown(self) -> None:
        self.shutting_down = True


ROOT = Path(__file__).resolve().parent.parent


def test_long_files_are_there() -> None:
    assert [name for name in LONG_FILES if not (ROOT / name).exists()] == []


def test_files_stay_whole_and_spark_in_the_first_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of one file ran in both processes, which both started Spark; long files come first."""
    monkeypatch.setattr(scheduling, "LONG_FILES", ("e.py", "b.py"))
    (tmp_path / "spark").mkdir()
    texts = {
        "spark/a.py": "",
        "b.py": "def test(spark: Any): ...",
        "c.py": "# spark",
        "d.py": "",
        "e.py": "",
        "f.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    option = SimpleNamespace(loadscopereorder=False)
    config: Any = SimpleNamespace(rootpath=tmp_path, option=option, getvalue=lambda name: ["popen", "popen"])
    ids = [f"{name}::test[{i}]" for name in texts for i in range(3)]
    log: Any = lambda *_: None  # noqa: E731
    scheduler = SparkInOnePlace(config, SimpleNamespace(loadfilesched=log, loadscopesched=log))
    first, other = processes = Process("gw0"), Process("gw1")
    for process in processes:
        scheduler.add_node(process)
        scheduler.add_node_collection(process, ids)
    scheduler.schedule()
    while any(process.told for process in processes):
        for process in processes:
            for index in process.told[:1]:
                process.told.remove(index)
                process.files.append(ids[index].split("::")[0])
                scheduler.mark_test_complete(process, index)
    assert list(dict.fromkeys(first.files))[:2] == ["b.py", "spark/a.py"]
    assert list(dict.fromkeys(other.files))[:2] == ["e.py", "c.py"]
    assert not set(first.files) & set(other.files) and len(first.files + other.files) == len(ids)
    assert {"d.py", "f.py"} & set(first.files), "what is left of the other kind is taken"
