"""What the texts of this package advise, read from the texts alone. A person has nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from paimon_stream.errors import PaimonStreamError
from paimon_stream.stream.recommit import RecommitReport, recommit
from tests.simulation import rules
from tests.simulation.actors.base import Work
from tests.simulation.actors.maintenance import Restorer
from tests.simulation.scheduler import MINUTE
from tests.simulation.state import Violation

RULE = rules.ADVICE
NEVER = "never"
"""Instead of an option: the stream must not go on in this table."""

Recommit = Callable[..., RecommitReport]

_OPTION = re.compile(r"option '([\w.-]+)' = 'continue'")
_CURE = re.compile(r"options=\{'([\w.-]+)': 'continue'\}")
_RECOMMIT = re.compile(
    r"commit the files again[^:]*: paimon-stream recommit ((?:--[\w-]+ \S+ )+)memory://table \(it shows what it would do; add --yes"
)
_REPAIR = re.compile(r"'paimon-stream repair-hints( --yes)?'")
_AGAIN = re.compile(r"roll back to snapshot (\d+) again, which completes it")
_ONE_OF = re.compile(
    r"roll back to (?:one of the snapshots|snapshot) (\d+)[\d, ]*, or to another, with take_over"
)
_NEWEST = "roll back to the snapshot that is to be the newest, with take_over"
_NEVER = re.compile(r"Do not let (it continue|this query continue as it is)")
_ANOTHER = ("Roll back to another target with take_over", "Take another target")
"""The refusal before has said that this needs take_over."""
_LATER = "Try again in a few minutes."
_EMPTY = "When it has a snapshot, roll back to it with take_over"


def option_of(error: PaimonStreamError, cure: str | None = None) -> str | None:
    """The option that lets a stream continue, as the error says; None if it says only: start again.
    The `cure` of the doctor must name the same.
    """
    found = _OPTION.search(error.message)
    if found is None and cure is None and "Start the query again" in error.message:
        return None
    if found is None:
        raise Violation(RULE, f"no option is named: {error}")
    named = None if cure is None else _CURE.search(cure)
    if cure is not None and _NEVER.search(cure):
        return NEVER
    if cure is not None and (named is None or named[1] != found[1]):
        raise Violation(RULE, f"the doctor says {cure!r}, and the sink: {error}")
    return found[1]


def command_of(error: PaimonStreamError) -> Recommit | None:
    """The command that commits lost files again, if the text names one. A text with another form
    would be followed by nobody, so that is a broken rule.
    """
    found = _RECOMMIT.search(error.message)
    if found is None and "paimon-stream recommit" in error.message:
        raise Violation(RULE, f"the command cannot be read: {error}")
    if found is None:
        return None
    given = dict(zip(*[iter(found[1].split())] * 2, strict=True))
    batch, snapshot = given.get("--batch"), given.get("--snapshot")
    return partial(
        recommit,
        user=given["--user"],
        batch=None if batch is None else int(batch),
        snapshot=None if snapshot is None else int(snapshot),
        delta_list=given.get("--delta-list"),
        dry_run=False,
    )


def asks_for_checkpoint(error: PaimonStreamError) -> bool:
    """Whether the text asks for another state of the checkpoint."""
    return (
        re.search(r"Put the old checkpoint back|Restore the newest checkpoint", error.message)
        is not None
    )


def asks_for_repair(error: PaimonStreamError) -> bool:
    """Whether the text asks for `repair-hints`."""
    return _REPAIR.search(error.message) is not None


@dataclass(eq=False)
class RollbackOperator(Restorer):
    """Ends a rollback that was interrupted, as the text of a refused command says."""

    text: str = ""
    asked: tuple[int | str, bool] | None = None
    """The target of the last rollback, and whether it took over."""
    kind = "operator"

    @property
    def waits(self) -> bool:
        """Whether the table has no snapshot yet that the text could mean."""
        return _EMPTY in self.text and not self.world.truth.there

    def begin(self) -> Work | None:
        truth = self.world.truth
        newest = max((one for one in truth.there if one not in truth.beside), default=0)
        again, one_of = _AGAIN.search(self.text), _ONE_OF.search(self.text)
        if _LATER in self.text and self.asked is not None:
            self.world.millis += 6 * MINUTE
            return self.to(self.asked[0], take_over=self.asked[1])
        if again is not None:
            return self.to(int(again[1]), take_over=False)
        if one_of is not None:
            return self.to(int(one_of[1]), take_over=True)
        if any(words in self.text for words in (_NEWEST, _EMPTY, *_ANOTHER)) and newest:
            return self.to(newest, take_over=True)
        raise Violation(RULE, f"nobody knows what to do: {self.text!r}")

    def to(self, target: int | str, *, take_over: bool) -> Work:
        """A rollback to this target."""
        self.asked = target, take_over
        return super().to(target, take_over=take_over)

    def failed(self, error: PaimonStreamError) -> None:
        self.text = error.message
