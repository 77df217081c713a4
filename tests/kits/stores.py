"""Storages on real servers of object stores, which the tests start on loopback, and faults before
them.

The servers' keys look like secrets, so that they can be searched for: `SECRETS`.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from paimon_stream.maintenance import after_commit
from paimon_stream.runtime import Runtime, SimulatedClock, simulated, system
from paimon_stream.storage.object_store import ObjectStorage
from paimon_stream.storage.store_open import StoreSettings
from tests.servers import azurite, s3_moto
from tests.servers.fault_proxy import FaultProxy
from tests.servers.gateway import Gateway
from tests.servers.gcs_moto import GcsProxy

T = TypeVar("T")

KINDS: Final = ("s3", "azure", "gcs")
SECRETS: Final = (s3_moto.Moto.access_key, s3_moto.Moto.secret_key, azurite.KEY)
_ROOTS: Final = itertools.count(1)
_SCHEMES: Final = {"s3": "s3", "azure": "abfss", "gcs": "gs"}


def started(start: Callable[[Path], T], library: str = "obstore") -> T:
    """A server, if there is the library that asks it. Where one of them cannot be installed the
    test is skipped, or fails if `PAIMON_REQUIRE_ORACLE=1`.
    """
    try:
        __import__(library)
        return start(Path(tempfile.mkdtemp(prefix="server-")))
    except (ImportError, OSError, RuntimeError) as why:
        reason = (str(why).splitlines() or [""])[-1]
        if os.environ.get("PAIMON_REQUIRE_ORACLE") == "1":
            pytest.fail(f"A server is required and not there: {reason}")
        pytest.skip(f"A server is not there: {reason}")


@dataclass
class StoreServer:
    """A store of one kind. Each storage has a root of its own."""

    kind: str
    server: Any

    def place(self, proxy: FaultProxy | None = None) -> tuple[str, dict[str, str]]:
        """A new location as a user writes it, and its storage options under Java Paimon's names."""
        path = f"wh/db.db/t{os.getpid()}_{next(_ROOTS)}"
        bucket = "bucket"
        if self.kind == "azure":
            bucket = f"container@{self.server.account}.dfs.core.windows.net"
        return f"{_SCHEMES[self.kind]}://{bucket}/{path}", self.options(proxy)

    def options(self, proxy: FaultProxy | Gateway | None = None) -> dict[str, str]:
        """Storage options under Java Paimon's names."""
        url = proxy.url if proxy is not None else self.server.url
        match self.kind:
            case "s3":
                return {**self.server.options, "s3.endpoint": url}
            case "azure":
                return {**self.server.options, "azure.endpoint": f"{url}/{self.server.account}"}
        gcs = proxy if isinstance(proxy, GcsProxy) else self.server
        return {"gs.service-account-key": gcs.service_account_key}

    def storage(self, proxy: FaultProxy | None = None, **how: Any) -> ObjectStorage:
        """A storage on an empty folder, behind the proxy if there is one."""
        return opened(self.settings(proxy, **how))

    def settings(
        self,
        proxy: FaultProxy | None = None,
        *,
        millis: int = 5000,
        max_retries: int = 3,
        **changed: Any,
    ) -> StoreSettings:
        """Settings of a new root. Servers on loopback answer at once, so few seconds are enough."""
        prefix = f"wh/db.db/t{os.getpid()}-{next(_ROOTS)}"
        url = proxy.url if proxy is not None else self.server.url
        bucket, scheme = ("container", "az") if self.kind == "azure" else ("bucket", self.kind[:2])
        return StoreSettings(
            **{
                "kind": self.kind,
                "location": f"{scheme}://{bucket}/{prefix}",
                "bucket": bucket,
                "prefix": prefix,
                "config": self._config(url, proxy),
                "client": {"allow_http": True, "timeout": f"{millis}ms", "connect_timeout": "2s"},
                "profile": None,
                "max_retries": max_retries,
                **changed,
            }
        )

    def _config(self, url: str, proxy: FaultProxy | None) -> dict[str, str]:
        match self.kind:
            case "s3":
                keys = {
                    "access_key_id": self.server.access_key,
                    "secret_access_key": self.server.secret_key,
                }
                return {"endpoint": url, "region": "us-east-1", **keys}
            case "azure":
                account = self.server.account
                return {
                    "account_name": account,
                    "account_key": self.server.key,
                    "endpoint": f"{url}/{account}",
                }
        gcs = proxy if isinstance(proxy, GcsProxy) else self.server
        return {"service_account_key": gcs.service_account_key}

    @contextmanager
    def proxied(self) -> Iterator[FaultProxy]:
        """A proxy of its own in front of the server."""
        if self.kind == "gcs":
            proxy: FaultProxy = GcsProxy(self.server.moto)
        else:
            proxy = FaultProxy(f"127.0.0.1:{self.server.port}")
        with proxy:
            before = set(after_commit._WORKERS)
            yield proxy
            proxy.rules = []
            for worker in set(after_commit._WORKERS) - before:
                worker.join(5)  # without the proxy, an expiry would wait for minutes


class WaitingClock(SimulatedClock):
    """Waits for nothing, and counts how often it was asked to."""

    waits = 0

    def sleep(self, seconds: float) -> None:
        self.waits += 1
        super().sleep(seconds)


class Outage(WaitingClock):
    """Ends an outage when `seconds` of it were waited."""

    def __init__(self, seconds: float, end: Callable[[], object]) -> None:
        super().__init__()
        self.seconds, self.end, self.waited = seconds, end, 0.0

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        before, self.waited = self.waited, self.waited + seconds
        if before < self.seconds <= self.waited:
            self.end()


def opened(settings: StoreSettings, clock: SimulatedClock | None = None) -> ObjectStorage:
    """A storage that waits for real, or by a simulated clock."""
    runtime: Runtime = system() if clock is None else simulated(1, clock)
    return ObjectStorage(settings, runtime=runtime)
