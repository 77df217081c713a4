"""A batch write: rows that belong to no stream become one snapshot, or nothing.

This code is shared by `PaimonTable.append`, `PaimonTable.overwrite` and
`df.write.format("paimon_stream")`. The callers differ in who writes the rows. They also differ in
whether they still have the rows after a `SequenceConflict`, and so can write them again.

A batch write that is repeated puts its rows into the table twice, unless the write has a commit
identifier.

Invariant: if nothing was published, the files are removed. After `CommitUnknown` the files stay,
because a snapshot may refer to them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from paimon_stream.commit.report import CommitReport
from paimon_stream.commit.sequence import Numbering
from paimon_stream.commit.table_commit import AfterPublishing, TableCommit
from paimon_stream.errors import CommitUnknown, PaimonStreamError
from paimon_stream.format.commit_message import CommitMessage
from paimon_stream.stream.batch_summary import BatchSummary
from paimon_stream.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """What an overwrite replaces (`TableCommit.overwrite`).

    Attributes:
        partition: the spec; all partitions that match it are replaced. None: `dynamic` decides.
        dynamic: without a partition spec, whether only the partitions that get rows are replaced,
            or the whole table. None: the table's options decide.
    """

    partition: Mapping[str, Any] | None
    dynamic: bool | None


WHOLE_TABLE: Final = Replaced(partition={}, dynamic=None)
"""What a stream replaces that writes its whole result with each batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRows:
    """The rows of a batch write, as files that are not published yet.

    Attributes:
        table: the table to publish in, with the schema that the rows were written in.
        messages: the commit messages that name the files.
        numbering: the numbering of the rows (`fresh_numbering`); None without a primary key.
        millis: the milliseconds that writing took; None if that is not known.
    """

    table: Table
    messages: tuple[CommitMessage, ...]
    numbering: Numbering | None
    millis: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWrite:
    """How the rows of one batch write are published.

    Attributes:
        user: the commit user.
        digest: the digest of the table's first schema before the rows were written. The commit
            compares it, to see whether the table is still the same.
        after_commit: is called after publishing.
        replaced: what the rows replace; None if they are appended.
        identifier: makes the write safe to repeat under the same user. None: a repeated write adds
            the rows twice.
    """

    user: str
    digest: str
    after_commit: AfterPublishing
    replaced: Replaced | None = None
    identifier: int | None = None

    def publish_rows(self, rows: WrittenRows, remove: Callable[[], object]) -> CommitReport:
        """Publishes the rows as one snapshot.

        Args:
            rows: the rows.
            remove: removes the files of the rows. It is called if nothing was published, or if an
                earlier write with the same identifier was published.

        Raises:
            PaimonStreamError: the errors of `TableCommit.append` and `TableCommit.overwrite`.
        """
        try:
            report = self._commit(rows)
        except CommitUnknown:
            raise
        except PaimonStreamError:
            remove()
            raise
        if report.outcome == "already committed":
            remove()
        return report

    def _commit(self, rows: WrittenRows) -> CommitReport:
        commit = TableCommit(
            rows.table, self.user, after_commit=self.after_commit, digest=self.digest
        )
        summary = BatchSummary.of_messages(rows.messages, millis=rows.millis, reused=False)
        properties = summary.properties()
        if self.replaced is None:
            return commit.append(rows.messages, rows.numbering, properties, self.identifier)
        return commit.overwrite(
            self.replaced.partition,
            rows.messages,
            self.identifier,
            dynamic=self.replaced.dynamic,
            properties=properties,
        )
