"""The engine's settings: the only place that reads the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.cache.bucket import check_url
from hypic_agents.runtime.cache.eviction import EvictionName, eviction_rule
from hypic_agents.runtime.policy import PRESETS, ReusePolicy, parse_policy
from hypic_agents.runtime.policy_file import load_policy

__all__ = ["PRESETS", "EngineConfig", "ReusePolicy", "parse_policy"]

DTYPES = ("auto", "float32", "bfloat16")
STATE_NUMBERS = ("float32", "bfloat16", "int8")
COLD_PREFILL = ("local", "processes", "ray")


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
        prefix_bytes: Budget of checkpoints of whole beginnings in memory, in bytes: with them, the next turn of a
            conversation computes what is new. 0 keeps none.
        store_dir: A directory in which segments outlive the engine; several engines, also of different processes and
            models, may share it. None keeps them in memory only.
        disk_bytes: Budget of the files there, in bytes.
        store_url: A place for segments that engines on several machines share, as any URL that fsspec reads:
            ``s3://bucket/folder``, ``gs://...``, ``file:///mnt/folder``. It has no budget; expire old objects there.
        store_timeout_s: Longest wait of a request for that place, in seconds.
        eviction: What leaves a full store first: "gdsf" (the least saved work a byte) or "lru".
        second_touch: Once a store is full, keep only segments that were wanted before.
        state_numbers: How states and transitions of segments are rounded, which makes their files smaller: "float32"
            (not at all), "bfloat16" or "int8".
        drop_transition_below: Transitions of a smaller norm are taken for zero and not stored; 0 keeps all.
        transition_low_rank_within: Transitions are stored as a multiple of the identity minus thin factors where that
            takes less and is off by at most this norm; 0 stores none so.
        max_batch: Most requests decoded together.
        max_pass_tokens: Most live tokens of one packed pass (a single longer prompt still runs alone).
        cold_prefill: Who builds segments that the store lacks: "local" (this process, packed), "processes" (worker
            processes, one a GPU, or cores shared out) or "ray" (Ray actors); with their number as in "processes:4".
            While workers build for one request, others go on.
        ray_address: Of a running Ray cluster, for ``cold_prefill="ray"``, as ``ray.init`` takes it; None starts one.
        cold_retries: How often a build is begun again at another worker before it is made in this process.
        cold_deadline_factor: A worker is late after this many times the predicted seconds of its build,
        cold_deadline_floor_s: but never before this many seconds.
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
    prefix_bytes: int = 1 << 30
    store_dir: str | None = None
    disk_bytes: int = 10 << 30
    store_url: str | None = None
    store_timeout_s: float = 3.0
    eviction: EvictionName = "gdsf"
    second_touch: bool = True
    state_numbers: Literal["float32", "bfloat16", "int8"] = "float32"
    drop_transition_below: float = 0.0
    transition_low_rank_within: float = 0.0
    max_batch: int = 32
    max_pass_tokens: int = 32_768
    cold_prefill: str = "local"
    ray_address: str | None = None
    cold_retries: int = 2
    cold_deadline_factor: float = 10.0
    cold_deadline_floor_s: float = 10.0
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
        self._check_cold()
        self._check_audit()

    def _check_store(self) -> None:
        eviction_rule(self.eviction)
        if self.state_numbers not in STATE_NUMBERS:
            raise InvalidInput(f"state_numbers={self.state_numbers!r}: use one of {', '.join(STATE_NUMBERS)}")
        for name in ("drop_transition_below", "transition_low_rank_within"):
            if not getattr(self, name) >= 0:
                raise InvalidInput(f"{name}={getattr(self, name)}: use 0 or more")
        if self.store_url is not None:
            check_url(self.store_url)
        if not self.store_timeout_s > 0:
            raise InvalidInput(f"store_timeout_s={self.store_timeout_s}: use seconds above 0")
        for name in ("store_bytes", "prefix_bytes", "disk_bytes", "grammar_loop_len"):
            if getattr(self, name) < 0:
                raise InvalidInput(f"{name}={getattr(self, name)}: use 0 or more")

    def _check_cold(self) -> None:
        form, _, count = self.cold_prefill.partition(":")
        numbered = count.isdecimal() and int(count) > 0 and form != "local"
        if form not in COLD_PREFILL or (count and not numbered) or self.cold_prefill.endswith(":"):
            raise InvalidInput(
                f"cold_prefill={self.cold_prefill!r}: use one of {', '.join(COLD_PREFILL)}, the latter two also with a "
                "number of workers, as in 'processes:4'"
            )
        if self.ray_address is not None and form != "ray":
            raise InvalidInput(
                f"ray_address={self.ray_address!r} without Ray: set cold_prefill='ray', or leave the address out"
            )
        if self.cold_retries < 0:
            raise InvalidInput(f"cold_retries={self.cold_retries}: use 0 or more")
        for name in ("cold_deadline_factor", "cold_deadline_floor_s"):
            if not getattr(self, name) > 0:
                raise InvalidInput(f"{name}={getattr(self, name)}: use a number above 0")

    def _check_audit(self) -> None:
        if not 0 <= self.audit_share <= 1:
            raise InvalidInput(f"audit_share={self.audit_share}: use a share between 0 (none) and 1 (every request)")
        if not 0 < self.audit_budget_points < 100:
            raise InvalidInput(f"audit_budget_points={self.audit_budget_points}: use points above 0 and below 100")
        if not self.audit_max_kl > 0:
            raise InvalidInput(f"audit_max_kl={self.audit_max_kl}: use nats above 0")
        for name in ("drop_transition_below", "transition_low_rank_within"):
            if getattr(self, name) and self.audit_share:
                raise InvalidInput(
                    f"{name} and audit_share exclude each other: the audit would take what is left out of transitions "
                    "for corruption; set one of them to 0"
                )

    @property
    def default_policy(self) -> ReusePolicy:
        return load_policy(self.policy)

    @property
    def cold_form(self) -> tuple[str, int | None]:
        """The name in ``cold_prefill``, and the number of workers if there is one."""
        form, _, count = self.cold_prefill.partition(":")
        return form, int(count) if count else None

    @property
    def num_threads(self) -> int | None:
        """Threads to use: the field, else ``HYPIC_THREADS``, else None."""
        raw = os.environ.get("HYPIC_THREADS", "")
        return self.threads if self.threads is not None else int(raw) if raw.isdigit() and int(raw) else None
