"""Declares every option that this package understands, each of them once: its key, type and
default, and what it does (`docs/options.md` is rendered from these declarations). Table options
keep Paimon's keys and defaults. For its own writes, a sink may override the options in the table's
schema. Sink options start with `paimon-stream.`. All other code reads options through `Options`.
"""

from paimon_stream.options.checks import *  # noqa: F403 - what is defined there
from paimon_stream.options.of_sinks import *  # noqa: F403 - every option that is declared there
from paimon_stream.options.of_tables import *  # noqa: F403 - every option that is declared there
from paimon_stream.options.option import *  # noqa: F403 - what is defined there
from paimon_stream.options.store_names import is_secret as is_secret
