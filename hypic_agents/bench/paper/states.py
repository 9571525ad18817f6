"""States that the engine leaves behind a prompt, and how far two of them are apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hypic_agents.bench.agreement import require_close
from hypic_agents.core import Prompt, SamplingParams
from hypic_agents.errors import HypicError
from hypic_agents.runtime.attention.mixer import AttentionMixer
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.policy import ReusePolicy
from hypic_agents.runtime.state import LinearState, RowState

UNLIMITED = 1 << 30
# One token more than prefill gives, so that the request still holds its state afterwards.
_KEEP_RUNNING = SamplingParams(max_tokens=2)


@dataclass(frozen=True, slots=True)
class Distance:
    """``|found - expected| / |expected|`` (Frobenius norms) and the angle between the two, in degrees."""

    relative: float
    degrees: float


def prefill(engine: Engine, prompt: Prompt, policy: ReusePolicy | str) -> RowState:
    """All layers' states behind the whole prompt, made as for any request: plan, builds, one assembly pass."""
    request = engine.submit(prompt, _KEEP_RUNNING, policy)
    request.eos_token_ids = frozenset()  # the state is wanted even where the model would end its answer at once
    while request.state is None and not request.done:
        engine.step()
    state = request.state
    engine.cancel(request)
    if request.error is not None:
        raise request.error
    if state is None:
        raise HypicError("the request ended before its prefill left a state")
    return state


def linear_states(state: RowState) -> list[Tensor]:
    """Recurrent states ``[H, K, V]`` of the linear layers, lowest first."""
    return [layer.recurrent_state for layer in state.layers if isinstance(layer, LinearState)]


def distance(found: Tensor, expected: Tensor) -> Distance:
    """How far one state, or several flattened into one, is from another of the same shape."""
    a, b = found.double().flatten(), expected.double().flatten()
    size = b.norm().clamp_min(1e-300)
    a_unit, b_unit = a / a.norm().clamp_min(1e-300), b / size
    # Through the half angle: the arc cosine loses all digits of a small angle.
    angle = 2 * math.atan2((a_unit - b_unit).norm().item(), (a_unit + b_unit).norm().item())
    return Distance(((a - b).norm() / size).item(), math.degrees(angle))


def distance_of_all(found: Sequence[Tensor], expected: Sequence[Tensor]) -> Distance:
    """One figure over the states of all layers, taken as one long vector."""
    return distance(torch.cat([x.flatten() for x in found]), torch.cat([x.flatten() for x in expected]))


def require_exact_when_live(engine: Engine, prompt: Prompt, policy: ReusePolicy) -> float:
    """Largest relative error of a layer's state when the seams cover the segments: nothing may be left of it.

    Raises:
        HypicError: reuse and full recompute differ although everything is live.
    """
    unlimited = policy.with_(name="unlimited", head_seam=UNLIMITED)
    found, expected = (linear_states(prefill(engine, prompt, which)) for which in (unlimited, "exact"))
    what = "states behind an unlimited seam and full recompute"
    return max(require_close(what, a, b, engine.model.dtype) for a, b in zip(found, expected, strict=True))


@contextmanager
def without_attention(engine: Engine) -> Iterator[Engine]:
    """An engine on the same model whose full-attention layers mix no tokens; their MLPs stay.

    It has a store of its own: what is built without attention must not be met by anyone else.
    """

    def nothing(_: Any, __: Any, output: tuple[Tensor, None]) -> tuple[Tensor, None]:
        return torch.zeros_like(output[0]), None

    hooks = [mixer.register_forward_hook(nothing) for mixer in engine.model.mixers if isinstance(mixer, AttentionMixer)]
    try:
        name = f"{engine.fingerprint} without attention"
        with Engine(engine.model, engine.tokenizer, name, engine.config) as muted:
            yield muted
    finally:
        for hook in hooks:
            hook.remove()
