"""Turns commit messages into one atomic snapshot. This runs on the driver."""
