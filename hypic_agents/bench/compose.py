"""What composing a reused segment costs by its length, and what building its transition adds to its prefill."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hypic_agents.bench.carry import carry_error
from hypic_agents.bench.timing import Progress, Timings, interleave
from hypic_agents.errors import HypicError, UnsupportedModel
from hypic_agents.runtime.batch import LiveRun, ReusedRun, Row
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.linear.chain import compose_run
from hypic_agents.runtime.linear.mixer import LinearMixer
from hypic_agents.runtime.models.hybrid import HybridModel
from hypic_agents.runtime.models.payloads import built_payloads
from hypic_agents.runtime.state import LinearPayload, SegmentPayload

HEAD_SEAM = 8


@dataclass(frozen=True, slots=True)
class Sizes:
    """Lengths in tokens, and how often the short work is repeated inside one timing."""

    short: int = 256
    long: int = 4096
    build: int = 1024
    query: int = 64
    inner: int = 40


def run(engine: Engine, *, repeats: int, seed: int, progress: Progress, sizes: Sizes | None = None) -> dict[str, Any]:
    """Compare a long reused segment with a short one, and a build with its transition with one without.

    Args:
        engine: Its model is used, its store is not.
        repeats: Timed builds; the short work of composition is timed ten times as often.
        seed: Of token ids and states.
        progress: Told of stages and repeats.
        sizes: Lengths in tokens.

    Raises:
        UnsupportedModel: no linear layer.
        HypicError: a payload does not do what running on does.
    """
    sizes = sizes or Sizes()
    bench = _Bench(engine.model, seed, sizes)
    errors = [carry_error(mixer, engine.model, HEAD_SEAM, sizes.short, sizes.query, seed) for mixer in bench.linear]
    if not max(errors) <= 1e-4:
        raise HypicError(f"no speed is reported: a reused payload and running on differ by {max(errors):.2g}")
    progress("checking agreement", 1, 1)
    compose = bench.time_compose(repeats * 10, progress)
    layers = bench.time_layers(repeats * 10, progress)
    builds = bench.time_builds(repeats, progress)
    rows = [
        _row(f"compose {sizes.long} tokens against {sizes.short}", compose["long"], compose["short"]),
        _row(f"linear layers of a query behind {sizes.long} against {sizes.short}", layers["long"], layers["short"]),
        _row(f"build {sizes.build} tokens with against without transition", builds["with"], builds["without"]),
    ]
    return {
        "rows": rows,
        "compose_ratio": rows[0]["ratio"],
        "linear_layers_ratio": rows[1]["ratio"],
        "build_overhead": rows[2]["ratio"],
        "compose_s": {str(sizes.short): compose["short"].median, str(sizes.long): compose["long"].median},
        "short_tokens": sizes.short,
        "long_tokens": sizes.long,
        "build_tokens": sizes.build,
        "linear_layers": len(bench.linear),
        "repeats": repeats,
        "agreement": {"payload_and_running_on": max(errors)},
        "params": sum(p.numel() for p in engine.model.hf.parameters()),
    }


class _Bench:
    def __init__(self, model: HybridModel, seed: int, sizes: Sizes) -> None:
        self._model = model
        self._sizes = sizes
        self._rng = random.Random(seed)
        self._generator = torch.Generator().manual_seed(seed)
        self.linear = [mixer for mixer in model.mixers if isinstance(mixer, LinearMixer)]
        if not self.linear:
            raise UnsupportedModel("this model has no linear-attention layer; there is nothing to compose")

    @torch.inference_mode()
    def time_compose(self, repeats: int, progress: Progress) -> dict[str, Timings]:
        """The bare composition of one reused run through all linear layers."""
        runs = self._runs()
        states = [self._random(layer.end_state) for layer in _linear_payloads(runs["short"])]

        def compose_all(run: ReusedRun) -> None:
            for _ in range(self._sizes.inner):
                for mixer, state in zip(self.linear, states, strict=True):
                    compose_run(run, mixer.layer_idx, state)
            self._wait()

        modes = {name: lambda _, run=run: compose_all(run) for name, run in runs.items()}
        timed = interleave(modes, repeats=repeats, warmup=3, progress=progress, stage="composing")
        return {name: Timings(tuple(s / self._sizes.inner for s in t.seconds)) for name, t in timed.items()}

    @torch.inference_mode()
    def time_layers(self, repeats: int, progress: Progress) -> dict[str, Timings]:
        """The linear layers of a query that stands behind one reused run."""
        query = self._tokens(self._sizes.query)
        weight = self._model.hf.get_input_embeddings().weight
        hidden = torch.randn(1, len(query), weight.shape[1], generator=self._generator).to(weight)

        def through(run: ReusedRun) -> None:
            batch = self._model.pack([Row((run, LiveRun(run.length, query)))])
            for mixer in self.linear:
                mixer(hidden, hypic_batch=batch)
            self._wait()

        modes = {name: lambda _, run=run: through(run) for name, run in self._runs().items()}
        return interleave(modes, repeats=repeats, warmup=3, progress=progress, stage="linear layers")

    @torch.inference_mode()
    def time_builds(self, repeats: int, progress: Progress) -> dict[str, Timings]:
        """One segment's prefill with its payload, and the same pass without a transition."""
        tokens = self._tokens(self._sizes.build)
        modes = {
            "with": lambda _: self._build(tokens, transition=True),
            "without": lambda _: self._build(tokens, transition=False),
        }
        return interleave(modes, repeats=repeats, warmup=2, progress=progress, stage="building")

    def _build(self, tokens: tuple[int, ...], *, transition: bool) -> SegmentPayload:
        head, rest = tokens[:HEAD_SEAM], tokens[HEAD_SEAM:]
        elements = (LiveRun(0, head), LiveRun(HEAD_SEAM, rest, begin_transition=transition))
        result = self._model.forward([Row(elements, logits_from=0, keep=len(rest))])
        (payload,) = built_payloads(result.batch)
        self._wait()
        return payload

    def _runs(self) -> dict[str, ReusedRun]:
        runs = {}
        for name, length in (("short", self._sizes.short), ("long", self._sizes.long)):
            payload = self._build(self._tokens(length + HEAD_SEAM), transition=True)
            runs[name] = ReusedRun(0, length, payload)
        return runs

    def _tokens(self, count: int) -> tuple[int, ...]:
        return tuple(self._rng.choices(range(self._model.vocab_size), k=count))

    def _random(self, like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=self._generator).to(like)

    def _wait(self) -> None:
        if self._model.device.type == "cuda":
            torch.cuda.synchronize(self._model.device)


def _linear_payloads(run: ReusedRun) -> list[LinearPayload]:
    return [layer for layer in run.payload.layers if isinstance(layer, LinearPayload)]


def _row(what: str, measured: Timings, against: Timings) -> dict[str, Any]:
    return {
        "what": what,
        "measured_s": measured.median,
        "against_s": against.median,
        "ratio": measured.median / against.median,
    }
