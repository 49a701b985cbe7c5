"""The list of files beside other formats: a plan of bitlake's table leaves what the benchmark expects of every peer."""

from __future__ import annotations

from pathlib import Path

from bench.scale_peers import SMALL, make_bitlake, open_bitlake, questions, write_list


def test_each_question_leaves_its_number_of_files(tmp_path: Path) -> None:
    write_list(tmp_path / "list.parquet", SMALL)
    make_bitlake(tmp_path / "lake", tmp_path / "list.parquet")
    plan = open_bitlake(tmp_path / "lake")
    assert {name: plan(asked) for name, asked in questions(SMALL).items()} == {
        "plan of one partition": 50,
        "plan of a range": 1,
        "plan of everything, counted": SMALL,
        "plan of everything, paths as strings": SMALL,
    }
