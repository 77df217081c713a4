"""Sums up the table of events in a few numbers, with an independent reader.

python kafka_check.py pypaimon|java TABLE       prints the numbers as JSON
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from flights_check import READERS
from kafka_data import ARROW_SCHEMA

SUMMED = ("id",)

if __name__ == "__main__":
    print(json.dumps(asdict(READERS[sys.argv[1]](sys.argv[2], ARROW_SCHEMA, SUMMED, "day"))))
