"""Every number of a run, checked before a model is loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.policy import ReusePolicy, parse_policy

Decay = Literal["cosine", "linear"]
Teacher = Literal["self", "base"]

_SHARES = ("isolate_share", "condition_share", "final_lr_share")
_AT_LEAST_ZERO = ("document_loss", "distill", "weight_decay", "warmup_steps", "continue_len", "lora")
_ABOVE_ZERO = ("lr", "clip", "tokens_per_step", "tokens_per_pass", "log_every_steps", "checkpoint_every_s")


@dataclass(frozen=True, slots=True)
class NativeConfig:
    """The recipe. Lengths in tokens.

    Attributes:
        steps: Updates of the whole run; None where ``minutes`` bounds it.
        minutes: Wall clock of the whole run, resumed parts included; None where ``steps`` bounds it.
        lr: Peak learning rate of AdamW.
        lora: Rank of the adapters; 0 trains every weight.
        isolate_share: Share of the steps that read segments as the runtime builds them. They are spread evenly.
        policy: Reuse policy of those steps; its head seam and conditioning are drawn anew at each.
        head_seams: What the head seam is drawn from.
        condition_share: Share of isolated steps in which segments are built behind the system text.
        document_loss: Weight of the next-token loss on the segments' own text.
        distill: Weight of KL(full recompute || isolated), mean over the distilled positions.
        teacher: Whose full recompute that is: the model's own at that step ("self"), or the weights that the run began
            with ("base"), which then hold the ordinary steps in place as well.
        continue_len: Tokens that the model writes itself, by full recompute before the run, behind prompts without an
            answer; distilled like a given answer. 0 distils the prompt's own live tokens instead.
        tokens_per_step: Tokens of one update.
        tokens_per_pass: Tokens computed together; an update's gradients do not depend on it.
        final_lr_share: Learning rate at the end of the run, as a share of its peak.
        recompute_layers: Compute each layer's activations again in the backward pass instead of keeping them.
    """

    steps: int | None = None
    minutes: float | None = None
    lr: float = 2e-5
    lora: int = 0
    isolate_share: float = 0.5
    policy: str = "hypic"
    head_seams: tuple[int, ...] = (4, 8, 8, 8, 16)
    condition_share: float = 0.5
    document_loss: float = 0.1
    distill: float = 0.0
    teacher: Teacher = "self"
    continue_len: int = 0
    tokens_per_step: int = 8192
    tokens_per_pass: int = 8192
    warmup_steps: int = 20
    decay: Decay = "cosine"
    final_lr_share: float = 0.05
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.01
    clip: float = 1.0
    recompute_layers: bool = False
    seed: int = 0
    log_every_steps: int = 10
    checkpoint_every_s: float = 300.0

    def __post_init__(self) -> None:
        """Refuse what no run could use.

        Raises:
            InvalidInput: names the setting and the remedy.
        """
        if (self.steps is None) == (self.minutes is None):
            raise InvalidInput("give the run's length as either steps or minutes")
        for name in ("steps", "minutes", *_ABOVE_ZERO):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidInput(f"{name}={value}: use a number above 0")
        for name in _AT_LEAST_ZERO:
            if not getattr(self, name) >= 0:
                raise InvalidInput(f"{name}={getattr(self, name)}: use 0 or more")
        for name in _SHARES:
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidInput(f"{name}={getattr(self, name)}: use a share between 0 and 1")
        if not self.head_seams:
            raise InvalidInput("head_seams is empty: give at least one width")
        for seam in self.head_seams:
            self.policy_at(seam, condition=False)
        if self.base_policy.exact or self.base_policy.prefix:
            raise InvalidInput(f"policy={self.policy!r} composes nothing; train under a policy such as 'hypic'")

    @property
    def base_policy(self) -> ReusePolicy:
        return parse_policy(self.policy)

    def policy_at(self, head_seam: int, *, condition: bool) -> ReusePolicy:
        """The policy of one step."""
        return self.base_policy.with_(head_seam=head_seam, condition_on_system=condition)

    def is_isolated(self, step: int) -> bool:
        """Whether ``step`` (from 0) reads segments isolated."""
        return math.floor((step + 1) * self.isolate_share) > math.floor(step * self.isolate_share)

    def lr_share(self, step: int, progress: float) -> float:
        """Learning rate as a share of its peak at ``step`` when ``progress`` (0 to 1) of the run is done."""
        warm = min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        done = min(1.0, max(0.0, progress))
        left = 1.0 - done if self.decay == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
        return warm * (self.final_lr_share + (1.0 - self.final_lr_share) * left)
