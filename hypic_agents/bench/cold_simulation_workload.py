"""What a simulated fleet is asked: prompts of cold segments, alone or among warm ones that arrive at random."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from hypic_agents.errors import InvalidInput

_SHORTEST, _LONGEST = 64, 8_192


@dataclass(frozen=True, slots=True)
class Shape:
    """Cold segments of a prompt.

    Attributes:
        segments: How many.
        tokens: Tokens of each, or their median.
        spread: Standard deviation of the logarithm of their lengths; 0 makes them equal.
    """

    segments: int
    tokens: int = 600
    spread: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.segments} x {'~' if self.spread else ''}{self.tokens}"

    def lengths(self, rng: random.Random) -> tuple[int, ...]:
        """Tokens of each segment, log-normal about ``tokens``, between 64 and 8,192."""
        if not self.spread:
            return (self.tokens,) * self.segments
        drawn = (self.tokens * math.exp(rng.gauss(0, self.spread)) for _ in range(self.segments))
        return tuple(min(_LONGEST, max(_SHORTEST, round(length))) for length in drawn)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request: when it comes (seconds), the lengths of its cold segments (none: it is warm), and its live tokens.

    ``noise`` holds a factor on the duration of each cold segment's build: costs are never predicted exactly.
    """

    at_s: float
    cold: tuple[int, ...]
    noise: tuple[float, ...]
    live: int

    @property
    def is_cold(self) -> bool:
        return bool(self.cold)


@dataclass(frozen=True, slots=True)
class Traffic:
    """How requests come.

    Attributes:
        shape: Of cold prompts.
        cold_share: Share of requests that are cold.
        warm_live: Median live tokens of warm requests (log-normal, spread 0.5).
        noise: Standard deviation of the logarithm of how much longer or shorter than predicted a build takes.
    """

    shape: Shape
    cold_share: float = 0.02
    warm_live: int = 240
    noise: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.cold_share <= 1:
            raise InvalidInput(f"cold_share={self.cold_share}: use a share between 0 and 1")

    def arrivals(self, count: int, rate: float, seed: int) -> list[Arrival]:
        """A Poisson stream of ``count`` requests, ``rate`` a second. The same seed gives the same stream.

        The streams of two rates differ in their times alone.
        """
        rng = random.Random(seed)
        at, made = 0.0, []
        for _ in range(count):
            at += rng.expovariate(1.0) / rate
            cold = self.shape.lengths(rng) if rng.random() < self.cold_share else ()
            noise = tuple(math.exp(rng.gauss(0, self.noise)) for _ in cold)
            made.append(Arrival(at, cold, noise, round(self.warm_live * math.exp(rng.gauss(0, 0.5)))))
        return made


def alone(shape: Shape, *, live: int = 240, noise: float = 0.0, seed: int = 0) -> Arrival:
    """One cold prompt that meets an empty fleet."""
    rng = random.Random(seed)
    lengths = shape.lengths(rng)
    return Arrival(0.0, lengths, tuple(math.exp(rng.gauss(0, noise)) for _ in lengths), live)


def loss_times(workers: int, horizon_s: float, mean_s: float, seed: int) -> Sequence[Sequence[float]]:
    """When each worker is lost, in seconds, exponential with ``mean_s`` between two losses; no loss if it is 0."""
    times: list[list[float]] = []
    for worker in range(workers):
        rng = random.Random(f"{seed}-{worker}")
        at, mine = 0.0, []
        while mean_s and (at := at + rng.expovariate(1 / mean_s)) < horizon_s:
            mine.append(at)
        times.append(mine)
    return times
