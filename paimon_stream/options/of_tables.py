"""The options of tables, under Paimon's own keys and with its defaults; a sink may override them."""

from __future__ import annotations

from paimon_stream.options.option import (
    Option,
    boolean,
    duration,
    integer,
    levels,
    one_of,
    positive,
    size,
    text,
    word,
)

__all__ = [
    "AGGREGATION_REMOVE_ON_DELETE", "BRANCH", "BUCKET", "BUCKET_APPEND_ORDERED", "BUCKET_FUNCTION",
    "BUCKET_KEY", "CHANGELOG_FILE_COMPRESSION", "CHANGELOG_FILE_FORMAT", "CHANGELOG_FILE_PREFIX",
    "CHANGELOG_FILE_STATS", "CHANGELOG_NUM_RETAINED_MAX", "CHANGELOG_NUM_RETAINED_MIN",
    "CHANGELOG_PRODUCER", "CHANGELOG_TIME_RETAINED", "CLEAN_EMPTY_DIRECTORIES", "COMMIT_CALLBACKS",
    "COMMIT_MAX_RETRIES", "COMMIT_MAX_RETRY_WAIT", "COMMIT_MIN_RETRY_WAIT", "COMMIT_TIMEOUT",
    "COMMIT_USER_PREFIX", "COMPACTION_TRIGGER", "CONFLICT_DETECTION", "CONSUMER_CHANGELOG_ONLY",
    "DATA_EVOLUTION", "DATA_FILE_DIRECTORY", "DATA_FILE_PREFIX", "DEFAULT_AGGREGATE_FUNCTION",
    "DELETION_VECTORS", "DELETION_VECTORS_MERGE_ON_READ", "DISCARD_DUPLICATES", "DYNAMIC_OVERWRITE",
    "EXPLICIT_CAST", "EXTERNAL_PATHS", "FILE_BLOCK_SIZE", "FILE_COMPRESSION",
    "FILE_COMPRESSION_PER_LEVEL", "FILE_FORMAT", "FILE_FORMAT_PER_LEVEL", "FILE_OPERATION_THREADS",
    "FILE_SUFFIX_COMPRESSION", "FORCE_CREATE_SNAPSHOT", "ICEBERG_STORAGE", "IGNORE_DELETE",
    "IGNORE_EMPTY_COMMIT", "IGNORE_UPDATE_BEFORE", "INDEX_IN_DATA_DIR", "MANIFEST_COMPRESSION",
    "MANIFEST_DROP_DELETE_STATS", "MANIFEST_FORMAT", "MANIFEST_FULL_COMPACTION_SIZE",
    "MANIFEST_MERGE_MIN_COUNT", "MANIFEST_TARGET_SIZE", "MERGE_ENGINE", "NUM_LEVELS", "ORC_LTZ_LEGACY",
    "OVERWRITE_UPGRADE", "PARTIAL_UPDATE_REMOVE_ON_DELETE", "PARTIAL_UPDATE_REMOVE_ON_SEQUENCE_GROUP",
    "PARTITION_DEFAULT_NAME", "PARTITION_EXPIRATION_TIME", "PARTITION_LEGACY_NAME",
    "PK_CLUSTERING_OVERRIDE", "ROWKIND_FIELD", "ROW_TRACKING", "SEQUENCE_FIELD", "SEQUENCE_INIT_MODE",
    "SEQUENCE_SORT_ORDER", "SNAPSHOT_EXPIRE_LIMIT", "SNAPSHOT_EXPIRE_MODE", "SNAPSHOT_NUM_RETAINED_MAX",
    "SNAPSHOT_NUM_RETAINED_MIN", "SNAPSHOT_ORDERING", "SNAPSHOT_TIME_RETAINED", "STATS_DENSE",
    "STATS_FIRST_N", "STATS_MODE", "STATS_MODE_PER_LEVEL", "STOP_TRIGGER", "STRICT_MODE", "TABLE_TYPE",
    "TAG_AUTOMATIC_CREATION", "TAG_TIME_RETAINED", "TARGET_FILE_SIZE", "THIN_MODE", "WRITE_ONLY",
    "ZSTD_LEVEL",
]  # fmt: skip

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

# What this release refuses, or leaves to others

TABLE_TYPE = Option("type", word, "table", "What the table is; only ordinary tables are read and written.")
BRANCH = Option("branch", word, "main", "The branch that is read and written; only main is.")
EXTERNAL_PATHS = Option(
    "data-file.external-paths", text, "", "Data files lie outside of the table: such tables are refused."
)
DELETION_VECTORS = Option(
    "deletion-vectors.enabled",
    boolean,
    "false",
    "Deleted rows are marked instead of being rewritten. Append tables that have them are refused; tables "
    "with primary keys are written where another job compacts (write-only).",
)
DELETION_VECTORS_MERGE_ON_READ = Option(
    "deletion-vectors.merge-on-read", boolean, "false", "Readers merge files of level 0 in spite of vectors."
)
ROW_TRACKING = Option("row-tracking.enabled", boolean, "false", "Rows have ids: such tables are refused.")
DATA_EVOLUTION = Option(
    "data-evolution.enabled", boolean, "false", "Columns in files of their own: such tables are refused."
)
PK_CLUSTERING_OVERRIDE = Option(
    "pk-clustering-override", boolean, "false", "Files are not sorted by their key: such tables are refused."
)
SNAPSHOT_ORDERING = Option(
    "sequence.snapshot-ordering", boolean, "false", "Rows are ordered by snapshot: such tables are not read."
)
COMMIT_CALLBACKS = Option(
    "commit.callbacks", text, "", "Java classes, which are not called; a warning says so."
)
ICEBERG_STORAGE = Option(
    "metadata.iceberg.storage", word, "disabled", "No Iceberg metadata is written; a warning says so."
)
EXPLICIT_CAST = Option(
    "write.merge-schema.explicit-cast",
    boolean,
    "false",
    "Columns are only widened, never cast to less; a warning says so.",
)
TAG_AUTOMATIC_CREATION = Option(
    "tag.automatic-creation",
    one_of("none", "process-time", "watermark", "batch"),
    "none",
    "No tag is made by a commit; a warning says so.",
)
PARTITION_EXPIRATION_TIME = Option(
    "partition.expiration-time", duration, None, "No partition expires by a commit; a warning says so."
)

# How rows of one key are merged

MERGE_ENGINE = Option(
    "merge-engine",
    one_of("deduplicate", "partial-update", "aggregation", "first-row"),
    "deduplicate",
    "What becomes of rows of one key.",
)
SEQUENCE_FIELD = Option(
    "sequence.field",
    text,
    "",
    "Columns that order rows of one key, comma separated; their order of arrival else.",
)
SEQUENCE_SORT_ORDER = Option(
    "sequence.field.sort-order",
    one_of("ascending", "descending"),
    "ascending",
    "Whether the largest or the smallest value of sequence.field is the newest.",
)
IGNORE_DELETE = Option(
    "ignore-delete",
    boolean,
    "false",
    "-D rows change nothing.",
    aliases=("first-row.ignore-delete", "deduplicate.ignore-delete", "partial-update.ignore-delete"),
)
DEFAULT_AGGREGATE_FUNCTION = Option(
    "fields.default-aggregate-function", text, None, "The aggregate function of columns without their own."
)
AGGREGATION_REMOVE_ON_DELETE = Option(
    "aggregation.remove-record-on-delete",
    boolean,
    "false",
    "A -D row deletes the row in spite of aggregates.",
)
PARTIAL_UPDATE_REMOVE_ON_DELETE = Option(
    "partial-update.remove-record-on-delete", boolean, "false", "A -D row deletes the row, not single values."
)
PARTIAL_UPDATE_REMOVE_ON_SEQUENCE_GROUP = Option(
    "partial-update.remove-record-on-sequence-group",
    text,
    "",
    "Columns, comma separated, whose sequence groups delete the row by a -D row.",
)
