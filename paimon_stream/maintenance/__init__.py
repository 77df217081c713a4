"""Maintenance of tables: expiry, tags, removal of orphans, rollback, branches, and the compaction
of manifests.
"""
