"""Tells a metastore of the tags of a table, where the table's catalog has one and the table asks for it
(`metastore.tag-to-partition`; spec/catalogs.md §6.2). The metastore keeps a partition for each tag.

Invariants: no commit and no change of a tag fails because of the metastore. Before a tag is created
or deleted, it is in a note (`table/partition_notes.py`), which the next change of a tag or the next
one who opens the table by its name tells. Only a process that dies right after it has changed a
tag, while another one has told and removed its note, may leave the metastore behind.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from paimon_stream import options as opt
from paimon_stream.errors import PaimonStreamError, StorageError
from paimon_stream.format.partition_path import escape
from paimon_stream.format.snapshot_json import Snapshot
from paimon_stream.runtime import Runtime, system
from paimon_stream.table.option_rules import tag_period
from paimon_stream.table.partition_notes import PartitionNote, encode_note, note_path, tell_notes
from paimon_stream.table.period_names import EPOCH, PeriodNames, local_time, zone_of
from paimon_stream.table.table import Table

_LOG = logging.getLogger(__name__)

_PREVIEWED: Final = ("process-time", "watermark")
"""The modes in which a commit tells of a tag before it is created."""


@contextmanager
def telling_of_tags(
    table: Table, names: Iterable[str], runtime: Runtime | None = None
) -> Iterator[None]:
    """A context in which tags are created or deleted. Afterwards the metastore is told, if there is
    one that is told of tags. Warns if it does not take that.

    Args:
        table: the table.
        names: the names of the tags.
        runtime: gives the id of the note. None: that of the system.

    Raises:
        StorageError: the note cannot be written. No tag is changed then.
    """
    if not is_told_of_tags(table):
        yield
        return
    note = PartitionNote(tags={name: _folder(table, name) for name in names})
    path = note_path((runtime or system()).ids.uuid())
    table.storage.write(path, encode_note(note))
    try:
        yield
    except PaimonStreamError:
        _tell(table, path, note)
        raise
    _tell(table, path, note)


def tell_of_deleted_tags(table: Table, names: Iterable[str], runtime: Runtime) -> None:
    """Tells the metastore of tags that are deleted already, if it is told of tags. Warns if it does
    not take that, or if no note of it can be written.
    """
    try:
        with telling_of_tags(table, names, runtime):
            return
    except StorageError as failed:
        _LOG.warning(
            "%s: partitions of tags that were deleted stay in the metastore. Drop them there. %s",
            table.location,
            failed,
        )


def is_told_of_tags(table: Table) -> bool:
    """Whether a metastore is told of the tags of the table, which has no partitions of its own."""
    has_metastore = getattr(table.storage, "add_partitions", None) is not None
    return (
        has_metastore and table.options.is_set(opt.TAG_TO_PARTITION) and not table.partition_types
    )


def is_previewing(table: Table) -> bool:
    """Whether each commit tells the metastore of the tag of the present period."""
    return (
        is_told_of_tags(table) and table.options.value(opt.TAG_TO_PARTITION_PREVIEW) in _PREVIEWED
    )


def previewed_folders(table: Table, snapshot: Snapshot) -> tuple[str, ...]:
    """The folder of the partition of the tag that the present period will have, as the time or the
    watermark of a snapshot says. None without such a time. Raises `InvalidOption`.
    """
    options = table.options
    mode = options.value(opt.TAG_TO_PARTITION_PREVIEW)
    millis = snapshot.watermark if mode == "watermark" else snapshot.time_millis
    now = local_time(millis, zone_of(options, mode))
    if now is None:
        return ()
    begun = now - (now - EPOCH) % tag_period(options)
    return (_folder(table, begun.strftime(PeriodNames.of(options).format)),)


def _folder(table: Table, name: str) -> str:
    """The folder of a tag's partition, relative to the table. It has no files."""
    column = escape(table.options.value(opt.TAG_TO_PARTITION))
    return "/".join(filter(None, (table.layout.directory, f"{column}={escape(name)}")))


def _tell(table: Table, path: str, note: PartitionNote) -> None:
    """Tells the metastore of a note and of those that are left. Warns if it does not take them."""
    try:
        tell_notes(table.storage, {path: note})
    except PaimonStreamError as failed:
        _LOG.warning(
            "%s: the metastore was not told of tags that were created or deleted, such as %s. The "
            "next change of a tag tells it again, and so does opening the table by its name. %s",
            table.location,
            next(iter(note.tags)),
            failed,
        )
