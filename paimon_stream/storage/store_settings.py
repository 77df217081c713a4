"""What `ObjectStorage` needs to know of a store.

`store_sources` makes it from a location and options; `store_open.open_store` opens the store in a process.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StoreSettings:
    """The settings of one store, with everything that an executor needs to open it.

    Pickles hold secrets, so they go to executors only. `repr` shows none. `kind` is the class of obstore:
    `s3`, `gcs` or `azure`. `location` is the root as a user wrote it, without credentials and without a slash
    at its end. `bucket` is the bucket or the container, `prefix` the root's key in it, never empty. `config`
    has keys of obstore's configuration of that class, `client` its client options. `profile` is the AWS
    profile whose credentials boto3 finds and refreshes. `max_retries` is for requests that may be repeated,
    `max_outage_millis` for a store that is down after it has answered. `role` has the arguments of the AWS
    role to assume with these credentials, empty if there is none.
    """

    kind: str
    location: str
    bucket: str
    prefix: str
    config: Mapping[str, str] = field(hash=False)
    client: Mapping[str, Any] = field(hash=False)
    profile: str | None
    max_retries: int
    max_outage_millis: int = 0
    role: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __repr__(self) -> str:
        return f"StoreSettings({self.location!r})"
