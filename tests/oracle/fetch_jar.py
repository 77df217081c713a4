"""Sees to it that the jar of Java Paimon is there: once, ahead of what uses it.

Says in one line why it cannot be had; only with PAIMON_REQUIRE_ORACLE=1 is that a failure.
"""

import os
import sys

from java_paimon import OracleUnavailable, bundle_jar

try:
    bundle_jar()
except OracleUnavailable as why:
    reason = str(why).splitlines()[0]
    print(f"Java Paimon cannot check our tables here: {reason}", file=sys.stderr)
    if os.environ.get("PAIMON_REQUIRE_ORACLE") == "1":
        sys.exit(1)
