"""Every option this package understands, declared once: key, type, default, what it does
(`docs/options.md` is rendered from that). Table options keep Paimon's keys and defaults; a sink may
override those in the table's schema for its own writes. Sink options start with `paimon-stream.`.
Everything else reads options through `Options`.
"""

from paimon_stream.options.checks import *  # noqa: F403 - what is defined there
from paimon_stream.options.of_sinks import *  # noqa: F403 - every option that is declared there
from paimon_stream.options.of_tables import *  # noqa: F403 - every option that is declared there
from paimon_stream.options.option import *  # noqa: F403 - what is defined there
from paimon_stream.options.store_names import is_secret as is_secret
