"""The worlds, each declared once."""

from __future__ import annotations

from tests.orders.setting import Setting
from tests.orders.worlds_changes import CHANGES
from tests.orders.worlds_others import OTHERS
from tests.orders.worlds_streams import STREAMS

WORLDS: list[Setting] = [*STREAMS, *OTHERS, *CHANGES]
BY_NAME = {one.name: one for one in WORLDS}
assert len(BY_NAME) == len(WORLDS)
