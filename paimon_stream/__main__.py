"""Runs the command line, as `python -m paimon_stream`."""

from paimon_stream.cli import main

if __name__ == "__main__":
    main()
