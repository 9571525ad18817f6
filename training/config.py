"""Every number of the recipe: the model's shape, the optimisers, the levels, the mix of sequences."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

COPY_TASKS = ("single", "override")
STATE_TASKS = ("running",)


@dataclass(frozen=True, slots=True)
class Level:
    """One step of the curriculum: how many documents, how many facts in each."""

    num_documents: int
    facts_per_document: int

    def __str__(self) -> str:
        return f"{self.num_documents}x{self.facts_per_document}"


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """The recipe. Lengths in tokens, times as shares of the run's wall-clock budget unless named otherwise.

    Attributes:
        constant_channel: Value of the first embedding channel of every token, which the projections can use as a bias.
        write_gates: Weight of that channel in the write strength of each head. Slow heads begin with weak writes: a
            delta rule that writes everything at half strength has overwritten its state after a few dozen tokens,
            however slowly it decays, and no gradient tells it to keep anything longer.
        memories: Memory of the heads of every linear layer at initialisation, in tokens, one a head.
        min_level_steps: Steps a level lasts at least.
        level_up: Exact match on the copy tasks at which the next level starts.
        latest_level_share: Share of the budget after which level ``i + 1`` starts even below ``level_up``.
        isolate_from: Exact match at the first level at which isolated steps begin.
        copy_only_below: Levels below this one ask copy questions only, so that nothing else is learnt first.
        state_from_level: Level from which running questions are asked.
        tokens_per_step: Tokens of a step over all workers.
        state_share: Share of sequences that ask running questions only.
        blind_share: Share of the questions for a place that cannot attend to the documents. Quantities can: a sum over
            what the state holds was never learnt at this size.
        many_tools_share: Share of sequences with many tool specs and questions that need one to three calls.
        many_tools: Numbers of specs that are drawn from.
        many_tools_from_level: Level from which those are asked.
        isolate_share: Share of steps that read documents as the runtime builds them; 0 trains the plain model.
    """

    # model
    hidden_size: int = 128
    mlp_size: int = 352
    layer_types: tuple[str, ...] = ("linear_attention", "linear_attention", "full_attention", "linear_attention")
    num_heads: int = 4
    num_kv_heads: int = 4
    head_dim: int = 32
    partial_rotary: float = 0.25
    conv_width: int = 4
    max_positions: int = 8192

    # initialisation
    embedding_std: float = 0.5
    weight_std: float = 0.06
    decay_projection_std: float = 0.02
    conv_bound: float = 0.5
    constant_channel: float = 1.0
    write_gates: tuple[float, ...] = (0.0, -1.0, -2.0, -2.5)
    memories: tuple[float, ...] = (20.0, 150.0, 1500.0, 10000.0)

    # optimisers
    muon_lr: float = 0.02
    muon_momentum: float = 0.95
    adam_lr: float = 3e-3
    adam_betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.05
    clip: float = 1.0
    warmup_steps: int = 50
    decay_share: float = 0.7
    final_lr_share: float = 0.02

    # loss
    document_loss: float = 0.1

    # curriculum
    levels: tuple[Level, ...] = (Level(1, 3), Level(2, 3), Level(2, 5), Level(3, 6), Level(5, 6), Level(8, 6))
    level_up: float = 0.85
    min_level_steps: int = 150
    latest_level_share: tuple[float, ...] = (0.10, 0.18, 0.27, 0.37, 0.48)
    earlier_share: float = 0.4
    copy_only_below: int = 1
    state_from_level: int = 1

    # sequences
    tokens_per_step: int = 3200
    questions: tuple[int, int] = (8, 16)
    single_share: float = 0.15
    state_share: float = 0.2
    many_tools_share: float = 0.08
    many_tools: tuple[int, ...] = (4, 6, 8, 10, 14, 20)
    many_tools_from_level: int = 2
    blind_share: float = 0.7

    # isolation
    isolate_from: float = 0.5
    isolate_share: float = 0.5
    head_seams: tuple[int, ...] = (4, 8, 8, 8, 16)
    tail_seam: int = 2
    condition_share: float = 0.5

    # run
    log_every_steps: int = 50
    checkpoint_every_s: float = 300.0
    eval_every_s: float = 900.0
    eval_questions: int = 40
    eval_level: Level = Level(8, 6)

    def native(self, isolate_share: float) -> TrainConfig:
        """The recipe of the second stage: isolated steps, mostly conditioned, and more of what the first left weak."""
        return replace(
            self,
            isolate_share=isolate_share,
            condition_share=0.85,
            earlier_share=0.3,
            state_share=0.3,
            many_tools_share=0.14,
        )

    def lr_share(self, step: int, progress: float) -> float:
        """Learning rate as a share of its peak at ``step`` when ``progress`` (0 to 1) of the budget is spent."""
        warm = min(1.0, (step + 1) / self.warmup_steps)
        left = min(1.0, max(0.0, 1.0 - progress) / self.decay_share)
        return warm * (self.final_lr_share + (1.0 - self.final_lr_share) * left)


def model_config(config: TrainConfig, *, vocab_size: int, eos_token_id: int, pad_token_id: int | None) -> Any:
    """The transformers configuration (``Qwen3_5TextConfig``) of the model that ``config`` describes."""
    from transformers import Qwen3_5TextConfig

    half_rotary = int(config.head_dim * config.partial_rotary) // 2
    side = half_rotary // 3
    return Qwen3_5TextConfig(
        vocab_size=vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.mlp_size,
        num_hidden_layers=len(config.layer_types),
        layer_types=list(config.layer_types),
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        linear_num_key_heads=config.num_heads,
        linear_num_value_heads=config.num_heads,
        linear_key_head_dim=config.head_dim,
        linear_value_head_dim=config.head_dim,
        linear_conv_kernel_dim=config.conv_width,
        max_position_embeddings=config.max_positions,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "partial_rotary_factor": config.partial_rotary,
            "mrope_interleaved": True,
            "mrope_section": [half_rotary - 2 * side, side, side],
        },
        bos_token_id=None,
        eos_token_id=eos_token_id,
        pad_token_id=pad_token_id if pad_token_id != eos_token_id else None,
    )
