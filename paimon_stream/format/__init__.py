"""Bytes and values of the table format; no I/O."""
