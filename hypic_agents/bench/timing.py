"""Repeated timings of several modes, interleaved so that what else the machine does falls on all of them alike."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

# Told of a stage's name, what is done of it, and the total.
Progress = Callable[[str, int, int], None]

_COLLECT_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds of one mode's repeats, in the order they ran."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.seconds)

    @property
    def spread(self) -> tuple[float, float]:
        """Fastest and slowest repeat."""
        return min(self.seconds), max(self.seconds)


def interleave(
    modes: Mapping[str, Callable[[int], object]],
    *,
    repeats: int,
    warmup: int = 1,
    progress: Progress | None = None,
    stage: str = "timing",
) -> dict[str, Timings]:
    """Time every mode once a repeat, each repeat beginning with the next mode.

    Args:
        modes: Work by name; called with the repeat's number, negative while warming up.
        repeats: Timed repeats, at least 1.
        warmup: Untimed repeats before them, for allocations and caches.
        progress: Told of every finished repeat.
        stage: Name for ``progress``.
    """
    names = list(modes)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    collected = time.perf_counter()
    with _no_collection():
        for repeat in range(-warmup, repeats):
            shift = repeat % len(names)
            for name in names[shift:] + names[:shift]:
                started = time.perf_counter()
                modes[name](repeat)
                taken = time.perf_counter() - started
                if repeat >= 0:
                    seconds[name].append(taken)
            if time.perf_counter() - collected > _COLLECT_EVERY_S:
                gc.collect()
                collected = time.perf_counter()
            if progress is not None:
                progress(stage, repeat + warmup + 1, repeats + warmup)
    return {name: Timings(tuple(taken)) for name, taken in seconds.items()}


@contextmanager
def _no_collection() -> Iterator[None]:
    """Garbage collection only between repeats: inside one it would be charged to whoever runs."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
