"""Runs one stream on a real machine: its processes are killed and started again, and its table is
looked at after each kill and at the end.
"""

from __future__ import annotations

import shutil
import signal
import traceback
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from paimon_stream import PaimonTable
from paimon_stream.catalogs.opening import open_storage
from paimon_stream.spark.checkpoint import open_checkpoint
from tests.kills.deaths import NEVER, Death, Diary
from tests.kills.driver import CHECKPOINT, DIARY, ERROR, Driver, Life, live
from tests.kills.streams import KILLS_PER_STREAM, Stream, ordered
from tests.kits.forks import FORKS

PATIENCE = 900
"""Seconds after which a process counts as hanging."""


class Wrong(AssertionError):
    """What a table, or the end of a process, shows that may not be."""


@dataclass
class Ground:
    """Where tables are. `server` is the store of S3, None for disks only. `javas` has a Java Paimon
    for each place.
    """

    folder: Path
    server: Any
    javas: Mapping[str, Any]

    def place(self, stream: Stream) -> tuple[str, dict[str, str]]:
        """The location of the stream's table, and its storage options."""
        if stream.place == "disk":
            return str(self.root(stream) / "db.db" / "t"), {}
        return f"s3://bucket/wh/db.db/t{stream.number}", dict(self.server.options)

    def root(self, stream: Stream) -> Path:
        """The folder of the stream."""
        return self.folder / str(stream.number)

    def clean(self, stream: Stream) -> None:
        """Removes what the stream has left. A store answers slower the more is in it."""
        shutil.rmtree(self.root(stream), ignore_errors=True)
        if stream.place == "S3":
            self.server.reset()

    def keep(self, stream: Stream) -> Path:
        """The folder of the stream, with its table, to look at later."""
        root = self.root(stream)
        if stream.place == "S3":
            storage = open_storage(*self.place(stream))
            for page in storage.list_below(""):
                for file in page:
                    copy = root / "db.db" / "t" / file.path
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    copy.write_bytes(storage.read(file.path))
        return root


@dataclass
class Outcome:
    """What happened to a stream. `kills` counts by how it died, `moments` by where the batch was
    then. `seconds` of processors were used by processes that nobody waits for. `wrong` is what was
    found, and None if all was right.
    """

    stream: Stream
    kills: Counter[str] = field(default_factory=Counter)
    moments: Counter[str] = field(default_factory=Counter)
    batches: int = 0
    rows: int = 0
    seconds: float = 0.0
    wrong: str | None = None


class Machine:
    """One stream, its folder and its table. The runs of a stream without Spark are forked."""

    def __init__(self, ground: Ground, stream: Stream, driver: type[Driver] = Driver) -> None:
        self.ground, self.stream, self.driver = ground, stream, driver
        self.dice = Random(f"lives of {stream.number}")
        self.root = ground.root(stream)
        self.location, self.storage_options = ground.place(stream)
        self.outcome = Outcome(stream)
        self.runs = 0

    def run(self, kills: int = KILLS_PER_STREAM) -> Outcome:
        """Kills the stream so often, and lets it come to its end."""
        try:
            ground = self.ground
            ground.clean(self.stream)
            self.root.mkdir(parents=True)
            self.stream.create(self.location, self.storage_options)
            self.lives(kills)
            self.audit()
            ground.clean(self.stream)
        except Wrong as wrong:
            self.outcome.wrong = str(wrong)
        except Exception:  # noqa: BLE001  a reader that fails is a finding, too
            self.outcome.wrong = traceback.format_exc()
        return self.outcome

    def lives(self, kills: int) -> None:
        """The runs that are killed, and the last one, which is not."""
        while self.outcome.kills.total() < kills:
            self.killed(Death.drawn(self.dice, self.stream.place))
            self.look()
        self.last_run()

    def killed(self, death: Death) -> None:
        """A run that is killed."""
        diary = self.root / DIARY
        diary.unlink(missing_ok=True)
        process = self.start(death)
        process.join(PATIENCE if death.seconds is None else death.seconds)
        if death.seconds is not None:
            process.kill()
            process.join(PATIENCE)
        if process.exitcode != -signal.SIGKILL:
            raise self.wrong(f"run {self.runs} was to die {death}, and ended {process.exitcode}")
        self.outcome.kills[death.how] += 1
        self.outcome.moments[Diary.last_words(diary)] += 1

    def last_run(self) -> None:
        """A run that comes to its end."""
        process = self.start(NEVER, self.done() + 2)
        process.join(PATIENCE)
        if process.exitcode != 0:
            raise self.wrong(f"the last run ended {process.exitcode}")

    def start(self, death: Death, batches: int | None = None) -> Any:
        """A new run."""
        self.runs += 1
        life = Life(
            number=self.stream.number,
            run=self.runs,
            root=str(self.root),
            location=self.location,
            storage_options=self.storage_options,
            death=death,
            batches=batches,
        )
        process = FORKS.Process(target=live, args=(life, self.driver), daemon=True)
        process.start()
        return process

    def done(self) -> int:
        """The number of batches that were acknowledged."""
        done = open_checkpoint(str(self.root / CHECKPOINT)).done_batch()
        return 0 if done is None else done + 1

    def table(self) -> PaimonTable:
        """The table, as it is now."""
        return PaimonTable.load(self.location, storage_options=self.storage_options)

    def look(self) -> None:
        """After a kill, the table has all acknowledged batches, and the one under way or not."""
        done = self.done()
        found = ordered(self.table().to_arrow().to_pylist())
        if found not in (self.expected(done), self.expected(done + 1)):
            raise self.differs("after a kill", found, done)

    def expected(self, batches: int) -> list[dict[str, Any]]:
        """The rows of a table that has this number of batches."""
        return self.stream.kind.expected(batches)

    def audit(self) -> None:
        """At the end, the package and Java read each row of each batch once, and the table is
        whole.
        """
        done, table = self.done(), self.table()
        expected = self.expected(done)
        java = self.ground.javas[self.stream.place]
        for reader, rows in (
            ("the package", table.to_arrow().to_pylist()),
            ("Java", java.read(self.location)),
        ):
            if (found := ordered(rows)) != expected:
                raise self.differs(f"at the end, read by {reader}", found, done)
        appends = [one for one in table.snapshots() if one.commit_kind.value == "APPEND"]
        batches = [one.commit_identifier for one in appends]
        oldest = done - len(batches) if self.stream.expires else 0
        if batches != list(range(oldest, done)):
            raise self.wrong(f"the snapshots are those of the batches {batches}, of {done}")
        if not (report := table.verify()).healthy:
            raise self.wrong(f"the table is damaged: {report}")
        self.outcome.batches, self.outcome.rows = done, len(expected)

    def differs(self, when: str, found: list[dict[str, Any]], done: int) -> Wrong:
        """The rows of the table that are not those of the batches."""
        expected = self.expected(done)
        there, wanted = (Counter(tuple(row.items()) for row in rows) for rows in (found, expected))
        more, less = (
            [*map(dict, (one - other).elements())]
            for one, other in ((there, wanted), (wanted, there))
        )
        text = f"{when} of {done} batches: {len(found)} rows, {len(expected)} expected"
        return self.wrong(f"{text}; too many {more[:5]}, missing {less[:5]}")

    def wrong(self, what: str) -> Wrong:
        """The finding, with the error of a run that has failed."""
        error = self.root / ERROR
        said = f"\n{error.read_text()}" if error.exists() else ""
        return Wrong(f"{what}{said}")
