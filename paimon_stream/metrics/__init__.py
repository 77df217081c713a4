"""Reporters: they are informed of each batch."""
