"""Exactly once: one stream writes batches into one table, whatever fails in between."""
