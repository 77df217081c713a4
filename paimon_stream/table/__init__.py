"""A table on a storage: its schemas, snapshots, manifests and live files."""
