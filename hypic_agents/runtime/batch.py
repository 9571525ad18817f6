"""One packed forward pass, described: rows of live and reused runs, decided on the CPU, computed on the device.

A row is one sequence. Its elements cover consecutive positions: live runs (tokens computed in this pass) and reused
runs (taken from a payload). Building a segment, prefilling a prompt, composing reused segments and decoding one token
are all rows; a pass takes any mix of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from hypic_agents.runtime.policy import Compose
from hypic_agents.runtime.state import RowState, SegmentPayload


@dataclass(frozen=True, slots=True)
class LiveRun:
    """Consecutive live tokens.

    ``capture`` records the state at the run's end; ``begin_transition`` records the state at its start and follows
    the transition operator from there to the row's end.
    """

    start: int
    token_ids: tuple[int, ...]
    capture: bool = False
    begin_transition: bool = False

    @property
    def length(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class ReusedRun:
    """A reused run at its position in the prompt, and how it acts on the incoming state."""

    start: int
    length: int
    payload: SegmentPayload
    compose: Compose = "transition"
    place_rope: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence of a pass.

    Attributes:
        elements: In order of position, without gaps.
        past: State to continue from; None starts from zero.
        start: Position of the first token that ``elements`` cover (the length of ``past``).
        logits_from: Logits are wanted for this many last live tokens; 0 for none.
        mask: Optional bool ``[live tokens, keys]`` that replaces the causal mask of full attention.
        keep: A row that builds a payload keeps this many last tokens of it; 0 where nothing is built.
        checkpoint: The payload is the state at the row's end, not an affine map.
        room: For how many keys and values behind its end its buffers have room, where it begins without ``past``.
    """

    elements: tuple[LiveRun | ReusedRun, ...]
    past: RowState | None = None
    start: int = 0
    logits_from: int = 1
    mask: Tensor | None = None
    keep: int = 0
    checkpoint: bool = False
    room: int = 0

    @property
    def end(self) -> int:
        last = self.elements[-1]
        return last.start + last.length


@dataclass(slots=True)
class Step:
    """One lockstep move of the chain: some rows take a chunk, others a reused run."""

    chunk_rows: list[int] = field(default_factory=list)
    chunks: slice = field(default_factory=lambda: slice(0, 0))
    reused: list[tuple[int, ReusedRun]] = field(default_factory=list)
    begin: list[int] = field(default_factory=list)
    capture: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class QueryBlock:
    """Live tokens ``[start, stop)`` of a row attend to its first ``num_keys`` keys.

    ``mask`` is ``[stop - start, num_keys]``, True where a query may look, or 0 there and minus infinity elsewhere; None
    where the causal flag, or a single query, says it all.
    """

    start: int
    stop: int
    num_keys: int
    mask: Tensor | None


@dataclass(slots=True)
class PackedBatch:
    """Index tensors of one pass over T live tokens of R rows.

    Attributes:
        token_ids, positions: ``[T]``.
        row_slices: Where each row's live tokens lie in the packed order.
        history: ``[M]`` sources of the conv's input, which are ``conv_width - 1`` zero rows, the bank, then T tokens.
        conv_pick: ``[T]`` where each token's conv output lies among the ``M - (conv_width - 1)`` windows.
        tail_sources: ``[R, conv_width - 1]`` sources of every row's conv tail at its end.
        capture_tails: ``[captures, conv_width - 1]`` likewise at captured run ends, in order of capture.
        tail_bank: The conv tails that the bank rows stand for: ("past", row) or a payload.
        grid: ``[N, C]`` token index of every chunk slot, T where padded.
        ungrid: ``[T]`` slot of every token in the flattened grid.
        in_order: The grid's slots hold the tokens in order, padded only at the end (a single row, or one token a row).
        straight: One row, and nothing is reused behind a live token: the conv's sources end with the whole history.
        steps: The chain.
        logit_index: ``[n]`` packed tokens whose logits are wanted.
        any_transition: Whether some row follows a transition.
        blocks: A long row cut into passes of one block of tokens each, for what goes through the tokens in order; every
            block but the first continues from ``past``, which is filled as they run. Empty where that gains nothing.
        query_blocks, key_positions: By row, made by the first attention layer and shared by the others.
        outputs: Per layer, what the pass leaves behind (filled by the mixers).
    """

    rows: tuple[Row, ...]
    token_ids: Tensor
    positions: Tensor
    row_slices: tuple[slice, ...]
    history: Tensor
    conv_pick: Tensor
    tail_sources: Tensor
    capture_tails: Tensor
    tail_bank: tuple[int | SegmentPayload, ...]
    grid: Tensor
    ungrid: Tensor
    steps: tuple[Step, ...]
    logit_index: Tensor
    any_transition: bool
    in_order: bool
    straight: bool
    blocks: tuple[PackedBatch, ...] = ()
    query_blocks: dict[tuple[int, int], list[QueryBlock]] = field(default_factory=dict)
    key_positions: dict[int, Tensor] = field(default_factory=dict)
    outputs: dict[int, object] = field(default_factory=dict)
