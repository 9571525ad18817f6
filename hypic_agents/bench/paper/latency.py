"""Figure 12: time to first token against the length and the number of segments, warm, cold and under full recompute."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hypic_agents.bench.agreement import require_close
from hypic_agents.bench.paper.findings import Experiment, Finding, experiment, finding
from hypic_agents.bench.paper.setup import Setup
from hypic_agents.bench.paper.states import UNLIMITED
from hypic_agents.bench.prompts import Prompts, Shape
from hypic_agents.bench.timing import Timings, interleave
from hypic_agents.completion import Completion, SpanState
from hypic_agents.core import Prompt, SamplingParams
from hypic_agents.errors import HypicError
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.policy import PRESETS, ReusePolicy

_POLICY = PRESETS["hypic"]
_FIRST_TOKEN = SamplingParams(max_tokens=1)
_LENGTH_SWEEP_SEGMENTS = 4
# Qwen3.5-35B-A3B: seconds at 4 segments of 1k and of 4k tokens; milliseconds a further segment of 1k; speedup at 16.
THEIR_FULL_S, THEIR_WARM_S = (0.141, 0.624), (0.103, 0.127)
THEIR_MS_A_SEGMENT = (40.7, 2.3)
THEIR_SPEEDUP_AT_16 = 4.80

Row = dict[str, Any]


def run(setup: Setup) -> Experiment:
    """Interleaved timings of the same prompts, documents in a fresh order every time.

    Raises:
        HypicError: the ways to compute a prompt disagree, or a segment was not as warm or as cold as it had to be.
    """
    sizes = setup.sizes
    with setup.load(setup.timed, "float32") as warm, _twin(warm) as cold:
        bench = _Bench(setup, warm, cold)
        by_length = [bench.measure(_LENGTH_SWEEP_SEGMENTS, length) for length in sizes.lengths]
        by_count = [bench.measure(count, sizes.count_len) for count in sizes.counts]
    return experiment(
        "Time to first token against length and number of segments",
        "Figure 12",
        f"{setup.timed}, float32, seam {_POLICY.head_seam}, {sizes.repeats} interleaved repeats, medians. Theirs: "
        "Qwen3.5-35B-A3B on H20 GPUs, segments of 1k to 4k tokens",
        _findings(by_length, by_count, sizes.count_len),
        {"Segment length, at four segments": by_length, f"Number of segments, at {sizes.count_len} tokens": by_count},
        bench.agreement,
    )


def _twin(engine: Engine) -> Engine:
    """An engine on the same model with a store of its own, emptied before every cold request."""
    return Engine(engine.model, engine.tokenizer, engine.fingerprint, engine.config, name=engine.name)


class _Bench:
    def __init__(self, setup: Setup, warm: Engine, cold: Engine) -> None:
        self._setup = setup
        self._warm = warm
        self._cold = cold
        self.agreement = {"unlimited_seam_and_exact": 0.0, "warm_and_cold": 0.0}

    def measure(self, segments: int, length: int) -> Row:
        """Medians of one shape of prompt."""
        setup, repeats = self._setup, self._setup.sizes.repeats
        prompts = Prompts(Shape(segments, length), self._warm.model.vocab_size, setup.seed)
        self._warm.warm(prompts.one_each(), _POLICY)
        self._check(prompts.shuffled())
        requests = {repeat: prompts.shuffled() for repeat in range(-1, repeats)}
        made: dict[str, list[Completion]] = {"full": [], "cold": [], "warm": []}
        modes: dict[str, Callable[[int], object]] = {
            "full": lambda r: made["full"].append(self._generate(self._warm, requests[r], PRESETS["exact"])),
            "cold": lambda r: made["cold"].append(self._generate_cold(requests[r])),
            "warm": lambda r: made["warm"].append(self._generate(self._warm, requests[r], _POLICY)),
        }
        stage = f"{segments} segments of {length}"
        timed = interleave(modes, repeats=repeats, progress=setup.progress, stage=stage)
        require_states(made["cold"], "cold")
        require_states(made["warm"], "hit")
        if [c.token_ids for c in made["cold"]] != [c.token_ids for c in made["warm"]]:
            raise HypicError("no speed is reported: cold and warm segments gave different first tokens")
        return _row(segments, length, timed, made["warm"][-1])

    def _check(self, prompt: Prompt) -> None:
        """On one prompt of this shape: everything live is full recompute, and cold is warm."""
        dtype = self._warm.model.dtype
        unlimited = _POLICY.with_(name="unlimited", head_seam=UNLIMITED)
        exact, live, warm = (
            self._warm.score([prompt], [(0,)], which)[0] for which in (PRESETS["exact"], unlimited, _POLICY)
        )
        self._empty()
        cold = self._cold.score([prompt], [(0,)], _POLICY)[0]
        found = {
            "unlimited_seam_and_exact": require_close("an unlimited seam and full recompute", live, exact, dtype),
            "warm_and_cold": require_close("warm and cold segments", warm, cold, dtype),
        }
        self.agreement = {name: max(error, found[name]) for name, error in self.agreement.items()}

    def _empty(self) -> None:
        self._cold.store.evict(self._cold.store.stats().held_bytes)
        self._cold.prefixes.clear()

    def _generate(self, engine: Engine, prompt: Prompt, policy: ReusePolicy) -> Completion:
        return engine.generate(prompt, _FIRST_TOKEN, policy)

    def _generate_cold(self, prompt: Prompt) -> Completion:
        self._empty()
        return self._generate(self._cold, prompt, _POLICY)


def require_states(completions: Iterable[Completion], state: SpanState) -> None:
    """Every segment of every request was ``state``.

    Raises:
        HypicError: one was not, so the timings are of something else.
    """
    for completion in completions:
        found = [span.state for span in completion.report.spans]
        if any(one != state for one in found):
            raise HypicError(f"no speed is reported: of {len(found)} segments {found.count(state)} were {state!r}")


def _row(segments: int, length: int, timed: dict[str, Timings], completion: Completion) -> Row:
    full, cold, warm = timed["full"], timed["cold"], timed["warm"]
    return {
        "segments": segments,
        "segment_tokens": length,
        "prompt_tokens": completion.report.prompt_tokens,
        "live_tokens": completion.report.live_tokens,
        "full_s": full.median,
        "cold_s": cold.median,
        "warm_s": warm.median,
        "warm_fastest_s": warm.spread[0],
        "warm_slowest_s": warm.spread[1],
        "cold_over_full": cold.median / full.median,
        "warm_speedup": full.median / warm.median,
    }


def _findings(by_length: list[Row], by_count: list[Row], count_len: int) -> list[Finding]:
    short, long = by_length[0], by_length[-1]
    few, many = by_count[0], by_count[-1]
    their_speedups = [full / warm for full, warm in zip(THEIR_FULL_S, THEIR_WARM_S, strict=True)]
    their_growth = (THEIR_WARM_S[1] / THEIR_WARM_S[0]) / (THEIR_FULL_S[1] / THEIR_FULL_S[0])
    growth = (long["warm_s"] / short["warm_s"]) / (long["full_s"] / short["full_s"])
    added = many["segments"] - few["segments"]
    full_ms, warm_ms = (1000 * (many[name] - few[name]) / added for name in ("full_s", "warm_s"))
    # Where the warm time does not grow within the noise there is no ratio to speak of.
    slopes = full_ms / warm_ms if warm_ms > 0 else None
    their_slopes = THEIR_MS_A_SEGMENT[0] / THEIR_MS_A_SEGMENT[1]
    return [
        finding(
            f"speedup, 4 segments of {short['segment_tokens']} tokens (theirs 1k)",
            their_speedups[0],
            short["warm_speedup"],
            short["warm_speedup"] >= their_speedups[0],
            "at least theirs",
        ),
        finding(
            f"speedup, 4 segments of {long['segment_tokens']} tokens (theirs 4k)",
            their_speedups[1],
            long["warm_speedup"],
            long["warm_speedup"] >= their_speedups[1],
            "at least theirs",
        ),
        finding(
            "growth of warm time with segment length, over that of full recompute",
            their_growth,
            growth,
            growth < 0.5,
            "less than half",
        ),
        finding(
            f"full recompute, ms a further segment of {count_len} tokens (theirs 1k)",
            THEIR_MS_A_SEGMENT[0],
            full_ms,
            None,
        ),
        finding(f"warm, ms a further segment of {count_len} tokens (theirs 1k)", THEIR_MS_A_SEGMENT[1], warm_ms, None),
        finding(
            "the first over the second",
            their_slopes,
            slopes,
            None if slopes is None else slopes >= their_slopes,
            "at least theirs",
        ),
        finding(
            f"speedup at {many['segments']} segments (theirs 16 of 1k)",
            THEIR_SPEEDUP_AT_16,
            many["warm_speedup"],
            many["warm_speedup"] >= THEIR_SPEEDUP_AT_16,
            "at least theirs",
        ),
        finding("cold over full recompute, one worker, longest segments", None, long["cold_over_full"], None),
    ]
