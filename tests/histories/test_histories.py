"""Every history up to a given length, on the real code: the verdict on its next batch is true."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from paimon_stream.errors import CheckpointRewound, HistoryUnknown
from tests.histories.events import EVENTS, OF_THE_ISSUE, RENAMED, UNDER_A_NAME, in_words
from tests.histories.limits import LIMITS, Limit, beyond
from tests.histories.walk import Reached, beginning, broken_by, walk
from tests.histories.world import ALL_SETTINGS, OFF, ON, RULES, SLOW, SLOW_OFF, Setting

ROOT = Path(__file__).parents[2]
full = pytest.mark.full
_REWOUND = "checkpoint put back; continue"
_REWOUND_BY_TWO = f"checkpoint put back; {_REWOUND}"
_PUT_BACK_WITH_THE_TABLE = (
    "empty batch; batch; batch; checkpoint put back; checkpoint put back; checkpoint put back; "
    "rollback by one; rollback by one"
)
_PUT_BACK_AROUND_AN_OUTAGE = (
    "outage; checkpoint put back; checkpoint put back",
    "checkpoint put back; outage; checkpoint put back",
    "checkpoint put back; checkpoint put back; outage",
)
_BATCH_2_IS_LOST = (
    "outage; continue; rollback by one; continue",
    "batch; rollback by one; outage; continue",
)


@pytest.mark.parametrize(
    ("alphabet", "most", "setting"),
    [
        pytest.param(OF_THE_ISSUE, 3, ON, id="short"),
        pytest.param(UNDER_A_NAME, 2, OFF, id="under a name, no journal"),
        pytest.param(RENAMED, 2, ON, id="renamed"),
        *(
            pytest.param(OF_THE_ISSUE, 4, setting, marks=full, id=f"short, {setting}")
            for setting in ALL_SETTINGS
        ),
        *(
            pytest.param(RENAMED, 3, setting, marks=full, id=f"renamed, {setting}")
            for setting in ALL_SETTINGS
        ),
        *(
            pytest.param(UNDER_A_NAME, 3, setting, marks=full, id=f"under a name, {setting}")
            for setting in (SLOW, OFF, SLOW_OFF)
        ),
        pytest.param(UNDER_A_NAME, 4, ON, marks=full, id="under a name, four events"),
    ],
)
def test_the_next_batch_of_each_history_is_told_the_truth(
    alphabet: Sequence[str], most: int, setting: Setting
) -> None:
    """No batch is doubled or lost, and a plain outage stops nobody, but for the limits of the pages."""
    walked = walk(alphabet, most, setting)
    print(walked.lengths)
    assert set(walked.lengths) == set(range(most + 1))
    failed = beyond(walked.findings)
    assert not failed, "\n".join(map(str, failed[:10]))


@pytest.mark.parametrize("setting", [ON, SLOW], ids=str)
@pytest.mark.parametrize(
    "history",
    [
        "outage; batch; batch, not noted; checkpoint put back; rollback to the tag",
        "outage; batch; batch, not noted; checkpoint put back; forward to the branch",
        "batch; batch; batch, not noted; checkpoint put back; checkpoint put back; rollback to the tag",
        "batch, not noted; checkpoint put back; rollback to the tag; rollback by one; continue",
    ],
)
def test_what_a_rollback_took_below_a_checkpoint_that_was_put_back_is_reported(
    history: str, setting: Setting
) -> None:
    """The journal keeps the entries of later batches and has dropped those of the batches that the
    rollback took; and a decision about the checkpoint is none about these.
    """
    assert broken_by(tuple(history.split("; ")), setting) is None


@pytest.mark.parametrize("setting", [ON, SLOW], ids=str)
@pytest.mark.parametrize(
    "history",
    [
        f"{_REWOUND_BY_TWO}; rollback by one; batch; forward to the branch",
        f"{_REWOUND_BY_TWO}; rollback by one; batch; rollback to the tag",
        f"{_REWOUND_BY_TWO}; rollback by one; batch; rollback by one",
        f"batch, not noted; {_REWOUND}; rollback by one; batch; rollback by one",
        f"empty batch; batch, not noted; {_REWOUND}; batch; rollback by one",
        f"batch; batch; checkpoint put back; {_REWOUND_BY_TWO}; rollback by one; rollback by one; "
        "batch; rollback by one",
        f"{_PUT_BACK_WITH_THE_TABLE}; empty batch; rollback by one",
        f"{_PUT_BACK_WITH_THE_TABLE}; checkpoint put back; batch; empty batch; rollback by one",
    ],
)
def test_a_batch_whose_entry_had_gone_before_it_was_found_and_taken_away_is_reported(
    history: str, setting: Setting
) -> None:
    """The register does not vouch for it, so the note is asked."""
    assert broken_by(tuple(history.split("; ")), setting) is None


@pytest.mark.parametrize("setting", [OFF, SLOW_OFF], ids=str)
@pytest.mark.parametrize("after", _PUT_BACK_AROUND_AN_OUTAGE)
@pytest.mark.parametrize(
    "taken", ["rollback by one", "rollback to the tag", "forward to the branch"]
)
def test_who_runs_a_batch_again_that_he_had_given_up_is_asked_about_the_later_ones(
    taken: str, after: str, setting: Setting
) -> None:
    """Nothing is left of the later batch but its rows, and its number is above what was given up."""
    history = tuple(f"{taken}; continue; {after}".split("; "))
    world, _ = Reached(history, beginning(setting), history).arrived()
    refused = world.publish()
    assert isinstance(refused, CheckpointRewound), refused
    assert "had let this stream go on without batch 1" in str(refused)
    assert broken_by((*history, "continue"), setting) is None


@pytest.mark.parametrize("setting", [OFF, SLOW_OFF], ids=str)
def test_a_batch_that_was_given_up_is_written_if_all_snapshots_show_that_nothing_was(
    setting: Setting,
) -> None:
    """The table was rolled back with the checkpoint."""
    begun = "checkpoint put back; rollback by one; rollback by one; continue; rollback by one"
    history = (*begun.split("; "), "checkpoint put back", "checkpoint put back")
    world, _ = Reached(history, beginning(setting), history).arrived()
    assert world.copies() == {}
    assert world.publish() is None
    assert world.copies() == {0: 1}


@pytest.mark.parametrize("setting", [OFF, SLOW_OFF], ids=str)
@pytest.mark.parametrize("lost", _BATCH_2_IS_LOST)
@pytest.mark.parametrize("taken", ["rollback to the tag", "forward to the branch"])
def test_who_is_also_asked_whether_his_batch_is_new_has_not_given_up_what_had_expired(
    taken: str, lost: str, setting: Setting
) -> None:
    """A note names batch 2, and batch 1 is in the table. When that is taken, too, somebody is asked."""
    for end in (f"{taken}; checkpoint put back", f"checkpoint put back; {taken}"):
        history = tuple(f"{lost}; {end}".split("; "))
        world, _ = Reached(history, beginning(setting), history).arrived()
        assert world.missing() == {1}
        assert isinstance(world.publish(), HistoryUnknown)


def test_the_beginning_is_what_the_histories_say() -> None:
    world = beginning(ON)
    assert world.done == {0, 1}
    assert world.copies() == {0: 1, 1: 1}
    assert not world.missing()
    copied = world.again_from_here()
    copied.publish()
    assert (world.stream.next_batch, copied.stream.next_batch) == (2, 3)
    assert world.copies() == {0: 1, 1: 1}


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.sentence[:30])
def test_a_limit_is_a_sentence_of_its_page(limit: Limit) -> None:
    page = " ".join((ROOT / limit.page).read_text(encoding="utf-8").split())
    assert limit.sentence in page


def test_each_event_is_in_an_alphabet() -> None:
    assert {*UNDER_A_NAME, *RENAMED} == set(EVENTS)
    assert {*OF_THE_ISSUE} < set(EVENTS)
    assert in_words(("batch", "outage")) == "batch; outage"
    assert all(RULES.values())
