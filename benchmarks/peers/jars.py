"""The pinned jars of the peers, from the local Maven repository or, if they are missing there, from
Maven.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

__all__ = ["Unavailable", "jars_for"]

_REPOSITORY = Path.home() / ".m2" / "repository"

# By system and Spark version. A missing pair has no release for that Spark, or none that works with
# it.
ARTIFACTS: dict[str, dict[str, tuple[str, ...]]] = {
    "iceberg": {"3.5": ("org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.10.0",)},
    "delta": {"3.5": ("io.delta:delta-spark_2.12:3.3.2", "io.delta:delta-storage:3.3.2")},
    "jar": {"3.5": ("org.apache.paimon:paimon-spark-3.5:0.9.0",)},
}


class Unavailable(RuntimeError):
    """The system is not available here; the text says why."""


def jars_for(system: str, spark_version: str) -> list[Path]:
    """The system's jars; an empty list if it needs none. Raises `Unavailable`."""
    if system not in ARTIFACTS:
        return []
    version = ".".join(spark_version.split(".")[:2])
    artifacts = ARTIFACTS[system].get(version)
    if artifacts is None:
        raise Unavailable(f"no pinned jar for Spark {version}")
    return [_jar(artifact) for artifact in artifacts]


def _jar(artifact: str) -> Path:
    group, name, version = artifact.split(":")
    path = _REPOSITORY.joinpath(*group.split("."), name, version, f"{name}-{version}.jar")
    if not path.is_file() and shutil.which("mvn"):
        subprocess.run(
            [
                "mvn",
                "-q",
                "dependency:get",
                f"-Dartifact={artifact}",
                "-Dtransitive=false",
                f"-Dmaven.repo.local={_REPOSITORY}",
            ],
            capture_output=True,
            check=False,
            timeout=600,
        )
    if not path.is_file():
        raise Unavailable(
            f"{path.name} is not in the local Maven repository, and mvn could not fetch it"
        )
    return path
