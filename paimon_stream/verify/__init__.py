"""Verification. It compares everything that a table's metadata state with the files that exist."""
