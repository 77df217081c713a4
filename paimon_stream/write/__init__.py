"""From Arrow batches to data files and commit messages; runs on executors."""
