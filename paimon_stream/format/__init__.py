"""Bytes and values of the table format. This folder does no I/O."""
