"""Makes a failing schedule short: leaves steps out, and makes choices plain, as long as it still
fails.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.choices import END, Script

FIRST = END + 1
Fails = Callable[[Script], bool]


def shrink(script: Script, fails: Fails, *, tries: int = 3000) -> Script:
    """A shorter schedule that still fails. The choices of the world and of the end stay in
    their places. At most `tries` schedules are run."""
    left = [tries]

    def still(candidate: Script) -> bool:
        left[0] -= 1
        return left[0] >= 0 and fails(candidate)

    before: Script = []
    while before != script and left[0] > 0:
        before = script
        script = _without_steps(script, still)
        script = _plainer(script, still)
    return script


def _without_steps(script: Script, fails: Fails) -> Script:
    size = max(1, (len(script) - FIRST) // 2)
    while True:
        at = len(script) - size
        while at >= FIRST:
            candidate = script[:at] + script[at + size :]
            if fails(candidate):
                script = candidate
            at -= size
        if size == 1:
            return script
        size //= 2


def _plainer(script: Script, fails: Fails) -> Script:
    for number in range(len(script)):
        step = script[number]
        if number and any(step[1:]):
            script = _if_it_fails(script, number, step[:1], fails)
        for place, value in enumerate(script[number]):
            for plainer in (0, value // 2) if value > 1 else (0,) * value:
                step = script[number]
                if place < len(step) and plainer < step[place]:
                    script = _if_it_fails(
                        script, number, [*step[:place], plainer, *step[place + 1 :]], fails
                    )
    return script


def _if_it_fails(script: Script, number: int, step: list[int], fails: Fails) -> Script:
    candidate = [*script[:number], step, *script[number + 1 :]]
    return candidate if fails(candidate) else script
