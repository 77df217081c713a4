"""Functions that are informed of each batch, and the one way to call them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from paimon_stream.commit.report import CommitReport

__all__ = ["Reporter", "report_to_all"]

_LOG = logging.getLogger(__name__)


Reporter = Callable[[CommitReport], object]
"""Is called once per batch after its commit, on the driver, in the thread that committed. Also for empty
batches and for those that an earlier run committed."""


def report_to_all(reporters: Iterable[Reporter], report: CommitReport) -> None:
    """Calls every reporter. If one raises, that is logged with its traceback and changes nothing: the
    snapshot is already published, and a failure after that must not fail the batch."""
    for reporter in reporters:
        try:
            reporter(report)
        except Exception:  # noqa: BLE001
            _LOG.warning(
                "%s: reporter %r failed on batch %d; the commit is not affected.",
                report.location,
                reporter,
                report.identifier,
                exc_info=True,
            )
