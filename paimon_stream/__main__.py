"""`python -m paimon_stream`: the command line."""

from paimon_stream.cli import main

if __name__ == "__main__":
    main()
