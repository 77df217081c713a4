"""A pin is a tag by which a rollback keeps its target. It also shows the rollback to all other code
that deletes files. A pin is a tag named `paimon-stream-rollback-<snapshot id>-<letters>` of the
target. Every engine keeps the files of a tag. While a pin exists, expiry of snapshots and
partitions, another rollback, the deletion of tags and the removal of orphans begin nothing new.

Invariants:

- After a rollback has written its pin, it looks again whether its target still exists. A command
  that deletes the target's files deletes the target first, and looks for tags and pins after that.
  So either the rollback sees that the target is gone and withdraws its pin, or the other command
  sees the pin.
- After that check, all files of the target stay as long as the pin does. So the rollback can
  restore the target's snapshot from the pin at any time.
- Of two rollbacks that write pins at once, at least one sees the other's pin, and withdraws its
  own.
- A rollback that was killed leaves its pin. A rollback to the same target replaces that pin by its
  own, and completes the killed rollback. A rollback to another target is refused, unless it is
  asked to take over. A rollback whose pin is gone stops.
- If a fast forward goes to a branch that shares no snapshot with main, the name of its pin ends in
  `-alone`. The ending says that the snapshots below the target are another history, and are removed
  as well. They are removed after everything above the target. So the newest snapshot is always a
  state of main or of the branch. A run that completes a killed run knows from the name what to
  remove.
- While a pin cannot be read, everything is refused until a rollback takes over.
- On a full disk a pin that is to be replaced is deleted first, unless it alone keeps the target.
- Pins are not tags of the user: they are not listed, they do not expire, and no rollback removes
  them as later tags.
"""

import datetime as dt
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from paimon_stream.errors import CommitContended, FormatError
from paimon_stream.format.snapshot_json import Snapshot, encode_snapshot
from paimon_stream.runtime import Runtime
from paimon_stream.storage.base import Storage
from paimon_stream.table.layout import PIN_PREFIX, TAG_FOLDER, tag_path
from paimon_stream.table.references import read_tag

_LETTERS: Final = 8
_ALONE: Final = "-alone"
"""Ends the name of a pin of a fast forward whose target shares nothing with what stands below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """The pin of a rollback.

    Attributes:
        path: the file of the pin.
        snapshot: the target of the rollback; None if the file cannot be read.
        millis: when the pin was written, in epoch milliseconds by the clock of the storage.
    """

    path: str
    snapshot: Snapshot | None
    millis: int

    @property
    def is_alone(self) -> bool:
        """Whether the snapshots below the rollback's target belong to another history, and are
        removed as well.
        """
        return self.path.endswith(_ALONE)

    def keeps(self, snapshot: Snapshot) -> bool:
        """Whether the snapshot is the target of the pin's rollback."""
        return self.snapshot is not None and self.snapshot.nonce == snapshot.nonce


def is_pin(tag: str) -> bool:
    """Whether a tag with this name is a pin."""
    return tag.startswith(PIN_PREFIX)


def read_pins(storage: Storage) -> list[Pin]:
    """All pins, sorted by name. Raises `StorageError`."""
    pins = []
    for stat in storage.list_files(TAG_FOLDER, f"tag-{PIN_PREFIX}"):
        snapshot = None
        with suppress(FormatError):  # a pin that cannot be read refuses as any other pin does
            snapshot = read_tag(storage, stat.path)
            if snapshot is None:
                continue  # that rollback has ended since the listing
        pins.append(Pin(path=stat.path, snapshot=snapshot, millis=stat.modified_millis))
    return pins


def pin_path(snapshot: Snapshot, runtime: Runtime, *, alone: bool = False) -> str:
    """A new path for a pin of a snapshot. `alone` says whether the snapshots below it belong to
    another history.
    """
    letters = runtime.ids.uuid()[:_LETTERS]
    ending = _ALONE if alone else ""
    return tag_path(f"{PIN_PREFIX}{snapshot.id}-{letters}{ending}")


def put_pin(storage: Storage, path: str, snapshot: Snapshot) -> int:
    """Writes a pin. Returns when it was written, in epoch milliseconds by the storage's clock.
    Raises `StorageError`.
    """
    storage.write(path, encode_snapshot(snapshot))
    return storage.stat(path).modified_millis


def under_way(
    storage: Storage, pins: Iterable[Pin], doing: str, wanted: int | None = None
) -> CommitContended:
    """The error of a command that cannot be carried out because rollbacks have pins.

    Args:
        storage: the storage of the table.
        pins: the pins, at least one.
        doing: what is not done, as a part of a sentence.
        wanted: the id of the target, if the command is a rollback. If a pin has the same id, it is
            a pin of another snapshot, which had the id earlier.
    """
    present = list(pins)
    last = present[-1]
    target = None
    shown = f"whose pin {last.path} cannot be read"
    if last.snapshot is not None:
        target = last.snapshot.id
        shown = f"to snapshot {target}"
    since = dt.datetime.fromtimestamp(last.millis // 1000, dt.timezone.utc)
    return CommitContended(
        f"a rollback {shown} is under way or was interrupted, so {doing}. It began at "
        f"{since:%Y-%m-%dT%H:%M:%SZ}. If it still runs, wait for its end. Otherwise roll back to "
        f"{_possible_targets(present, wanted)} (--take-over), which gives up every other one.",
        snapshot=target,
        path=last.path,
        since_millis=last.millis,
    ).of_table(storage.location)


def _possible_targets(pins: Sequence[Pin], wanted: int | None) -> str:
    """The targets to which a rollback is allowed while there are these pins, in words for the
    message of `under_way`.
    """
    if any(pin.snapshot is None for pin in pins):
        return "the snapshot that is to be the newest, with take_over"
    targets = sorted({pin.snapshot.id for pin in pins if pin.snapshot is not None})
    if len(targets) > 1:  # a rollback was killed while it took over from another
        ids = ", ".join(map(str, targets))
        return f"one of the snapshots {ids}, or to another, with take_over"
    if targets == [wanted]:  # a writer took the id of the target
        return f"snapshot {wanted}, or to another, with take_over"
    return f"snapshot {targets[0]} again, which completes it, or to another target with take_over"


def refuse_while_pinned(storage: Storage, doing: str) -> None:
    """Raises `CommitContended` if a rollback is under way, and `StorageError` if the pins cannot be
    read.
    """
    pins = read_pins(storage)
    if pins:
        raise under_way(storage, pins, doing)
