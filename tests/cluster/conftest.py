"""The clusters, once for each process of the tests, and what their machines have installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kits.clusters import (
    LocalCluster,
    Shipping,
    Standalone,
    make_python,
    pack_python,
    zip_package,
)


@pytest.fixture(scope="session")
def pythons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A Python with the package, and one without."""
    root = tmp_path_factory.mktemp("pythons")
    return {
        name: make_python(root / name, installed=name == "installed")
        for name in ("installed", "bare")
    }


@pytest.fixture(scope="session")
def installed(pythons: dict[str, Path]) -> Shipping:
    """The package is installed on every machine."""
    return Shipping(pythons["installed"], str(pythons["installed"]))


@pytest.fixture(scope="session")
def not_shipped(pythons: dict[str, Path]) -> Shipping:
    """Only the driver has the package."""
    return Shipping(pythons["installed"], str(pythons["bare"]))


@pytest.fixture(scope="session")
def py_files(pythons: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Shipping:
    """The package is a zip file, and is installed nowhere."""
    path = zip_package(tmp_path_factory.mktemp("zip") / "paimon_stream.zip")
    return Shipping(pythons["bare"], str(pythons["bare"]), ("--py-files", str(path)))


@pytest.fixture(scope="session")
def archives(pythons: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Shipping:
    """The executors' Python, with the package, comes in an archive."""
    environment = pythons["installed"].parents[1]
    path = pack_python(tmp_path_factory.mktemp("archive") / "environment.tar.gz", environment)
    submit = ("--archives", f"{path}#environment")
    return Shipping(pythons["installed"], "./environment/bin/python", submit)


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """Spark's own master, and workers on two hosts."""
    cluster = Standalone(tmp_path_factory.mktemp("standalone"))
    yield cluster
    cluster.stop()


@pytest.fixture(params=["standalone", "local-cluster"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Each kind of cluster."""
    if request.param == "standalone":
        return request.getfixturevalue("standalone")
    return LocalCluster(tmp_path / "local-cluster")
