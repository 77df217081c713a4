"""What was seen, in a file of the repository: one line for each portion of a run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.kills.crowds import Crowded
from tests.kills.machine import Outcome

PORTIONS = Path(__file__).with_name("portions.jsonl")


@dataclass
class Row:
    """What the streams of one kind in one place met."""

    name: str
    place: str
    streams: int = 0
    kills: int = 0
    batches: int = 0
    rows: int = 0


@dataclass
class Portion:
    """Some streams, one after another, from number `first` to number `last`. `commit` is that of
    the checkout, `seconds` those of processors. `hows` and `moments` count kills by how a process
    died and by what its batch had reached. `failures` are what was found, by the number of the
    stream. `crowds` are many writers at once, of whom nobody was killed.
    """

    version: str
    commit: str
    date: str
    first: int
    last: int
    seconds: float = 0.0
    rows: list[Row] = field(default_factory=list)
    hows: Counter[str] = field(default_factory=Counter)
    moments: Counter[str] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)
    crowds: list[Crowded] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Counts a stream."""
        stream, kills = outcome.stream, outcome.kills.total()
        self.last = stream.number
        row = Row(stream.name, stream.place, 1, kills, outcome.batches, outcome.rows)
        self.rows = together([*self.rows, row])
        self.hows += outcome.kills
        self.moments += outcome.moments
        self.seconds += outcome.seconds
        if outcome.wrong is not None:
            self.failures[str(stream.number)] = outcome.wrong

    @property
    def kills(self) -> int:
        """All of them."""
        return sum(row.kills for row in self.rows)

    def write(self, file: Path = PORTIONS) -> None:
        """Appends the portion."""
        lists = {name: [vars(one) for one in vars(self)[name]] for name in ("rows", "crowds")}
        with file.open("a") as lines:
            lines.write(json.dumps({**vars(self), **lists}) + "\n")


def together(rows: Iterable[Row]) -> list[Row]:
    """One row for each kind and place."""
    sums: dict[tuple[str, str], Row] = {}
    for row in rows:
        known = sums.setdefault((row.name, row.place), Row(row.name, row.place))
        known.streams += row.streams
        known.kills += row.kills
        known.batches += row.batches
        known.rows += row.rows
    return [sums[key] for key in sorted(sums)]


def read(file: Path = PORTIONS) -> list[Portion]:
    """The portions so far."""
    if not file.exists():
        return []
    portions = []
    for line in file.read_text().splitlines():
        fields = json.loads(line)
        fields["rows"] = [Row(**row) for row in fields["rows"]]
        fields["crowds"] = [Crowded(**one) for one in fields.get("crowds", ())]
        for name in ("hows", "moments"):
            fields[name] = Counter(fields[name])
        portions.append(Portion(**fields))
    return portions
