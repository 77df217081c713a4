"""Reporters, which are informed of each batch."""
