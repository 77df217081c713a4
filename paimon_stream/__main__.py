"""`python -m paimon_stream`: the command line."""

from __future__ import annotations

from paimon_stream.cli import main

if __name__ == "__main__":
    main()
