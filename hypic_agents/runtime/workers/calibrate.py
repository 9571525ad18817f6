"""Costs learnt while running: every finished build is a sample. No torch."""

from __future__ import annotations

from collections import deque

from hypic_agents.runtime.workers.schedule import CostModel, Sample, fit_cost, pays_off

_SAMPLES = 64
_HOPS = 16
_PROBE_EVERY = 16


class CostGauge:
    """A cost model that follows the latest builds."""

    def __init__(self, prior: CostModel | None = None) -> None:
        self._prior = prior or CostModel()
        self._samples: deque[Sample] = deque(maxlen=_SAMPLES)
        self._model: CostModel | None = self._prior

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)
        self._model = None

    @property
    def model(self) -> CostModel:
        if self._model is None:
            self._model = fit_cost(tuple(self._samples), self._prior)
        return self._model


class HopGauge:
    """Seconds that carrying a job to a worker and its payload back takes: the least of the latest.

    A sample also holds the time in which this process did something else before it looked, which is no cost of the hop.
    """

    def __init__(self, prior_s: float = 0.005) -> None:
        self._prior_s = prior_s
        self._seconds: deque[float] = deque([prior_s], maxlen=_HOPS)
        self._kept = 0

    def add(self, seconds: float) -> None:
        self._seconds.append(max(0.0, seconds))

    @property
    def seconds(self) -> float:
        return min(self._seconds)

    def pays(self, cost_s: float) -> bool:
        """Whether to send a job of this cost. Some are sent that would not pay: nothing else tells that hops got fast.

        Jobs that would not have paid to begin with are never among them.
        """
        if pays_off(cost_s, self.seconds):
            return True
        if not pays_off(cost_s, self._prior_s):
            return False
        self._kept = (self._kept + 1) % _PROBE_EVERY
        return self._kept == 0
