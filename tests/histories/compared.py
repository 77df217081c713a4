"""The model beside the real code: after each history both must have the same table, checkpoint and
facts.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum

from paimon_stream.stream import finding, memory
from paimon_stream.stream.claims import Claims
from paimon_stream.stream.facts import FIRST_BATCH, LATER_BATCH
from paimon_stream.stream.finding import Findings
from paimon_stream.stream.gather import gather
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.stream.judgement import Outcome, Row
from paimon_stream.stream.known_facts import Facts
from paimon_stream.stream.replay_errors import StreamRefusals
from paimon_stream.table.snapshots import SnapshotStore
from tests.histories import model_facts
from tests.histories.events import in_words
from tests.histories.model import after, begun, judge_alive
from tests.histories.model_state import State
from tests.histories.walk import History, Reached, beginning
from tests.histories.world import Broken, DoesNothing, Setting, World
from tests.kits.doubles import in_their_places


@dataclass
class Compared:
    """How many histories of each length were compared, and how they differ."""

    lengths: dict[int, int] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)


def compare(alphabet: Sequence[str], most: int, setting: Setting) -> Compared:
    """Runs every history of up to `most` events on both. What follows a difference is not looked
    at.
    """
    compared = Compared()
    growing = deque([(Reached((), beginning(setting)), begun(setting))])
    while growing:
        reached, before = growing.popleft()
        world, reached, theirs = _world_of(reached)
        state, ours = _state_after(before, reached.history)
        difference = "" if ours == theirs else f"the model ends {ours!r}, the code {theirs!r}"
        if not ours and not difference:
            assert world is not None
            compared.lengths[len(reached.history)] = (
                compared.lengths.get(len(reached.history), 0) + 1
            )
            difference = _difference(world, state)
            if not difference and len(reached.history) < most:
                growing.extend((reached.following(event), state) for event in alphabet)
        if difference:
            compared.differences.append(f"{in_words(reached.history)} ({setting}): {difference}")
    return compared


def _world_of(reached: Reached) -> tuple[World | None, Reached, str]:
    """The world at the end of a history, and how its last event ended it."""
    try:
        return *reached.arrived(), ""
    except (DoesNothing, Broken) as end:
        return None, reached, f"{type(end).__name__} {end}"


def _state_after(state: State, history: History) -> tuple[State, str]:
    """The state after the last event of a history, and how that ended it."""
    try:
        return (after(state, history[-1]) if history else state), ""
    except (DoesNothing, Broken) as end:
        return state, f"{type(end).__name__} {end}"


def _difference(world: World, state: State) -> str:
    copies = Counter(batch for batch, _ in state.main[-1].files)
    theirs = (world.copies(), world.missing(), world.stream.next_batch, world.is_running)
    ours = (copies, set(state.missing()), state.next_batch, state.run is not None)
    if theirs != ours:
        return f"the model has {ours}, the table {theirs}"
    world.advance()
    state = replace(state, now=state.now + state.setting.pace)
    pairs: list[tuple[object, object]] = []
    if state.run is not None:
        with _asked() as asked:
            refused = _refusal(world)
        judged = judge_alive(state, state.run)
        pairs.append((refused, judged.outcome.value if judged.refused else None))
        pairs += zip(asked, model_facts.NextFacts(state, state.run).all(), strict=True)
    pairs += zip(facts_of(world), model_facts.Facts(state).all(), strict=True)
    return ", ".join(
        f"the model has {mine}, the code {real}" for real, mine in pairs if real != mine
    )


def _refusal(world: World) -> str | None:
    """What refuses the next batch of the run that is alive. What it is told wrongly is compared by its
    facts.
    """
    try:
        refused = world.judged_alive()
    except Broken:
        return None
    return None if refused is None else type(refused).__name__


@contextmanager
def _asked() -> Iterator[list[Enum]]:
    """All facts of the later batch that is judged meanwhile."""
    asked: list[Enum] = []

    def walk(findings: Findings, rows: tuple[Row, ...], refuse: StreamRefusals) -> Outcome:
        asked.extend(findings.ask(fact) for fact in LATER_BATCH)
        return finding.walk(findings, rows, refuse)

    with in_their_places([(memory, "walk", walk)]):
        yield asked


def facts_of(world: World) -> tuple[Enum, ...]:
    """The facts of the next batch that a new run gathers. It ends the claims of earlier runs."""
    stream, storage = world.stream, world.bench.storage
    identity = WriterIdentity(
        user=stream.user,
        query_id=stream.query_id,
        run_id=f"{stream.query_id}-run-{stream.runs + 1}",
        checkpoint=stream.checkpoint,
        token=f"{stream.query_id}-sink",
    )
    runs = Claims(storage, identity).acquire()
    snapshots = SnapshotStore(storage, world.bench.runtime)
    evidence = gather(world.bench.table, identity, world.next_batch(), snapshots, runs)
    facts = Facts(evidence, journals=world.setting.journal)
    return tuple([facts.ask(fact) for fact in FIRST_BATCH])
