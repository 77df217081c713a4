"""What keeps a table healthy: expiry, tags, orphans, verification, manifest compaction."""
