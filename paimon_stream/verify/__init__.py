"""Verification: everything that a table's metadata state is compared with what exists."""
