"""The remote tier: entries in any place that fsspec reaches, shared by engines on many machines. No torch.

::

    URL/segments/NAME.safetensors     one entry each, see container.py, with the calls that its writer knew
    URL/invalidations/NUMBER.json     one call each, see call_log.py
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import TypeVar

from hypic_agents.errors import StoreUnavailable
from hypic_agents.runtime.cache.base import Wanted
from hypic_agents.runtime.cache.breaker import Breaker, Pending
from hypic_agents.runtime.cache.bucket import Bucket
from hypic_agents.runtime.cache.call_log import CallLog
from hypic_agents.runtime.cache.connection import LOG
from hypic_agents.runtime.cache.container import DamagedFile
from hypic_agents.runtime.cache.disk import Outcome
from hypic_agents.runtime.cache.entry import SegmentEntry
from hypic_agents.runtime.cache.invalidation import Invalidation, VersionOrder
from hypic_agents.runtime.cache.key import SegmentKey
from hypic_agents.runtime.cache.lanes import get_all
from hypic_agents.runtime.cache.record import PayloadCodec, entry_name, from_file, to_file

T = TypeVar("T")

Known = tuple[int, ...]
"""Numbers of the calls that an entry is known to have outlived."""

Found = tuple[SegmentEntry, frozenset[int]]
"""An entry that was read, and the calls that its writer knew."""

_REMEMBERED = 16_384


class RemoteTier:
    """Reads and writes entries, and keeps the log of invalidations. Safe to use from several threads.

    Whatever the place does, a read is at worst a miss with a warning, and a write is not done.

    Args:
        bucket: The place.
        codec: Turns payloads into tensors and back.
        version_order: Sort key of a version, as in :class:`MemoryStore`.
        timeout_s: Longest wait for a look-up, a listing or an invalidation, in seconds.
        write_timeout_s: Longest wait for one write, in the background.
        breaker: Gives reading a pause after failures. Writing has one like it: a place may be open to readers only.
    """

    def __init__(
        self,
        bucket: Bucket,
        codec: PayloadCodec,
        *,
        version_order: VersionOrder = str,
        timeout_s: float = 3.0,
        write_timeout_s: float = 60.0,
        breaker: Breaker | None = None,
    ) -> None:
        self._bucket = bucket
        self._codec = codec
        self._log = CallLog(bucket, version_order)
        self._timeout_s = timeout_s
        self._write_timeout_s = write_timeout_s
        self._reading = breaker or Breaker()
        self._writing = self._reading.another()
        self._lock = Lock()
        self._there: OrderedDict[str, None] = OrderedDict()
        self._bad: OrderedDict[str, None] = OrderedDict()
        self.damaged = 0

    @property
    def failures(self) -> int:
        return self._reading.failures + self._writing.failures

    @property
    def calls(self) -> Mapping[int, Invalidation | None]:
        """The invalidations known of, by number; None for one that cannot be read and may be anything."""
        return self._log.calls

    def is_there(self, key: SegmentKey) -> bool:
        """Whether the entry was seen or written there since the last call of :meth:`forget`."""
        return entry_name(key) in self._there

    def forget(self) -> None:
        """Trust no more that what was seen there may still be used."""
        with self._lock:
            self._there.clear()

    def refresh(self) -> bool:
        """Read the calls of other engines, and tell the own ones; False if the former failed."""
        unknown, untold = "other engines' invalidations are not known now", "other engines are not told of own ones"
        done = self._try(self._reading, unknown, self._log.load, self._timeout_s)
        if done is not None and not self._log.is_written:
            self._try(self._writing, untold, self._log.write, self._timeout_s)
        return done is not None

    def read(self, wanted: Sequence[Wanted]) -> list[Found | None]:
        """For each key and token ids the entry, and the calls its writer knew; None if there is none.

        Several are fetched at a time. The log is read after them, so that every call that ended before this one began
        is known: hand what is found to :meth:`refuses`.
        """
        raws = self._fetch([entry_name(key) for key, _ in wanted])
        return [self._decoded(key, token_ids, raws.get(entry_name(key))) for key, token_ids in wanted]

    def refuses(self, entry: SegmentEntry, known: frozenset[int]) -> bool:
        """Whether an invalidation covers what :meth:`read` gave; it is written anew then, once it was built anew."""
        refused = self._log.refuses(entry, known)
        if refused:
            self._remember(self._bad, entry_name(entry.key))
        return refused

    def write(self, entry: SegmentEntry, position: Known, *, uses: int = 1) -> Outcome:  # noqa: ARG002  no budget
        """Write an entry unless it is there.

        Args:
            entry: What to write.
            position: Calls that it is known to have outlived.
            uses: Not weighed: the place has no budget of ours.
        """
        name = entry_name(entry.key)

        def put() -> Outcome:
            if name not in self._bad and self._bucket.has(_path(name)):
                return "present"
            self._bucket.put(_path(name), b"".join(to_file(entry, self._codec, position)[1].pieces()))
            return "written"

        done = self._try(self._writing, f"segment {name} is not written there", put, self._write_timeout_s)
        if done is None:
            return "failed"
        with self._lock:
            self._bad.pop(name, None)
        self._remember(self._there, name)
        return done[0]

    def announce(self, call: Invalidation) -> int:
        """Read nothing any more that ``call`` covers; :meth:`publish` or :meth:`take_back` its number next."""
        return self._log.announce(call)

    def take_back(self, number: int) -> None:
        self._log.take_back(number)

    def publish(self, number: int) -> None:
        """Tell other engines what was announced.

        Raises:
            StoreUnavailable: the place did not take it in time; later refreshes try again.
        """
        self._log.confirm(number)
        try:
            Pending(self._log.write, self._writing.slots).result(self._timeout_s)
        except Exception as error:
            self._writing.failed()
            raise StoreUnavailable(
                "invalidated here, but other machines cannot be told, because the remote store fails "
                f"({_words(error)}); it is tried again as long as this engine runs, or repeat the call later"
            ) from error
        self._writing.succeeded()

    def _fetch(self, names: Sequence[str]) -> dict[str, bytearray]:
        """The objects that are there, read before the log was; none where that fails."""
        breaker = self._reading
        if not names or not breaker.allows():
            return {}
        raws, problem = get_all(lambda name: self._bucket.get(_path(name)), names, breaker.slots, self._timeout_s)
        if raws:
            try:
                Pending(self._log.load, breaker.slots).result(self._timeout_s)
            except Exception as error:  # noqa: BLE001  filesystems raise what they like
                raws, problem = {}, error
        if problem is None:
            breaker.succeeded()
        else:
            breaker.failed()
            LOG.warning("the remote store fails, segments are not looked for there: %s", _words(problem))
        return raws

    def _decoded(self, key: SegmentKey, token_ids: Sequence[int], raw: bytearray | None) -> Found | None:
        if raw is None:
            return None
        name = entry_name(key)
        try:
            entry, known = from_file(raw, self._codec)
        except DamagedFile as problem:
            self.damaged += 1
            LOG.warning("the remote segment %s is damaged and not used: %s", name, problem)
            self._remember(self._bad, name)
            return None
        if entry.key != key or entry.token_ids != tuple(token_ids):
            return None
        self._remember(self._there, name)
        return entry, known

    def _try(self, breaker: Breaker, consequence: str, call: Callable[[], T], within_s: float) -> tuple[T] | None:
        """What a call gives, in a tuple; None if it failed, hung, or was not tried because others did."""
        if not breaker.allows():
            return None
        try:
            result = Pending(call, breaker.slots).result(within_s)
        except Exception as error:  # noqa: BLE001  filesystems raise what they like
            breaker.failed()
            LOG.warning("the remote store fails, %s: %s", consequence, _words(error))
            return None
        breaker.succeeded()
        return (result,)

    def _remember(self, names: OrderedDict[str, None], name: str) -> None:
        with self._lock:
            if names is self._bad:
                self._there.pop(name, None)
            names[name] = None
            names.move_to_end(name)
            if len(names) > _REMEMBERED:
                names.popitem(last=False)


def _path(name: str) -> str:
    return f"segments/{name}.safetensors"


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
