"""Learners in one SQLite file: what was acknowledged is on the disk, whatever happens to the process."""

import contextlib
import json
import os
import queue
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from mann.store.base import Conflict, Head, Lesson, Stored, StoreError, Version

APPLICATION = int.from_bytes(b"manL")  # in the file's application_id
FORMAT = 1  # in its user_version
WAIT_SECONDS = 5.0  # that a writer waits for another
SCHEMA = """
CREATE TABLE learners (
    key TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    head TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    count INTEGER NOT NULL,
    used REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX by_use ON learners (kind, used);
CREATE TABLE lessons (
    key TEXT NOT NULL REFERENCES learners (key) ON DELETE CASCADE,
    place INTEGER NOT NULL,
    label TEXT NOT NULL,
    levels BLOB NOT NULL,
    PRIMARY KEY (key, place)
) WITHOUT ROWID;
"""


def create_database(path: Path, schema: str, application: int, version: int) -> None:
    """An empty file with these tables, written under another name first: nobody ever sees half of it.

    If another process was faster, its file stays.

    Args:
        path: of the file; its folder is made if there is none.
        schema: statements that create the tables.
        application: for the file's application_id.
        version: for its user_version.

    Raises:
        OSError: if it cannot be written.
        sqlite3.Error: if it cannot be filled.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        draft.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # what is drawn is private
        with contextlib.closing(sqlite3.connect(draft)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(schema)
            connection.execute(f"PRAGMA application_id = {application}")
            connection.execute(f"PRAGMA user_version = {version}")
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


class SQLiteStore:
    """A file that threads and processes of one machine may share.

    A file that is not there is created; any other must be one of learners, and nothing is changed in it otherwise.

    Args:
        path: of the file.

    Raises:
        StoreError: if it cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._free: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue()
        if not os.path.lexists(path):
            self._create()
        with self._connection() as connection:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION:
            raise StoreError(f"{path} is no file of learners: choose another. It is as it was before.")
        if version > FORMAT:
            raise StoreError(f"{path} was written by a newer version of mann: update this one.")

    def _create(self) -> None:
        try:
            create_database(self.path, SCHEMA, APPLICATION, FORMAT)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"The file of learners {self.path} cannot be created: {error}.") from None

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """One that nobody else uses meanwhile."""
        try:
            try:
                connection = self._free.get_nowait()
            except queue.Empty:
                # Opened as it is: a file that was removed meanwhile is not made anew without anybody noticing.
                connection = sqlite3.connect(
                    f"{self.path.absolute().as_uri()}?mode=rw",
                    uri=True,
                    timeout=WAIT_SECONDS,
                    isolation_level=None,
                    check_same_thread=False,
                )
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute("PRAGMA secure_delete = ON")  # forgotten is forgotten
            try:
                yield connection
            except Conflict:
                self._free.put(connection)
                raise
            except BaseException:
                connection.close()
                raise
            self._free.put(connection)
        except sqlite3.Error as error:
            raise StoreError(f"The file of learners {self.path} cannot be used: {error}.") from None

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction, which is on the disk at the end."""
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except Conflict:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def create(self, kind: str, key: str, head: Head, used: float) -> Version:
        with self._writing() as connection:
            if connection.execute("SELECT 1 FROM learners WHERE key = ?", (key,)).fetchone():
                raise Conflict(f"There is a learner {key!r} already.")
            connection.execute(
                "INSERT INTO learners VALUES (?, ?, ?, 0, 0, ?)", (key, kind, json.dumps(head), used)
            )
        return Version(0, 0)

    def load(self, key: str, known: Version | None = None) -> Stored | None:
        with self._connection() as connection:
            connection.execute("BEGIN")  # both of one moment
            found = connection.execute(
                "SELECT head, epoch, count FROM learners WHERE key = ?", (key,)
            ).fetchone()
            lessons = []
            if found is not None:
                head, version = Head(*json.loads(found[0])), Version(*found[1:])
                first = known.examples if known is not None and known.epoch == version.epoch else 0
                rows = connection.execute(
                    "SELECT label, levels FROM lessons WHERE key = ? AND place >= ? ORDER BY place",
                    (key, first),
                )
                lessons = [Lesson(*row) for row in rows]
            connection.execute("COMMIT")
        return None if found is None else Stored(head, version, lessons)

    def versions(self, keys: Sequence[str]) -> list[Version | None]:
        with self._connection() as connection:
            marks = ",".join("?" * len(keys))
            rows = connection.execute(
                f"SELECT key, epoch, count FROM learners WHERE key IN ({marks})", tuple(keys)
            )
            found = {key: Version(epoch, count) for key, epoch, count in rows}
        return [found.get(key) for key in keys]

    def append(self, key: str, version: Version, lessons: Sequence[Lesson], used: float) -> Version:
        after = version._replace(examples=version.examples + len(lessons))
        with self._writing() as connection:
            changed = connection.execute(
                "UPDATE learners SET count = ?, used = ? WHERE key = ? AND epoch = ? AND count = ?",
                (after.examples, used, key, *version),
            )
            self._check(changed.rowcount)
            self._insert(connection, key, version.examples, lessons)
        return after

    def replace(
        self, key: str, version: Version, head: Head, lessons: Sequence[Lesson], used: float
    ) -> Version:
        after = Version(version.epoch + 1, len(lessons))
        with self._writing() as connection:
            changed = connection.execute(
                "UPDATE learners SET head = ?, epoch = ?, count = ?, used = ? "
                "WHERE key = ? AND epoch = ? AND count = ?",
                (json.dumps(head), *after, used, key, *version),
            )
            self._check(changed.rowcount)
            connection.execute("DELETE FROM lessons WHERE key = ?", (key,))
            self._insert(connection, key, 0, lessons)
        self._overwrite()
        return after

    def _check(self, changed: int) -> None:
        if not changed:
            raise Conflict("This learner was changed or deleted meanwhile.")

    def _insert(
        self, connection: sqlite3.Connection, key: str, first: int, lessons: Sequence[Lesson]
    ) -> None:
        connection.executemany(
            "INSERT INTO lessons VALUES (?, ?, ?, ?)",
            [(key, first + place, *lesson) for place, lesson in enumerate(lessons)],
        )

    def delete(self, key: str) -> bool:
        with self._writing() as connection:
            found = connection.execute("DELETE FROM learners WHERE key = ?", (key,)).rowcount > 0
        self._overwrite()
        return found

    def _overwrite(self) -> None:
        """Empty the log of changes as well, in which what is forgotten would stand until it is full.

        While another server reads, it stays as it is until the next time.
        """
        with self._connection() as connection:
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            connection.execute(f"PRAGMA busy_timeout = {round(1000 * WAIT_SECONDS)}")

    def touch(self, key: str, used: float) -> None:
        with self._writing() as connection:
            connection.execute("UPDATE learners SET used = ? WHERE key = ?", (used, key))

    def listing(self, kind: str) -> list[tuple[str, Head, Version, float]]:
        with self._connection() as connection:
            rows = connection.execute(
                "SELECT key, head, epoch, count, used FROM learners WHERE kind = ? ORDER BY used, key",
                (kind,),
            ).fetchall()
        return [
            (key, Head(*json.loads(head)), Version(epoch, count), used)
            for key, head, epoch, count, used in rows
        ]

    def count(self, kind: str) -> int:
        with self._connection() as connection:
            return connection.execute("SELECT COUNT(*) FROM learners WHERE kind = ?", (kind,)).fetchone()[0]

    def close(self) -> None:
        while not self._free.empty():
            self._free.get_nowait().close()
