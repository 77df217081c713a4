"""What all tests share: the Java oracle, the vectors, the golden tables."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.kits import hdfs, hive, places, progress, sharing
from tests.kits.hdfs import MiniHdfs
from tests.kits.java_catalogs import java_with_s3
from tests.kits.places import STORE, refreshed
from tests.kits.seeds import MANY, examples
from tests.kits.stores import KINDS, StoreServer, started
from tests.servers import azurite, s3_moto
from tests.servers.gcs_moto import GcsProxy

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "oracle"))
sys.path.insert(0, str(HERE / "golden"))
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
# JVMs of tests live for seconds, Spark's and the oracle's: the first compiler alone takes a third
# less time.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# A shell lets its background jobs ignore Ctrl-C, and their children inherit that. Some tests send it
# to children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests' own stores have keys of their own. What this machine has for real ones is never used.
for _name in [
    name for name in os.environ if name.startswith(("AWS_", "AZURE_STORAGE_", "GOOGLE_"))
]:
    del os.environ[_name]

# A busy machine is no reason for a property to fail. In CI the same examples each time: a new
# counterexample is found at a desk, not in somebody's landing.
settings.register_profile(
    "house",
    deadline=None,
    print_blob=True,
    derandomize="CI" in os.environ and not MANY,
    max_examples=examples(25, 1000),
)
settings.load_profile("house")


def pytest_configure(config: pytest.Config) -> None:
    """What a run prints and records; with TEST_COSTS=FILE, the costs of each test."""
    progress.register(config)
    sharing.register(config)
    if records := os.environ.get("TEST_COSTS"):
        from tests.kits import costs

        costs.register(config, Path(records))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n`, files are shared by what they cost. Another `--dist` than load is respected."""
    return sharing.Sharing(config, log) if config.getoption("dist") == "load" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests and their modules stay to the end of the run, so garbage is not looked for
    among them, neither now nor later.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


POSITIVE = re.compile(r"(?<!not )\b(?!(?:not|and|or)\b)[a-z]\w*")
"""The marks of an expression of `-m` that a test must have."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m mark`, a file is imported only if it names the mark, or a conftest.py above does.

    So a few tests of all start soon, and an environment needs only what its tests import.
    """
    marks = set(POSITIVE.findall(config.option.markexpr or ""))
    if not marks:
        return None
    if collection_path.is_dir():
        files = sorted(collection_path.rglob("test_*.py"))
    elif collection_path.match("test_*.py"):
        files = [collection_path]
    else:
        return None
    return None if any(marks & marks_of(file) for file in files) else True


def marks_of(file: Path) -> set[str]:
    """The marks that a test file may have: it names them, or a conftest.py above it does."""
    above = [folder / "conftest.py" for folder in file.parents if HERE in folder.parents]
    return named_marks(file).union(*map(named_marks, above))


@cache
def named_marks(file: Path) -> set[str]:
    """The marks that a file names, none if it is not there."""
    return set(re.findall(r"pytest\.mark\.(\w+)", file.read_text())) if file.exists() else set()


@pytest.fixture(autouse=bool(STORE))
def _refreshed() -> None:
    """With TEST_STORE, a test begins with an empty store."""
    refreshed()


@pytest.fixture(scope="session")
def java() -> Any:
    """Java Paimon. Without its jar the tests are skipped, or fail if `PAIMON_REQUIRE_ORACLE=1`."""
    try:
        import java_paimon

        return java_paimon.shared()
    except (ImportError, java_paimon.OracleUnavailable) as why:
        if os.environ.get("PAIMON_REQUIRE_ORACLE") == "1":
            pytest.fail(f"The Java oracle is required and not there: {why}")
        pytest.skip(f"Java Paimon is not there: {why}")


@pytest.fixture(scope="session")
def kinds(java: Any) -> Any:
    """Java Paimon with its writers and indexes for dynamic buckets, deletion vectors and so on."""
    import java_kinds

    return java_kinds.JavaKinds(java)


@pytest.fixture(scope="session")
def java_on_s3(java: Any, s3_server: StoreServer) -> Any:
    """Java Paimon with its S3 file system, in the same JVM."""
    return java_with_s3(java, s3_server.server.options)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[StoreServer]:
    """S3: moto."""
    with started(s3_moto.start) as moto:
        yield StoreServer("s3", moto)


@pytest.fixture(scope="session")
def azure_server() -> Iterator[StoreServer]:
    """Azure's blobs: Azurite."""
    with started(azurite.start) as server:
        yield StoreServer("azure", server)


@pytest.fixture(scope="session")
def gcs_server(s3_server: StoreServer) -> Iterator[StoreServer]:
    """Google Cloud Storage: moto behind a translating proxy."""
    with GcsProxy(s3_server.server) as proxy:
        yield StoreServer("gcs", proxy)


@pytest.fixture(scope="session")
def hdfs_server() -> Iterator[MiniHdfs]:
    """An HDFS that each test leaves as it was: what it kills, it starts again. With TEST_STORE=hdfs it is that of `kits/places.py`."""
    if STORE == "hdfs":
        yield places.server()
        return
    with started(hdfs.start, "hdfs_native") as server:
        yield server


@pytest.fixture(scope="session")
def hive_metastore() -> Iterator[hive.HiveMetastore]:
    """A Hive Metastore, whose databases have other names in each test."""
    with started(hive.start, "thrift") as server:
        yield server


@pytest.fixture(scope="session")
def java_of_hive(java: Any) -> Iterator[Any]:
    """Java Paimon with its Hive catalog, in a JVM of its own. `java` says whether there is a Java."""
    with hive.java_of_hive() as java_paimon:
        yield java_paimon


@pytest.fixture(scope="session")
def java_on_hdfs(java: Any) -> Any:
    """Java Paimon in the same JVM, for locations on HDFS."""
    import java_paimon

    return java_paimon.JavaPaimonByLocation.beside(java, {})


@pytest.fixture(params=KINDS)
def store_server(request: pytest.FixtureRequest) -> StoreServer:
    """A server of each kind of store."""
    return request.getfixturevalue(f"{request.param}_server")


@pytest.fixture(scope="session")
def vectors() -> Callable[[str], Any]:
    """The checked test vectors by name, as JSON."""

    def load(name: str) -> Any:
        return json.loads((HERE / "vectors" / f"{name}.json").read_text())

    return load


@pytest.fixture
def golden(tmp_path: Path) -> Callable[[str], tuple[Path, dict[str, Any]]]:
    """A private copy of a table that Java wrote: its path, and what is expected of it."""

    def copy(name: str) -> tuple[Path, dict[str, Any]]:
        table = tmp_path / "golden" / name / "db.db" / "t"
        shutil.copytree(HERE / "golden" / name / "db.db" / "t", table)
        return table, json.loads((HERE / "golden" / name / "expected.json").read_text())

    return copy
