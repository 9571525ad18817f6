"""Which server a prompt goes to: the one that most of its segments belong to, by rendezvous hashing.

Each segment belongs to the server with the highest hash of (server, segment), so clients that never talk to each other
choose alike, and when a server joins or leaves only its own segments move. A prompt's segments vote with their lengths.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """A part of a prompt that is worth finding again.

    Attributes:
        digest: Names its content.
        weight: Its length, in any unit that is the same for all keys of a prompt.
    """

    digest: bytes
    weight: int


def rank(servers: Sequence[str], keys: Sequence[Key]) -> list[str]:
    """Servers, the best first; those without a vote are ordered by the hash of the whole prompt."""
    votes = dict.fromkeys(servers, 0)
    for key in keys:
        if servers:
            votes[max(servers, key=lambda server: _score(server, key.digest))] += key.weight
    whole = b"".join(sorted(key.digest for key in keys))  # whatever their order
    return sorted(servers, key=lambda server: (-votes[server], -_score(server, whole)))


def _score(server: str, digest: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(server.encode() + b"\0" + digest, digest_size=8).digest(), "big")
