"""Exactly once: one stream writing batches into one table, whatever dies in between."""
