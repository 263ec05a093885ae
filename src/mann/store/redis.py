"""Learners in Redis, for several servers at once. How durable they are is for its own configuration to say."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from mann.errors import MannError
from mann.installation import install_command
from mann.store.base import Conflict, Head, Lesson, Stored, StoreError, Version

PREFIX = "mann:"
SECONDS = 5.0  # that an answer may take

# Each runs as a whole: nothing comes between what it looks at and what it changes.
# KEYS: the learner, its lessons, the index of its kind.
_CREATE = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], 'kind', ARGV[1], 'head', ARGV[2], 'epoch', 0, 'count', 0)
redis.call('ZADD', KEYS[3], ARGV[3], ARGV[4])
return 1
"""
_LOAD = """
local found = redis.call('HMGET', KEYS[1], 'head', 'epoch', 'count')
if not found[1] then return {} end
local first = 0
if found[2] == ARGV[1] then first = tonumber(ARGV[2]) end
return {found[1], found[2], found[3], redis.call('LRANGE', KEYS[2], first, -1)}
"""
_CHANGE = """
local found = redis.call('HMGET', KEYS[1], 'epoch', 'count', 'kind')
if found[1] ~= ARGV[1] or found[2] ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'epoch', ARGV[3], 'count', ARGV[4])
if ARGV[5] ~= '' then
  redis.call('HSET', KEYS[1], 'head', ARGV[5])
  redis.call('DEL', KEYS[2])
end
for place = 9, #ARGV do redis.call('RPUSH', KEYS[2], ARGV[place]) end
redis.call('ZADD', ARGV[7] .. found[3], ARGV[6], ARGV[8])
return 1
"""


class RedisStore:
    """A Redis that servers on several machines may share.

    Args:
        address: `redis://[:password@]host[:port][/database]`.

    Raises:
        StoreError: if it does not answer.
    """

    def __init__(self, address: str) -> None:
        try:
            import redis
        except ImportError:
            raise MannError(f"Redis needs one more package: {install_command('redis')}.") from None
        self._error: type[Exception] = redis.RedisError
        try:
            self._redis: Any = redis.Redis.from_url(
                address, socket_timeout=SECONDS, socket_connect_timeout=SECONDS
            )
        except ValueError as error:
            raise StoreError(f"This is no address of a Redis: {error}.") from None
        with self._asking():
            self._redis.ping()
            self._create, self._load, self._change = map(
                self._redis.register_script, (_CREATE, _LOAD, _CHANGE)
            )

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except self._error as error:
            raise StoreError(f"Redis cannot be used: {str(error).rstrip('.')}.") from None

    def _keys(self, key: str, kind: str = "") -> list[str]:
        return [f"{PREFIX}of:{key}", f"{PREFIX}lessons:{key}", f"{PREFIX}kind:{kind}"]

    def create(self, kind: str, key: str, head: Head, used: float) -> Version:
        with self._asking():
            if not self._create(keys=self._keys(key, kind), args=[kind, json.dumps(head), used, key]):
                raise Conflict(f"There is a learner {key!r} already.")
        return Version(0, 0)

    def load(self, key: str, known: Version | None = None) -> Stored | None:
        with self._asking():
            found = self._load(keys=self._keys(key), args=[*(known or Version(-1, 0))])
        if not found:
            return None
        head, epoch, count, lessons = found
        return Stored(
            Head(*json.loads(head)), Version(int(epoch), int(count)), [_unpack(lesson) for lesson in lessons]
        )

    def versions(self, keys: Sequence[str]) -> list[Version | None]:
        with self._asking(), self._redis.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.hmget(self._keys(key)[0], "epoch", "count")
            found = pipe.execute()
        return [None if epoch is None else Version(int(epoch), int(count)) for epoch, count in found]

    def append(self, key: str, version: Version, lessons: Sequence[Lesson], used: float) -> Version:
        after = version._replace(examples=version.examples + len(lessons))
        return self._put(key, version, after, "", lessons, used)

    def replace(
        self, key: str, version: Version, head: Head, lessons: Sequence[Lesson], used: float
    ) -> Version:
        return self._put(
            key, version, Version(version.epoch + 1, len(lessons)), json.dumps(head), lessons, used
        )

    def _put(
        self, key: str, version: Version, after: Version, head: str, lessons: Sequence[Lesson], used: float
    ) -> Version:
        arguments: list[Any] = [*version, *after, head, used, f"{PREFIX}kind:", key, *map(_pack, lessons)]
        with self._asking():
            if not self._change(keys=self._keys(key), args=arguments):
                raise Conflict("This learner was changed or deleted meanwhile.")
        return after

    def delete(self, key: str) -> bool:
        learner, lessons, _ = self._keys(key)
        with self._asking():
            kind = self._redis.hget(learner, "kind")
            if kind is None:
                return False
            with self._redis.pipeline() as pipe:
                pipe.delete(learner).delete(lessons).zrem(f"{PREFIX}kind:{kind.decode()}", key)
                return bool(pipe.execute()[0])

    def touch(self, key: str, used: float) -> None:
        with self._asking():
            kind = self._redis.hget(self._keys(key)[0], "kind")
            if kind is not None:
                self._redis.zadd(f"{PREFIX}kind:{kind.decode()}", {key: used}, xx=True)

    def listing(self, kind: str) -> list[tuple[str, Head, Version, float]]:
        with self._asking():
            members = [
                (key.decode(), used)
                for key, used in self._redis.zrange(f"{PREFIX}kind:{kind}", 0, -1, withscores=True)
            ]
            with self._redis.pipeline(transaction=False) as pipe:
                for key, _ in members:
                    pipe.hmget(self._keys(key)[0], "head", "epoch", "count")
                found = pipe.execute()
        return [
            (key, Head(*json.loads(head)), Version(int(epoch), int(count)), used)
            for (key, used), (head, epoch, count) in zip(members, found, strict=True)
            if head is not None
        ]

    def count(self, kind: str) -> int:
        with self._asking():
            return int(self._redis.zcard(f"{PREFIX}kind:{kind}"))

    def close(self) -> None:
        self._redis.close()


def _pack(lesson: Lesson) -> bytes:
    label = lesson.label.encode()
    return len(label).to_bytes(2, "big") + label + lesson.levels


def _unpack(content: bytes) -> Lesson:
    end = 2 + int.from_bytes(content[:2], "big")
    return Lesson(content[2:end].decode(), content[end:])
