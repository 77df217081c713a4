"""Keeps a writer's last snapshot from expiring, if the table's options ask for that. A consumer
records that it has not read this snapshot yet, and the expiry of every engine honours consumers.
"""

from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.options import PROTECT_LAST_SNAPSHOT
from paimon_stream.table.consumers import write_consumer
from paimon_stream.table.layout import escape_user
from paimon_stream.table.table import Table


def protect_last_snapshot(table: Table, snapshot: Snapshot) -> None:
    """Moves the writer's consumer to the snapshot that the writer has just published, if the option
    `paimon-stream.protect-last-snapshot` says so. Raises `StorageError`.
    """
    if table.options.value(PROTECT_LAST_SNAPSHOT) == "consumer":
        write_consumer(table.storage, escape_user(snapshot.commit_user), snapshot.id)
