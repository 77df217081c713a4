"""What interrupted commands have left in a table, and which command ends each: the doctor shows it.

Nothing here writes. Ages are those by the local clock.
"""

from typing import Final

from paimon_stream.errors import FormatError
from paimon_stream.maintenance.expiring import ExpiringNotes, is_young, note_path
from paimon_stream.maintenance.needed import tag_names
from paimon_stream.maintenance.pins import is_pin, read_pins, under_way
from paimon_stream.maintenance.tags import find_tag
from paimon_stream.storage.base import Storage
from paimon_stream.table.layout import tag_path

_MINUTE: Final = 60_000
_UNITS: Final = ((24 * 60 * _MINUTE, "days"), (60 * _MINUTE, "hours"), (_MINUTE, "minutes"))


def leftovers(storage: Storage, now_millis: int) -> tuple[str, ...]:
    """A text for each: the pins of rollbacks together, the notes of expiries that are not at work now, and
    tags that cannot be read. `now_millis` is the time since the epoch. Raises `StorageError`."""
    found = []
    pins = read_pins(storage)
    if pins:
        named = ", ".join(f"{one.path} ({_age(now_millis - one.millis)})" for one in pins)
        found.append(f"{named}: {under_way(storage, pins, 'nothing expires').message}")
    for snapshot_id, millis in ExpiringNotes(storage).written():
        if not is_young(millis, now_millis):
            found.append(
                f"{note_path(snapshot_id)} ({_age(now_millis - millis)}): the expiry of snapshot "
                f"{snapshot_id} was interrupted. expire_snapshots() finishes it."
            )
    for name in tag_names(storage):
        wrong = None if is_pin(name) else find_tag(storage, name)
        if isinstance(wrong, FormatError):
            age = _age(now_millis - storage.stat(tag_path(name)).modified_millis)
            found.append(f"{tag_path(name)} ({age}): {wrong.message}")
    return tuple(found)


def _age(millis: int) -> str:
    if millis < -_MINUTE:
        return "its time is in the future"
    scale, unit = next((one for one in _UNITS if millis >= 2 * one[0]), _UNITS[-1])
    return f"{max(millis, 0) // scale} {unit} old"
