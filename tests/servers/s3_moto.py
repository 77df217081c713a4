"""moto's S3 server (PyPI `moto[server]`) on loopback, with one bucket. Any key and secret is
accepted.

with start(folder) as s3: ...
"""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path

from tests.servers._process import Server, free_port

BUCKET = "bucket"


class Moto(Server):
    """`options` are storage options under Paimon's names. Keys that look like secrets, to search
    logs for.
    """

    bucket = BUCKET
    access_key, secret_key = "AKIDTESTONLY", "s3cr3t-never-shown"

    @property
    def options(self) -> dict[str, str]:
        return {
            "s3.endpoint": self.url,
            "s3.endpoint.region": "us-east-1",
            "s3.path.style.access": "true",
            "s3.access-key": self.access_key,
            "s3.secret-key": self.secret_key,
        }

    def create_bucket(self) -> None:
        """Creates the bucket."""
        signed = f"AWS4-HMAC-SHA256 Credential={self.access_key}/20200101/us-east-1/s3/aws4_request"
        url, headers = f"{self.url}/{BUCKET}", {"Authorization": signed}
        urllib.request.urlopen(
            urllib.request.Request(url, method="PUT", headers=headers), timeout=900
        ).read()

    def reset(self) -> None:
        """Removes everything. moto looks at all keys of a bucket for each list."""
        url = f"{self.url}/moto-api/reset"
        urllib.request.urlopen(urllib.request.Request(url, b"", method="POST"), timeout=900).read()
        self.create_bucket()


def start(folder: Path, python: str = sys.executable, port: int = 0) -> Moto:
    """Raises RuntimeError where moto is not installed."""
    port = port or free_port()
    server = Moto(
        [
            python,
            str(Path(__file__).with_name("moto_server.py")),
            "-H",
            "127.0.0.1",
            "-p",
            str(port),
        ],
        port,
        Path(folder) / "moto.log",
    )
    server.create_bucket()
    return server
