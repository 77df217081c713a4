"""The arguments of a `PaimonSink` as one value. The value is pickled with the sink, and is checked
before anything is read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from paimon_stream import options as opt
from paimon_stream.catalogs.opening import open_storage
from paimon_stream.change.merge import Merge
from paimon_stream.commit.report import NO_OBSERVER, BatchObserver, CommitReport
from paimon_stream.errors import UnsupportedFeature, naming
from paimon_stream.extras import require
from paimon_stream.spark.checkpoint import Checkpoint, open_checkpoint
from paimon_stream.storage.base import Storage
from paimon_stream.stream.identity import check_user
from paimon_stream.stream.publishing import BeforeCommit
from paimon_stream.table.table import Table

OnCommit = Callable[[CommitReport], object]

_MODES: Final = ("append", "update", "complete")
_WITHOUT_MERGE: Final[Mapping[opt.Option[Any], str]] = {
    opt.OPERATION_COLUMN: "the clauses of the merge say what each row does",
    opt.OPERATION_MAPPING: "the clauses of the merge say what each row does",
    opt.MERGE_SCHEMA: "the rows are the source of the merge, and may have other columns than the table",
    opt.MISSING_COLUMNS: "the rows are the source of the merge, and may have other columns than the table",
    opt.SHUFFLE: "the driver writes the rows of a merge",
    opt.SMALL_BATCH: "the driver writes the rows of a merge",
    opt.JOURNAL_REUSE: "the files of a merge are never used again",
    opt.ON_SEQUENCE_CONFLICT: "a merge is computed anew after a conflict",
}
"""The options of sinks that would have no effect beside a merge, or contradict it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """The arguments of a `PaimonSink`, whose docstring explains them.

    Attributes:
        location: the table's folder, with the branch.
        token: distinguishes two sinks of one run. Copies of a sink have the same token.
        session: the Spark session that runs the query, once it is known. The session's Hadoop
            configuration completes the storage options.
    """

    location: str
    token: str
    commit_user: str | None = None
    name: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    mode: str = "append"
    checkpoint: str | None = None
    before_commit: BeforeCommit | None = None
    on_commit: OnCommit | None = None
    observer: BatchObserver = NO_OBSERVER
    merge: Merge | None = None
    session: Any = field(default=None, repr=False, compare=False)

    def check(self) -> None:
        """Raises `InvalidOption` and `UnsupportedFeature` for arguments that are wrong for every
        table.
        """
        table = self.open_storage().location
        arguments = opt.Arguments(table)
        if self.mode not in _MODES:
            raise arguments.wrong("mode", self.mode, f"one of {', '.join(_MODES)}")
        check_user(arguments, self.commit_user, optional=True)
        arguments.text("name", self.name, optional=True)
        arguments.function("before_commit", self.before_commit, optional=True)
        arguments.function("on_commit", self.on_commit, optional=True)
        if not isinstance(self.observer, BatchObserver):
            raise arguments.wrong("observer", self.observer, "a BatchObserver, or leave it out")
        with naming(table):
            self._check_merge(arguments)
        with naming(table):
            opt.check_sink_options(self.options)
        opt.warn_of_unfollowed_writes(self.options)

    def _check_merge(self, arguments: opt.Arguments) -> None:
        """Raises `InvalidOption` and `UnsupportedFeature` for a merge that is wrong for every table,
        and for arguments that do not go with it.
        """
        if self.merge is None:
            return
        if not isinstance(self.merge, Merge):
            raise arguments.wrong("merge", self.merge, "a paimon_stream.Merge, or leave it out")
        self.merge.check()
        if self.overwrites:
            raise UnsupportedFeature(
                "mode='complete' replaces the whole table with each batch, so there is nothing to "
                "merge with. Leave out merge, or give mode='append' or mode='update'.",
                option="mode",
                value=self.mode,
            )
        options = opt.Options(self.options)
        for option, reason in _WITHOUT_MERGE.items():
            if options.is_set(option):
                raise UnsupportedFeature(
                    f"{option.key} does not go with merge: {reason}. Leave one of them out.",
                    option=option.key,
                )

    def check_mode(self, table: Table) -> None:
        """Raises `UnsupportedFeature` for the mode `update` in an append table, because no row of
        such a table can replace another without a merge.
        """
        if self.mode == "update" and not table.schema.primary_keys and self.merge is None:
            raise UnsupportedFeature(
                f"mode='update' needs a primary key, and {table.location} has none: each update "
                "would add a row instead of replacing one. Say with merge=Merge(on=…) how a row replaces "
                "another, or use mode='complete', which replaces the table each time, mode='append' "
                "with a watermark, or a table with a primary key.",
                table=table.location,
                option="mode",
                value=self.mode,
            )

    @property
    def overwrites(self) -> bool:
        """Whether each batch replaces the whole table."""
        return self.mode == "complete"

    def open_storage(self) -> Storage:
        """The storage of the table's folder. No request is sent to it yet."""
        return open_storage(self.location, self._all_storage_options(), spark=self._hadoop)

    def open_checkpoint(self, location: str) -> Checkpoint:
        """The checkpoint at a location. If it is in an object store, checks whether it can be
        read.
        """
        spark = None if self.session is None else self._hadoop
        return open_checkpoint(location, self._all_storage_options(), spark)

    def _all_storage_options(self) -> dict[str, str]:
        """The storage options of the sink, and those of its other options that concern the
        storage.
        """
        options = opt.Options(self.options)
        of_storage = (opt.UNSAFE_SINGLE_WRITER, *opt.store_options())
        set_here = {
            option.key: options[option.key] for option in of_storage if options.is_set(option)
        }
        return {**self.storage_options, **set_here}

    def _hadoop(self) -> Mapping[str, str]:
        if self.session is None:
            return {}
        module = require("paimon_stream.spark.hadoop_options", "spark", "PaimonSink")
        options: Mapping[str, str] = module.hadoop_options(self.session)
        return options

    @property
    def prefix(self) -> str | None:
        """The `commit.user-prefix` that was set for the sink; None if it was not set. The option in
        the table's schema is not used, because the commit user must not change when the table is
        altered.
        """
        options = opt.Options(self.options)
        if not options.is_set(opt.COMMIT_USER_PREFIX):
            return None
        return options.value(opt.COMMIT_USER_PREFIX)
