"""All histories of up to so many events, and what the next batch of each is told."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

from tests.histories.events import EVENTS, PLAIN, in_words
from tests.histories.world import IN_VAIN, Broken, DoesNothing, Setting, World

History = tuple[str, ...]


@dataclass(frozen=True)
class Finding:
    """A history at whose end a rule is broken."""

    setting: Setting
    history: History
    rule: str
    what: str

    def __str__(self) -> str:
        return f"{in_words(self.history)} ({self.setting}): {self.what}"


@dataclass
class Walked:
    """How many histories of each length were run, and what they showed."""

    lengths: dict[int, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True)
class Reached:
    """Where a history has come to: a world in which no run is alive, and the events since. A run
    that is alive cannot be copied, so what it did is done again in each history that goes on.
    """

    history: History
    world: World
    since: History = ()

    def following(self, event: str) -> Reached:
        """The history with one more event, which has not happened yet."""
        return Reached((*self.history, event), self.world, (*self.since, event))

    def arrived(self) -> tuple[World, Reached]:
        """The world once all has happened, and from where others may go on. Raises `DoesNothing`,
        and `Broken`.
        """
        world = self.world.again_from_here()
        for event in self.since:
            world.advance()
            EVENTS[event](world)
        if world.is_running:
            return world, self
        return world, Reached(self.history, world.again_from_here())


def walk(alphabet: Sequence[str], most: int, setting: Setting) -> Walked:
    """Runs every history of up to `most` events in which each event changes something, and the next
    batch at its end. What follows a broken rule is not looked at.
    """
    walked = Walked()
    for history, broken in histories(alphabet, most, setting):
        walked.lengths[len(history)] = walked.lengths.get(len(history), 0) + 1
        if broken is not None:
            walked.findings.append(Finding(setting, history, broken.rule, str(broken)))
    return walked


def histories(
    alphabet: Sequence[str], most: int, setting: Setting
) -> Iterator[tuple[History, Broken | None]]:
    """The histories that `walk` runs, the shortest first, each with the rule that it breaks."""
    growing = deque([Reached((), beginning(setting))])
    while growing:
        reached = growing.popleft()
        try:
            broken, reached = _end_of(reached)
        except DoesNothing:
            continue
        yield reached.history, broken
        if broken is None and len(reached.history) < most:
            growing.extend(reached.following(event) for event in alphabet)


def broken_by(history: Sequence[str], setting: Setting) -> Broken | None:
    """The rule that is broken in this history, or by its next batch. Raises `DoesNothing` if an event
    of it changes nothing.
    """
    return _end_of(Reached(tuple(history), beginning(setting), tuple(history)))[0]


def _end_of(reached: Reached) -> tuple[Broken | None, Reached]:
    """Lets happen what has not happened yet, and then has the next batch judged by the run that is
    alive, and run by a new one. Returns the rule that is broken, and where others may go on.
    """
    try:
        world, reached = reached.arrived()
        world.advance()
        rows = world.rows.get(world.stream.next_batch, 10)
        refused = world.judged_alive() if world.is_running else None
        refused = world.publish(rows) or refused
        if refused is not None and PLAIN.issuperset(reached.history):
            raise Broken(IN_VAIN, f"{type(refused).__name__}: {refused}")
    except Broken as broken:
        return broken, reached
    return None, reached


@cache
def beginning(setting: Setting) -> World:
    """The world with which histories begin. It is only copied."""
    return World(setting)
