"""Every option this package understands, declared once: key, type, default, what it does (`docs/options.md` is rendered
from that). Table options keep Paimon's keys and defaults; a sink may override those in the table's schema for its own
writes. Sink options start with `paimon-stream.`. Everything else reads options through `Options`."""

from paimon_stream.options.checks import LONG as LONG
from paimon_stream.options.checks import Arguments as Arguments
from paimon_stream.options.checks import check_sink_options as check_sink_options
from paimon_stream.options.checks import check_table_options as check_table_options
from paimon_stream.options.checks import compaction_options as compaction_options
from paimon_stream.options.checks import did_you_mean as did_you_mean
from paimon_stream.options.checks import integer_of as integer_of
from paimon_stream.options.checks import sink_options as sink_options
from paimon_stream.options.checks import store_options as store_options
from paimon_stream.options.checks import table_options as table_options
from paimon_stream.options.of_compaction import *  # noqa: F403 - every option that is declared there
from paimon_stream.options.of_sinks import *  # noqa: F403 - every option that is declared there
from paimon_stream.options.of_stores import *  # noqa: F403 - every option that is declared there
from paimon_stream.options.of_tables import *  # noqa: F403 - every option that is declared there
from paimon_stream.options.of_unsupported_features import *  # noqa: F403 - every option that is declared there
from paimon_stream.options.option import SINK_PREFIX as SINK_PREFIX
from paimon_stream.options.option import Option as Option
from paimon_stream.options.option import Options as Options
from paimon_stream.options.option import boolean as boolean
from paimon_stream.options.option import folded as folded
from paimon_stream.options.option import integer as integer
from paimon_stream.options.option import lowered as lowered
from paimon_stream.options.store_names import is_secret as is_secret
