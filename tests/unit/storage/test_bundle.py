"""Files that are held back and written together."""

from __future__ import annotations

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
