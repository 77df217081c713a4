"""Did a batch come with the branch when the branch was made from main? (exactly-once.md §8)"""

from paimon_stream.stream.evidence import Evidence
from paimon_stream.stream.facts import BatchInherited
from paimon_stream.stream.finding import Finding
from paimon_stream.stream.identity import is_of_query
from paimon_stream.table.journal import JournalEntry


def which_inherited(evidence: Evidence) -> Finding[BatchInherited]:
    """Whether the judged batch came with the branch: what main's journals, and the files that the
    branch's manifests mention, show of it.
    """
    user = _came_as(evidence)
    if user == evidence.identity.user:
        return Finding(BatchInherited.AS_THIS_USER)
    if user is not None:
        return Finding(
            BatchInherited.AS_ANOTHER,
            lambda refuse: refuse.history_unknown(
                f"this query published this batch as commit user {user!r}, and its rows came with the branch, which "
                "was made from main. It may be the same sink under another name"
            ),
        )
    possible_user = _may_have_come_as(evidence)
    if possible_user is None:
        return Finding(BatchInherited.NOT)
    return Finding(
        BatchInherited.MAY_BE,
        lambda refuse: refuse.history_unknown(
            f"this query prepared this batch in main as commit user {possible_user!r}, main's snapshots do not show "
            "whether it was published before this branch was made, and no manifest mentions its files, which may have "
            "been compacted"
        ),
    )


def _came_as(evidence: Evidence) -> str | None:
    """The commit user under which the judged batch came with the branch; None if there is none. An
    attempt at the batch is in main's journal, and its files are part of the branch. So the query
    had published the batch in main, or in a branch to which main was forwarded, before this branch
    was made from main.
    """
    latest = evidence.latest
    for user, entry in _own_entries_of_main(evidence):
        if latest is not None and evidence.files_mentioned(latest, entry) > 0:
            return user
    return None


def _may_have_come_as(evidence: Evidence) -> str | None:
    """The commit user whose attempt at the judged batch may be part of the branch, although no file
    shows it; None if there is none. The attempt is in main's journal.
    """
    for user, entry in _own_entries_of_main(evidence):
        if evidence.latest is not None and not evidence.left_in_main(user, entry):
            return user
    return None


def _own_entries_of_main(evidence: Evidence) -> list[tuple[str, JournalEntry]]:
    """The entries in main's journals that this query wrote, each with its commit user."""
    return [
        (user, entry)
        for user, entry in evidence.entries_of_main.items()
        if is_of_query(entry.query_id, evidence.identity)
    ]
