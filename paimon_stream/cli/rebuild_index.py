"""`rebuild-index`."""

from paimon_stream.cli.command import YES, Session, changed_answer, table_command
from paimon_stream.cli.output import Answer
from paimon_stream.cli.progress import progress
from paimon_stream.cli.text import count, listed


@table_command(example="rebuild-index --yes /data/shop.db/orders", params=(YES,))
def rebuild_index(session: Session, yes: bool) -> Answer:
    """Compares the hash index of a table with dynamic buckets with the keys of all files, and makes what is wrong
    anew, in a new snapshot. No row changes. Stop the writers of other engines first. Without --yes it only shows
    which buckets have a wrong index."""
    with progress() as reporter:
        report = session.table.rebuild_index(dry_run=not yes, progress=reporter)
    buckets, keys = count(len(report.buckets), "bucket"), count(report.keys, "key")
    parts = []
    if report.manifest is not None:
        parts.append(f"The index manifest {report.manifest} {'is there again' if yes else 'is missing or broken'}.")
    if report.buckets:
        where = "" if report.snapshot_id is None else f", in snapshot {report.snapshot_id}"
        verb = "was" if yes else "would be"
        parts.append(f"The hash index of {buckets} {verb} made anew, with {keys}{where}: {listed(report.buckets)}.")
    if not parts:
        parts.append(f"The hash index is right: {count(report.checked, 'bucket')}. There is nothing to do.")
    return changed_answer(report.to_json(), parts, done=yes, something=bool(report.buckets or report.manifest))
