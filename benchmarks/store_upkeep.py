"""What maintenance and reading of tables in object stores cost: sections of `benchmarks/stores.py`.

Each is measured on one server, behind a proxy, with a delay of each request and without: one
request after another, and as it is. With `--before CHECKOUT` the first is that checkout of this
project, else the same code on a storage that sends one request at a time. Expiry and deletion one
by one are measured on fewer snapshots or files and scaled up, because their requests grow with
them. Without the delay, a figure is what client, server and proxy need themselves. The table that
is listed and verified has as many snapshots as expire.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from expiry import build
from many_files import make_table

from paimon_stream.api.table import PaimonTable
from paimon_stream.catalogs.opening import open_storage
from paimon_stream.errors import PaimonStreamError
from paimon_stream.options import Options
from paimon_stream.storage.base import delete_each
from paimon_stream.storage.read_ahead import in_groups
from paimon_stream.storage.together import in_turn

Location: TypeAlias = "tuple[str, dict[str, str]]"
"""A table's location, and its storage options."""
CALLS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "expire": (
        "expire_snapshots",
        {"retain_max": 1, "retain_min": 1, "older_than": "1 ms", "max_deletes": 10**6},
    ),
    "list orphans": ("remove_orphan_files", {"older_than": "1 h"}),
    "verify": ("verify", {"sample": 0}),
    "to_arrow": ("to_arrow", {}),
}
CHILD = """
import json, sys, time
location, options, method, given = json.loads(sys.argv[1])
from paimon_stream.api.table import PaimonTable
table = PaimonTable.load(location, storage_options=options)
began = time.perf_counter()
getattr(table, method)(**given)
print(time.perf_counter() - began)
"""


class OneByOne:
    """A storage that sends one request after another, and lists each folder by itself."""

    has_folders = True
    answers_late = False

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def together(self, requests: Sequence[Callable[[], Any]]) -> list[Any]:
        """One after the other."""
        return in_turn(requests)

    def delete_all(self, paths: Iterable[str]) -> dict[str, PaimonStreamError]:
        """One after the other."""
        return delete_each(self.inner.delete, paths)


def upkeep(place: Any) -> None:
    """Expiry, orphans, verification, reading and bulk deletion."""
    millis = f"{place.delay * 1000:.0f} ms"
    print(
        f"\nupkeep of {place.snapshots:,} snapshots, {place.files:,} files; seconds, at {millis} a request"
    )
    print(f"{'':<14} {'one by one':^19} {'now':^19}")
    print(
        f"{'':<14} {'no delay':>9} {millis:>9} {'no delay':>9} {millis:>9} {'times':>6}  requests now"
    )
    _expire(place, max(20, place.snapshots // 4))
    folder = _uploaded(place, lambda path: make_table(path, place.files, 0, place.snapshots))
    for name in ("list orphans", "verify"):
        _compare(place, name, folder)
    _compare(place, "to_arrow", _uploaded(place, _rows))
    _delete(place, 10_000, 200)


def _rows(path: Path) -> None:
    """Makes a table of 40 files with real rows."""
    table = PaimonTable.create(str(path), schema=[("id", "BIGINT"), ("name", "STRING")])
    for number in range(40):
        table.append(pa.table({"id": [number] * 100, "name": ["x" * 20] * 100}))


def _delete(place: Any, many: int, few: int) -> None:
    """Deletes files that are there."""
    slow = [_deleted(place, few, delay, bulk=False) * many / few for delay in (0.0, place.delay)]
    quick = [_deleted(place, many, delay, bulk=True) for delay in (0.0, place.delay)]
    _show(place, f"delete {many:,}", slow, quick)


def _deleted(place: Any, number: int, delay: float, *, bulk: bool) -> float:
    place.server.server.reset()
    storage = place.storage()
    names = [f"f{one}" for one in range(number)]
    storage.write_all([(name, b"") for name in names])
    with place.delayed(delay):
        began = time.perf_counter()
        failed = storage.delete_all(names) if bulk else delete_each(storage.delete, names)
        spent = time.perf_counter() - began
        place.figures["kinds"] = place.kinds()
    assert not failed
    return spent


def _show(place: Any, name: str, slow: list[float], quick: list[float]) -> None:
    kinds, times = dict(sorted(place.figures.pop("kinds").items())), slow[1] / quick[1]
    shown = " ".join(f"{one:>9.2f}" for one in (*slow, *quick))
    print(f"{name:<14} {shown} {times:>6.1f}  {sum(kinds.values())}\n{'':<14} {kinds}", flush=True)
    place.figures[name] = {"one by one": slow, "now": quick, "times": times, "requests": kinds}


def _expire(place: Any, few: int) -> None:
    """On a fresh table each time. One by one on `few` snapshots, scaled up."""
    spent = []
    for one_by_one, number in ((True, few), (False, place.snapshots)):
        for delay in (0.0, place.delay):
            at = _uploaded(place, partial(build, snapshots=number, files=5))
            seconds = _measure(place, "expire", at, delay, one_by_one=one_by_one)
            spent.append(seconds * place.snapshots / number)
    _show(place, "expire", spent[:2], spent[2:])


def _compare(place: Any, name: str, at: Location) -> None:
    """A call that only reads, on one table."""
    delays = (0.0, place.delay)
    slow = [_measure(place, name, at, delay, one_by_one=True) for delay in delays]
    quick = [_measure(place, name, at, delay, one_by_one=False) for delay in delays]
    _show(place, name, slow, quick)


def _uploaded(place: Any, make: Callable[[Path], Any]) -> Location:
    """A table that is made on the local disk and copied. The store holds nothing else."""
    place.server.server.reset()
    location, options = place.server.place(place.proxy)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "db.db" / "t"
        make(path)
        found = [one for one in path.rglob("*") if one.is_file()]
        storage = open_storage(location, {**options, "s3.endpoint": place.server.server.url})
        for some in in_groups(found, 1000):
            storage.write_all([(str(one.relative_to(path)), one.read_bytes()) for one in some])
    return location, options


def _measure(place: Any, name: str, at: Location, delay: float, *, one_by_one: bool) -> float:
    """The seconds of one call."""
    location, options = at
    method, given = CALLS[name]
    if one_by_one and place.before:
        with place.delayed(delay):
            command = [sys.executable, "-c", CHILD, json.dumps([location, options, method, given])]
            where = {**os.environ, "PYTHONPATH": str(place.before)}
            done = subprocess.run(
                command, cwd=place.before, env=where, check=True, capture_output=True, text=True
            )
        return float(done.stdout)
    table = PaimonTable.load(location, storage_options=options)
    if one_by_one:
        inner = table._table
        alone = Options(dict(inner.options), {"file-operation.thread.num": "1"})
        table = PaimonTable(replace(inner, storage=OneByOne(inner.storage), options=alone))
    with place.delayed(delay):
        began = time.perf_counter()
        getattr(table, method)(**given)
        spent = time.perf_counter() - began
        place.figures["kinds"] = place.kinds()
    return spent
