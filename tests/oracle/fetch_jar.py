"""Fetches the jars of Java Paimon once, before the tests that use them.

If they cannot be fetched, one line gives the reason. That is a failure only with PAIMON_REQUIRE_ORACLE=1."""

import os
import sys
from pathlib import Path

from java_paimon import OracleUnavailable, bundle_jar, database_jars, s3_jar

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.servers.rest_paimon import RestUnavailable, jars

try:
    bundle_jar()
    s3_jar()
    database_jars()
    jars()
except (OracleUnavailable, RestUnavailable) as why:
    reason = str(why).splitlines()[0]
    print(f"Java Paimon cannot check our tables here: {reason}", file=sys.stderr)
    if os.environ.get("PAIMON_REQUIRE_ORACLE") == "1":
        sys.exit(1)
