"""What may happen next to a table and its query, each in a word or two, and the alphabets from which
histories are made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from paimon_stream.commit.report import Phase
from paimon_stream.maintenance.branches import fast_forward
from paimon_stream.maintenance.expire import expire_snapshots
from paimon_stream.maintenance.rollback import rollback_to
from paimon_stream.maintenance.tags import read_tags
from tests.histories.world import BRANCH, NAMES, TAG, DoesNothing, World

Event = Callable[[World], object]
EVENTS: Final[dict[str, Event]] = {}


def _event(name: str) -> Callable[[Event], Event]:
    def add(event: Event) -> Event:
        EVENTS[name] = event
        return event

    return add


@_event("batch")
def _batch(world: World) -> None:
    """The next batch, in the run that is alive, or in a new one."""
    world.publish()


@_event("restart, batch")
def _restart(world: World) -> None:
    """The next batch, in a new run."""
    if not world.is_running:
        raise DoesNothing
    world.stop()
    world.publish()


@_event("empty batch")
def _empty(world: World) -> None:
    """The next batch, without rows."""
    world.publish(rows=0)


@_event("batch, not noted")
def _not_noted(world: World) -> None:
    """The next batch is published, and the run dies before the checkpoint notes it."""
    world.publish(dies_at=Phase.HINTED)


@_event("batch, not published")
def _prepared(world: World) -> None:
    """The next batch is prepared, and the run dies before it is published."""
    world.publish(dies_at=Phase.STAGED)


@_event("checkpoint put back")
def _put_back(world: World) -> None:
    """The checkpoint is put back by a batch."""
    if world.stream.next_batch == 0:
        raise DoesNothing
    world.stop()
    world.stream.next_batch -= 1


@_event("continue")
def _continue(world: World) -> None:
    """An operator lets the query go on with its next batch, which was refused."""
    world.decide()


@_event("commit of others")
def _others(world: World) -> None:
    """Another engine commits."""
    world.others_commit()


@_event("expiry")
def _expiry(world: World) -> None:
    """All snapshots but the newest expire."""
    if len(world.bench.snapshots.ids()) < 2:
        raise DoesNothing
    _expire(world)


def _expire(world: World) -> None:
    runtime = world.bench.runtime
    runtime.clock.sleep(1)  # what was made in this very millisecond does not expire
    expire_snapshots(world.bench.table, 1, 1, 1, protect_streams=False, runtime=runtime)


@_event("outage")
def _outage(world: World) -> None:
    """Other engines go on, and all that was there expires."""
    world.others_commit()
    _expire(world)


@_event("rollback by one")
def _rollback(world: World) -> None:
    """The newest snapshot is rolled back."""
    ids = world.bench.snapshots.ids()
    if len(ids) < 2:
        raise DoesNothing
    rollback_to(world.bench.table, ids[-2], runtime=world.bench.runtime)


@_event("rollback to the tag")
def _rollback_to_tag(world: World) -> None:
    """The table is rolled back to the first batch of the query, also where that has expired."""
    kept = read_tags(world.bench.storage).get(TAG)
    if kept is None or kept.nonce == world.bench.latest().nonce:
        raise DoesNothing
    rollback_to(world.bench.table, TAG, runtime=world.bench.runtime)


@_event("forward to the branch")
def _forward(world: World) -> None:
    """Main is made what the branch is."""
    if world.bench.latest().nonce == world.branch().latest().nonce:
        raise DoesNothing
    fast_forward(world.bench.table, BRANCH, runtime=world.bench.runtime)


@_event("new name")
def _rename(world: World) -> None:
    """The sink gets its other name."""
    world.stop()
    world.stream.user = NAMES[world.stream.user == NAMES[0]]


PLAIN: Final = frozenset(
    {"batch", "restart, batch", "empty batch", "commit of others", "expiry", "outage"}
)
"""What an outage is made of: after these alone nobody has to be asked."""
OF_THE_ISSUE: Final = (
    "batch",
    "restart, batch",
    "batch, not noted",
    "continue",
    "expiry",
    "outage",
    "rollback to the tag",
    "forward to the branch",
)
UNDER_A_NAME: Final = tuple(one for one in EVENTS if one != "new name")
RENAMED: Final = (
    "batch",
    "batch, not noted",
    "batch, not published",
    "checkpoint put back",
    "continue",
    "outage",
    "rollback by one",
    "rollback to the tag",
    "forward to the branch",
    "new name",
)
"""Those of `UNDER_A_NAME` that differ most, and another name."""


def in_words(history: Sequence[str]) -> str:
    """The history in a line."""
    return "; ".join(history) or "nothing"
