"""Files of Hadoop's configuration, as a machine of a cluster has them."""

from pathlib import Path

import pytest


def hadoop_on(folder: Path, default: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a file system Hadoop's default one for this process, by a file in the folder."""
    entry = f"<property><name>fs.defaultFS</name><value>{default}</value></property>"
    (folder / "core-site.xml").write_text(f"<configuration>{entry}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(folder))
