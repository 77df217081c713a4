"""Verification: compares everything that a table's metadata state with what exists."""
