"""Why schedules end early. Each limit has the words of docs/reliability.md that exclude what
happened.
"""

from __future__ import annotations

DISTURBED = "a rule was broken after a rollback or a drop beside a writer at work"
FOUND_IN_SLEEPERS = "a run found its batch in the snapshot of a twin that slept through a rollback"
EXPIRY_OF_DROPPED = "an expiry of the dropped table went on in the new one"
SAW_SLEEPER = "a run saw the snapshot of a writer that slept through a rollback"
NO_PART = "somebody rolled back to the tag of a snapshot that is no part of this table"
NOT_PUT_BACK_YET = (
    "somebody wrote before an expiry that met a rollback had put the newest snapshot back"
)
BUILT_ON_SLEEPERS = "somebody built on the snapshot of a writer that slept through a rollback"
NEVER_PUT_BACK = "an expiry that met a rollback ended before it put the newest back"
SLEEPER_ENDED = "a writer that slept through a rollback ended before it removed its snapshot"
SLEEPER_REMOVED_ANOTHER = (
    "a writer that slept through a rollback removed the snapshot that had taken its id"
)
SLEEPER_COUNTED = "expiry counted the snapshot of a writer that slept through a rollback"
SLEEPER_REMOVED_BASE = (
    "a writer that slept through a rollback removed its snapshot while another built on it"
)
EXPIRY_SLEPT = "an expiry that slept through a rollback removed the snapshot that had its id"
ROLLBACK_UNDER_WAY = "a writer went on while a rollback was under way"
REPLACED_BELOW = (
    "a writer without a lock replaced the snapshot of a killed run's batch below newer ones"
)
SLEEPER_UNREADABLE = "the snapshot of a writer that slept through a rollback cannot be read"
UNSURE_TAG = "somebody who made a tag died, or got no answer, before he could take it back"
TAG_OF_ROLLBACK = "a rollback died before it removed the tag of a snapshot that it had removed"
LATE_PUT = "a put from before a rollback arrived after its writer had ended"
TAGGED_SLEEPER = "somebody tagged what a writer that had slept was about to remove"
TAG_DELETER_SLEPT = (
    "somebody slept while he deleted a tag, and a killed rollback to the tag was completed"
)
CLOCK_HID_DROP = "a run whose clock was wrong took a table that was created again for its own, or its own for another"

DOCUMENTED = {
    CLOCK_HID_DROP: "a clock that is wrong by more than five minutes can hide that, or report it in vain",
    DISTURBED: "somebody may roll back or drop beside a writer at work",
    FOUND_IN_SLEEPERS: "a second run on the same checkpoint has found its batch there",
    EXPIRY_OF_DROPPED: "An expiry sleeps while the table is dropped and created",
    SAW_SLEEPER: "a stream has reported a loss because its own last snapshot does not lie below it",
    NO_PART: "Or somebody rolls back to such a tag.",
    NOT_PUT_BACK_YET: "or somebody writes before it has",
    BUILT_ON_SLEEPERS: "Or somebody has built on its snapshot meanwhile",
    NEVER_PUT_BACK: "dies, or gets no answer, before it has put the newest snapshot back",
    SLEEPER_ENDED: "It ends before it has removed that snapshot",
    SLEEPER_REMOVED_ANOTHER: "or it removes another one that has taken the id",
    SLEEPER_COUNTED: "or expiry has counted it",
    SLEEPER_REMOVED_BASE: "Or somebody has built on its snapshot meanwhile",
    EXPIRY_SLEPT: "An expiry sleeps through a rollback between its look and its deletion",
    ROLLBACK_UNDER_WAY: "A writer goes on while a rollback is under way",
    REPLACED_BELOW: "replaces the snapshot of a batch whose run was killed before it had reported the batch",
    SLEEPER_UNREADABLE: "Or `doctor` was asked while it stood without its files.",
    UNSURE_TAG: "Somebody dies, or gets no answer, between making a tag and looking",
    TAG_OF_ROLLBACK: "A rollback dies before it has removed the tag of a snapshot that it has removed.",
    LATE_PUT: "A put was sent before a rollback, and arrives after its writer has ended.",
    TAG_DELETER_SLEPT: "Or somebody who deletes a tag sleeps there",
    TAGGED_SLEEPER: "Somebody tags the snapshot of a writer that has slept",
}


class Limit(Exception):
    """The schedule reached something that the documents exclude, or that no writer can prevent. It
    ends there.
    """

    def __init__(self, reason: str) -> None:
        assert reason in DOCUMENTED, reason
        super().__init__(reason)
