"""What builds cost, and who computes which: longest first on idle workers (LPT). Pure functions, no torch.

LPT: Graham, "Bounds on multiprocessing timing anomalies", 1969. Its makespan is at most 4/3 - 1/(3m) of the best one.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

_ITERATIONS = 10
_HUBER = 1.5
# A first build may take long: it finds nothing in any cache, and of the workers' speed nothing is known.
_FIRST = 6.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured build: ``num_tokens`` computed behind ``context`` tokens in ``seconds``."""

    num_tokens: int
    seconds: float
    context: int = 0


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds of a build: ``linear_s * n + quadratic_s * n * (n + 2 * context)`` for ``n`` computed tokens.

    The second term counts what full attention looks at: n (n + 1) / 2 pairs inside and n * context before.
    """

    linear_s: float = 1e-4
    quadratic_s: float = 1e-8

    def seconds(self, num_tokens: int, context: int = 0) -> float:
        return self.linear_s * num_tokens + self.quadratic_s * num_tokens * (num_tokens + 2 * context)


def fit_cost(samples: Sequence[Sample], prior: CostModel, *, prior_weight: float = 0.5) -> CostModel:
    """Fit both terms to measured builds, by least squares of relative errors that outliers cannot pull far (Huber).

    Args:
        samples: Measured builds; those without tokens or time are ignored.
        prior: Believed where samples say nothing: one pseudo-sample at a short and one at a long length, scaled to the
            measured level.
        prior_weight: What each pseudo-sample counts, in samples.
    """
    known = [s for s in samples if s.num_tokens > 0 and s.seconds > 0]
    if not known:
        return prior
    level = median(s.seconds / prior.seconds(s.num_tokens, s.context) for s in known)
    longest = max(s.num_tokens + s.context for s in known)
    believed = [Sample(n, level * prior.seconds(n)) for n in (max(1, longest // 4), 2 * longest)]
    rows = [_row(s) for s in [*known, *believed]]
    base = [1.0] * len(known) + [prior_weight] * len(believed)
    weights = base
    linear, quadratic = prior.linear_s * level, prior.quadratic_s * level
    for _ in range(_ITERATIONS):
        linear, quadratic = _solve(rows, weights)
        errors = [abs(x * linear + y * quadratic - 1) for x, y in rows]
        scale = max(median(errors[: len(known)]), 1e-3) * _HUBER
        weights = [w * min(1.0, scale / max(e, 1e-12)) for w, e in zip(base, errors, strict=True)]
    return CostModel(linear, quadratic)


def _row(sample: Sample) -> tuple[float, float]:
    """Both terms as shares of the measured seconds: the right-hand side is 1."""
    n = sample.num_tokens
    return n / sample.seconds, n * (n + 2 * sample.context) / sample.seconds


def _solve(rows: Sequence[tuple[float, float]], weights: Sequence[float]) -> tuple[float, float]:
    """Weighted least squares of ``x a + y b = 1`` with a, b >= 0."""
    weighted = list(zip(rows, weights, strict=True))
    xx = sum(w * x * x for (x, _), w in weighted)
    xy = sum(w * x * y for (x, y), w in weighted)
    yy = sum(w * y * y for (_, y), w in weighted)
    x1 = sum(w * x for (x, _), w in weighted)
    y1 = sum(w * y for (_, y), w in weighted)
    determinant = xx * yy - xy * xy
    if determinant > 1e-9 * xx * yy:
        a, b = (x1 * yy - y1 * xy) / determinant, (xx * y1 - xy * x1) / determinant
        if a >= 0 and b >= 0:
            return a, b
        if a < 0:
            return 0.0, y1 / yy
    return x1 / xx, 0.0


def longest_first(costs: Sequence[float]) -> list[int]:
    """Indices of jobs in the order in which workers take them; equal ones in the order given."""
    return sorted(range(len(costs)), key=lambda i: -costs[i])


def lpt(costs: Sequence[float], workers: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Jobs of each worker, in order: the longest job left goes to the worker that is free first.

    Args:
        costs: Seconds of each job, 0 or more.
        workers: The idle workers, at least one and each once.
    """
    loads = [(0.0, place, worker) for place, worker in enumerate(workers)]
    heapq.heapify(loads)
    jobs: dict[int, list[int]] = {worker: [] for worker in workers}
    for index in longest_first(costs):
        load, place, worker = heapq.heappop(loads)
        jobs[worker].append(index)
        heapq.heappush(loads, (load + costs[index], place, worker))
    return {worker: tuple(taken) for worker, taken in jobs.items()}


def makespan(costs: Sequence[float], assignment: Mapping[int, Sequence[int]]) -> float:
    """Seconds until the last worker is done."""
    return max((sum(costs[i] for i in taken) for taken in assignment.values()), default=0.0)


def lower_bound(costs: Sequence[float], num_workers: int) -> float:
    """Seconds that no assignment beats: the mean load, the longest job, and, of more jobs than workers, two on one."""
    ordered = sorted(costs, reverse=True)
    if not ordered:
        return 0.0
    pair = ordered[num_workers - 1] + ordered[num_workers] if len(ordered) > num_workers else 0.0
    return max(sum(ordered) / num_workers, ordered[0], pair)


def pays_off(cost_s: float, hop_s: float) -> bool:
    """Whether a build is worth sending: carrying it there and back takes less than computing it here."""
    return cost_s > hop_s


def deadline_s(cost_s: float, *, factor: float, floor_s: float, late: int = 0, is_first: bool = False) -> float:
    """Seconds after which a worker that holds a job of this cost counts as late.

    Args:
        cost_s: Predicted seconds.
        factor, floor_s: It is late after this many times the cost, but never before the floor.
        late: How often a worker was late with the job already; the time doubles each time.
        is_first: No worker has finished any job yet.
    """
    return max(floor_s, factor * cost_s) * (_FIRST if is_first else 1.0) * float(2**late)
