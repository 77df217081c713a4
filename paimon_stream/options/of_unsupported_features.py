"""The options of tables that this release refuses or leaves to others, with Paimon's keys and defaults."""

from paimon_stream.options.option import Option, size, switch, text, word

TABLE_TYPE = Option("type", word, "table", "Kind of table. Only ordinary tables are read and written.")
BRANCH = Option("branch", word, "main", "Set in a table, it must be the branch that is opened.")
FALLBACK_BRANCH = Option("scan.fallback-branch", text, "", "Readers also see another branch. Such tables are not read.")
PRIMARY_BRANCH = Option("scan.primary-branch", text, "", "As scan.fallback-branch, the other way round.")
DELETION_VECTORS = switch(
    "deletion-vectors.enabled",
    "Deleted rows are marked, and their files are not rewritten. Readers of tables with primary keys see rows only "
    "after a compaction.",
)
BITMAP64 = switch("deletion-vectors.bitmap64", "Deletion vectors are bitmaps of 64 bits.")
VECTORS_TARGET_SIZE = Option(
    "deletion-vector.index-file.target-size", size, "2 mb",
    "Size from which on a new file with deletion vectors is begun, in append tables without buckets.",
)  # fmt: skip
DELETION_VECTORS_MERGE_ON_READ = switch(
    "deletion-vectors.merge-on-read", "Readers merge the files of level 0 although the table has deletion vectors."
)
ROW_TRACKING = switch("row-tracking.enabled", "Rows of append tables have ids, which compactions keep.")
DATA_EVOLUTION = switch("data-evolution.enabled", "Columns may have files of their own. Such tables are only read.")
PK_CLUSTERING_OVERRIDE = switch("pk-clustering-override", "Files are not sorted by key. Such tables are refused.")
CLUSTERING_INCREMENTAL = switch("clustering.incremental", "Such tables are written, but only Java compacts them.")
LOOKUP_REMOTE_FILES = switch(
    "lookup.remote-file.enabled", "Compactions keep files for look-ups in the table. Such tables are not compacted."
)
CHAIN_TABLE = switch("chain-table.enabled", "Partitions build on each other. Such tables are not compacted.")
SNAPSHOT_ORDERING = switch("sequence.snapshot-ordering", "Rows are ordered by snapshot. Such tables are not read.")
COMMIT_CALLBACKS = Option("commit.callbacks", text, "", "Java classes. They are not called, and a warning says so.")
ICEBERG_STORAGE = Option("metadata.iceberg.storage", word, "disabled", "Warns that no Iceberg metadata is written.")
EXPLICIT_CAST = switch("write.merge-schema.explicit-cast", "Columns are only widened, and a warning says so.")
