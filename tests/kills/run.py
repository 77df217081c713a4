"""Kills streams until a number of kills is together: `make torture-kills KILLS=1000`.

What was seen is appended to tests/kills/portions.jsonl, a line for each portion, and the table of
docs/reliability.md is written anew. A run that was stopped goes on with the next stream. With
`--stream` one stream is repeated, and nothing is written down. With `--crowd`, nobody is killed, and
many writers write to one table at once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paimon_stream import __version__
from tests.kills import crowds, page
from tests.kills.machine import Ground, Machine, Outcome
from tests.kills.portions import PORTIONS, Portion, read
from tests.kills.queries import Query
from tests.kills.streams import Stream
from tests.kits.costs import Processors
from tests.servers import postgres, s3_moto

ROOT = Path(__file__).parents[2]
PER_PORTION = 50


@contextmanager
def ground(folder: Path) -> Iterator[Ground]:
    """A folder for tables, a server of S3, and Java with both."""
    sys.path.insert(0, str(ROOT / "tests" / "oracle"))
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    import java_paimon

    folder.mkdir(parents=True, exist_ok=True)
    with s3_moto.start(Path(tempfile.mkdtemp(prefix="kills-"))) as server:
        java = java_paimon.shared()
        on_s3 = java_paimon.JavaPaimonOnS3.beside(java, server.options)
        yield Ground(folder, server, {"disk": java, "S3": on_s3})


def run(ground: Ground, number: int) -> Outcome:
    """Kills one stream. What failed is kept."""
    stream = Stream.of(number)
    outcome = (Machine if stream.door is None else Query)(ground, stream).run()
    if outcome.wrong is not None:
        print(f"\n{outcome.wrong}\nIts folder is kept: {ground.keep(stream)}")
        print(f"(again: make torture-kills STREAM={number})", flush=True)
    return outcome


def known() -> list[Portion]:
    """The portions of this version."""
    return [portion for portion in read() if portion.version == __version__]


def begun(first: int) -> Portion:
    """A portion of this checkout in which nothing has happened yet."""
    git = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    return Portion(__version__, commit, time.strftime("%Y-%m-%d"), first, first - 1)


def next_stream() -> int:
    """The number of the first stream of this version that was not killed yet."""
    return max((one.last for one in known()), default=0) + 1


def crowd(ground: Ground, where: str) -> int:
    """Lets many writers write at once, and writes down what was seen. Raises `AssertionError`. Returns
    0.
    """
    seen, used = begun(next_stream()), Processors()
    before = used.used(search=True)
    shutil.rmtree(ground.folder / "crowd", ignore_errors=True)
    if where == "disk":
        location = str(ground.folder / "crowd" / "db.db" / "t")
        crowded = crowds.on_a_disk(location, ground.javas["disk"], crowds.WRITERS, crowds.COMMITS)
    else:
        ground.server.reset()
        s3 = ground.server.options
        many = (crowds.BESIDE_JAVA, crowds.JAVAS, crowds.COMMITS_BESIDE_JAVA)
        with postgres.start(Path(tempfile.mkdtemp(prefix="crowd-"))) as server:
            own = {**server.options, "warehouse": "s3://bucket/crowd", "lock.enabled": "true"}
            crowded = crowds.beside_java(ground.javas["S3"], own, s3, *many)
    print(crowded)
    seen.crowds.append(crowded)
    seen.seconds = round(used.used(search=True) - before, 1)
    seen.write()
    page.write(known())
    return 0


def portion(ground: Ground, first: int, kills: int) -> Portion:
    """Kills streams from a number on, and writes down what was seen, even if it is stopped."""
    seen, used, number = begun(first), Processors(), first
    before = used.used(search=True)
    try:
        while seen.kills < kills:
            seen.add(run(ground, number))
            number += 1
    finally:
        seen.seconds = round(seen.seconds + used.used(search=True) - before, 1)
        if seen.kills:
            seen.write()
            page.write(known())
    return seen


def main() -> int:
    """Kills streams. Returns 1 if one has failed, and 130 if the run was stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--stream", type=int)
    parser.add_argument("--crowd", choices=("disk", "S3"))
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "kills")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ground(given.folder) as place:
            if given.stream is not None:
                return int(run(place, given.stream).wrong is not None)
            if given.crowd is not None:
                return crowd(place, given.crowd)
            return kill(place, given.kills)
    except KeyboardInterrupt:
        print("It was stopped. The next run goes on with the next stream.")
        return 130


def kill(place: Ground, kills: int) -> int:
    """Kills streams until so many kills are together. Returns 1 if a stream has failed."""
    failures = 0
    while (there := sum(one.kills for one in known())) < kills:
        first = next_stream()
        print(f"{there} kills of {__version__} so far, on with stream {first}.", flush=True)
        failures += len(portion(place, first, min(PER_PORTION, kills - there)).failures)
    print(f"{there} kills of {__version__} are in {PORTIONS.relative_to(ROOT)}.")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
