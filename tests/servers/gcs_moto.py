"""Google Cloud Storage's XML API as far as obstore uses it: moto behind a proxy that turns the
generation precondition into S3's. It is no emulator of GCS: it shows that the right calls are made,
and that they are atomic. (fake-gcs-server answers obstore's PUT with 400.)
"""

from __future__ import annotations

import json

from tests.servers.fault_proxy import FaultProxy
from tests.servers.s3_moto import Moto

__all__ = ["GcsProxy"]


class GcsProxy(FaultProxy):
    """A proxy in front of moto. It takes rules like any other."""

    def __init__(self, moto: Moto) -> None:
        super().__init__(f"127.0.0.1:{moto.port}")
        self.moto = moto
        self.translate = _to_s3

    @property
    def service_account_key(self) -> str:
        """What obstore takes as `service_account_key`: it names the endpoint, and no token is asked
        for.
        """
        empty = {"client_email": "", "private_key": "", "private_key_id": ""}
        return json.dumps({"gcs_base_url": self.url, "disable_oauth": True, **empty})


def _to_s3(headers: dict[str, str]) -> None:
    if headers.pop("x-goog-if-generation-match", None) == "0":
        headers["if-none-match"] = "*"
    # moto requires a signature, and accepts any.
    headers["authorization"] = "AWS4-HMAC-SHA256 Credential=gcs/20200101/us-east-1/s3/aws4_request"
