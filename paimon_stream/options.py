"""Every option this package understands, declared once: key, type, default, what it does.

Table options keep Paimon's keys and defaults and live in the table's schema; a sink may override them
for its own writes. Sink options start with `paimon-stream.`. `Options` is what everything else reads;
`docs/options.md` is rendered from these tables.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from paimon_stream.errors import InvalidOption, PaimonStreamError

__all__ = ["Option", "Options", "Scope", "SINK_PREFIX", "sink_options", "table_options"]

T = TypeVar("T")

SINK_PREFIX: Final = "paimon-stream."


class Scope(Enum):
    """Where an option belongs."""

    TABLE = "table"
    SINK = "sink"


@dataclass(frozen=True, slots=True)
class Option(Generic[T]):
    """One option. `default` is written as users write it, None where there is none."""

    key: str
    parse: Callable[[str], T]
    default: str | None
    doc: str
    scope: Scope = Scope.TABLE
    aliases: tuple[str, ...] = ()


_ROW_KINDS: Final = ("+I", "-U", "+U", "-D")
_SIZE = re.compile(r"\s*(\d+)\s*([a-z]*)\s*", re.IGNORECASE)
_SIZE_UNITS: Final = {
    "": 1, "b": 1, "bytes": 1,
    "k": 2**10, "kb": 2**10, "kibibytes": 2**10,
    "m": 2**20, "mb": 2**20, "mebibytes": 2**20,
    "g": 2**30, "gb": 2**30, "gibibytes": 2**30,
    "t": 2**40, "tb": 2**40, "tebibytes": 2**40,
}  # fmt: skip
_TIME_UNITS: Final = {
    "": 1, "ms": 1, "milli": 1, "millis": 1, "millisecond": 1, "milliseconds": 1,
    "s": 1000, "sec": 1000, "secs": 1000, "second": 1000, "seconds": 1000,
    "m": 60_000, "min": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip


def _with_unit(text: str, units: Mapping[str, int], what: str, example: str) -> int:
    found = _SIZE.fullmatch(text)
    if not found or found[2].lower() not in units:
        raise ValueError(f"not a {what} such as {example!r}")
    return int(found[1]) * units[found[2].lower()]


def size(text: str) -> int:
    """Bytes of a size such as `128 mb`."""
    return _with_unit(text, _SIZE_UNITS, "size", "128 mb")


def duration(text: str) -> int:
    """Milliseconds of a duration such as `1 h`."""
    return _with_unit(text, _TIME_UNITS, "duration", "10 min")


def boolean(text: str) -> bool:
    """`true` or `false`."""
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("not true or false")
    return text.strip().lower() == "true"


def integer(text: str) -> int:
    """A whole number."""
    try:
        return int(text.strip())
    except ValueError:
        raise ValueError("not a whole number such as '4'") from None


def positive(text: str) -> int:
    """A whole number above zero."""
    number = integer(text)
    if number < 1:
        raise ValueError("must be at least 1")
    return number


def text(value: str) -> str:
    """Any text, as it is."""
    return value


def levels(value: str) -> Mapping[int, str]:
    """Words by level: `0:avro,5:parquet`."""
    pairs = [one.split(":") for one in value.split(",") if one.strip()]
    if not all(len(pair) == 2 and pair[0].strip().isdigit() for pair in pairs):
        raise ValueError("not a list such as '0:avro,5:parquet'")
    return {int(level): word.strip() for level, word in pairs}


def one_of(*choices: str) -> Callable[[str], str]:
    """One of these words."""

    def parse(value: str) -> str:
        if value.strip().lower() not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return value.strip().lower()

    return parse


def _merge_mode(value: str) -> str:
    """`off`, `add` or `widen`, or `true` or `false` as Paimon's own option has it."""
    word = value.strip().lower()
    return one_of("off", "add", "widen")({"true": "widen", "false": "off"}.get(word, word))


def _operation_mapping(value: str) -> Mapping[str, str]:
    """Row kinds by token: `c=+I,u=+U,d=-D`."""
    pairs = [one.split("=") for one in value.split(",") if one.strip()]
    if not pairs or not all(len(pair) == 2 and pair[1].strip() in _ROW_KINDS for pair in pairs):
        raise ValueError("not a list such as 'c=+I,u=+U,d=-D'; the kinds are +I, -U, +U and -D")
    return {token.strip(): kind.strip() for token, kind in pairs}


# -- table options ------------------------------------------------------------------------------

BUCKET = Option("bucket", integer, "-1", "Number of buckets; -1 for none.")
BUCKET_KEY = Option("bucket-key", text, None, "Columns rows are bucketed by, comma separated.")
BUCKET_FUNCTION = Option(
    "bucket-function.type", one_of("default", "mod", "hive"), "default", "How a key becomes a bucket."
)
FILE_FORMAT = Option("file.format", text, "parquet", "Format of data files.")
FILE_COMPRESSION = Option("file.compression", text, "zstd", "Compression of data files.")
ZSTD_LEVEL = Option("file.compression.zstd-level", integer, "1", "Level of zstd, data files and manifests.")
FILE_BLOCK_SIZE = Option(
    "file.block-size", size, None, "Largest size of a Parquet row group or an ORC stripe."
)
ORC_LTZ_LEGACY = Option(
    "orc.timestamp-ltz.legacy.type",
    boolean,
    "true",
    "Java moves timestamps with local time zone in ORC files by its own zone; must be false to write them.",
)
FILE_SUFFIX_COMPRESSION = Option(
    "file.suffix.include.compression", boolean, "false", "Name the compression in data file names."
)
DATA_FILE_PREFIX = Option("data-file.prefix", text, "data-", "How data file names begin.")
DATA_FILE_DIRECTORY = Option(
    "data-file.path-directory", text, None, "Folder between the table and the partitions."
)
FILE_FORMAT_PER_LEVEL = Option(
    "file.format.per.level",
    levels,
    "",
    "Formats of single levels of tables with primary keys: 0:avro,5:parquet.",
)
FILE_COMPRESSION_PER_LEVEL = Option(
    "file.compression.per.level", levels, "", "Compressions of single levels of tables with primary keys."
)
STATS_MODE_PER_LEVEL = Option(
    "metadata.stats-mode.per.level", levels, "", "Statistics of single levels of tables with primary keys."
)
THIN_MODE = Option(
    "data-file.thin-mode", boolean, "false", "Files of tables with primary keys hold their keys once only."
)
CHANGELOG_PRODUCER = Option(
    "changelog-producer",
    one_of("none", "input", "lookup", "full-compaction"),
    "none",
    "Whether changelog files are written: input writes the changes as they come; lookup and full-compaction "
    "leave it to the job that compacts.",
)
CHANGELOG_FILE_PREFIX = Option("changelog-file.prefix", text, "changelog-", "How changelog file names begin.")
CHANGELOG_FILE_FORMAT = Option("changelog-file.format", text, None, "Format of changelog files.")
CHANGELOG_FILE_COMPRESSION = Option(
    "changelog-file.compression", text, None, "Compression of changelog files."
)
CHANGELOG_FILE_STATS = Option(
    "changelog-file.stats-mode", text, None, "Statistics kept of changelog files' columns."
)
ROWKIND_FIELD = Option(
    "rowkind.field", text, None, "The column that holds each row's kind: +I, -U, +U or -D."
)
IGNORE_UPDATE_BEFORE = Option("ignore-update-before", boolean, "false", "Drop -U rows.")
TARGET_FILE_SIZE = Option(
    "target-file-size",
    size,
    None,
    "A data file is closed at this size; 256 mb in append tables, 128 mb in tables with primary keys.",
)
STATS_MODE = Option("metadata.stats-mode", text, "truncate(16)", "Statistics kept of each column.")
STATS_DENSE = Option("metadata.stats-dense-store", boolean, "true", "Leave out columns without statistics.")
STATS_FIRST_N = Option(
    "metadata.stats-keep-first-n-columns", integer, "-1", "Keep statistics of that many columns only."
)
PARTITION_DEFAULT_NAME = Option(
    "partition.default-name", text, "__DEFAULT_PARTITION__", "Folder of null and blank partition values."
)
PARTITION_LEGACY_NAME = Option(
    "partition.legacy-name", boolean, "true", "Render dates and times in folders as Paimon 0.x did."
)
MANIFEST_COMPRESSION = Option("manifest.compression", text, "zstd", "Avro codec of manifests.")
MANIFEST_FORMAT = Option("manifest.format", one_of("avro"), "avro", "Format of manifests.")
MANIFEST_TARGET_SIZE = Option(
    "manifest.target-file-size",
    size,
    "8 mb",
    "A manifest is closed at this size, and smaller ones are merged up to it.",
    aliases=("manifest-target-size",),
)
MANIFEST_MERGE_MIN_COUNT = Option(
    "manifest.merge-min-count",
    positive,
    "30",
    "So many small manifests are merged into one.",
    aliases=("manifest-merge-min-count",),
)
MANIFEST_FULL_COMPACTION_SIZE = Option(
    "manifest.full-compaction-threshold-size",
    size,
    "16 mb",
    "All changed manifests are rewritten once they reach this size together.",
    aliases=("manifest-full-compaction-size",),
)
MANIFEST_DROP_DELETE_STATS = Option(
    "manifest.delete-file-drop-stats", boolean, "false", "Keep no statistics of deleted files."
)
COMMIT_USER_PREFIX = Option("commit.user-prefix", text, None, "How generated commit users begin.")
COMMIT_TIMEOUT = Option(
    "commit.timeout",
    duration,
    "10 min",
    "Retries of a commit end after this long. (Java has no limit.)",
    aliases=("commit-timeout",),
)
COMMIT_MAX_RETRIES = Option(
    "commit.max-retries", integer, "10", "Retries of a commit.", aliases=("commit-max-retries",)
)
COMMIT_MIN_RETRY_WAIT = Option("commit.min-retry-wait", duration, "10 ms", "First wait between retries.")
COMMIT_MAX_RETRY_WAIT = Option("commit.max-retry-wait", duration, "10 s", "Longest wait between retries.")
IGNORE_EMPTY_COMMIT = Option(
    "snapshot.ignore-empty-commit", boolean, "true", "A batch without rows makes no snapshot."
)
FORCE_CREATE_SNAPSHOT = Option(
    "commit.force-create-snapshot", boolean, "false", "Make a snapshot of a batch without rows, too."
)
DYNAMIC_OVERWRITE = Option(
    "dynamic-partition-overwrite",
    boolean,
    "true",
    "An overwrite that names no partition replaces the partitions that get rows, not the whole table.",
)
OVERWRITE_UPGRADE = Option(
    "overwrite-upgrade",
    boolean,
    "true",
    "Files with which an overwrite replaces a bucket of a table with a primary key come to its top level, if "
    "they share no key, so that readers need not merge them.",
)
NUM_LEVELS = Option(
    "num-levels",
    positive,
    None,
    "Levels of a bucket of a table with a primary key; if it is not set, one more than "
    "num-sorted-run.compaction-trigger.",
)
STRICT_MODE = Option(
    "commit.strict-mode.last-safe-snapshot",
    integer,
    None,
    "Fail if another user compacted or overwrote after this snapshot; -1 for the latest at the first commit.",
)
DISCARD_DUPLICATES = Option(
    "commit.discard-duplicate-files",
    boolean,
    "false",
    "An append leaves out files that are in the table already, instead of failing; it is then checked as a "
    "replay is.",
)
SNAPSHOT_TIME_RETAINED = Option(
    "snapshot.time-retained", duration, "1 h", "Snapshots are kept at least this long."
)
SNAPSHOT_NUM_RETAINED_MIN = Option(
    "snapshot.num-retained.min", positive, "10", "At least so many snapshots are kept."
)
SNAPSHOT_NUM_RETAINED_MAX = Option(
    "snapshot.num-retained.max", positive, "2147483647", "At most so many snapshots are kept, however young."
)
SNAPSHOT_EXPIRE_LIMIT = Option(
    "snapshot.expire.limit", positive, "50", "At most so many snapshots expire at once."
)
SNAPSHOT_EXPIRE_MODE = Option(
    "snapshot.expire.execution-mode",
    one_of("sync", "async"),
    "sync",
    "Whether a batch waits for the expiry after its commit, for 10 seconds at most, or not at all.",
)
CLEAN_EMPTY_DIRECTORIES = Option(
    "snapshot.clean-empty-directories",
    boolean,
    "false",
    "Expiry deletes bucket and partition folders that it has emptied.",
    aliases=("snapshot.expire.clean-empty-directories",),
)
CHANGELOG_NUM_RETAINED_MIN = Option(
    "changelog.num-retained.min", positive, None, "Paimon's; more than that of snapshots: they do not expire."
)
CHANGELOG_NUM_RETAINED_MAX = Option(
    "changelog.num-retained.max", positive, None, "Paimon's; more than that of snapshots: they do not expire."
)
CHANGELOG_TIME_RETAINED = Option(
    "changelog.time-retained", duration, None, "Paimon's; longer than that of snapshots: they do not expire."
)
CONSUMER_CHANGELOG_ONLY = Option(
    "consumer.changelog-only", boolean, "false", "Consumers hold back changelog only, not snapshots."
)
TAG_TIME_RETAINED = Option(
    "tag.default-time-retained", duration, None, "How long a new tag is kept; for ever, if not set."
)
FILE_OPERATION_THREADS = Option(
    "file-operation.thread-num",
    positive,
    "8",
    "So many threads delete files when many are deleted.",
    aliases=("delete-file.thread-num",),
)
INDEX_IN_DATA_DIR = Option(
    "index-file-in-data-file-dir", boolean, "false", "Index files lie beside the data files."
)
CONFLICT_DETECTION = Option(
    "conflict-detection-mode",
    one_of("none", "value", "row_incremental"),
    "value",
    "Which conflict checks a commit makes. value: all that apply, on files read anew for each commit; "
    "row_incremental: the same, but from one commit to the next only what was committed between is read; "
    "none: appends are checked for their bucket count only. What takes files away is always checked.",
)
SEQUENCE_INIT_MODE = Option(
    "write.sequence-number-init-mode",
    one_of("scan", "snapshot"),
    "scan",
    "With snapshot, each snapshot of a table with a primary key tells the largest sequence number, for "
    "writers that begin.",
)
STOP_TRIGGER = Option(
    "num-sorted-run.stop-trigger",
    positive,
    None,
    "With more files of level 0 than that in a bucket, three more than num-sorted-run.compaction-trigger if "
    "it is not set, a stream warns that nobody compacts.",
)
COMPACTION_TRIGGER = Option(
    "num-sorted-run.compaction-trigger",
    positive,
    "5",
    "So many sorted runs in a bucket make Java compact it; see num-sorted-run.stop-trigger.",
)
WRITE_ONLY = Option("write-only", boolean, "false", "Other jobs compact and expire.")
BUCKET_APPEND_ORDERED = Option(
    "bucket-append-ordered", boolean, "true", "Readers keep the order of files in a bucket."
)

# -- sink options -------------------------------------------------------------------------------

_DECIDE: Final = one_of("fail", "continue")

ON_CHECKPOINT_RESET = Option(
    "paimon-stream.on-checkpoint-reset",
    _DECIDE,
    "fail",
    "What to do when a new checkpoint continues where another one wrote, or a checkpoint was rewound.",
    Scope.SINK,
)
ON_UNKNOWN_HISTORY = Option(
    "paimon-stream.on-unknown-history",
    _DECIDE,
    "fail",
    "What to do when the snapshots that would tell whether a batch was committed are gone.",
    Scope.SINK,
)
ON_TABLE_CHANGE = Option(
    "paimon-stream.on-table-change",
    _DECIDE,
    "fail",
    "What to do when the table was replaced or rolled back under the stream.",
    Scope.SINK,
)
JOURNAL = Option(
    "paimon-stream.journal",
    boolean,
    "true",
    "Note prepared files before each commit, so that a restart can reuse or remove them.",
    Scope.SINK,
)
JOURNAL_REUSE = Option(
    "paimon-stream.journal.reuse",
    boolean,
    "true",
    "Commit the files a killed run prepared, instead of writing them again.",
    Scope.SINK,
)
SHUFFLE = Option(
    "paimon-stream.shuffle",
    one_of("auto", "bucket", "none"),
    "auto",
    "How rows come to the tasks that write them: bucket gathers each bucket in one task (fewer, larger "
    "files, for the price of a shuffle), none leaves them where they are. auto gathers rows of tables with "
    "primary keys; of others only where the batch before left at least four files, and small ones, for each "
    "partition and bucket it had.",
    Scope.SINK,
)
SMALL_BATCH = Option(
    "paimon-stream.small-batch",
    one_of("auto", "off"),
    "auto",
    "Where the last batches were small (16 MB at most and 65,536 rows; 262,144 of a table with partitions, "
    "buckets or a primary key, where tasks would write more files), the driver writes the next one, which "
    "costs no Python worker; a larger one goes to the tasks as ever, and no more than 128 MB of rows come to "
    "the driver. Not for queries with state, nor on Spark Connect. off: tasks write all.",
    Scope.SINK,
)
ON_SEQUENCE_CONFLICT = Option(
    "paimon-stream.on-sequence-conflict",
    one_of("rewrite", "fail", "ignore"),
    "rewrite",
    "What to do when another writer has added rows to a bucket of a table with a primary key under the "
    "sequence numbers that this batch has used: rewrite (the batch is written again above them), fail, or "
    "ignore (which of two rows of a key stays is then left to chance). Not asked with sequence.field.",
    Scope.SINK,
)
OPERATION_COLUMN = Option(
    "paimon-stream.operation-column",
    text,
    None,
    "A column of the rows, not of the table, that says what each row does to its key; see "
    "paimon-stream.operation-mapping.",
    Scope.SINK,
)
OPERATION_MAPPING = Option(
    "paimon-stream.operation-mapping",
    _operation_mapping,
    None,
    "What the values of the operation column mean: c=+I,u=+U,d=-D. By default +I, -U, +U, -D; I, U, D; "
    "Debezium's c, u, d, r; insert, update, delete, also in capitals.",
    Scope.SINK,
)
COMMIT_GUARD = Option(
    "paimon-stream.commit.guard",
    one_of("probe", "trust"),
    "probe",
    "Prove at the start that the storage creates files atomically, or trust that it does.",
    Scope.SINK,
)
MERGE_SCHEMA = Option(
    "paimon-stream.merge-schema",
    _merge_mode,
    "off",
    "What becomes of columns that the table does not have: off (an error), add (they are added to the table, "
    "nullable), widen (and columns of a wider type widen the table's). `write.merge-schema` takes true for "
    "widen and false for off.",
    Scope.SINK,
    aliases=("write.merge-schema",),
)
PROTECT_LAST_SNAPSHOT = Option(
    "paimon-stream.protect-last-snapshot",
    one_of("none", "consumer"),
    "none",
    "With 'consumer', a consumer file keeps all engines from expiring the stream's last snapshot, and all "
    "after it, until the stream goes on.",
    Scope.SINK,
)
UNSAFE_SINGLE_WRITER = Option(
    "paimon-stream.unsafe-single-writer",
    boolean,
    "false",
    "Publish on a storage that cannot create files atomically; safe with one writer only.",
    Scope.SINK,
)


def table_options() -> tuple[Option[Any], ...]:
    """All declared table options."""
    return tuple(o for o in globals().values() if isinstance(o, Option) and o.scope is Scope.TABLE)


def sink_options() -> tuple[Option[Any], ...]:
    """All declared sink options."""
    return tuple(o for o in globals().values() if isinstance(o, Option) and o.scope is Scope.SINK)


class Options(Mapping[str, str]):
    """The options in force: a table's, overridden by those given for one writer.

    Keys are looked up regardless of case. Reading a declared option gives its typed value:
    `options[TARGET_FILE_SIZE.key]` is the text, `options.value(TARGET_FILE_SIZE)` the bytes. `location` is
    the table's, for messages.
    """

    __slots__ = ("_location", "_raw")

    def __init__(
        self, table: Mapping[str, str], overrides: Mapping[str, str] | None = None, location: str = ""
    ) -> None:
        self._raw = {**_lower(table), **_lower(overrides or {})}
        self._location = location

    def value(self, option: Option[T]) -> T:
        """The typed value, or the default. Raises `InvalidOption` for a text that does not parse, and
        for an option without a default that is not set (ask `is_set` first)."""
        raw = self._text(option)
        if raw is None:
            raise self._invalid(f"Option {option.key!r} is needed and not set.", option=option.key)
        try:
            return option.parse(raw)
        except ValueError as why:
            text = f"Option {option.key!r} is {raw!r}: {why}."
            raise self._invalid(text, option=option.key, value=raw) from None

    def _invalid(self, message: str, **context: str) -> PaimonStreamError:
        error = InvalidOption(message, **context)
        return error.at(self._location) if self._location else error

    def is_set(self, option: Option[Any]) -> bool:
        """Whether the option has a value of its own."""
        return any(key in self._raw for key in (option.key, *option.aliases))

    def _text(self, option: Option[Any]) -> str | None:
        for key in (option.key, *option.aliases):
            if key in self._raw:
                return self._raw[key]
        return option.default

    def __getitem__(self, key: str) -> str:
        return self._raw[key.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def __repr__(self) -> str:
        return f"Options({', '.join(sorted(self._raw))})"


def _lower(options: Mapping[str, str]) -> dict[str, str]:
    return {str(key).lower(): _as_text(value) for key, value in options.items()}


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# Keys of Paimon that this package passes through because they concern readers or other writers, by
# prefix. Anything outside these and the declared ones is unknown: one warning, never silence.
_FOREIGN_PREFIXES: Final = (
    "fields.", "file-index.", "parquet.", "orc.", "avro.", "changelog", "compaction.", "consumer",
    "deletion-vector", "dynamic-bucket.", "full-compaction.", "local-merge", "lookup", "metastore.",
    "num-", "partition.", "postpone.", "read.", "record-level.", "row-tracking.", "scan.", "sequence.",
    "sink.", "snapshot.", "sort-", "source.", "spill-", "streaming", "tag.", "write", "aggregation.",
    "partial-update.", "first-row.", "deduplicate.", "cross-partition-upsert.", "data-evolution.",
    "data-file.", "file.", "manifest", "commit.", "metadata.", "clustering.",
)  # fmt: skip
_PAIMON_ALIASES: Final = {"snapshot.expire.clean-empty-directories", "delete-file.thread-num"}
_FOREIGN_KEYS: Final = {
    "type", "path", "branch", "primary-key", "partition", "bucket-key", "merge-engine", "ignore-delete",
    "ignore-update-before", "rowkind.field", "sequence.field", "owner", "async-file-write", "upsert-key",
    "force-lookup", "incremental-between",
    "alter-column-null-to-not-null.disabled", "disable-explicit-type-casting",
    "add-column-before-partition", "file-operation.thread-num", "delete-file.thread-num",
    "index-file-in-data-file-dir", "end-input.check-partition-expire", "auto-create", "provider",
    "target-file-row-num", "comment", "created-at",
}  # fmt: skip


def check_sink_options(given: Mapping[str, str]) -> None:
    """Raises `InvalidOption` for sink options that do not exist, with the nearest that does, or do not
    parse; warns once for table options that nobody knows."""
    known = {option.key: option for option in sink_options()}
    aliases = {alias: option for option in sink_options() for alias in option.aliases}
    for key, value in _lower(given).items():
        if key.startswith(SINK_PREFIX):
            if key not in known:
                raise InvalidOption(_unknown(key, known), option=key)
            Options({key: value}).value(known[key])
        elif SINK_PREFIX + key in known:
            raise InvalidOption(
                f"Option {key!r} lacks its prefix. Write {SINK_PREFIX + key!r}.", option=key, value=value
            )
        elif key in aliases:
            Options({key: value}).value(aliases[key])
    check_table_options({k: v for k, v in given.items() if not k.lower().startswith(SINK_PREFIX)})


def check_table_options(given: Mapping[str, str]) -> None:
    """Raises `InvalidOption` for declared table options that do not parse; warns of unknown ones, and
    of the aliases that Paimon itself does not know."""
    known = {option.key: option for option in table_options()}
    aliases = {alias: option for option in table_options() for alias in option.aliases}
    ours = {option.key for option in sink_options()}
    for key, value in _lower(given).items():
        if key.startswith(SINK_PREFIX) or SINK_PREFIX + key in ours:
            name = key if key.startswith(SINK_PREFIX) else SINK_PREFIX + key
            raise InvalidOption(
                f"Option {key!r} belongs to a sink, not to a table. Give it to PaimonSink: "
                f"options={{{name!r}: {value!r}}}.",
                option=key,
                value=value,
            )
        if key in known:
            Options({key: value}).value(known[key])
        elif key in aliases:
            Options({key: value}).value(aliases[key])
            if key in _PAIMON_ALIASES:
                continue
            warnings.warn(
                f"Option {key!r} is read as {aliases[key].key!r}; Paimon itself only knows that name.",
                stacklevel=3,
            )
        elif key not in _FOREIGN_KEYS and not key.startswith(_FOREIGN_PREFIXES):
            others = {**known, **dict.fromkeys(_FOREIGN_KEYS)}
            warnings.warn(_unknown(key, others) + " It is kept, and has no effect here.", stacklevel=3)


def _unknown(key: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    return f"Unknown option {key!r}." + (f" Did you mean {near[0]!r}?" if near else "")
