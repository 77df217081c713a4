"""`PaimonSink`, the function that users pass to `foreachBatch`. Spark is imported only when a sink
is created.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from paimon_stream import options as opt
from paimon_stream.change.merge import Merge
from paimon_stream.commit.report import NO_OBSERVER, BatchObserver, CommitReport
from paimon_stream.errors import InvalidOption
from paimon_stream.extras import require
from paimon_stream.runtime import system
from paimon_stream.spark.active_session import in_catalog
from paimon_stream.spark.sink_settings import OnCommit, SinkSettings
from paimon_stream.storage.branch import with_branch
from paimon_stream.storage.location import shown_location
from paimon_stream.stream.publishing import BeforeCommit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

    from paimon_stream.spark.batch import Runs


class PaimonSink:
    """Writes each micro-batch of a streaming query into a Paimon table, exactly once.

    A sink's settings are immutable, and it can be pickled. The table is not read before `start` or
    the first batch.

    Args:
        location: the table's folder, `<warehouse>/<db>.db/<table>`. With a `catalog` it is the
            table's name, `"db.t"`.
        branch: the branch to write to. A location that ends in `$branch_<name>` means the same.
        commit_user: the commit user of the stream. It must belong to this stream alone. By default
            it is `paimon-stream_<query id>`, with Spark's id of the query, followed by `_<name>` if
            there is a `name`. The option `commit.user-prefix` of this sink replaces
            `paimon-stream`.
        name: distinguishes the sinks of one query. It is needed if a query writes the same table
            twice.
        options: override the table's options for this sink, and include the sink's own,
            `paimon-stream.*`.
        storage_options: options of the storage, such as credentials.
        mode: the query's output mode. `append` adds the rows of each batch. `complete` replaces the
            whole table with the rows of the batch, even if there are none. In a table with a
            primary key, `append` and `update` mean that each row replaces the earlier row with its
            key, or is merged into it. Within one batch, the order of the rows decides. An append
            table takes `update` with a `merge`.
        merge: how the rows of each batch are merged into those of the table. The rows of a batch
            are held in the driver's memory.
        checkpoint: the query's `checkpointLocation`. It is needed on Spark Connect, where the query
            may otherwise be unknown. `start` uses it by default.
        before_commit: is called with a tuple of `CommitMessage` before each commit. If it raises an
            error, the batch fails with `CommitVetoed`.
        on_commit: is called with the `CommitReport` after each batch. An error that it raises is
            logged, and does not fail the batch.
        observer: its methods are called at the steps of each batch.
        catalog: the options of a catalog, or its name in the Spark session.

    Raises:
        MissingExtra: pyspark, pandas or a library that the catalog needs is not installed.
        InvalidOption, UnsupportedFeature: an argument is wrong for every table.
        StorageError: the catalog's database or server fails, or does not know the table.

    >>> sink = PaimonSink("/data/warehouse/shop.db/orders")  # doctest: +SKIP
    >>> writer = orders.writeStream.foreachBatch(sink)  # doctest: +SKIP
    >>> query = writer.option("checkpointLocation", "/data/checkpoints/orders").start()  # doctest:
    +SKIP
    """

    __slots__ = ("_runs", "_settings")

    def __init__(
        self,
        location: str,
        *,
        branch: str | None = None,
        commit_user: str | None = None,
        name: str | None = None,
        options: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        mode: str = "append",
        merge: Merge | None = None,
        checkpoint: str | None = None,
        before_commit: BeforeCommit | None = None,
        on_commit: OnCommit | None = None,
        observer: BatchObserver | None = None,
        catalog: Mapping[str, str] | str | None = None,
    ) -> None:
        if not isinstance(location, str | os.PathLike):
            raise InvalidOption(
                f"The location is {location!r}. Give the table's folder as text: "
                "<warehouse>/<db>.db/<table>.",
                option="location",
            )
        location, of_catalog = in_catalog(location, catalog)
        arguments = opt.Arguments(shown_location(str(location)))
        settings = SinkSettings(
            location=str(with_branch(location, branch)),
            token=system().ids.uuid(),
            commit_user=commit_user,
            name=name,
            options=arguments.mapping("options", options, "{'bucket': '4'}"),
            storage_options={
                **of_catalog,
                **arguments.mapping("storage_options", storage_options, "{'name': 'value'}"),
            },
            mode=mode,
            merge=merge,
            checkpoint=_folder(arguments, checkpoint),
            before_commit=before_commit,
            on_commit=on_commit,
            observer=NO_OBSERVER if observer is None else observer,
        )
        require("pyspark.sql", "spark", "PaimonSink")
        require("pandas", "spark", "PaimonSink")
        settings.check()
        self.__setstate__(settings)  # a pickle of a sink is its settings

    def __call__(self, df: "DataFrame", batch_id: int) -> None:
        """Writes one micro-batch. Spark calls this. Raises `PaimonStreamError`; see `errors`."""
        self._runs.write_frame(df, batch_id, self._settings)

    def start(
        self,
        df: "DataFrame",
        *,
        checkpoint: str | None = None,
        trigger: Mapping[str, Any] | None = None,
        query_name: str | None = None,
    ) -> "StreamingQuery":
        """Starts a query that writes the streaming DataFrame with this sink, in the sink's output
        mode. Errors in the table or the columns are raised before the query starts.

        Args:
            df: a streaming DataFrame.
            checkpoint: the query's `checkpointLocation`; by default the sink's, or else a folder
                with the query's name below `spark.sql.streaming.checkpointLocation`.
            trigger: the arguments of `DataStreamWriter.trigger`: `{"availableNow": True}`,
                `{"once": True}`, or an interval such as `{"processingTime": "10 seconds"}`.
            query_name: the query's name in Spark.

        Raises:
            StorageError, FormatError, UnsupportedFeature, IncompatibleSchema, InvalidOption: as a
                batch would raise them.
        """
        settings = self._settings
        arguments = opt.Arguments(shown_location(settings.location))
        # The class is asked, because for a frame that is not a stream, the property raises an
        # error.
        if not hasattr(type(df), "writeStream"):
            raise arguments.wrong("df", df, "a streaming DataFrame, from spark.readStream")
        arguments.text("query_name", query_name, optional=True)
        trigger_arguments = arguments.mapping("trigger", trigger, "{'availableNow': True}")
        if checkpoint is not None:
            settings = replace(settings, checkpoint=_folder(arguments, checkpoint))
        copy = object.__new__(PaimonSink)
        copy.__setstate__(settings)
        copy._runs = self._runs
        return self._runs.start(df, copy, settings, trigger_arguments, query_name)

    @property
    def location(self) -> str:
        """The table's folder, without credentials."""
        return self._settings.open_storage().location

    @property
    def name(self) -> str | None:
        """The name that tells the sinks of one query apart."""
        return self._settings.name

    @property
    def last_report(self) -> CommitReport | None:
        """The report of the newest batch that did not fail. None before the first batch, and on
        Spark Connect, where another process writes.
        """
        return self._runs.last_report

    @property
    def last_error(self) -> BaseException | None:
        """The error of the newest batch, if that batch failed. The logger `paimon_stream` reports
        it, too, at level ERROR. None after a success, before the first batch, and on Spark Connect,
        where another process writes.
        """
        return self._runs.last_error

    def metrics(self) -> Mapping[str, float]:
        """The metrics of this sink's commits by name, over all its queries: those of Java Paimon,
        such as `lastCommitDuration` (milliseconds) and `commitDuration.p95`, and ours, such as
        `skippedBatches`. `paimon_stream.metrics.commits.METRICS` lists all names. Nothing is
        counted on Spark Connect, because another process writes the batches.
        """
        return self._runs.metrics.values()

    def __getstate__(self) -> SinkSettings:
        return self._settings

    def __setstate__(self, settings: SinkSettings) -> None:
        self._settings = settings
        # `Runs` of spark/batch.py, which needs pyspark.
        self._runs: Runs = require("paimon_stream.spark.batch", "spark", "PaimonSink").Runs()

    def __repr__(self) -> str:
        return f"PaimonSink({self._settings.location!r})"


def _folder(arguments: opt.Arguments, checkpoint: object) -> str | None:
    folder = os.fspath(checkpoint) if isinstance(checkpoint, os.PathLike) else checkpoint
    arguments.text("checkpoint", folder, optional=True)
    return None if folder is None else str(folder)
