"""What makes two cached segments the same. No torch."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from hypic_agents.core import Scope


def digest_ids(token_ids: Sequence[int]) -> str:
    """64 hex digits over the ids as little-endian 64-bit integers: the same on every machine."""
    return RunningDigest().extend(token_ids)


class RunningDigest:
    """:func:`digest_ids` of a sequence that grows; each id is hashed once."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=32)

    def extend(self, token_ids: Sequence[int]) -> str:
        """Append ids; the digest of all so far."""
        self._hash.update(struct.pack(f"<{len(token_ids)}q", *token_ids))
        return self._hash.hexdigest()


def narrowest(scopes: Iterable[Scope]) -> Scope | None:
    """Who may see what texts of these scopes shaped together; None if no one of them says so.

    It is the one that every other equals, or is wider than as the whole of its tenant. Groups are names only: nobody
    knows here whether who is in one is in another.
    """
    found = set(scopes)
    grouped = [scope for scope in found if scope.groups]
    if len({scope.tenant for scope in found}) != 1 or len(grouped) > 1:
        return None
    return grouped[0] if grouped else found.pop()


def build_recipe(*, prefix: str = "", **fields: int | str) -> str:
    """Canonical text of everything but the tokens that changes a payload.

    Args:
        prefix: :func:`digest_ids` of the tokens that the segment was built behind (conditioned builds); empty if it was
            built alone.
        fields: Policy fields that change the payload, such as ``head_seam=8, tail_seam=2``, in any order.
    """
    parts = [f"{name}={fields[name]!r}" for name in sorted(fields)]
    return ",".join([*parts, f"prefix={prefix}"])


@dataclass(frozen=True, slots=True)
class SegmentKey:
    """Names one entry. Two requests share it only if every field agrees, the scope exactly.

    Attributes:
        model: Fingerprint of the model: weights revision, dtype, adapter.
        recipe: How the payload was built, see :func:`build_recipe`.
        scope: Who may see the entry.
        digest: :func:`digest_ids` of the token ids; the store compares the ids themselves on a hit.
        num_tokens: Length of the segment in tokens.
    """

    model: str
    recipe: str
    scope: Scope
    digest: str
    num_tokens: int

    @classmethod
    def of(cls, token_ids: Sequence[int], *, model: str, recipe: str, scope: Scope) -> SegmentKey:
        """The key of a segment's standalone token ids."""
        return cls(model, recipe, scope, digest_ids(token_ids), len(token_ids))

    @property
    def is_prefix(self) -> bool:
        """An exact prefix checkpoint. The next turn of a chat needs it once: one use says nothing against it."""
        return "kind='prefix'" in self.recipe
