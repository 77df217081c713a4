"""`format("paimon_stream")`, of whose batches copies are taken. Spark commits them in a process of
its own, and no option of the format names an observer. So this module sets one there. It must be
importable by its name in that process.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from paimon_stream.spark import datasource_commit
from paimon_stream.spark.datasource import PaimonDataSource
from paimon_stream.spark.datasource_write import StreamTableWriter
from paimon_stream.spark.sink_settings import SinkSettings
from tests.persisted.copies import Copies


class WatchedSource(PaimonDataSource):
    """The format under its own name."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamTableWriter:
        return WatchedWriter(dict(self.options), schema, overwrite)


class WatchedWriter(StreamTableWriter):
    """Takes the copies beside the table."""

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        copies = Copies(Path(self._arguments["options"]["path"]).parent)
        sys.addaudithook(copies.audit)
        watched = partial(SinkSettings, observer=copies.of_sink(None))
        datasource_commit.SinkSettings = watched  # type: ignore[misc]
        super().commit(messages, batchId)
