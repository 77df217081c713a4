"""Runs the command line for `python -m paimon_stream`."""

from paimon_stream.cli import main

if __name__ == "__main__":
    main()
