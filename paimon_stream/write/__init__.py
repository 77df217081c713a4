"""Writes Arrow batches to data files and makes their commit messages; runs on executors."""
