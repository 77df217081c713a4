"""Rewrites the small files of a table into fewer, larger ones, without changing a row
(compaction.md).
"""
