# Everything below needs make and a Python >= 3.11 with venv.  `make help` prints the lines that start with "## ".
# PYTHON=python3.13 make test   uses that interpreter;   JOBS=4 make test   that many test processes.

# Take the first Python that is new enough: on some systems `python3` is older, and others have only `python3.13`.
NEW_ENOUGH = $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
ifeq ($(origin PYTHON), undefined)
PYTHON := $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do if $(NEW_ENOUGH); then echo $$p; break; fi; done)
PYTHON := $(or $(PYTHON),python3)
endif
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CLASSES := $(VENV)/spark-classes
# Tests make and remove some 100,000 small files (700 MB): in memory where there is room, which takes a third off the many
# that kill a writer at each step.  What passed is removed at once, so that little stays there.
MEMORY := $(shell [ -w /dev/shm ] && df -Pk /dev/shm | awk 'NR == 2 && $$4 > 4000000 { print "/dev/shm" }')
KEPT := -o tmp_path_retention_policy=failed -o tmp_path_retention_count=1
FOLDERS = $(if $(MEMORY),PYTEST_DEBUG_TEMPROOT=$(MEMORY))
PROCESSES = PYTHONDONTWRITEBYTECODE= $(FOLDERS) $(BIN)/python -m pytest -q -n $(JOBS) $(KEPT)
PYTEST = $(PROCESSES) --dist loadfile
DOORS = $(PROCESSES) --dist loadscope --no-loadscope-reorder -m "not long" tests/spark/test_doors.py
PYPAIMON := .venv-pypaimon
PYPAIMON_LOCK := tests/interop/requirements-pypaimon.lock
ICEBERG := .venv-iceberg
ICEBERG_LOCK := tests/interop/requirements-iceberg.lock
DOCS := .venv-docs
DOCS_LOCK := scripts/requirements-docs.lock
OLDEST := .venv-oldest
LOWEST := .venv-lowest
OLDEST_LOCK := tests/spark/requirements-oldest.lock
# SEED=tree: a seed derived from the committed product, so that CI asks of a commit what its author can ask; a fixed one
# without git.
TREE_SEED = $(shell tree=$$(git rev-parse --verify HEAD:bitlake 2>/dev/null) && printf %d "0x$$(printf %.7s "$$tree")" || echo 202647)
CHOSEN_SEED = $(if $(filter tree,$(SEED)),$(TREE_SEED),$(SEED))

.DEFAULT_GOAL := help
.PHONY: help environments environments-apart environments-here demo test exhaustive check long full-counts engines stress history history-each maintenance memory model doors doors-all cluster versions sql-conformance interop lowest mutation lint format bench bench-paired counts docs lock clean python-version

## help      this list
help:
	@sed -n 's/^## /  make /p' $(MAKEFILE_LIST)

## demo      the article's tables and a million orders: what each index chose, and the time with and without it
demo: $(READY)
	@$(BIN)/python -m bitlake.demo

## test      the suite that needs nothing but PyPI, Spark tests included, in ten minutes or so; `make exhaustive` has its slow cases
# Compiled once (pytest's own copies of the tests too), and not again by each of the hundreds of processes that tests and
# Spark start.
test: $(READY) $(CLASSES)
	@$(BIN)/python -m compileall -q bitlake
	$(PYTEST) $(ARGS)

## exhaustive  what `make test` leaves out: random cases, crashes, races, large tables, and further cases of its tests (SECONDS= in which they may begin, their files in an order of SEED=)
exhaustive: $(READY) $(CLASSES)
	$(if $(SECONDS),BITLAKE_SECONDS=$(SECONDS) BITLAKE_ORDER=$(or $(CHOSEN_SEED),1)) $(PYTEST) -m "exhaustive and not interop and not cluster and not long" $(ARGS)

## stress    two upserting processes and a compactor, SECONDS=120 in each of MODES (tests/stress/lsm.py); streams killed KILLS=10 times
stress: $(READY)
	$(BIN)/python tests/stress/lsm.py --seconds $(or $(SECONDS),120) $(if $(MODES),--modes $(MODES))
	$(BIN)/python tests/stress/stream.py --kills $(or $(KILLS),10)

## long      more cases of the suite's random and crash tests, and those that start processes of their own for a minute (SECONDS= in which they may begin, their files in an order of SEED=)
long: $(READY) $(CLASSES)
	$(if $(SECONDS),BITLAKE_SECONDS=$(SECONDS) BITLAKE_ORDER=$(or $(CHOSEN_SEED),1)) $(PYTEST) -m long $(ARGS)

## full-counts  the full numbers of random predicates over indexes of expressions, members and text, of aggregates, and of tables with such indexes that Paimon (Java) and pypaimon rewrite (hours)
full-counts: $(READY)
	@$(MAKE) --no-print-directory $(PYPAIMON)/.ready || echo "pypaimon cannot be installed here: what needs it is skipped"
	@PYTHONPATH=tests $(BIN)/python -m interop.paimon_java
	BITLAKE_FULL_COUNTS=1 $(PYTEST) -m interop tests/interop/test_expression_indexes.py $(ARGS)
	BITLAKE_FULL_COUNTS=1 $(PYTEST) -m long tests/spark/test_index_doors.py tests/scan/test_aggregation.py tests/fileindex/test_ngram.py tests/fileindex/test_tokens.py tests/spark/test_json_path.py $(ARGS)

## history   rollback, fast-forward, tags, branches, drop, alter, expiry, killed beside each other, SECONDS=300 (tests/stress/history.py)
history: $(READY)
	$(BIN)/python tests/stress/history.py --seconds $(or $(SECONDS),300) $(if $(SEED),--seed $(CHOSEN_SEED))

## history-each  each store call of these operations fails, and meets each other operation, in this process (an hour)
history-each: $(READY)
	BITLAKE_HISTORY=1 HISTORY_STEP=1 $(BIN)/python -m pytest -q -n $(JOBS) -m "not long" tests/snapshot/test_history_under_fire.py tests/snapshot/test_fast_forward.py tests/write/test_replaced_table.py tests/snapshot/test_rollback.py tests/snapshot/test_history_crash.py $(ARGS)

## maintenance  expiry and orphan removal beside a writer, a reader and a tagger, SECONDS=120 in each of MODES (tests/stress/maintenance.py)
maintenance: $(READY)
	$(BIN)/python tests/stress/maintenance.py --seconds $(or $(SECONDS),120) $(if $(MODES),--modes $(MODES))

## model     primary-key tables against a dictionary: 20 seeds of STEPS=300 steps
model: $(READY)
	BITLAKE_MODEL_STEPS=$(or $(STEPS),300) $(PROCESSES) tests/mergetree/test_model.py $(ARGS)

## engines   2,000 random predicates through DuckDB, Polars and DataFusion: rows, plans, and what was pushed
engines: $(READY)
	BITLAKE_PREDICATES=2000 $(BIN)/python -m pytest -q tests/scan/test_engine_predicates.py $(ARGS)

## memory    peak memory of reads, UPDATE and DELETE over files of 256 MB: fails above 400 MB (CASES=, FOLDER= keeps the tables)
memory: $(READY)
	$(BIN)/python tests/memory/measure.py $(if $(CASES),--cases $(CASES)) $(if $(FOLDER),--folder $(FOLDER))

## doors     tables through every kind of URI and catalog, each way of reading forced: every pair (SEED= to repeat, SECONDS= in which they may begin)
doors: $(READY) $(CLASSES)
	$(if $(SECONDS),BITLAKE_SECONDS=$(SECONDS)) BITLAKE_DOORS=pairs $(if $(SEED),BITLAKE_DOORS_SEED=$(CHOSEN_SEED)) $(DOORS) $(ARGS)

## doors-all every combination of those, with every question
doors-all: $(READY) $(CLASSES)
	BITLAKE_DOORS=all $(DOORS) $(ARGS)

## cluster   a standalone Spark cluster of processes here: all kinds of work on two workers, and one killed in mid-write
cluster: $(READY)
	$(FOLDERS) $(BIN)/python -m pytest -q -m cluster $(KEPT) tests/cluster $(ARGS)

## sql-conformance  random queries on the lake and on plain Spark: STATEMENTS=600, SECONDS= for no limit, SEED= by the clock (tree: by the commit's content); or Spark's own SQL tests of a FOLDER; ENGINE=duckdb compares DuckDB with Spark: STATEMENTS=1000 of SEED=1, or the queries of a FOLDER over TPC-H's tables
sql-conformance: $(READY) $(CLASSES)
	$(BIN)/python $(if $(filter duckdb,$(ENGINE)),tests/conformance/duckdb_agreement.py --statements $(or $(STATEMENTS),1000) --seed $(or $(SEED),1) $(if $(FOLDER),--folder $(FOLDER)),$(if $(FOLDER),tests/conformance/spark_sql_tests.py $(FOLDER),tests/conformance/generated.py --jobs $(JOBS) --statements $(or $(STATEMENTS),600) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(CHOSEN_SEED))))

## versions  Paimon's tables on the oldest PySpark we support, classic and Spark Connect, and on this one's Connect (SECONDS= in which tests of each may begin)
versions: $(READY) $(OLDEST)/.ready
	$(if $(SECONDS),BITLAKE_SECONDS=$(SECONDS)) $(FOLDERS) $(BIN)/python tests/spark/versions.py $(OLDEST)/bin/python --jobs $(JOBS)

## interop   Paimon (Java), pypaimon and Iceberg's readers (Spark among them) read what bitlake wrote, COMMITS=12 of them random; plain skips where one cannot be had
interop: $(READY)
	@$(MAKE) --no-print-directory $(PYPAIMON)/.ready || echo "pypaimon cannot be installed here: what needs it is skipped"
	@$(MAKE) --no-print-directory $(ICEBERG)/.ready || echo "Iceberg's readers cannot be installed here: what needs them is skipped"
	@$(MAKE) --no-print-directory $(OLDEST)/.ready || echo "the oldest PySpark cannot be installed here: Iceberg on Spark is skipped"
	@PYTHONPATH=tests $(BIN)/python -m interop.paimon_java
	@PYTHONPATH=tests $(BIN)/python -m interop.iceberg_peer
	$(if $(COMMITS),BITLAKE_ICEBERG_COMMITS=$(COMMITS)) $(FOLDERS) $(BIN)/python -m pytest -q -m interop -n $(JOBS) $(KEPT) --dist loadfile tests/interop $(ARGS)

## lowest    the core's and the command line's tests on the lowest versions of dependencies that pyproject.toml declares
lowest: $(LOWEST)/.ready
	PYTHONPATH=$(CURDIR) $(FOLDERS) $(LOWEST)/bin/python -m pytest -q -n $(JOBS) $(KEPT) tests/codec tests/types tests/expressions tests/metadata tests/fileindex tests/tableindex tests/formats tests/io tests/cli/test_startup.py tests/cli/test_commands.py tests/cli/test_failures.py tests/cli/test_transfer.py -m "not spark and not long" $(ARGS)

## mutation  MUTANTS=300 one-operator changes of the engine, each of which a test must notice (SEED=, ROOMS= to choose)
mutation: $(READY)
	$(BIN)/python scripts/mutation.py --mutants $(or $(MUTANTS),300) $(if $(SEED),--seed $(SEED)) $(if $(ROOMS),--rooms $(ROOMS))

## environments  make those that other targets need, as far as they can be had
environments: environments-apart environments-here

## environments-apart  those that need nothing of .venv: CI makes them while it makes that
## environments-here  those that do: CI makes them beside lint
environments-apart: MADE := $(OLDEST)/.ready $(ICEBERG)/.ready $(PYPAIMON)/.ready $(DOCS)/.ready
environments-here: MADE := $(CLASSES) $(LOWEST)/.ready
environments-here: $(READY)
environments-apart environments-here:
	@for made in $(MADE); do \
		$(MAKE) --no-print-directory $$made || echo "$$made cannot be made now: what needs it tries again"; done

## lint      ruff, its formatter, and mypy in strict mode
lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict bitlake

## check     lint, types and the core's unit tests, without Spark: seconds, for between two edits
check: lint
	$(BIN)/python -m pytest -q -n $(JOBS) -m "not interop and not cluster and not long" tests/test_layers.py tests/test_exported_members.py tests/test_formatting.py tests/test_runtime.py tests/types tests/codec tests/expressions tests/fileindex tests/tableindex tests/metadata tests/schema tests/merge $(ARGS)

## format    let ruff repair what it can
format: $(READY)
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

## bench     4M orders: ratios against Spark's own write and scan and against pypaimon (ROWS=, RUNS=, CASES= to choose; TEXT_MB=1000 of log lines)
bench: $(READY)
	@$(MAKE) --no-print-directory $(PYPAIMON)/.ready || echo "pypaimon cannot be installed here: what needs it is skipped"
	$(BIN)/python -m bench.harness $(if $(ROWS),--rows $(ROWS)) $(if $(RUNS),--runs $(RUNS)) $(if $(CASES),--cases $(CASES)) $(if $(TEXT_MB),--text-mb $(TEXT_MB))

## bench-paired  this tree against BASE=COMMIT, row by row in turns: is anything slower? (ROWS=, PAIRS= at least 9, ONLY=)
bench-paired: $(READY)
	$(BIN)/python -m bench.paired --base $(or $(BASE),HEAD~1) $(if $(ROWS),--rows $(ROWS)) $(if $(PAIRS),--pairs $(PAIRS)) $(if $(ONLY),--only $(ONLY))

## counts    files, lines of code, import cycles, lazy imports, modules with one importer
counts: $(READY)
	$(BIN)/python scripts/counts.py $(ARGS)

## docs      the documentation site in site/, with its references made from the code and its notebook run; a broken link fails
docs: $(READY) $(DOCS)/.ready
	$(BIN)/python scripts/docs_site.py
	$(DOCS)/bin/python scripts/docs_notebook.py
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict --quiet --config-file .site/mkdocs.yml --site-dir $(CURDIR)/site
	$(BIN)/python scripts/docs_check.py

## lock      choose versions anew and write requirements.lock (Python 3.11)
lock: $(READY)
	$(BIN)/python scripts/lock.py

## clean     remove the environments and everything generated
clean:
	rm -rf $(VENV) $(PYPAIMON) $(ICEBERG) $(OLDEST) $(LOWEST) $(DOCS) .site site .bench .pytest_cache .mypy_cache .ruff_cache .hypothesis .mutation spark-warehouse metastore_db

python-version:
	@command -v $(PYTHON) >/dev/null || { echo "bitlake needs Python >= 3.11, and '$(PYTHON)' was not found; name one: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "bitlake needs Python >= 3.11, and '$(PYTHON)' is $$($(PYTHON) -V 2>&1); name another: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "'$(PYTHON)' has no venv module; install it (on Debian and Ubuntu: the package python3-venv)" >&2; exit 1; }

# A stamp, so that the environment is made anew when what belongs in it changes, and only then.
$(READY): pyproject.toml requirements.lock
	@$(MAKE) --no-print-directory python-version
	@echo "[1/3] $(VENV): a new environment with $$($(PYTHON) -V)"
	@rm -rf $(VENV) && $(PYTHON) -m venv $(VENV)
	@echo "[2/3] $(VENV): installing $$(grep -c == requirements.lock) pinned packages (Spark is 400 MB; this takes one to three minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@echo "[3/3] $(VENV): bitlake itself, editable"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Spark's classes, kept for the sessions of tests: a stamp, since not every Java can keep them.  A new environment has none.
$(CLASSES): bitlake/spark/java.py | $(READY)
	@echo "[1/1] $@: Spark's classes, so that sessions of tests start in half the time (half a minute, once)"
	@$(BIN)/python tests/spark_classes.py
	@touch $@

# What makes the documentation site, with bitlake's own needs (not Spark) for the notebook.
$(DOCS)/.ready: $(DOCS_LOCK)
	@$(MAKE) --no-print-directory python-version
	@echo "[1/1] $(DOCS): mkdocs and a Jupyter kernel"
	@rm -rf $(DOCS) && $(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check -r $(DOCS_LOCK)
	@touch $@

$(LOWEST)/.ready: pyproject.toml requirements.lock scripts/lowest.py | $(READY)
	@echo "[1/1] $(LOWEST): the lowest declared versions"
	@rm -rf $(LOWEST) && $(PYTHON) -m venv $(LOWEST)
	@$(BIN)/python scripts/lowest.py > $(LOWEST)/requirements.txt
	@$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -r $(LOWEST)/requirements.txt
	@touch $@

# pypaimon pins pyarrow below 20 and pandas below 3, so it lives in an environment of its own.
$(PYPAIMON)/.ready: $(PYPAIMON_LOCK)
	@$(MAKE) --no-print-directory python-version
	@echo "[1/1] $(PYPAIMON): pypaimon with its own pins"
	@rm -rf $(PYPAIMON) && $(PYTHON) -m venv $(PYPAIMON)
	@$(PYPAIMON)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: -r $(PYPAIMON_LOCK)
	@touch $@

# Iceberg's readers, with the DuckDB version that its extension is built for.
$(ICEBERG)/.ready: $(ICEBERG_LOCK)
	@$(MAKE) --no-print-directory python-version
	@echo "[1/1] $(ICEBERG): pyiceberg, Polars, and DuckDB with its extension"
	@rm -rf $(ICEBERG) && $(PYTHON) -m venv $(ICEBERG)
	@$(ICEBERG)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: -r $(ICEBERG_LOCK)
	@touch $@

# Beside the tests' own needs: bitlake itself is found in the folder it is tested in.
$(OLDEST)/.ready: $(OLDEST_LOCK)
	@$(MAKE) --no-print-directory python-version
	@echo "[1/1] $(OLDEST): the oldest PySpark with its own pins (one to three minutes)"
	@rm -rf $(OLDEST) && $(PYTHON) -m venv $(OLDEST)
	@$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check -r $(OLDEST_LOCK)
	@touch $@
