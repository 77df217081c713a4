"""Orphans and verification of a large table in a store, one request after another and as it is.

    python benchmarks/large_upkeep.py [--files 100000] [--snapshots 1000] [--delay 0.025]

The store is `still_store.py`, which only reads. Prints seconds, CPU seconds of the client,
requests, and trips (requests in a row), with the delay and without.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from many_files import make_table  # noqa: E402
from store_upkeep import CALLS, OneByOne  # noqa: E402

from paimon_stream.api.table import PaimonTable  # noqa: E402
from paimon_stream.options import Options  # noqa: E402
from tests.servers._process import Server, free_port  # noqa: E402
from tests.servers.s3_moto import Moto  # noqa: E402


def measure(name: str, url: str, delay: float, *, one_by_one: bool) -> None:
    """Prints the figures of one call."""
    keys = {"s3.access-key": Moto.access_key, "s3.secret-key": Moto.secret_key}
    options = {
        "s3.endpoint": url,
        "s3.endpoint.region": "us-east-1",
        "s3.path.style.access": "true",
        **keys,
    }
    table = PaimonTable.load("s3://bucket/db.db/t", storage_options=options)
    inner = table._table
    tally = inner.storage.tally  # type: ignore[attr-defined]
    if one_by_one:
        alone = Options(dict(inner.options), {"file-operation.thread.num": "1"})
        table = PaimonTable(replace(inner, storage=OneByOne(inner.storage), options=alone))
    before, trip = tally.requests(), tally.trip()
    began, cpu = time.perf_counter(), time.process_time()
    method, given = CALLS[name]
    getattr(table, method)(**given)
    spent, worked = time.perf_counter() - began, time.process_time() - cpu
    kinds = {kind: count - before.get(kind, 0) for kind, count in tally.requests().items()}
    how = "one by one" if one_by_one else "as it is"
    print(
        f"{name:<13} {how:<11} {delay:>6} {spent:>8.2f} {worked:>8.2f} {tally.trip() - trip:>7}  {kinds}",
        flush=True,
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--snapshots", type=int, default=1000)
    parser.add_argument("--delay", type=float, default=0.025)
    given = parser.parse_args()
    print(f"{'':<13} {'':<11} {'delay':>6} {'seconds':>8} {'CPU':>8} {'trips':>7}  requests")
    with tempfile.TemporaryDirectory() as folder:
        make_table(Path(folder) / "db.db" / "t", given.files, 0, given.snapshots)
        for delay in (given.delay, 0.0):
            port = free_port()
            program = str(ROOT / "benchmarks" / "still_store.py")
            command = [sys.executable, program, folder, str(port), str(delay)]
            with (
                tempfile.TemporaryDirectory() as logs,
                Server(command, port, Path(logs) / "store.log") as server,
            ):
                for name in ("list orphans", "verify"):
                    measure(name, server.url, delay, one_by_one=False)
                    measure(name, server.url, delay, one_by_one=True)


if __name__ == "__main__":
    main()
