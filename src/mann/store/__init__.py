"""Taught learners that outlive the process: in a file, or in Redis for several servers at once."""

from pathlib import Path

from mann.store.base import Conflict as Conflict
from mann.store.base import Head as Head
from mann.store.base import Lesson as Lesson
from mann.store.base import Store as Store
from mann.store.base import Stored as Stored
from mann.store.base import StoreError as StoreError
from mann.store.base import Version as Version
from mann.store.learners import Gone as Gone
from mann.store.learners import Learners as Learners
from mann.store.learners import Live as Live
from mann.store.learners import Moment as Moment
from mann.store.learners import WrongFormat as WrongFormat
from mann.store.learners import is_start as is_start
from mann.store.sqlite import SQLiteStore as SQLiteStore


def open_store(address: str) -> Store:
    """The store at an address.

    Args:
        address: `redis://…` (or `rediss://…`, `unix://…`), else the path of a SQLite file.

    Raises:
        StoreError: if it cannot be used.
    """
    scheme, separator, rest = address.partition("://")
    if not separator:
        return SQLiteStore(Path(address))
    if scheme.lower() not in SCHEMES:
        names = ", ".join(f"{scheme}://…" for scheme in SCHEMES)
        raise StoreError(f"{address} is no store: give {names} for Redis, or the path of a file.")
    from mann.store.redis import RedisStore

    return RedisStore(f"{scheme.lower()}://{rest}")


SCHEMES = ("redis", "rediss", "unix")
