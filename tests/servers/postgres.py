"""PostgreSQL from the system's packages on loopback, with one database. Raises RuntimeError where
it is not installed.

with start(folder) as postgres: ...
with start(folder, "wal_level=logical") as postgres: ...
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from pathlib import Path

from tests.servers._process import Server, free_port

USER, PASSWORD, DATABASE = "paimon", "s3cr3t-never-shown", "postgres"
_SYSTEM_USER = "postgres"  # the server refuses to run as root


class Postgres(Server):
    """A server. Its clock shows the time of New York."""

    @property
    def options(self) -> dict[str, str]:
        """Those of a JDBC catalog."""
        uri = f"jdbc:postgresql://127.0.0.1:{self.port}/{DATABASE}"
        return {"metastore": "jdbc", "uri": uri, "jdbc.user": USER, "jdbc.password": PASSWORD}

    @property
    def conninfo(self) -> str:
        return f"host=127.0.0.1 port={self.port} user={USER} password={PASSWORD} dbname={DATABASE}"


def program(name: str) -> str:
    """The path of a program of PostgreSQL: on PATH, or the newest where Debian has them."""
    newest = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), key=_version)
    path = shutil.which(name) or next(reversed(newest), None)
    if path is None:
        raise RuntimeError(f"PostgreSQL's {name} is not here: run apt-get install postgresql")
    return path


def _version(path: str) -> int:
    return int(Path(path).parents[1].name)


def start(folder: Path, *settings: str) -> Postgres:
    """A server with an empty database. `settings` are those of postgresql.conf, as NAME=VALUE."""
    initdb, server = program("initdb"), program("postgres")
    secret = Path(folder) / "password"
    secret.write_text(PASSWORD)
    as_user: list[str] = []
    if os.geteuid() == 0:
        as_user = [
            "setpriv",
            f"--reuid={_SYSTEM_USER}",
            f"--regid={_SYSTEM_USER}",
            "--clear-groups",
            "--pdeathsig=TERM",
        ]
        folder.chmod(0o755)
        shutil.chown(secret, _SYSTEM_USER)
        shutil.chown(folder, _SYSTEM_USER)
    data = str(Path(folder) / "data")
    made = [
        initdb,
        "-D",
        data,
        "-U",
        USER,
        "--auth=scram-sha-256",
        f"--pwfile={secret}",
        "--no-sync",
        "--locale=C",
    ]
    done = subprocess.run([*as_user, *made], capture_output=True, text=True, cwd=folder)
    if done.returncode:
        raise RuntimeError(f"initdb failed: {done.stderr}")
    port = free_port()
    how = [
        "-p",
        str(port),
        "-k",
        "",
        "-c",
        "listen_addresses=127.0.0.1",
        "-c",
        "fsync=off",
        "-c",
        "timezone=America/New_York",
        *(word for setting in settings for word in ("-c", setting)),
    ]
    return Postgres(
        [*as_user, server, "-D", data, *how], port, Path(folder) / "postgres.log", folder=folder
    )
