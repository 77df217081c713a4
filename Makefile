# Every target does its own set-up, inside the checkout. Needed on the machine: make, Python 3.10 or later
# and Java 17 or later. Maven, where there is one, fetches the jar of Java Paimon that checks our tables.
#
#   make demo         stream the flights of 2013 into a table, through kill -9, and check the result
#   make test         the tests, on the newest pyspark
#   make test-costs   the tests, and then tables of their seconds; RECORDS=… prints those of an earlier run
#   make test-long    the long ones: kills of real jobs and streams beside Java
#   make test-cluster streams to S3 on clusters of Spark, whose executors and driver are killed
#   make test-spark35 the streaming tests that depend on Spark's version, on pyspark 3.5
#   make test-spark4  the tests of the data source, of Connect and of the sink on pyspark 4.0 and 4.1; SPARK4=0 picks one
#   make test-stores  crash windows, races and verdicts with the tables in S3, Azure and Google Cloud Storage
#   make test-hdfs    the storage contract, crash windows, races, Java and dying nodes on a real HDFS
#   make test-flink   a real Flink and this package write, follow and compact the same tables
#   make test-hive    the Hive catalog beside Java's, on a real Hive Metastore
#   make test-lowest  the tests without Spark, on the oldest dependencies allowed
#   make torture      schedules of the simulation; MINUTES=3, SEED=… repeats a run, TABLES=20 of its tables go to Java, PAGE=--page writes its figures down
#   make orders       every order of two processes, with each single fault; WORLD=expiry, MINUTES=…, SHARE=2/5, PAGE=--page;
#                     KEPT=build/orders goes on with what an earlier run has left there
#   make torture-kills real processes die by SIGKILL until KILLS=1000 are together; STREAM=17 repeats one stream, CROWD=disk and CROWD=S3 let many write at once
#   make test-full    all of these with many random seeds, and every streaming test on each pyspark; more than an hour
#   make bench        ours beside its peers, and which goals are met; it can be stopped and goes on. ROUNDS=5 for figures to
#                     keep, DROPPED=0 for a quick look, PAGES=docs writes performance.md and tuning.md
#   make bench-parts  the benchmarks of single parts
#   make record-costs write the seconds of the costly test files into tests/costs.txt
#   make docs         this documentation as a site in build/site; a warning is an error
#   make release      proves all that a release promises, in a clean clone with a fresh home, and tags the commit; hours, and it goes on where it was stopped
#   make runbooks     accidents of streams, and how they end, written into docs/runbooks.md
#   make lint types layers package examples clean
#
# PYTHON=… and PYTHON35=… name the interpreters, JAVA_HOME the Java; else they are looked for. Tests run in
# JOBS=2 processes, those of make test in JOBS=3; TESTS=… picks some.

SHELL := /bin/sh
# The tests start hundreds of Pythons: each module is compiled once.
unexport PYTHONDONTWRITEBYTECODE
.SUFFIXES:
.NOTPARALLEL:
.PHONY: help demo test test-costs record-costs test-stores test-hdfs test-flink test-hive test-long test-cluster torture torture-kills orders test-spark35 test-spark4 test-lowest test-full lint format types layers docs runbooks examples bench bench-parts release clean java jar

# $(call pick,names,condition): the first of these Pythons that fulfils the condition and can make a venv.
pick = $(shell for p in $(1); do \
  "$$p" -c 'import sys, venv, ensurepip; sys.exit(not ($(2)))' </dev/null >/dev/null 2>&1 \
  && { command -v "$$p"; break; }; done)
NAMES := python3 python3.13 python3.12 python3.11 python3.10 python3.14 python
PYTHON ?= $(call pick,$(NAMES),sys.version_info >= (3, 10))
PYTHON35 ?= $(call pick,python3.11 python3.10 $(NAMES),(3, 10) <= sys.version_info < (3, 13))
PYTHON_LOWEST ?= $(call pick,python3.10 python3.11 $(NAMES),(3, 10) <= sys.version_info < (3, 12))
JAVA = $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)
VENV := .venv/bin
TESTS ?=
RECORDS ?=
JOBS ?= 2
ROUNDS ?= 1
DROPPED ?= 2
MINUTES ?= 3
KILLS ?= 1000
STREAM ?=
CROWD ?=
SPARK4 ?= 0 1
SEED ?=
TABLES ?= 0
SHARE ?= 1/1
WORLD ?=
KEPT ?=
PAGE ?=
RESULTS ?= build/bench
PAGES ?=
WHOLE := $(addprefix benchmarks/,goals.py streams.py commits.py growth.py restart.py replay.py threads.py split.py tuning.py performance.py)
PARTS := $(filter-out $(WHOLE),$(wildcard benchmarks/*.py))
PYTEST = python -m pytest -n $(JOBS)
# Which tests run where is said by their marks: pyproject.toml lists these.

# $(call venv,folder,python,what to install): a fresh venv with a note that it is complete.
define venv
@test -n "$(2)" || { echo "No Python $(4) that can make a venv was found: install one, or name it with $(5)=…" >&2; exit 1; }
@echo "Setting up $(1); this takes a few minutes the first time."
@rm -rf $(1)
@"$(2)" -m venv $(1)
@$(1)/bin/python -m pip install -q --no-compile --disable-pip-version-check $(3)
@touch $@
endef

# What the tests of another Spark need, without stores, catalogs and other readers.
FEW_TESTS := -e '.[cli,spark]' hypothesis pytest pytest-spark pytest-xdist setuptools

help:
	@sed -n 's/^#   \(make .*\)/\1/p' Makefile

.venv/.ready: pyproject.toml
	$(call venv,.venv,$(PYTHON),-e '.[demo$(comma)dev]',3.10 or later,PYTHON)

.venv-spark35/.ready: pyproject.toml
	$(call venv,.venv-spark35,$(PYTHON35),$(FEW_TESTS) 'pyspark==3.5.*',3.10 to 3.12,PYTHON35)

.venv-spark40/.ready .venv-spark41/.ready: .venv-spark4%/.ready: pyproject.toml
	$(call venv,.venv-spark4$*,$(PYTHON),$(FEW_TESTS) 'pyspark[connect]==4.$*.*',3.10 or later,PYTHON)

# What all tests need. The pyspark that is there stays.
.venv-spark35/.full .venv-spark40/.full .venv-spark41/.full: .venv-spark%/.full: .venv-spark%/.ready
	@.venv-spark$*/bin/python -m pip freeze | grep -i '^pyspark==' >.venv-spark$*/pins.txt
	@.venv-spark$*/bin/python -m pip install -q --no-compile --disable-pip-version-check -c .venv-spark$*/pins.txt -e '.[test]'
	@touch $@

.venv-lowest/.ready: pyproject.toml
	$(call venv,.venv-lowest,$(PYTHON_LOWEST),-e . $$("$(PYTHON_LOWEST)" .ci/lowest.py) pytest pytest-xdist hypothesis mmh3 'moto[s3$(comma)server]',3.10 or 3.11,PYTHON_LOWEST)

# Readers that share no code with this project, in a venv of their own because of their pins.
.venv-readers/.ready: pyproject.toml
	$(call venv,.venv-readers,$(PYTHON),--only-binary pyarrow 'pypaimon==2.1.0' 'pypaimon-rust==0.4.0',3.10 or later,PYTHON)

# What builds the documentation. It reads the package's source and does not import it.
.venv-docs/.ready: pyproject.toml
	$(call venv,.venv-docs,$(PYTHON),$$("$(PYTHON)" .ci/extra.py docs),3.10 or later,PYTHON)

# pypaimon beside each Spark of the benchmarks.
.venv-bench35/.ready: pyproject.toml
	$(call venv,.venv-bench35,$(PYTHON35),--only-binary pyarrow 'pypaimon==2.1.0' 'pyspark==3.5.*' setuptools,3.10 to 3.12,PYTHON35)

.venv-bench40/.ready: pyproject.toml
	$(call venv,.venv-bench40,$(PYTHON),--only-binary pyarrow 'pypaimon==2.1.0' 'pyspark==4.0.*',3.10 or later,PYTHON)

.venv-bench/.ready: pyproject.toml .venv/.ready
	$(call venv,.venv-bench,$(PYTHON),--only-binary pyarrow 'pypaimon==2.1.0' "$$($(VENV)/python -m pip freeze | grep -i '^pyspark==')",3.10 or later,PYTHON)

comma := ,

java:
	@version=$$("$(JAVA)" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1); \
	test "$${version:-0}" -ge 17 || \
	  { echo "Java 17 or later is needed and was not found: install it, or set JAVA_HOME." >&2; exit 1; }

# The jar of Java Paimon; where it cannot be had, one line says so and everything else goes on.
jar: .venv/.ready
	@$(VENV)/python tests/oracle/fetch_jar.py

demo: java .venv/.ready .venv-readers/.ready jar
	@$(VENV)/python examples/flights.py

# Three processes keep two processors busy: each waits for a quarter of its time. Spark is in one of them. Where all
# tests need Spark, a third session would cost more than it saves.
test record-costs: JOBS := $(if $(filter file,$(origin JOBS)),3,$(JOBS))

test: java .venv/.ready .venv-readers/.ready jar
	$(VENV)/$(PYTEST) $(or $(TESTS),-m "not long and not cluster and not hdfs and not flink and not hive and not full")

# The tables are printed of tests that failed, too.
test-costs:
ifeq ($(RECORDS),)
	@mkdir -p build
	@TEST_COSTS=build/test-costs.jsonl $(MAKE) --no-print-directory test; failed=$$?; \
	"$(PYTHON)" -m tests.kits.cost_tables build/test-costs.jsonl; exit $$failed
else
	@"$(PYTHON)" -m tests.kits.cost_tables $(RECORDS)
endif

# What the costly files cost, for the next runs: tests/kits/sharing.py says how processes share them.
record-costs: java .venv/.ready .venv-readers/.ready jar
	RECORD_COSTS=1 $(VENV)/$(PYTEST) -m "not long and not cluster and not hdfs and not flink and not hive and not full"

test-long: java .venv/.ready .venv-readers/.ready jar
	$(VENV)/$(PYTEST) -m "long and not full"

# One process: each would have a cluster of its own.
test-cluster: java .venv/.ready jar
	$(VENV)/python -m pytest $(or $(TESTS),-m cluster)

test-spark35: java .venv-spark35/.ready jar
	.venv-spark35/bin/$(PYTEST) $(or $(TESTS),-m "spark35 and not full")

test-spark4: java $(SPARK4:%=.venv-spark4%/.ready) jar
	set -e; for minor in $(SPARK4); do .venv-spark4$$minor/bin/$(PYTEST) $(or $(TESTS),-m "spark4 and not full"); done

test-lowest: .venv-lowest/.ready
	PAIMON_REQUIRE_ORACLE= .venv-lowest/bin/$(PYTEST) $(or $(TESTS),-m "lowest and not hdfs and not hive and not full")

test-stores: .venv/.ready
	TEST_STORE=s3 $(VENV)/$(PYTEST) $(or $(TESTS),-m "s3 and not full")
	TEST_STORE=azure $(VENV)/$(PYTEST) $(or $(TESTS),-m "azure_and_gcs and not full")
	TEST_STORE=gcs $(VENV)/$(PYTEST) $(or $(TESTS),-m "azure_and_gcs and not full")

# One process: each would have an HDFS of its own.
test-hdfs: java .venv/.ready jar
	TEST_STORE=hdfs $(VENV)/python -m pytest $(or $(TESTS),-m "(hdfs or hdfs_too) and not full")

# One process: each would have a Flink of its own.
test-flink: java .venv/.ready
	$(VENV)/python -m pytest $(or $(TESTS),-m "flink and not full")

# One process: each would have a metastore of its own.
test-hive: java .venv/.ready jar
	$(VENV)/python -m pytest $(or $(TESTS),-m "hive and not full")

runbooks: .venv/.ready
	@mkdir -p build
	$(VENV)/python -m docs.generators.runbooks >build/runbooks.md
	@cp build/runbooks.md docs/runbooks.md

torture: .venv/.ready $(if $(filter-out 0,$(TABLES)),java jar)
	$(VENV)/python -m tests.simulation.torture --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) --java $(TABLES) $(PAGE)

# It can be stopped, and goes on with the next stream.
torture-kills: java .venv/.ready jar
	$(VENV)/python -m tests.kills.run --kills $(KILLS) $(if $(STREAM),--stream $(STREAM)) $(if $(CROWD),--crowd $(CROWD))

# MINUTES has a value of its own for torture; here it counts only if somebody gives it.
orders: .venv/.ready
	$(VENV)/python -m tests.orders.run --jobs $(JOBS) --share $(SHARE) $(if $(WORLD),--world "$(WORLD)") $(if $(KEPT),--kept "$(KEPT)") \
	  $(if $(filter-out file,$(origin MINUTES)),--minutes $(MINUTES)) $(PAGE)

# One suite that fails does not keep the others from running. Random examples do not depend on the versions of
# the dependencies, so the oldest ones get as many as in test-lowest.
test-full: java .venv/.ready .venv-readers/.ready .venv-spark35/.full .venv-spark40/.full .venv-spark41/.full .venv-lowest/.ready jar
	@failed=; export TEST_SEEDS=many; \
	$(VENV)/$(PYTEST) || failed="$$failed tests"; \
	for store in s3 azure gcs hdfs; do TEST_STORE=$$store $(VENV)/$(PYTEST) -m store || failed="$$failed $$store"; done; \
	.venv-spark35/bin/$(PYTEST) -m spark || failed="$$failed spark35"; \
	for minor in 0 1; do .venv-spark4$$minor/bin/$(PYTEST) -m "spark or spark35 or spark4" || failed="$$failed spark4$$minor"; done; \
	TEST_SEEDS= PAIMON_REQUIRE_ORACLE= .venv-lowest/bin/$(PYTEST) -m "(bare or lowest) and not hdfs" || failed="$$failed lowest"; \
	test -z "$$failed" || { echo "Failed:$$failed" >&2; exit 1; }

lint: .venv/.ready
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .

format: .venv/.ready
	$(VENV)/ruff check --fix .
	$(VENV)/ruff format .

types: .venv/.ready
	$(VENV)/mypy

# The wheel, used as somebody does who installs it.
package: .venv/.ready
	$(VENV)/python .ci/package.py

# It needs no environment of this checkout: the clone makes its own.
release:
	"$(PYTHON)" .ci/release.py

layers: .venv/.ready
	$(VENV)/lint-imports

# Not --quiet: it hides warnings from --strict. Material's notice about the future of MkDocs is no finding of ours.
docs: .venv-docs/.ready
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict
	@echo "The site is in build/site: open build/site/index.html."

examples: java .venv/.ready .venv-readers/.ready jar
	$(VENV)/python examples/quickstart.py
	@mkdir -p build; { $(VENV)/python examples/s3.py && $(VENV)/python examples/kafka.py --kills 1 && $(VENV)/python examples/debezium.py --kills 1; } >build/others.log 2>&1 & others=$$!; \
	failed=; $(VENV)/python examples/flights.py || failed="$$failed flights"; \
	wait $$others || failed="$$failed s3-kafka-or-debezium"; cat build/others.log; \
	test -z "$$failed" || { echo "Failed:$$failed" >&2; exit 1; }

# A benchmark that fails does not keep the others from running. What is in RESULTS is not measured again.
bench: java .venv/.ready .venv-readers/.ready .venv-spark35/.full .venv-spark40/.full .venv-bench/.ready .venv-bench35/.ready .venv-bench40/.ready jar
	$(if $(PAGES),$(VENV)/python -m pip install -q --disable-pip-version-check matplotlib)
	$(VENV)/python benchmarks/goals.py --results $(RESULTS) --rounds $(ROUNDS) --dropped $(DROPPED) $(if $(PAGES),--pages $(PAGES))

bench-parts: java .venv/.ready jar
	@for script in $(PARTS); do echo "== $$script"; $(VENV)/python $$script || exit 1; done

clean:
	rm -rf .venv .venv-docs .venv-spark35 .venv-spark40 .venv-spark41 .venv-bench .venv-bench35 .venv-bench40 .venv-lowest .venv-readers demo-data build dist *.egg-info
	rm -rf .mypy_cache .ruff_cache .import_linter_cache .hypothesis metastore_db spark-warehouse derby.log
	find checkpoints -mindepth 1 -maxdepth 1 ! -name README.md -exec rm -rf {} +
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
