"""What object stores cost: requests, round trips, and time at a given delay of each request.

    python benchmarks/stores.py                          # everything, on S3 (moto) on loopback
    python benchmarks/stores.py --only commit
    python benchmarks/stores.py --only peers --batches 15   # beside pypaimon and Java
    python benchmarks/stores.py --delay 0.025 --batches 40 --json stores.json
    python benchmarks/stores.py --only upkeep --files 100000 --endpoint http://127.0.0.1:9000

The server runs on loopback, behind a proxy in a process of its own that delays each request. Each
figure is measured without and with the delay. Without it, a figure is what client, server and proxy
need themselves. Requests are counted at the proxy, trips by the storage. Each section is a function
that prints its own table; `SECTIONS` names them.

moto looks at all its objects for each page of a listing; `large_upkeep.py` measures larger tables
on a store that does not. `--endpoint` names another S3 server that runs already, with moto's keys
and bucket.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from commits import make_table, prepared  # noqa: E402
from store_peers import peers  # noqa: E402
from store_upkeep import upkeep  # noqa: E402

from paimon_stream.catalogs.opening import open_storage  # noqa: E402
from paimon_stream.format.commit_message import CommitMessage  # noqa: E402
from paimon_stream.storage.base import Storage  # noqa: E402
from paimon_stream.storage.together import tally_of  # noqa: E402
from paimon_stream.stream.identity import WriterIdentity  # noqa: E402
from paimon_stream.stream.one_batch import Rows  # noqa: E402
from paimon_stream.stream.steps import JudgedBatch, WrittenBatch, for_driver  # noqa: E402
from paimon_stream.stream.verdicts import Batch  # noqa: E402
from paimon_stream.stream.writer import StreamWriter  # noqa: E402
from tests.kits.stores import StoreServer  # noqa: E402
from tests.servers import s3_moto  # noqa: E402
from tests.servers.fault_proxy import Entry, Rule  # noqa: E402
from tests.servers.gateway import Gateway  # noqa: E402
from tests.servers.s3_moto import Moto  # noqa: E402

WARM = 3


class Running(Moto):
    """An S3 server that runs already, in moto's place."""

    def __init__(self, url: str) -> None:
        self.port = int(url.rpartition(":")[2])

    def reset(self) -> None:
        """Removes everything below the folder that the benchmarks use."""
        storage = open_storage("s3://bucket/wh", self.options)
        for page in storage.list_below(""):
            assert not storage.delete_all([one.path for one in page])

    def stop(self) -> None:
        """It goes on."""


class Proxy(Gateway):
    """The proxy, in a process of its own: what it works is not the client's work."""

    @property
    def log(self) -> list[Entry]:
        """The requests since the last order."""
        with urllib.request.urlopen(f"{self.url}/__proxy__/log", timeout=60) as answer:
            return [Entry(**one) for one in json.load(answer)]


@dataclass
class Place:
    """A server behind a proxy, the delay to measure with, and the figures so far."""

    server: StoreServer
    proxy: Proxy
    delay: float
    batches: int
    snapshots: int = 1000
    files: int = 20_000
    before: Path | None = None
    figures: dict[str, Any] = field(default_factory=dict)

    def storage(self) -> Storage:
        """A storage on an empty folder, behind the proxy."""
        return self.server.storage(self.proxy, millis=60_000)

    @contextmanager
    def delayed(self, seconds: float) -> Iterator[None]:
        """Each request inside the block takes so much longer."""
        self.proxy.order(*(Rule("delay", times=None, seconds=one) for one in (seconds,) if one))
        try:
            yield
        finally:
            self.proxy.order()

    def kinds(self) -> Counter[str]:
        """The requests since the block of `delayed` began. POST starts or ends an upload in
        parts.
        """
        return Counter(
            "LIST"
            if one.method == "GET" and "list-type" in one.path
            else "DELETE"
            if one.method == "POST" and one.path.endswith("?delete")
            else one.method
            for one in self.proxy.log
        )


@dataclass
class Stream:
    """A stream without Spark, whose batches hold some files each."""

    storage: Storage
    keyed: bool
    options: Mapping[str, str] = field(default_factory=dict)
    next_batch: int = 0
    runs: int = 0
    writer: StreamWriter | None = None

    def __post_init__(self) -> None:
        self.table = make_table(self.storage, self._kind)

    @property
    def _kind(self) -> str:
        return "keyed" if self.keyed else "append"

    def start(self) -> None:
        """Begins a new run."""
        self.runs += 1
        identity = WriterIdentity(
            user="bench", query_id="q", run_id=f"run-{self.runs}", checkpoint="/ck", token="sink"
        )
        self.writer = StreamWriter(
            storage=self.storage, identity=identity, options=dict(self.options)
        )

    def batch(self, files: int, *, written: bool) -> float:
        """Runs one batch. Returns its seconds. `written`: the driver writes the data files within
        them; otherwise tasks have written them.
        """
        if self.writer is None:
            self.start()
        assert self.writer is not None
        messages = tuple(prepared(files, self._kind, f"data-{self.next_batch}"))
        batch = Batch(batch_id=self.next_batch, offsets_hash=str(self.next_batch))

        def write(judged: JudgedBatch) -> WrittenBatch:
            numbering = judged.numbers() if self.keyed else None
            buffered = judged.buffered() if written else None
            if written:
                self._write(messages, for_driver(judged.table, buffered).storage)
            return judged.written(messages, numbering=numbering, buffered=buffered)

        began = time.perf_counter()
        self.writer.write(batch, Rows(write=write))
        self.next_batch += 1
        return time.perf_counter() - began

    def _write(self, messages: tuple[CommitMessage, ...], storage: Storage) -> None:
        for message in messages:
            for one in message.new_files:
                path = self.table.layout.data_file(message.partition, message.bucket, one.file_name)
                with storage.open_output(path) as out:
                    out.write(b"data")


def commit(place: Place) -> None:
    """A steady batch of a running stream, and the first one of a run."""
    print(
        f"\ncommit: p50 of {place.batches} batches; goal: 4 delays + the time without delay + 30 ms"
    )
    print(
        f"{'stream':<34} {'no delay':>9} {'delayed':>9} {'goal':>9} {'trips':>6} {'requests':>9}  by kind"
    )
    journal_off = {"paimon-stream.journal": "false"}
    cases: tuple[tuple[str, bool, Mapping[str, str], int, bool], ...] = (
        ("append, 1 file by the driver", False, {}, 1, True),
        ("append, no journal", False, journal_off, 1, True),
        ("keyed, 1 file by the driver", True, {}, 1, True),
        ("append, 1 file by a task", False, {}, 1, False),
        ("append, 200 messages by tasks", False, {}, 200, False),
    )
    for name, keyed, options, files, written in cases:
        stream = Stream(place.storage(), keyed, options)
        for _ in range(WARM):
            stream.batch(files, written=written)
        plain, _ = _p50(place, stream, 0.0, files, written)
        slow, trips = _p50(place, stream, place.delay, files, written)
        goal = plain + 4 * place.delay + 0.03
        _show(place, name, plain, slow, goal, trips, place.batches)
    for name, runs in (("first batch of a table", 0), ("first batch of a restart", 3)):
        stream = Stream(place.storage(), False)
        for _ in range(runs):
            stream.batch(1, written=True)
        stream.start()
        before = _trips(stream.storage)
        with place.delayed(place.delay):
            slow = stream.batch(1, written=True)
            _show(place, name, 0.0, slow, 0.0, _trips(stream.storage) - before, 1)


def _p50(
    place: Place, stream: Stream, delay: float, files: int, written: bool
) -> tuple[float, int]:
    """The median seconds of a batch, and the trips of the last one. The requests are left in the
    figures.
    """
    with place.delayed(delay):
        spent = []
        for _ in range(place.batches):
            before = _trips(stream.storage)
            spent.append(stream.batch(files, written=written))
        place.figures["kinds"] = place.kinds()
    return statistics.median(spent), _trips(stream.storage) - before


def _trips(storage: Storage) -> int:
    tally = tally_of(storage)
    return 0 if tally is None else tally.trip()


def _show(
    place: Place, name: str, plain: float, slow: float, goal: float, trips: int, batches: int
) -> None:
    kinds = place.figures.pop("kinds", None) or place.kinds()
    each = {kind: round(count / batches, 1) for kind, count in sorted(kinds.items())}
    times = " ".join(
        f"{seconds * 1000:>6.0f} ms" if seconds else f"{'–':>9}" for seconds in (plain, slow, goal)
    )
    print(f"{name:<34} {times} {trips:>6} {sum(each.values()):>9.1f}  {each}", flush=True)
    place.figures[name] = {
        "plain": plain,
        "delayed": slow,
        "goal": goal,
        "trips": trips,
        "requests": each,
    }


SECTIONS: Mapping[str, Callable[[Place], None]] = MappingProxyType(
    {"commit": commit, "peers": peers, "upkeep": upkeep}
)


def main() -> None:
    """Runs the sections."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", choices=sorted(SECTIONS))
    parser.add_argument(
        "--delay", type=float, default=0.025, help="seconds that each request takes longer"
    )
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--snapshots", type=int, default=1000)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--before", type=Path, help="an older checkout to compare upkeep with")
    parser.add_argument(
        "--endpoint", help="a server that runs already, with moto's keys and bucket"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = StoreServer(
            "s3", Running(given.endpoint) if given.endpoint else s3_moto.start(Path(folder))
        )
        try:
            with Proxy(server.server.port, Path(folder)) as proxy:
                sizes = (given.snapshots, given.files, given.before)
                place = Place(server, proxy, given.delay, given.batches, *sizes)
                for name, section in SECTIONS.items():
                    if given.only in (None, name):
                        section(place)
        finally:
            server.server.stop()
    if given.json:
        given.json.write_text(json.dumps(place.figures, indent=1))


if __name__ == "__main__":
    main()
