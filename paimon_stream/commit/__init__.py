"""From commit messages to one atomic snapshot; runs on the driver."""
