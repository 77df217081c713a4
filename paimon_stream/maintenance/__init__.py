"""Maintenance of tables: expiry, tags, orphans, verification, manifest compaction."""
