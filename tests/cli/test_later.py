"""A stand-in is the module from its first use on, for whoever imported it and however."""

from __future__ import annotations

import subprocess
import sys

_CODE = """
from bitlake.cli.later import load_later
load_later()
import pyarrow.compute as pc, pyarrow as pa, sys, importlib.metadata
from importlib.metadata import entry_points
assert "pyarrow._compute" not in sys.modules and "zipfile" not in sys.modules
rows = pa.table({"a": [1, 2, 3]})
assert "pandas" not in sys.modules
assert rows.filter(pa.array([True, False, True])).num_rows == 2
assert pc.sum(rows["a"]).as_py() == 6 and pc.call_function("less", [rows["a"], 2]).to_pylist() == [True, False, False]
from pyarrow.compute import multiply
import pyarrow.compute
assert pyarrow.compute.multiply is pc.multiply is multiply
try:
    pc.nothing_of_the_kind
except AttributeError as e:
    assert "nothing_of_the_kind" in str(e)
import pyarrow.parquet as pq
assert pq.ParquetFile.__name__ == "ParquetFile"
assert importlib.metadata.version("pyarrow") == pa.__version__ and entry_points(group="no such group") is not None
print("right")
"""


def test_stand_ins_become_what_they_stand_for() -> None:
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=False)
    assert done.stdout == "right\n", done.stderr
