"""The options of this package for object stores. Storage options and a sink's options may hold them."""

from paimon_stream.options.option import Option, between, boolean, duration, positive, switch


def _millis(text: str) -> int:
    """Milliseconds of a duration, at least one."""
    return positive(str(duration(text)))


STORE_TIMEOUT = Option(
    "paimon-stream.store.timeout", _millis, "10 s",
    "Object stores: how long a request with less than 1 MiB may take. Others may take six times as long.",
)  # fmt: skip
STORE_CONNECT_TIMEOUT = Option("paimon-stream.store.connect-timeout", _millis, "5 s", "Object stores: time to connect.")
STORE_MAX_RETRIES = Option(
    "paimon-stream.store.max-retries", between(0, 100, "must be from 0 to 100"), "8",
    "Object stores: how often a failed request that can be repeated is repeated. The put that publishes a "
    "snapshot is not among them; commit.max-retries applies to it.",
)  # fmt: skip
STORE_MAX_OUTAGE = Option(
    "paimon-stream.store.max-outage", duration, "10 min",
    "Object stores: how long a job waits for a store that is down, if it has answered the job before.",
)  # fmt: skip
STORE_ALLOW_HTTP = switch(
    "paimon-stream.store.allow-http",
    "Object stores: allow an endpoint without TLS on another machine. Anybody on the way can then read the "
    "rows and the session token.",
)
STORE_FROM_SPARK = Option(
    "paimon-stream.store.from-spark", boolean, "true",
    "Object stores: if storage options do not say it, take endpoint and credentials from Spark's own "
    "configuration, fs.s3a.*, fs.azure.* and fs.gs.*.",
)  # fmt: skip
