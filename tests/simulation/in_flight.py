"""Requests that are in flight together: they take effect in any order, and anybody may go on
between two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from greenlet import getcurrent, greenlet

from paimon_stream.storage.together import Request
from tests.simulation.choices import Choices


class _OfGroup(greenlet):
    """Runs one request of a group. Its parent is who sent the group."""


def in_any_order(requests: Sequence[Request], choices: Choices) -> list[Any]:
    """The results of requests, in their order. Before each of its operations a request waits until
    it is chosen. Raises the first error, after all have ended.
    """
    results: list[Any] = [None] * len(requests)
    errors: list[BaseException | None] = [None] * len(requests)

    def sent(number: int) -> greenlet:
        def run() -> None:
            try:
                results[number] = requests[number]()
            except BaseException as raised:  # noqa: BLE001  raised when all have ended
                errors[number] = raised

        return _OfGroup(run, getcurrent())

    waiting = [sent(number) for number in range(len(requests))]
    while waiting:
        chosen = waiting[choices.below(len(waiting))]
        chosen.switch()
        waiting = [one for one in waiting if not one.dead]
    for error in errors:
        if error is not None:
            raise error
    return results


def wait_until_chosen() -> None:
    """Lets the other requests of the group go first. Does nothing for a request that is sent by
    itself.
    """
    here = getcurrent()
    if isinstance(here, _OfGroup):
        here.parent.switch()  # type: ignore[union-attr]
