"""The invalidations that engines tell each other of through a remote place. No torch.

One small object a call, under a random number, never changed. Numbers have no order, and need none: an entry carries
the numbers of all calls that its writer had applied when it was known to be valid, and is refused if any other call
covers it. So it does not matter who wrote what first, and nobody has to agree on a sequence.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import asdict
from hashlib import blake2b
from threading import Lock
from types import MappingProxyType

from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.cache.bucket import Bucket
from hypic_agents.runtime.cache.connection import LOG
from hypic_agents.runtime.cache.invalidation import Invalidation, Sourced, VersionOrder

FOLDER = "invalidations"
_FORMAT = "hypic-invalidation-1"


class CallLog:
    """What is known of the calls in a bucket, and the own ones that could not be written there yet.

    Args:
        bucket: Where they are.
        version_order: Sort key of a version, as in :class:`MemoryStore`.
    """

    def __init__(self, bucket: Bucket, version_order: VersionOrder = str) -> None:
        self._bucket = bucket
        self._version_order = version_order
        self._lock = Lock()
        self._calls: dict[int, Invalidation | None] = {}
        self._unwritten: dict[int, Invalidation] = {}
        self._announced: dict[int, Invalidation] = {}

    @property
    def calls(self) -> Mapping[int, Invalidation | None]:
        """All calls by number, those not written yet included; None where one cannot be read."""
        with self._lock:
            return MappingProxyType({**self._calls, **self._unwritten})

    def announce(self, call: Invalidation) -> int:
        """Refuse what ``call`` covers from now on; returns its number, to be confirmed or taken back."""
        number = secrets.randbits(62)
        with self._lock:
            self._announced[number] = call
        return number

    def confirm(self, number: int) -> None:
        """Let it be written."""
        with self._lock:
            self._unwritten[number] = self._announced.pop(number)

    def take_back(self, number: int) -> None:
        with self._lock:
            del self._announced[number]

    @property
    def is_written(self) -> bool:
        """Whether all that was confirmed is there."""
        return not self._unwritten

    def write(self) -> None:
        """Write what is not written yet; raises what the bucket raises."""
        with self._lock:
            unwritten = dict(self._unwritten)
        for number, call in unwritten.items():
            self._bucket.put(_name(number), _to_bytes(call))
            with self._lock:
                self._calls[number] = call
                self._unwritten.pop(number, None)

    def load(self) -> None:
        """Read the calls that came since; raises what the bucket raises."""
        listed = {number: name for name in self._bucket.names(FOLDER) if (number := _number(name)) is not None}
        with self._lock:
            new = {name: number for number, name in listed.items() if number not in self._calls}
        read = {new[name]: _from_bytes(raw) for name, raw in self._bucket.get_all(list(new)).items()}
        for number in [number for number, call in read.items() if call is None]:
            raw = self._bucket.get(_name(number))  # it may have been damaged on the way
            read[number] = _from_bytes(raw or b"")
            if read[number] is None:
                LOG.warning("the invalidation %s is damaged; it is taken to cover everything", _name(number))
        with self._lock:
            self._calls |= read

    def refuses(self, entry: Sourced, known: AbstractSet[int]) -> bool:
        """Whether a call that is not among the ``known`` ones covers ``entry``."""
        with self._lock:
            calls = {**self._calls, **self._unwritten, **self._announced}
        later = [call for number, call in calls.items() if number not in known]
        try:
            return any(call is None or call.covers(entry, self._version_order) for call in later)
        except Exception:  # noqa: BLE001  the version order is the user's, the versions another engine's
            LOG.exception("versions cannot be compared; a remote segment is not used")
            return True


def _name(number: int) -> str:
    return f"{FOLDER}/{number:016x}.json"


def _number(name: str) -> int | None:
    """The number in a name; None for an object that is somebody else's."""
    stem, _, ending = name.rpartition("/")[2].partition(".")
    try:
        return int(stem, 16) if ending == "json" and len(stem) == 16 else None
    except ValueError:
        return None


def _to_bytes(call: Invalidation) -> bytes:
    text = json.dumps(asdict(call))
    return json.dumps({"format": _FORMAT, "call": text, "sum": _sum(text)}).encode()


def _from_bytes(raw: bytes | bytearray) -> Invalidation | None:
    try:
        fields = json.loads(raw)
        if fields["format"] != _FORMAT or fields["sum"] != _sum(fields["call"]):
            return None
        return Invalidation(**json.loads(fields["call"]))
    except (AttributeError, InvalidInput, KeyError, TypeError, ValueError):
        return None


def _sum(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()
