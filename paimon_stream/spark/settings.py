"""The arguments that a user gives for a sink, checked once. Does not import Spark."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from paimon_stream.commit.observer import NO_OBSERVER, BatchObserver
from paimon_stream.commit.report import CommitReport
from paimon_stream.errors import UnsupportedFeature, naming
from paimon_stream.extras import require
from paimon_stream.options import (
    COMMIT_USER_PREFIX,
    UNSAFE_SINGLE_WRITER,
    Arguments,
    Options,
    check_sink_options,
    store_options,
)
from paimon_stream.spark.checkpoint import Checkpoint, open_checkpoint
from paimon_stream.storage.base import Storage
from paimon_stream.storage.uri import open_storage
from paimon_stream.stream.writer import BeforeCommit
from paimon_stream.table.table import Table

OnCommit = Callable[[CommitReport], object]

_MODES: Final = ("append", "update", "complete")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """The arguments of a `PaimonSink`. `token` distinguishes two sinks of one run; copies keep it.

    `session` is the Spark session that runs the query, once it is known. Its Hadoop configuration says what
    the storage options do not say.
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
    session: Any = field(default=None, repr=False, compare=False)

    def check(self) -> None:
        """Raises `InvalidOption` and `UnsupportedFeature` for arguments that are wrong for every table."""
        table = self.open_storage().location
        given = Arguments(table)
        if self.mode not in _MODES:
            raise given.wrong("mode", self.mode, f"one of {', '.join(_MODES)}")
        given.text("commit_user", self.commit_user, optional=True)
        given.text("name", self.name, optional=True)
        given.function("before_commit", self.before_commit, optional=True)
        given.function("on_commit", self.on_commit, optional=True)
        if not isinstance(self.observer, BatchObserver):
            raise given.wrong("observer", self.observer, "a BatchObserver, or leave it out")
        with naming(table):
            check_sink_options(self.options)

    def check_mode(self, table: Table) -> None:
        """Raises `UnsupportedFeature` for a mode that the table does not allow: in an append table no row can
        replace another."""
        if self.mode == "update" and not table.schema.primary_keys:
            raise UnsupportedFeature(
                f"mode='update' needs a primary key, by which a row replaces an earlier one, and {table.location} has "
                "none: each update would add a row. Use mode='complete', which replaces the table each time, "
                "mode='append' with a watermark, or a table with a primary key.",
                table=table.location,
                option="mode",
                value=self.mode,
            )

    @property
    def overwrites(self) -> bool:
        """Whether each batch replaces the whole table."""
        return self.mode == "complete"

    def of(self, session: Any) -> "SinkSettings":
        """The same arguments, for a query of this session."""
        return replace(self, session=session)

    def open_storage(self) -> Storage:
        """The storage of the table's folder. Does not access it yet."""
        return open_storage(self.location, self._all_storage_options(), spark=self._hadoop)

    def open_checkpoint(self, location: str) -> Checkpoint:
        """The checkpoint at a location. Looks whether it can be read if it is in an object store."""
        return open_checkpoint(location, self._all_storage_options(), self._hadoop)

    def _all_storage_options(self) -> dict[str, str]:
        """The storage options, with those of the sink's options that concern the storage."""
        given = Options(self.options)
        ours = (UNSAFE_SINGLE_WRITER, *store_options())
        named = {one.key: given[one.key] for one in ours if given.is_set(one)}
        return {**self.storage_options, **named}

    def _hadoop(self) -> Mapping[str, str]:
        """The session's options of object stores."""
        if self.session is None:
            return {}
        read = require("paimon_stream.spark.hadoop_options", "spark", "PaimonSink").hadoop_options
        found: Mapping[str, str] = read(self.session)
        return found

    @property
    def prefix(self) -> str | None:
        """`commit.user-prefix`, if it was given to the sink. The table's own option is ignored, because the
        writer's name must not change when the table is altered."""
        options = Options(self.options)
        return options.value(COMMIT_USER_PREFIX) if options.is_set(COMMIT_USER_PREFIX) else None
