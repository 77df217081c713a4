"""All histories of the model, and which truth each combination of facts fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from tests.histories.events import PLAIN
from tests.histories.model import after, begun, check, judge, judge_alive
from tests.histories.model_facts import Facts, NextFacts
from tests.histories.model_state import State
from tests.histories.walk import Finding, History
from tests.histories.world import IN_VAIN, Broken, DoesNothing, Setting

Combination = tuple[Enum, ...]
"""A value for each fact of `FIRST_BATCH`, or of `LATER_BATCH`."""


@dataclass
class Told:
    """What the next batch of each history is told: how many histories there are of each length, by
    combination of facts a history that has it, and what was told wrongly.
    """

    lengths: dict[int, int] = field(default_factory=dict)
    combinations: dict[Combination, History] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def tell(alphabet: Sequence[str], most: int, setting: Setting) -> Told:
    """Judges the next batch of every history of up to `most` events, by the run that is alive and by
    a new one.
    """
    told = Told()
    for history, state in model_histories(alphabet, most, setting):
        told.lengths[len(history)] = told.lengths.get(len(history), 0) + 1
        if isinstance(state, Broken):
            told.findings.append(Finding(setting, history, state.rule, str(state)))
            continue
        told.combinations.setdefault(Facts(state).all(), history)
        verdicts = [judge(replace(state, run=None))]
        if state.run is not None:
            told.combinations.setdefault(NextFacts(state, state.run).all(), history)
            verdicts.append(judge_alive(state, state.run))
        try:
            for judged in verdicts:
                if judged.refused is None:
                    check(state, judged)
                elif PLAIN.issuperset(history):
                    raise Broken(IN_VAIN, f"{judged.outcome.value}: {judged.why}")
        except Broken as broken:
            told.findings.append(Finding(setting, history, broken.rule, str(broken)))
    return told


def model_histories(
    alphabet: Sequence[str], most: int, setting: Setting
) -> Iterator[tuple[History, State | Broken]]:
    """The histories, each with the state when its next batch is judged, or the rule that its last
    event breaks.
    """
    growing: list[tuple[History, State]] = [((), begun(setting))]
    while growing:
        history, state = growing.pop()
        yield history, replace(state, now=state.now + setting.pace)
        if len(history) == most:
            continue
        for event in alphabet:
            try:
                growing.append(((*history, event), after(state, event)))
            except DoesNothing:
                continue
            except Broken as broken:
                yield (*history, event), broken
