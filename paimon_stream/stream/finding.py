"""The value of a fact, together with the words for what the value refuses. `walk` goes through the
rows of a judgement and asks for these values.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar

from paimon_stream.stream.judgement import NextStep, Outcome, Row, Step, decide
from paimon_stream.stream.replay_errors import StreamRefusals

Value = TypeVar("Value", bound=Enum)
Say: TypeAlias = Callable[[StreamRefusals], object]
"""Raises a refusal, or logs it if an operator has decided; or logs a warning."""


def _say_nothing(_: StreamRefusals) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Finding(Generic[Value]):
    """The value of a fact. If the value leads to a refusal or a warning, `say` raises the error or
    logs the warning.
    """

    value: Value
    say: Say = _say_nothing


class Findings:
    """The facts of one batch. Each is found once, when it is asked for, by its own finder, which
    may read the storage.
    """

    def __init__(self, finders: Mapping[type[Enum], Callable[[], Finding[Any]]]) -> None:
        self._finders = finders
        self._found: dict[type[Enum], Finding[Any]] = {}

    def ask(self, fact: type[Value]) -> Value:
        """The value of a fact. Raises what its finder raises."""
        return self.finding(fact).value

    def finding(self, fact: type[Value]) -> Finding[Value]:
        """The value, with the words for what it refuses. Raises what the fact's finder raises."""
        finding: Finding[Value] | None = self._found.get(fact)
        if finding is None:
            finding = self._finders[fact]()
            self._found[fact] = finding
        return finding


def walk(findings: Findings, rows: tuple[Row, ...], refuse: StreamRefusals) -> Outcome:
    """The verdict to which the rows lead. Raises the error of the first row that refuses. If an
    operator lets the batch continue despite that row, the result is the verdict that the row names,
    or the walk goes on with the step that it names.
    """
    since: Step | NextStep | None = None
    while True:
        row = decide(findings.ask, rows, since)
        if row.outcome.is_verdict:
            return row.outcome
        findings.finding(row.because).say(refuse)
        if isinstance(row.then, Outcome):
            return row.then
        assert row.then is not None, "what nothing follows raises"
        since = row.then
