"""Costs learnt while running: every finished build is a sample. No torch."""

from __future__ import annotations

from collections import deque
from statistics import median

from hypic_agents.runtime.workers.schedule import CostModel, Sample, fit_cost

_SAMPLES = 64


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
    """Seconds that carrying a job to a worker and its payload back takes, as the median of the latest."""

    def __init__(self, prior_s: float = 0.005) -> None:
        self._seconds: deque[float] = deque([prior_s], maxlen=_SAMPLES)

    def add(self, seconds: float) -> None:
        self._seconds.append(max(0.0, seconds))

    @property
    def seconds(self) -> float:
        return median(self._seconds)
