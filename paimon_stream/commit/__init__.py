"""Turns commit messages into one atomic snapshot. Runs on the driver."""
