"""Readers, and a user who drops the table and creates it again."""

from __future__ import annotations

from paimon_stream.read.scan import plan_scan
from tests.simulation import rules
from tests.simulation.actors.base import Actor, Work
from tests.simulation.state import Violation


class Reader(Actor):
    """Plans a read, and reads the files perhaps much later."""

    kind = "reader"

    def begin(self) -> Work:
        self.doing = "a read"
        self.ready()
        return self.work

    def work(self) -> None:
        scan = plan_scan(self.table())
        if scan.snapshot is None:
            return
        state = self.world.truth.states.get(scan.snapshot.nonce)
        names = {entry.file.file_name for entry in scan.files}
        if state is None or names != set(state.live):
            raise Violation(rules.READERS, f"{self.name} sees {sorted(names)}")
        for entry in scan.files:
            path = self.world.table.layout.data_file(
                entry.partition, entry.bucket, entry.file.file_name
            )
            if not self.ready().storage.exists(path):
                truth = self.world.truth
                stands = truth.there.get(state.id) is state and state.id not in truth.beside
                if stands:
                    raise Violation(rules.READERS, f"{path} of snapshot {state.id} is gone")
                return


class Dropper(Actor):
    """Drops the table, and creates it again at the same place, once in a schedule."""

    kind = "dropper"
    whole = True
    drops = True
    dropped = False

    def begin(self) -> Work | None:
        if self.dropped or not self.world.choices.once_in(4):
            return None
        self.dropped = True
        self.doing = "dropping and creating the table"
        self.ready()
        return self.world.recreate
