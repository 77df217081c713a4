"""Azurite's blob server (npm `azurite`) on loopback, with one container.

    with start(folder) as azurite: ...

It is installed once into `build/azurite`, or into the folder that AZURITE names.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import os
import shutil
import subprocess
import urllib.parse
import urllib.request
from email.utils import formatdate
from pathlib import Path

from tests.servers._process import Server, free_port

VERSION = "3.35.0"
ACCOUNT = "devaccount"
KEY = base64.b64encode(b"test-only-key-never-shown-0123456789abcdefghijklmnopqrstuvwxyz-0").decode()
CONTAINER = "container"


class Azurite(Server):
    account, key, container = ACCOUNT, KEY, CONTAINER

    @property
    def endpoint(self) -> str:
        """With the account's name as its path: Azurite has no host names."""
        return f"{self.url}/{self.account}"

    @property
    def options(self) -> dict[str, str]:
        """Storage options; `azure.endpoint` is what an emulator needs beside Paimon's own names."""
        return {
            "azure.endpoint": self.endpoint,
            f"fs.azure.account.key.{self.account}.dfs.core.windows.net": self.key,
        }


def signature() -> str:
    """A shared access signature for everything. Unlike a key's, it covers no headers of a
    request.
    """
    given = {
        "sp": "rwdlacx",
        "ss": "b",
        "srt": "sco",
        "se": "2099-01-01T00:00:00Z",
        "sv": "2020-10-02",
    }
    signed = [
        ACCOUNT,
        given["sp"],
        given["ss"],
        given["srt"],
        "",
        given["se"],
        "",
        "",
        given["sv"],
        "",
    ]
    made = hmac.new(base64.b64decode(KEY), "\n".join(signed).encode(), hashlib.sha256).digest()
    return urllib.parse.urlencode({**given, "sig": base64.b64encode(made).decode()})


def _program() -> Path:
    """The installed server. Two processes of tests do not install it at once."""
    home = Path(os.environ.get("AZURITE", Path(__file__).parents[2] / "build" / "azurite"))
    program = home / "node_modules" / ".bin" / "azurite-blob"
    home.mkdir(parents=True, exist_ok=True)
    with open(home / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _install(home)
    return program


def _install(home: Path) -> None:
    if not shutil.which("npm"):
        raise RuntimeError("npm is not installed")
    for command in (["init", "-y"], ["install", "--no-audit", "--no-fund", f"azurite@{VERSION}"]):
        done = subprocess.run(["npm", *command], cwd=home, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"npm cannot install azurite: {done.stderr.strip()[-300:]}")


def _create_container(server: Azurite) -> None:
    path = f"/{ACCOUNT}/{CONTAINER}"
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    canonical = "\n".join(["PUT", "", "", "", "", "", "", "", "", "", "", ""]) + "\n"
    canonical += (
        "".join(f"{k}:{v}\n" for k, v in sorted(headers.items()))
        + f"/{ACCOUNT}{path}\nrestype:container"
    )
    signature = base64.b64encode(
        hmac.new(base64.b64decode(KEY), canonical.encode(), hashlib.sha256).digest()
    ).decode()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{signature}"
    urllib.request.urlopen(
        urllib.request.Request(
            f"{server.url}{path}?restype=container", method="PUT", headers=headers
        ),
        timeout=900,
    ).read()


def start(folder: Path, port: int = 0) -> Azurite:
    folder = Path(folder)
    port = port or free_port()
    command = [
        str(_program()),
        "--blobHost",
        "127.0.0.1",
        "--blobPort",
        str(port),
        "--skipApiVersionCheck",
        "--silent",
        "--inMemoryPersistence",
    ]
    server = Azurite(
        command,
        port,
        folder / "azurite.log",
        env={**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"},
    )
    _create_container(server)
    return server
