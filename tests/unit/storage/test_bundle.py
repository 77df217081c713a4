"""Files that are held back and written together."""

from __future__ import annotations

from contextlib import suppress

import pytest

from paimon_stream.errors import Unavailable
from paimon_stream.storage.base import BufferedOutputs
from paimon_stream.storage.memory import MemoryStorage
from tests.kits.faults import Fault, FaultyStorage, Moment


def buffered(storage: MemoryStorage, moment: Moment) -> BufferedOutputs:
    """Two held files, after a flush that failed."""
    outputs = BufferedOutputs(FaultyStorage(storage, [Fault(at=1, moment=moment, verb="write")]))
    for name in ("a", "b"):
        with outputs.open_output(name) as out:
            out.write(name.encode())
    with pytest.raises(Unavailable):
        outputs.flush()
    return outputs


def test_a_file_too_large_to_be_held_is_written_while_it_is_open() -> None:
    storage = MemoryStorage()
    seen = FaultyStorage(storage)
    outputs = BufferedOutputs(seen)
    with outputs.open_output("large") as out:
        out.write(b"a" * (16 << 20))
        assert not seen.operations
        out.write(b"b")
        out.write(b"c")
    assert storage.read("large")[-3:] == b"abc"
    assert [operation.verb for operation in seen.operations] == [
        "open_output",
        *["output.write"] * 3,
        "output.close",
    ]
    outputs.flush()
    outputs.delete("large")
    assert not storage.exists("large")


def test_a_large_file_that_is_given_up_is_removed() -> None:
    storage = MemoryStorage()
    output = BufferedOutputs(storage).open_output("large")
    output.__enter__().write(b"a" * (17 << 20))
    error = ValueError("given up")
    with suppress(ValueError):
        output.__exit__(ValueError, error, None)
    assert not storage.exists("large")


@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
def test_files_whose_flush_failed_are_flushed_again(moment: Moment) -> None:
    storage = MemoryStorage()
    buffered(storage, moment).flush()
    assert (storage.read("a"), storage.read("b")) == (b"a", b"b")


@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
def test_files_whose_flush_failed_are_deleted_wherever_they_are(moment: Moment) -> None:
    storage = MemoryStorage()
    outputs = buffered(storage, moment)
    for name in ("a", "b"):
        outputs.delete(name)
    outputs.flush()
    assert not storage.exists("a")
    assert not storage.exists("b")


@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
def test_a_file_for_which_there_is_no_room_is_removed(moment: Moment) -> None:
    storage = MemoryStorage()
    outputs = BufferedOutputs(FaultyStorage(storage, [Fault(at=2, moment=moment, verb="write")]))
    with outputs.open_output("a") as out:
        out.write(b"a" * (16 << 20))
    with pytest.raises(Unavailable), outputs.open_output("b") as out:
        out.write(b"b")
    outputs.delete("a")
    outputs.flush()
    assert not storage.exists("a")
    assert not storage.exists("b")
