"""Processes that are forked from one that has imported the package and has done nothing else. They
begin in a hundredth of the time that a new Python takes.
"""

from __future__ import annotations

import multiprocessing
from typing import Final

FORKS: Final = multiprocessing.get_context("forkserver")
# A process has one server of forks, for all that use it.
FORKS.set_forkserver_preload(["tests.kits.store_writers", "tests.kills.driver"])
