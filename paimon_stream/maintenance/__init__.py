"""Maintenance of tables: expiry, tags, orphans, rollback, manifest compaction."""
