"""From a real run of pools to the simulation's costs, and back: how well the simulation predicts the run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import pstdev
from typing import Any

from hypic_agents.bench.cold_simulation_costs import Costs
from hypic_agents.bench.cold_simulation_fleet import Fleet
from hypic_agents.bench.cold_simulation_placement import LPT_IDLE
from hypic_agents.bench.cold_simulation_workload import Arrival
from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.workers.schedule import CostModel, Sample, fit_cost

_ASK = "give a file that 'hypic-agents bench cold --json' wrote"


@dataclass(frozen=True, slots=True)
class Measured:
    """One prompt's cold segments, built by real pools.

    Attributes:
        tokens, seconds, nbytes: Of each build, in a pool of one worker: its length, the worker's own seconds, and the
            bytes of its payload.
        makespan_s: Seconds from handing out the builds to holding the last payload, by the number of workers: 1, and
            at least one more. The prefix that they are built behind was there: prompts share it.
        answer_s: Seconds from there to the first token.
        live: Tokens computed in that time.
        link_bytes_s: Payload bytes taken in a second, checksum and copy included; infinite where it was not measured.
        samples: Further builds of other lengths, each ``(tokens, seconds, bytes)``: they tell how costs grow.
        origin: The run's model, hardware and command, as far as they are known.
    """

    tokens: tuple[int, ...]
    seconds: tuple[float, ...]
    nbytes: tuple[int, ...]
    makespan_s: Mapping[int, float]
    answer_s: float = 0.0
    live: int = 0
    link_bytes_s: float = float("inf")
    samples: tuple[tuple[int, float, int], ...] = ()
    origin: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def read(cls, path: Path) -> Measured:
        """The run in a file of JSON; its object, or the one under ``simulation``, has this class's attributes.

        Raises:
            InvalidInput: no such file, or it lacks what is needed.
        """
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidInput(f"cannot read {str(path)!r}: {error}; {_ASK}") from error
        return cls.of(found)

    @classmethod
    def of(cls, found: Any) -> Measured:
        """The run in parsed JSON.

        Raises:
            InvalidInput: a field is missing or is not what it should be.
        """
        try:
            fields = found.get("simulation", found)
            jobs = [_build(job) for job in fields["jobs"]]
            made = cls(
                tuple(tokens for tokens, _, _ in jobs),
                tuple(seconds for _, seconds, _ in jobs),
                tuple(nbytes for _, _, nbytes in jobs),
                {int(workers): float(seconds) for workers, seconds in fields["makespan_s"].items()},
                float(fields.get("answer_s") or 0),
                int(fields.get("live_tokens") or 0),
                float(fields.get("link_bytes_s") or "inf"),
                tuple(_build(sample) for sample in fields.get("samples", ())),
                {name: found[name] for name in ("model", "hardware", "command") if name in found},
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"the measured run lacks or garbles {error}; {_ASK}") from error
        numbers = (*made.tokens, *made.seconds, *made.makespan_s.values(), made.link_bytes_s)
        numbers += tuple(seconds for _, seconds, _ in made.samples)
        if not made.tokens or not all(number > 0 for number in numbers):
            raise InvalidInput(f"the measured run has no builds, or some that took no time; {_ASK}")
        if 1 not in made.makespan_s or len(made.makespan_s) < 2:
            raise InvalidInput(f"the measured run has no pool of 1 worker beside a larger one; {_ASK}")
        return made

    def to_json(self) -> dict[str, Any]:
        """What :meth:`of` reads."""
        jobs = zip(self.tokens, self.seconds, self.nbytes, strict=True)
        return {
            "jobs": [_described(*job) for job in jobs],
            "samples": [_described(*sample) for sample in self.samples],
            "makespan_s": {str(workers): seconds for workers, seconds in self.makespan_s.items()},
            "answer_s": self.answer_s,
            "live_tokens": self.live,
            "link_bytes_s": self.link_bytes_s if math.isfinite(self.link_bytes_s) else None,
        }

    def costs(self) -> Costs:
        """Costs fitted to the run with one worker alone; the larger ones are left for :func:`predict`."""
        builds = [*zip(self.tokens, self.seconds, self.nbytes, strict=True), *self.samples]
        model = fit_cost([Sample(tokens, seconds) for tokens, seconds, _ in builds], CostModel())
        fixed, each = _line([tokens for tokens, _, _ in builds], [nbytes for _, _, nbytes in builds])
        # What a build takes beside its computation, one after the other: the worker waits for its next job meanwhile.
        # Only the last payload is taken in when no build is left to hide it.
        last_s = self.nbytes[-1] / self.link_bytes_s
        between = max(0.0, self.makespan_s[1] - sum(self.seconds) - last_s) / len(self.seconds)
        return Costs(
            token_s=model.linear_s,
            pair_s=model.quadratic_s,
            live_s=self.answer_s / self.live if self.live else model.linear_s,
            dispatch_s=between,
            fixed_bytes=fixed,
            token_bytes=each,
            link_bytes_s=self.link_bytes_s,
        )

    def noise(self) -> float:
        """How far the builds were from what the fitted costs say: standard deviation of the logarithm of the ratio."""
        costs = self.costs()
        logs = [math.log(s / costs.build_s(n)) for n, s in zip(self.tokens, self.seconds, strict=True)]
        return pstdev(logs)


def predict(measured: Measured, workers: int | None = None) -> dict[str, float]:
    """The makespan of the real run with ``workers``, as simulated from the run with one, and how far it is off.

    Every build takes what the fitted costs say for its length, so that this tests the fit, the queue and the hand-over
    together. Without ``workers``, of the smallest pool that is larger than one.
    """
    workers = min(size for size in measured.makespan_s if size > 1) if workers is None else workers
    costs = measured.costs()
    arrival = Arrival(0.0, measured.tokens, (1.0,) * len(measured.tokens), measured.live)
    record = Fleet(costs, LPT_IDLE, (1.0,) * workers, apart=True).run([arrival])[0]
    real = measured.makespan_s[workers]
    return {
        "workers": workers,
        "measured_s": real,
        "predicted_s": record.built_s,
        "error": abs(record.built_s - real) / real,
    }


def _build(job: Mapping[str, Any]) -> tuple[int, float, int]:
    return int(job["tokens"]), float(job["seconds"]), int(job["bytes"])


def _described(tokens: int, seconds: float, nbytes: int) -> dict[str, Any]:
    return {"tokens": tokens, "seconds": seconds, "bytes": nbytes}


def _line(tokens: Sequence[int], nbytes: Sequence[int]) -> tuple[float, float]:
    """Least squares of ``nbytes = fixed + each * tokens``; with one length only, all of it falls to the tokens."""
    count, mean_x, mean_y = len(tokens), sum(tokens) / len(tokens), sum(nbytes) / len(nbytes)
    spread = sum((n - mean_x) ** 2 for n in tokens)
    if count < 2 or not spread:
        return 0.0, mean_y / mean_x
    each = sum((n - mean_x) * (b - mean_y) for n, b in zip(tokens, nbytes, strict=True)) / spread
    each = max(0.0, each)
    return max(0.0, mean_y - each * mean_x), each
