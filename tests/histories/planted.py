"""Small changes to the real code that a short history must show. They are those that the simulation
must catch, too, in a schedule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.histories.events import OF_THE_ISSUE, RENAMED, UNDER_A_NAME
from tests.histories.walk import Finding, beginning, histories
from tests.histories.world import DOUBLED, LOST, NOT_THERE, Setting
from tests.simulation.planted import BUGS as OF_SIMULATION

BY_NAME = {one.name: one for one in OF_SIMULATION}


@dataclass(frozen=True)
class Bug:
    """A change to the code that the simulation has by this name, the rule that it breaks, and the
    shortest history of the alphabet that shows it. Those that are cheap to catch are tried
    `often`.
    """

    name: str
    rule: str
    shortest: Sequence[str]
    alphabet: Sequence[str] = UNDER_A_NAME
    setting: Setting = field(default_factory=Setting)
    often: bool = False

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The code with this change. What was before the history, was without it."""
        beginning(self.setting)
        with BY_NAME[self.name].planted():
            yield

    def caught(self) -> Finding | None:
        """The shortest history that breaks the rule; None if none of this length does."""
        with self.planted():
            for history, broken in histories(self.alphabet, len(self.shortest), self.setting):
                if broken is not None and broken.rule == self.rule:
                    return Finding(self.setting, history, broken.rule, str(broken))
        return None


BUGS = (
    Bug("no judge", DOUBLED, ("batch, not noted",), OF_THE_ISSUE, often=True),
    Bug("the journal is taken for a commit", NOT_THERE, ("batch, not published",), often=True),
    Bug("a rollback is taken for an expiry", LOST, ("rollback by one",), often=True),
    Bug(
        "own snapshots are overlooked",
        DOUBLED,
        ("batch, not noted",),
        setting=Setting(journal=False),
        often=True,
    ),
    Bug("a lost commit is followed", LOST, ("batch", "rollback by one")),
    Bug("a rewound checkpoint is let in", DOUBLED, ("batch, not noted", "checkpoint put back")),
    Bug(
        "a rollback notes nothing",
        LOST,
        ("forward to the branch", "outage"),
        OF_THE_ISSUE,
        often=True,
    ),
    Bug("notes of removals are not read", LOST, ("forward to the branch", "outage"), OF_THE_ISSUE),
    Bug("a renamed sink begins anew", DOUBLED, ("batch, not noted", "new name"), RENAMED),
    Bug("a renamed sink forgets its batches", LOST, ("rollback by one", "new name"), RENAMED),
)
