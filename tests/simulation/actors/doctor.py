"""The operator asks `doctor` before a restart, and restarts at once. The answer must be true."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paimon_stream.api.doctor import Diagnosis, examine
from paimon_stream.errors import CorruptMetadata, IncompatibleSchema, PaimonStreamError, ReplayError
from paimon_stream.runtime import Runtime
from paimon_stream.storage.branch import branch_storage
from tests.simulation import rules
from tests.simulation.limits import SLEEPER_UNREADABLE, Limit
from tests.simulation.state import State, Violation

if TYPE_CHECKING:
    from tests.simulation.actors.streams import Stream

RULE = rules.DOCTOR


def diagnose(stream: Stream) -> Diagnosis | None:
    """What the doctor says about the restart of a stream; None if it cannot judge."""
    world = stream.world
    try:
        (found,) = examine(
            branch_storage(world.disk, stream.branch) if stream.branch else world.disk,
            checkpoint=stream.checkpoint.files(world.millis),
            user=stream.user,
            options=stream.run_options,
            mode="complete" if stream.overwrites else "append",
            runtime=Runtime(clock=stream.ready().clock, rng=world.dice, ids=world.ids),
        )
    except PaimonStreamError:
        return None
    return found


def check_refused(
    name: str, said: Diagnosis | None, error: PaimonStreamError, head: State | None
) -> None:
    """The restart stops with this error. `head` is the newest snapshot."""
    sleeper = None if head is None or not head.slept else head.made_by
    if isinstance(error, CorruptMetadata) and sleeper is not None and sleeper.alive_at_work:
        raise Limit(SLEEPER_UNREADABLE)
    if said is not None and said.safe:
        raise Violation(RULE, f"{name}: the restart is called safe, and ends in {error!r}")
    if said is not None and isinstance(error, ReplayError) and said.verdict != type(error).__name__:
        raise Violation(
            RULE, f"{name}: the doctor says {said.verdict}, and the restart ends in {error!r}"
        )


def check_admitted(name: str, said: Diagnosis | None) -> None:
    """The restart goes on. The doctor must not have announced an error."""
    columns = (
        said is not None and said.verdict == IncompatibleSchema.__name__
    )  # no stream here has columns
    if said is None or ((said.verdict or "")[:1].isupper() and not columns):
        raise Violation(RULE, f"{name} goes on, and the doctor had said: {said}")
