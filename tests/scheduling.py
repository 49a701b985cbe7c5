"""Which test process runs which file: pytest-xdist's ``loadfile``, with Spark in one process and the rest elsewhere.

A Spark session takes long to start and longer to warm up, and what a file's tests share is made once where they run in
one process.  Whoever has nothing left of its own kind takes what is left of the other.  (xdist's own ``loadgroup`` does
nothing with pytest 9.2, pytest-dev/pytest-xdist#1386: each test then runs anywhere, and both processes start Spark.)
"""

from __future__ import annotations

import os
import re
from hashlib import sha256
from typing import Any

from xdist.scheduler import LoadFileScheduling, LoadScopeScheduling

_ASKS_FOR_SESSION = re.compile(r"\bspark: Any\b")

LONG_FILES = (
    "tests/spark/dml/test_merge.py",
    "tests/spark/dml/test_merge_few.py",
    "tests/spark/test_sql_conformance.py",
    "tests/spark/test_core_statements.py",
    "tests/spark/test_keyed_dml.py",
    "tests/spark/read/test_deleted_rows.py",
    "tests/spark/test_primary_key.py",
    "tests/spark/docs/test_dataframe.py",
    "tests/spark/test_doors.py",
    "tests/spark/dml/test_delete_update.py",
    "tests/spark/test_external_paths.py",
    "tests/spark/test_insert.py",
    "tests/spark/dml/test_hits_in_process.py",
    "tests/spark/test_few_partitions.py",
    "tests/spark/test_hadoop_path.py",
    "tests/spark/test_primary_key_places.py",
    "tests/spark/procedures/test_compact.py",
    "tests/spark/docs/test_sql_write.py",
    "tests/spark/read/test_file_metadata.py",
    "tests/spark/docs/test_copy_into.py",
    "tests/spark/docs/test_auxiliary.py",
    "tests/spark/test_computed_conditions.py",
    "tests/spark/test_verify.py",
    "tests/spark/test_caches.py",
    "tests/spark/test_object_stores.py",
    "tests/spark/procedures/test_advise_procedures.py",
    "tests/spark/read/test_scan.py",
    "tests/spark/read/test_join_filters.py",
    "tests/spark/test_model_sql.py",
    "tests/spark/test_fallback_branch.py",
    "tests/spark/read/test_not_null.py",
    "tests/fuzz/test_fuzz.py",
    "tests/cli/test_sql.py",
    "tests/merge/test_engine.py",
    "tests/progress/test_board.py",
    "tests/scan/test_engine_predicates.py",
    "tests/scan/test_metadata_only.py",
    "tests/scan/test_read_ahead.py",
    "tests/snapshot/test_fast_forward.py",
    "tests/snapshot/test_history_crash.py",
    "tests/snapshot/test_removal_markers.py",
    "tests/snapshot/test_writers_expiry.py",
    "tests/sql/test_workload.py",
    "tests/test_layers.py",
    "tests/tools/advise/test_reality.py",
    "tests/tools/advise/test_views.py",
    "tests/tools/advise/test_expressions.py",
    "tests/write/test_concurrency.py",
)
"""Files of few tests that take 6 to 60 seconds of processor time.

xdist starts the files with the most tests first.  These would come last, and the other process would wait for them.
"""


ORDER = os.environ.get("BITLAKE_ORDER")
"""Where time bounds a suite, files start in an order of this seed: no file is always among those that are skipped."""


class SparkInOnePlace(LoadFileScheduling):
    """Whole files; the first process prefers those that use Spark, the others those that do not."""

    def __init__(self, config: Any, log: Any) -> None:
        super().__init__(config, log)
        self._known: dict[str, bool] = {}

    def _assign_work_unit(self, node: Any) -> None:
        prefers_spark = node is self.nodes[0]
        scopes = [s for s in self.workqueue if self._uses_spark(s) == prefers_spark] or list(self.workqueue)
        if ORDER is None:
            scope = next((s for s in scopes if s in LONG_FILES), scopes[0])
        else:
            scope = min(scopes, key=lambda s: sha256(f"{ORDER} {s}".encode()).digest())
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _uses_spark(self, file: str) -> bool:
        """Whether tests of a file ask for a session: told by its text, since ids of tests are all that comes here."""
        if file not in self._known:
            path = self.config.rootpath / file
            self._known[file] = "spark" in path.parts[:-1] or _ASKS_FOR_SESSION.search(path.read_text()) is not None
        return self._known[file]


class CasesOfDoors(LoadScopeScheduling):
    """With ``--dist loadscope``: cases of tests/spark/test_doors.py in one process if door and size are the same."""

    def _split_scope(self, nodeid: str) -> str:
        name, _, values = nodeid.rstrip("]").partition("[")
        return f"{name} {values.partition('-')[0]} {values.rpartition('-')[2]}"
