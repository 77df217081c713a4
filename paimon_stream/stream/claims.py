"""A claim is the file by which one sink of one run holds a commit user (exactly-once.md §5).

A run makes its claim once, before anything is judged, by an atomic create. A second sink of the
same run under the same user finds the claim taken. A later run ends the claims of earlier runs
before it judges. So while a run's claim stands, no later run has begun. What a claim does not
exclude is described in `fence.py`.
"""

from functools import partial

from paimon_stream.errors import DuplicateWriter
from paimon_stream.format import json_text
from paimon_stream.format.snapshot_json import SnapshotRef
from paimon_stream.storage.base import PutResult, Storage
from paimon_stream.stream.identity import WriterIdentity
from paimon_stream.table.layout import escape_user, user_folder
from paimon_stream.table.register import (
    CLAIM,
    RegisteredWriter,
    registered_writer,
    runs_with_claims,
    write_register,
)


class Claims:
    """The claims and registers in a table, as one sink of one run uses them."""

    def __init__(self, storage: Storage, identity: WriterIdentity) -> None:
        self._storage = storage
        self._identity = identity
        self._folder = user_folder(identity.user)
        self.run = escape_user(identity.run_id or identity.token)
        self._claim = f"{self._folder}/{CLAIM}{self.run}"

    def acquire(self) -> frozenset[str]:
        """Claims the commit user for this writer of this run, ends the claims of earlier runs, and
        returns the names of those runs. Raises `DuplicateWriter` if another sink of this run has
        claimed the user.

        The register of an earlier run still proves what it did: it names this run as its successor
        before the earlier claim ends. So a run that dies before it registers leaves the proof as it
        was.
        """
        token = self._identity.token
        content = json_text.encode_checksummed(
            "claim", {"token": token, "user": self._identity.user}
        )
        if self._storage.put_if_absent(self._claim, content) is PutResult.EXISTS:
            data = self._storage.read(self._claim, json_text.MOST_JSON)
            holder = json_text.decode_checksummed("claim", data, self._claim).get("token")
            if holder != token:
                raise duplicate_writer(self._storage.location, self._identity.user)
        claiming, register = self._storage.together([self.runs, self.own])
        earlier: frozenset[str] = claiming - {self.run}
        if register is not None and register.run in earlier:  # that run's claim ends below
            write_register(self._storage, register.with_run(self.run))
        ends = [
            partial(self._storage.delete, f"{self._folder}/{CLAIM}{run}") for run in sorted(earlier)
        ]
        self._storage.together(ends)
        return earlier

    def runs(self) -> frozenset[str]:
        """The names of the runs whose claims stand: usually only the newest run."""
        return runs_with_claims(self._storage, self._folder)

    def holds(self) -> bool:
        """Whether the claim of this run still exists. While it exists, no later run of the commit
        user has begun.
        """
        return self._storage.exists(self._claim)

    def is_ended(self) -> bool:
        """Whether a later run has ended the claim of this run. False in a table that was created
        again, because such a table has no claims.
        """
        return not self.holds() and bool(self._storage.list_files(self._folder, CLAIM))

    def claimed(self, user: str) -> bool:
        """Whether a sink of this run writes under the given commit user. True if the run id is not
        known.
        """
        run_id = self._identity.run_id
        if run_id is None:
            return True
        return self._storage.exists(f"{user_folder(user)}/{CLAIM}{escape_user(run_id)}")

    def register(
        self,
        schema_digest: str,
        journal_since: int | None,
        present: RegisteredWriter | None = None,
        *,
        given_up: tuple[tuple[int, int], ...] = (),
        passed_over: tuple[int, SnapshotRef] | None = None,
    ) -> None:
        """Records that the stream was judged and admitted, unless the present register says the
        same. Raises `StorageError`.

        Args:
            schema_digest: the digest of the table's first schema.
            journal_since: the batch from which on the journal is complete; None if that is not
                known.
            present: the register that the commit user has so far.
            given_up: the batches that an operator has given up.
            passed_over: what is written again because an operator decided so.
        """
        earlier_runs: tuple[str, ...] = ()
        asked_notes: tuple[str, ...] = ()
        if present is not None:
            earlier_runs = present.with_run(self.run).earlier_runs
            asked_notes = present.asked_notes
        new = RegisteredWriter(
            user=self._identity.user,
            query_id=self._identity.query_id,
            checkpoint=self._identity.checkpoint,
            query_name=self._identity.query_name,
            schema_digest=schema_digest,
            journal_since=journal_since,
            run=self.run,
            given_up=given_up,
            passed_over=passed_over,
            earlier_runs=earlier_runs,
            asked_notes=asked_notes,
        )
        if new != present:
            write_register(self._storage, new)

    def own(self) -> RegisteredWriter | None:
        """The register of this commit user."""
        return registered_writer(self._storage, self._identity.user)


def duplicate_writer(location: str, user: str) -> DuplicateWriter:
    """The error where two sinks of one run write under the same commit user."""
    return DuplicateWriter(
        f"Two sinks of the same run write to {location} as commit user {user!r}, so the batch of one would be "
        "mistaken for a replay of the other. The second sink wrote nothing. Make each sink once, outside the batch "
        "function, and give several sinks names: PaimonSink(…, name='first'), PaimonSink(…, name='second'). In a "
        "query that has run before, leave the first sink as it is, because it may have written this batch, and name "
        "the others.",
        table=location,
        user=user,
    )
