"""Renders `docs/compatibility.md` from pyproject.toml, the Makefile and the tests.

python -m docs.generators.compatibility > docs/compatibility.md

A version is on the page only if a test runs with it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from docs.generators.options import rows

__all__ = ["render"]

ROOT: Final = Path(__file__).parents[2]

_START: Final = """\
# Compatibility

<!-- Generated: python -m docs.generators.compatibility > docs/compatibility.md -->

This page names the versions that tests run with, and the command that runs them. Other versions may work, but nobody
has tried them. Where it says *newest*, the version is the newest one that PyPI had when the environment was set up. CI
(`.ci/run`) runs these commands: {ci}.

## Python, Spark and the dependencies

Python {python} or later is required. Each environment uses one Python, the first of these that the machine has.
"""

_LOWEST: Final = """
`make test-lowest` installs the lowest versions that are allowed, exactly: {pins}. It runs the tests that need no Spark.

## Other readers and writers

What they do with our tables, and we with theirs, is tested value by value. A disagreement fails the test.
"""

_SOURCES: Final = """
## Sources
"""

_STORES: Final = """
## Stores

`make test-stores` runs crash windows, races and verdicts on servers of these stores. No test runs against a cloud.
`make test-hdfs` runs the storage contract, crash windows, races and turns with Java
on a real HDFS on loopback.
"""

_REST: Final = """
## What no test runs

- Windows and macOS. File systems other than the one of the machine that runs the tests.
- Debezium's connectors for databases other than PostgreSQL; Maxwell, whose messages tests have from its documentation.
- Canal. Tests have messages that the server of Canal 1.1.7 made of the log of a MariaDB 10.11.
- Hive Metastores with TLS, and the locks of those since 4.0.
- Hive, Trino, StarRocks and other engines. They share Paimon's Java library or its format.
- YARN, Kubernetes, Databricks, EMR and Glue: [clusters.md](clusters.md) says what is known of them.
- Releases of Java Paimon other than those named here.
"""


def render() -> str:
    """The whole page, in Markdown."""
    project, makefile = _text("pyproject.toml"), _text("Makefile")
    least = _one(r'requires-python = ">=([\d.]+)"', project)
    steps = re.findall(r"^(?:step|timely\w*) ([\w-]+)", _text(".ci/run"), re.MULTILINE)
    tested = [f"`make {step}`" for step in steps if step.startswith("test")]
    pins = [
        f"{name} {version}"
        for group in re.findall(
            r"^(?:dependencies|store|hdfs) = \[(.*?)\]", project, re.MULTILINE | re.DOTALL
        )
        for name, version in re.findall(r'"([\w-]+)>=([\d.]+)"', group)
    ]
    return "".join(
        (
            _START.format(ci=", ".join(tested), python=least),
            rows(("Command", "Python", "PySpark", "What runs"), _environments(project, makefile)),
            _LOWEST.format(pins=", ".join(pins)),
            rows(("What", "Version", "What is tested", "Where"), _readers(makefile)),
            _SOURCES,
            rows(("What", "Version", "What is tested", "Where"), _sources()),
            _STORES,
            rows(("Store", "Server in the tests"), _stores()),
            _REST,
        )
    )


def _environments(project: str, makefile: str) -> list[tuple[str, ...]]:
    older = _one(r"'pyspark==([\d.]+)\.\*'", makefile)
    newest = f"newest (at least {_one(r'pyspark.connect.>=([0-9.]+)', project)})"
    names = _pythons(_one(r"^NAMES := (.*)$", makefile))
    return [
        ("`make test`, `make test-long`", names, newest, "all tests but those of clusters"),
        ("`make test-cluster`", names, newest, "streams on standalone workers and `local-cluster`"),
        (
            "`make test-spark35`",
            _picked(makefile, "PYTHON35"),
            older,
            "the streaming tests that depend on Spark, and kills of real jobs",
        ),
        (
            "`make test-spark4`",
            names,
            ", ".join(
                f"4.{minor}"
                for minor in re.search(r"^SPARK4 ?\?= (.*)$", makefile, re.M)[1].split()
            ),
            "the tests of the data source, of Connect and of the sink",
        ),
        (
            "`make test-lowest`",
            _picked(makefile, "PYTHON_LOWEST"),
            "none",
            "tests without Spark, lowest dependencies",
        ),
    ]


def _readers(makefile: str) -> list[tuple[str, ...]]:
    java = _one(r'^PAIMON_VERSION = "([\d.]+)"', _text("tests/oracle/java_paimon.py"))
    official = _one(r'^VERSION = "([\d.]+)"', _text("tests/crash/test_official_sink.py"))
    flink = _one(r'^FLINK: Final = "([\d.]+)"', _text("tests/kits/flink.py"))
    connector = _one(r'^PAIMON: Final = "([\d.]+)"', _text("tests/kits/flink.py"))
    hive = _text("tests/kits/hive.py")
    catalog = _one(r"paimon-hive-connector-[\d.]+:([\d.]+)\"", hive)
    metastore = _one(r"The metastore is the one in pyspark's jars, ([\d.]+),", hive)
    both = "writes, reads, compacts, expires and rolls back tables of ours, and the other way round"
    reads, where = "reads our tables", "`tests/conformance/test_other_readers.py`"
    return [
        ("Java Paimon", java, both, "`tests/conformance`"),
        (
            "Java Paimon's Hive catalog",
            f"{catalog}, on the metastore {metastore}",
            "each works with the tables that the other made, and waits for its lock",
            "`tests/conformance/test_hive_catalog_beside_java.py`",
        ),
        (
            "Hive Metastore",
            " and ".join(re.findall(r'"([\d.]+)": "org\.apache\.hive:', hive)),
            "keeps our tables, partitions and tags, without Java beside it; the locks of 3.1.3 only",
            "`tests/conformance/test_newer_metastores.py`, with `make test-full`",
        ),
        (
            "Hive Metastore with Kerberos",
            f"{metastore}, with Hadoop's MiniKdc",
            "lets us in with a ticket cache, a client keytab and a keytab of the options",
            "`tests/conformance/test_metastore_with_kerberos.py`, with `make test-full`",
        ),
        (
            "pypaimon",
            _one(r"'pypaimon==([\d.]+)'", makefile),
            f"{reads}; what it puts into metadata stays there",
            f"{where}, `test_newer_fields_beside_pypaimon.py`",
        ),
        (
            "pypaimon",
            _one(r"'pypaimon==([\d.]+)'", makefile),
            "appends to tables of ours and overwrites them, in turns with us and Java, never at the same time",
            "`tests/conformance/test_in_turns_with_pypaimon.py`, `test_what_pypaimon_writes.py`",
        ),
        ("paimon-rust", _one(r"'pypaimon-rust==([\d.]+)'", makefile), reads, where),
        (
            "Paimon's sink for Spark 3.5",
            official,
            "a query moves to our sink and back, on one table and one checkpoint",
            "`tests/crash/test_official_sink.py`",
        ),
        (
            "Flink",
            f"{flink}, with Paimon's connector {connector}",
            "writes, compacts and alters tables in turns with us and at the same time, and follows what we write ([flink.md](flink.md))",
            "`tests/flink`, in `make test-flink`",
        ),
    ]


def _sources() -> list[tuple[str, ...]]:
    debezium = _one(r'^DEBEZIUM: Final = "([\d.]+)\.Final"', _text("tests/servers/debezium.py"))
    servers = _text("tests/servers/kafka.py")
    kafka = _one(r'^KAFKA: Final = "([\d.]+)"', servers)
    connector = _one(r'^_NEWEST_CONNECTOR: Final = \("2\.13", "([\d.]+)"\)', servers)
    return [
        (
            "Kafka",
            f"{kafka}, with Spark's connector {connector}",
            "JSON and Avro go into tables, through kills of the job ([kafka.md](kafka.md))",
            "`tests/spark/test_kafka.py`, in `make test-full`; `examples/kafka.py`",
        ),
        (
            "Debezium",
            f"{debezium}, with the PostgreSQL of the machine",
            "its events become rows, in each encoding; a stream follows a database through kills ([cdc.md](cdc.md))",
            "`tests/spark/test_debezium.py`, on recorded events; `examples/debezium.py`",
        ),
    ]


def _stores() -> list[tuple[str, ...]]:
    azurite = _one(r'^VERSION = "([\d.]+)"', _text("tests/servers/azurite.py"))
    hadoop = _one(r'^HADOOP: Final = "([\d.]+)"', _text("tests/kits/hdfs.py"))
    return [
        ("S3", "moto"),
        ("Azure", f"Azurite {azurite}"),
        ("Google Cloud Storage", "moto behind a proxy that translates the requests"),
        ("HDFS", f"the mini cluster of Hadoop {hadoop}; with Kerberos, Hadoop's MiniKdc"),
        ("a local disk", "the file system itself"),
    ]


def _picked(makefile: str, variable: str) -> str:
    first, condition = re.findall(
        rf"^{variable} \?= \$\(call pick,(.*?),(\(3.*)\)$", makefile, re.MULTILINE
    )[0]
    below = _one(r"< \(3, (\d+)\)", condition)
    names = _pythons(first.replace("$(NAMES)", ""))
    return f"{names}, or another one below 3.{below}"


def _pythons(names: str) -> str:
    versions = re.findall(r"python(3\.\d+)", names)
    start = "the machine's `python3`, " if re.match(r"python3\b(?!\.)", names) else ""
    return start + ", ".join(versions)


def _one(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise LookupError(
            f"{pattern} is not in the text any more: change docs/generators/compatibility.py"
        )
    return found[1]


def _text(path: str) -> str:
    return (ROOT / path).read_text()


if __name__ == "__main__":
    sys.stdout.write(render())
