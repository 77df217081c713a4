"""A table on a storage: schemas, snapshots, manifests, live files."""
