"""Class paths for servers in Java: jars from Maven, and jars that pyspark ships."""

from __future__ import annotations

import glob
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
_GET: Final = f"{_PLUGIN}:get"
_CLASS_PATH: Final = f"{_PLUGIN}:build-classpath"
_POM: Final = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>class-path</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>
      <exclusions>{exclusions}</exclusions></dependency>
  </dependencies>
</project>
"""


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


def with_dependencies(artifact: str, *, without: Sequence[str] = ()) -> list[str]:
    """The jar of an artifact (`group:name:version`), and those of all that it depends on, from the
    local Maven repository. Maven fetches what is not there. Its answer is kept in `build`.
    `without` are dependencies (`group:name`, where the name may be `*`) that are left out.
    """
    kept = _ROOT / "build" / "class-paths" / artifact.replace(":", "_")
    known = kept.read_text().split(":") if kept.exists() else []
    if known and all(Path(jar).exists() for jar in known):
        return known
    if not shutil.which("mvn"):
        raise JarsUnavailable(f"{artifact} is needed with all that it needs, and there is no mvn")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        group, name, version = artifact.split(":")
        exclusions = "".join(
            f"<exclusion><groupId>{of_group}</groupId><artifactId>{of_name}</artifactId></exclusion>"
            for of_group, of_name in (dependency.split(":") for dependency in without)
        )
        pom = _POM.format(group=group, name=name, version=version, exclusions=exclusions)
        Path(folder, "pom.xml").write_text(pom)
        paths = Path(folder, "class-path")
        command = ["mvn", "-q", "-B", _CLASS_PATH, f"-Dmdep.outputFile={paths}"]
        if "MAVEN_REPO_LOCAL" in os.environ:
            command.append(f"-Dmaven.repo.local={os.environ['MAVEN_REPO_LOCAL']}")
        said = ""
        for _ in range(3):  # a registry may be away for a moment
            if paths.exists():
                break
            maven = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
            said = maven.stdout
        if not paths.exists():
            raise JarsUnavailable(f"{artifact} could not be had from Maven: {said[:300]}")
        fresh = kept.with_name(f"{kept.name}.{os.getpid()}")
        shutil.copy(paths, fresh)
        os.replace(fresh, kept)  # in one step, because other processes read it
    return kept.read_text().split(":")


def of_spark(*prefixes: str) -> list[str]:
    """The jars of pyspark whose names begin so."""
    spark = importlib.util.find_spec("pyspark")
    if spark is None or not spark.submodule_search_locations:
        raise JarsUnavailable("pyspark is not installed; its jars are needed")
    folder = f"{spark.submodule_search_locations[0]}/jars"
    return [jar for prefix in prefixes for jar in sorted(glob.glob(f"{folder}/{prefix}*.jar"))]
