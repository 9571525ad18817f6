"""The engine's settings: the only place that reads the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.cache.eviction import EvictionName, eviction_rule
from hypic_agents.runtime.policy import PRESETS, ReusePolicy, parse_policy
from hypic_agents.runtime.policy_file import load_policy

__all__ = ["PRESETS", "EngineConfig", "ReusePolicy", "parse_policy"]

DTYPES = ("auto", "float32", "bfloat16")
STATE_NUMBERS = ("float32", "bfloat16", "int8")


def default_model() -> str:
    """The model that is meant where none is named: ``HYPIC_MODEL``, else ``tiny``."""
    return os.environ.get("HYPIC_MODEL") or "tiny"


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How an engine runs.

    Attributes:
        policy: Default reuse policy of requests, by name, as a value, or ``file:PATH`` of a policy file that was
            calibrated for the model.
        model_dtype: "auto" (float32 on the CPU, bfloat16 on a GPU), "float32" or "bfloat16".
        device: "auto" (a GPU where there is one), or a torch device name.
        store_bytes: Budget of the segment store in memory, in bytes.
        store_dir: A directory in which segments outlive the engine; several engines, also of different processes and
            models, may share it. None keeps them in memory only.
        disk_bytes: Budget of the files there, in bytes.
        eviction: What leaves a full store first: "gdsf" (the least saved work a byte) or "lru".
        second_touch: Once a store is full, keep only segments that were wanted before.
        state_numbers: How states and transitions of segments are rounded, which makes their files smaller: "float32"
            (not at all), "bfloat16" or "int8".
        drop_transition_below: Transitions of a smaller norm are taken for zero and not stored; 0 keeps all.
        max_batch: Most requests decoded together.
        max_pass_tokens: Most live tokens of one packed pass (a single longer prompt still runs alone).
        threads: CPU threads of torch; None leaves torch's own choice. ``HYPIC_THREADS`` sets the default.
        self_test: Compare two tokens with the untouched transformers forward at load.
        grammar_loop_len: An answer held to a grammar that repeats one cycle of tokens for this many tokens is led out
            of it, by tokens that the grammar allows; 0 lets it loop until ``max_tokens``.
        audit_share: Share of requests, 0 to 1, that are recomputed in full while the engine is idle.
        audit_seed: Chooses which ones.
        audit_budget_points: Points (hundredths) of the audited answers that may change; above them, reuse falls back.
        audit_max_kl: An answer counts as changed too if its mean KL from full recompute exceeds this (nats a token).
        audit_queue: Most audits that wait; the oldest is dropped for a new one.
        audit_in_background: Audit in a thread of the engine's own while it is idle; without it, idle calls of
            ``Engine.step`` and calls of ``Engine.run_audits`` do the work.
    """

    policy: str | ReusePolicy = "hypic"
    model_dtype: str = "auto"
    device: str = "auto"
    store_bytes: int = 2 << 30
    store_dir: str | None = None
    disk_bytes: int = 10 << 30
    eviction: EvictionName = "gdsf"
    second_touch: bool = True
    state_numbers: Literal["float32", "bfloat16", "int8"] = "float32"
    drop_transition_below: float = 0.0
    max_batch: int = 32
    max_pass_tokens: int = 32_768
    threads: int | None = None
    self_test: bool = True
    grammar_loop_len: int = 128
    audit_share: float = 0.0
    audit_seed: int = 0
    audit_budget_points: float = 5.0
    audit_max_kl: float = 0.1
    audit_queue: int = 16
    audit_in_background: bool = True

    def __post_init__(self) -> None:
        load_policy(self.policy)
        if self.model_dtype not in DTYPES:
            raise InvalidInput(f"model_dtype={self.model_dtype!r}: use one of {', '.join(DTYPES)}")
        for name in ("max_batch", "max_pass_tokens", "audit_queue"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name}={getattr(self, name)}: use 1 or more")
        if self.threads is not None and self.threads < 1:
            raise InvalidInput(f"threads={self.threads}: use 1 or more")
        self._check_store()
        self._check_audit()

    def _check_store(self) -> None:
        eviction_rule(self.eviction)
        if self.state_numbers not in STATE_NUMBERS:
            raise InvalidInput(f"state_numbers={self.state_numbers!r}: use one of {', '.join(STATE_NUMBERS)}")
        if not self.drop_transition_below >= 0:
            raise InvalidInput(f"drop_transition_below={self.drop_transition_below}: use 0 or more")
        for name in ("store_bytes", "disk_bytes", "grammar_loop_len"):
            if getattr(self, name) < 0:
                raise InvalidInput(f"{name}={getattr(self, name)}: use 0 or more")

    def _check_audit(self) -> None:
        if not 0 <= self.audit_share <= 1:
            raise InvalidInput(f"audit_share={self.audit_share}: use a share between 0 (none) and 1 (every request)")
        if not 0 < self.audit_budget_points < 100:
            raise InvalidInput(f"audit_budget_points={self.audit_budget_points}: use points above 0 and below 100")
        if not self.audit_max_kl > 0:
            raise InvalidInput(f"audit_max_kl={self.audit_max_kl}: use nats above 0")
        if self.drop_transition_below and self.audit_share:
            raise InvalidInput(
                "drop_transition_below and audit_share exclude each other: the audit would take dropped transitions "
                "for corrupt ones; set one of them to 0"
            )

    @property
    def default_policy(self) -> ReusePolicy:
        return load_policy(self.policy)

    @property
    def num_threads(self) -> int | None:
        """Threads to use: the field, else ``HYPIC_THREADS``, else None."""
        raw = os.environ.get("HYPIC_THREADS", "")
        return self.threads if self.threads is not None else int(raw) if raw.isdigit() and int(raw) else None
