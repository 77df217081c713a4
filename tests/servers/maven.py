"""Class paths for servers in Java: jars from Maven, and jars that pyspark ships."""

from __future__ import annotations

import glob
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_GET: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:get"


class JarsUnavailable(RuntimeError):
    """Maven, pyspark or a jar is missing here. The message says which."""


def fetched(artifacts: Iterable[str]) -> list[str]:
    """The jar of each artifact (`group:name:version`, or `group:name:version:jar:classifier`) from
    the local Maven repository. Maven fetches what is not there.
    """
    repository = Path(os.environ.get("MAVEN_REPO_LOCAL", Path.home() / ".m2" / "repository"))
    return [str(_fetched(artifact, repository)) for artifact in artifacts]


def _fetched(artifact: str, repository: Path) -> Path:
    group, name, version, *more = artifact.split(":")
    classifier = f"-{more[1]}" if more else ""
    folder = repository.joinpath(*group.split("."), name, version)
    jar = folder / f"{name}-{version}{classifier}.jar"
    if not jar.exists() and not shutil.which("mvn"):
        raise JarsUnavailable(
            f"{artifact} is not in the local Maven repository, and there is no mvn to fetch it"
        )
    command = ["mvn", "-q", "-B", _GET, "-Dtransitive=false", f"-Dartifact={artifact}"]
    said = ""
    for _ in range(3):  # a registry may be away for a moment
        if jar.exists():
            break
        local = f"-Dmaven.repo.local={repository}"
        said = subprocess.run([*command, local], capture_output=True, text=True, timeout=600).stdout
    if not jar.exists():
        raise JarsUnavailable(f"{artifact} could not be had from Maven: {said[-200:]}")
    return jar


def of_spark(*prefixes: str) -> list[str]:
    """The jars of pyspark whose names begin so."""
    spark = importlib.util.find_spec("pyspark")
    if spark is None or not spark.submodule_search_locations:
        raise JarsUnavailable("pyspark is not installed; its jars are needed")
    folder = f"{spark.submodule_search_locations[0]}/jars"
    return [jar for prefix in prefixes for jar in sorted(glob.glob(f"{folder}/{prefix}*.jar"))]
