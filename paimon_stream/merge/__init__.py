"""Merging rows of one key into one: the engines of primary-key tables, in memory, without storage."""
