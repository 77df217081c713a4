"""Accidents that stop a stream, and the way back to health that its messages and the doctor name.
The stream is the sink's own code without Spark: `Query` plans its batches and keeps a checkpoint as
Spark does. `docs/generators/runbooks.py` makes `docs/runbooks.md` of the accidents.

The source is a sequence of numbers. A batch holds the numbers behind those of the batch before it,
so a checkpoint that is lost or put back gives the same numbers again, in other batches.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

from click.testing import CliRunner

from paimon_stream import PaimonTable
from paimon_stream.catalogs.opening import open_storage
from paimon_stream.cli.app import cli
from paimon_stream.errors import PaimonStreamError
from paimon_stream.spark.checkpoint import open_checkpoint
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.steps import JudgedBatch
from paimon_stream.stream.verdicts import Batch
from paimon_stream.stream.writer import StreamWriter
from tests.kits.steps import Messages, run_batch
from tests.kits.tables import write_rows

COLUMNS: Final = (("id", "BIGINT NOT NULL"), ("name", "STRING"))
_ROWS_OF_PLAN: Final = (2, 3)
"""Batches have two and three numbers in turn, so a batch that is planned anew is another one."""


@dataclass
class Query:
    """A streaming query with one sink, and its table.

    Attributes:
        root: a folder of this query alone.
        location: the table.
        storage_options: the storage options of the table.
        checkpoint: the folder of the checkpoint.
        query_id: the id that Spark gives to the query if the checkpoint has none.
        plans: how many batches were planned.
        runs: how many runs have begun.
        writer: the sink of the run; None between two runs.
    """

    root: Path
    location: str = ""
    storage_options: Mapping[str, str] = field(default_factory=dict)
    checkpoint: Path = Path()
    query_id: str = "q1"
    plans: int = 0
    runs: int = 0
    writer: StreamWriter | None = None

    def __post_init__(self) -> None:
        self.location = self.location or str(self.root / "shop.db" / "orders")
        self.checkpoint = self.root / "checkpoints" / "orders"
        self.create_table()

    def create_table(self) -> None:
        """Creates the table."""
        PaimonTable.create(self.location, list(COLUMNS), storage_options=self.storage_options)

    @property
    def table(self) -> PaimonTable:
        return PaimonTable.load(self.location, storage_options=self.storage_options)

    def planned(self, folder: str) -> list[int]:
        """The batches that a folder of the checkpoint has."""
        return sorted(int(path.name) for path in (self.checkpoint / folder).glob("[0-9]*"))

    def end_of(self, batch: int) -> int:
        """The number in the source behind the last one of this batch."""
        if batch < 0:
            return 0
        plan = (self.checkpoint / "offsets" / str(batch)).read_text()
        return int(json.loads(plan.splitlines()[-1])["end"])

    def plan(self) -> Batch:
        """The batch that Spark runs next: the one that is planned and not done, or a new one."""
        for folder in ("offsets", "commits"):
            (self.checkpoint / folder).mkdir(parents=True, exist_ok=True)
        metadata = self.checkpoint / "metadata"
        if not metadata.exists():
            metadata.write_text(json.dumps({"id": self.query_id}))
        planned = self.planned("offsets")
        done = self.planned("commits")
        number = planned[-1] + (planned[-1:] == done[-1:]) if planned else 0
        offsets = self.checkpoint / "offsets" / str(number)
        if not offsets.exists():
            end = self.end_of(number - 1) + _ROWS_OF_PLAN[self.plans % 2]
            self.plans += 1
            times = json.dumps({"batchTimestampMs": self.plans})
            offsets.write_text(f"v1\n{times}\n{json.dumps({'end': end})}")
        return Batch(
            batch_id=number,
            offsets_hash=sha256(offsets.read_bytes()).hexdigest(),
            previous_done_millis=open_checkpoint(str(self.checkpoint)).last_done_millis(number),
        )

    def start(self, options: Mapping[str, str] | None = None) -> None:
        """Begins a run."""
        self.plan()
        self.runs += 1
        query_id = json.loads((self.checkpoint / "metadata").read_text())["id"]
        identity = WriterIdentity(
            user=f"paimon-stream_{query_id}",
            query_id=query_id,
            run_id=f"{query_id}-run-{self.runs}",
            checkpoint=str(self.checkpoint),
            token="sink",
        )
        self.writer = StreamWriter(
            storage=open_storage(self.location, self.storage_options),
            identity=identity,
            options=dict(options or {}),
        )

    def run(self, batches: int, options: Mapping[str, str] | None = None) -> None:
        """Runs batches, in a new run unless one is going on. An error ends the run."""
        if self.writer is None:
            self.start(options)
        try:
            for _ in range(batches):
                self._batch()
        except PaimonStreamError:
            self.writer = None
            raise

    def _batch(self) -> None:
        assert self.writer is not None
        batch = self.plan()
        ids = range(self.end_of(batch.batch_id - 1), self.end_of(batch.batch_id))

        def written(judged: JudgedBatch) -> Messages:
            return write_rows(judged.table, [{"id": n, "name": f"n{n}"} for n in ids])

        run_batch(self.writer, batch, written)
        (self.checkpoint / "commits" / str(batch.batch_id)).write_text("v1\n{}")

    def stop(self) -> None:
        """Ends the run."""
        self.writer = None

    def error(self, options: Mapping[str, str] | None = None) -> str:
        """The error with which the next batch stops, as Spark prints it; "" if it does not."""
        try:
            self.run(1, options)
        except PaimonStreamError as error:
            return f"{type(error).__name__}: {error.message}"
        return ""

    @property
    def expected(self) -> list[int]:
        """The numbers that the table must have: what the checkpoint has read from the source."""
        return list(range(self.end_of(self.planned("commits")[-1])))

    def ids(self) -> list[int]:
        """The numbers in the table, sorted."""
        return sorted(self.table.to_arrow()["id"].to_pylist())


@dataclass
class Account:
    """What happened in an accident, for the page.

    Attributes:
        message: what the stream shows; "" if it goes on.
        doctor: what the doctor says.
        commands: the commands that were run, as they were printed.
        start: how the stream was started at the end, in words.
        rows: what the table holds at the end, in words.
        seconds: the time from the accident until the stream wrote again.
    """

    message: str = ""
    doctor: str = ""
    commands: list[str] = field(default_factory=list)
    start: str = ""
    rows: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Accident:
    """An accident.

    Attributes:
        name: its title on the page.
        happens: what is done to the query in `Scene`, and how it becomes healthy.
        story: what happened, in a sentence.
    """

    name: str
    story: str
    happens: Callable[[Scene], None]


class Scene:
    """One accident on a fresh table: the query, and the account of what was done."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.account = Account()

    # -- what the person on call does -------------------------------------------------------------
    def looks(self, *, expect: str = "") -> None:
        """Starts the stream, which stops with the error `expect`, or goes on, and asks the doctor."""
        self.query.stop()
        self.account.message = self.query.error()
        assert self.account.message.startswith(expect), self.account.message
        assert bool(expect) == bool(self.account.message), self.account.message
        self.asks_doctor()

    def asks_doctor(self) -> None:
        """Asks the doctor."""
        self.account.doctor = self.prints(
            f"paimon-stream doctor --checkpoint {self.query.checkpoint} {self.query.location}"
        )

    def prints(self, command: str) -> str:
        """What a command prints, of this package or of the shell."""
        program, *words = shlex.split(command)
        assert program == "paimon-stream", command
        for key, value in self.query.storage_options.items():
            words += ["--storage-option", f"{key}={value}"]
        return CliRunner().invoke(cli, words, env={"COLUMNS": "100"}).output

    def runs(self, beginning: str) -> None:
        """Runs the command that begins so, as the message or the doctor prints it."""
        texts = f"{self.account.message}\n{self.account.doctor}"
        named = re.search(rf"`({re.escape(beginning)} [^`]*)`", texts)
        assert named, f"nobody names {beginning!r}:\n{texts}"
        self.account.commands.append(named[1])
        self.prints(named[1])

    def starts(self, how: str, options: Mapping[str, str] | None = None) -> None:
        """Starts the stream, which then writes two batches. `how` says to people how."""
        self.account.start = how
        self.query.run(2, options)
        self.query.stop()

    def counts(self) -> None:
        """Compares the rows with those that the source has given."""
        there = self.query.ids()
        assert there == self.query.expected, there
        self.account.rows = f"{len(there)} of {len(self.query.expected)}, each once"


SAME: Final = "with the same command"


def _deleted(scene: Scene) -> None:
    query = scene.query
    shutil.rmtree(query.checkpoint)
    query.query_id = "q2"
    scene.looks(expect="CheckpointReset")
    scene.runs("paimon-stream truncate")
    options = {"paimon-stream.on-checkpoint-reset": "continue"}
    scene.starts("once with `paimon-stream.on-checkpoint-reset` = `continue`", options)


def _rewound(scene: Scene) -> None:
    for batch in (2, 3):
        for folder in ("offsets", "commits"):
            (scene.query.checkpoint / folder / str(batch)).unlink()
    scene.looks(expect="CheckpointRewound")
    scene.runs("paimon-stream rollback")
    scene.starts(SAME)


def _copied(scene: Scene) -> None:
    query = scene.query
    first = query.writer
    query.writer = None
    query.run(1)
    query.writer = first
    scene.account.message = query.error()
    assert scene.account.message.startswith("SharedCheckpoint"), scene.account.message
    scene.asks_doctor()
    scene.starts(SAME)


def _made_anew(scene: Scene) -> None:
    query = scene.query
    shutil.rmtree(query.location)
    query.create_table()
    scene.looks(expect="TableReplaced")
    query.checkpoint = query.root / "checkpoints" / "orders-2"
    query.query_id = "q2"
    scene.starts("with a new checkpoint")


ACCIDENTS: Final = (
    Accident("The checkpoint was deleted", "Nobody has a copy of it.", _deleted),
    Accident("The checkpoint was rewound", "An older copy was put back.", _rewound),
    Accident("Two drivers run", "A scheduler has started the query twice.", _copied),
    Accident("The table was dropped and made anew", "It is empty.", _made_anew),
)


def account_of(accident: Accident, root: Path) -> Account:
    """What happens in an accident of a new stream, which has written four batches, in an empty
    folder.
    """
    scene = Scene(Query(root))
    scene.query.run(4)
    began_at = time.monotonic()
    accident.happens(scene)
    scene.account.seconds = time.monotonic() - began_at
    scene.counts()
    return scene.account
