"""What the pages say that a stream cannot know. A history that breaks a rule is no failure if one of
these explains it. Those with `_none` explain none that is found: those of branches are met only by
histories that are drawn at random, and `scene.py` counts as given up what they speak of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.histories.walk import Finding
from tests.histories.world import IN_VAIN


@dataclass(frozen=True)
class Limit:
    """A sentence of a page, and the histories of which it speaks."""

    page: str
    sentence: str
    explains: Callable[[Finding], bool]


def _none(_: Finding) -> bool:
    return False


LIMITS: Final = (
    Limit(
        page="docs/spec/exactly-once.md",
        sentence="`paimon-stream.journal` = `false` turns it off. Exactly-once then rests on the "
        "identifiers alone",
        explains=lambda finding: (
            finding.rule == IN_VAIN
            and not finding.setting.journal
            and "HistoryUnknown" in finding.what
        ),
    ),
    Limit(
        page="docs/reliability.md",
        sentence="So the query goes on without its earlier batches. A warning says with which batch "
        "it begins there, and where the earlier ones are",
        explains=_none,
    ),
    Limit(
        page="docs/reliability.md",
        sentence="What the branch alone had went with it, and what the query kept there, too. So "
        "it goes on in main without these batches.",
        explains=_none,
    ),
    Limit(
        page="docs/reliability.md",
        sentence="Nothing shows which batches the branch has, so it goes on in main without them.",
        explains=_none,
    ),
    # Histories of seven events and more meet it, and the walks end at six.
    Limit(
        page="docs/reliability.md",
        sentence="An operator let a stream continue without a batch that the error had named, and "
        "the table had the batch's rows all the same",
        explains=_none,
    ),
)


def beyond(findings: list[Finding]) -> list[Finding]:
    """The findings that no limit explains."""
    return [one for one in findings if not any(limit.explains(one) for limit in LIMITS)]
