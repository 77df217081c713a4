"""Sums up the table of `cdc.py` in a few numbers, with readers that share no code with
paimon_stream.

python cdc_check.py pypaimon|java TABLE     prints the numbers as JSON
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from cdc_data import ARROW_SCHEMA
from flights_check import READERS

SUMMED = ("dep_delay", "arr_delay", "air_time")

if __name__ == "__main__":
    print(json.dumps(asdict(READERS[sys.argv[1]](sys.argv[2], ARROW_SCHEMA, SUMMED))))
