"""Counters and gauges with labels, as a dict or in the Prometheus text format. No dependency, no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from threading import Lock
from typing import Literal

from hypic_agents.completion import Completion
from hypic_agents.runtime.cache.base import StoreStats
from hypic_agents.runtime.cache.prefix_base import PrefixStats

MetricType = Literal["counter", "gauge"]
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Metric:
    """What one metric means; ``labels`` are the names every sample of it carries, in the order shown."""

    type: MetricType
    help: str
    labels: tuple[str, ...] = ()


class Metrics:
    """A fixed set of metrics and their samples. Safe to call from several threads.

    Args:
        catalog: The metrics by name. Names outside it, and other labels than it lists, raise ``KeyError``: a
            misspelt metric is a bug, never a new one.
    """

    def __init__(self, catalog: Mapping[str, Metric]) -> None:
        self._catalog = dict(catalog)
        self._samples: dict[str, dict[Labels, float]] = {name: {} for name in catalog}
        self._lock = Lock()

    def inc(self, name: str, value: float = 1.0, **labels: str) -> None:
        """Add to a counter.

        Raises:
            ValueError: a negative value, or ``name`` is a gauge.
        """
        if self._catalog[name].type != "counter" or not value >= 0:
            raise ValueError(f"{name} cannot go up by {value}: only counters are added to, and they never fall")
        key = self._labels(name, labels)
        with self._lock:
            self._samples[name][key] = self._samples[name].get(key, 0.0) + value

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge.

        Raises:
            ValueError: ``name`` is a counter.
        """
        if self._catalog[name].type != "gauge":
            raise ValueError(f"{name} is a counter: add to it with inc")
        key = self._labels(name, labels)
        with self._lock:
            self._samples[name][key] = float(value)

    def drop(self, name: str) -> None:
        """Forget all samples of a gauge whose label values may vanish."""
        with self._lock:
            self._samples[name].clear()

    def get(self, name: str, **labels: str) -> float:
        """One sample; 0 where nothing was recorded."""
        key = self._labels(name, labels)
        with self._lock:
            return self._samples[name].get(key, 0.0)

    def total(self, name: str) -> float:
        """The sum over all labels."""
        with self._lock:
            return math.fsum(self._samples[name].values())

    def as_dict(self) -> dict[str, list[dict[str, object]]]:
        """``{name: [{"labels": {...}, "value": x}, ...]}``, metrics without a sample left out; ready for JSON."""
        with self._lock:
            return {
                name: [{"labels": dict(labels), "value": value} for labels, value in sorted(samples.items())]
                for name, samples in self._samples.items()
                if samples
            }

    def to_text(self) -> str:
        """Prometheus text exposition format, version 0.0.4; metrics without a sample are left out."""
        lines: list[str] = []
        with self._lock:
            for name, samples in self._samples.items():
                if not samples:
                    continue
                metric = self._catalog[name]
                lines += [f"# HELP {name} {_escape(metric.help, quote=False)}", f"# TYPE {name} {metric.type}"]
                for labels, value in sorted(samples.items()):
                    shown = ",".join(f'{key}="{_escape(text)}"' for key, text in labels)
                    lines.append(f"{name}{{{shown}}} {_number(value)}" if shown else f"{name} {_number(value)}")
        return "".join(line + "\n" for line in lines)

    def _labels(self, name: str, labels: Mapping[str, str]) -> Labels:
        expected = self._catalog[name].labels
        if set(labels) != set(expected):
            raise KeyError(f"{name} has the labels {expected}, not {tuple(labels)}")
        return tuple((key, labels[key]) for key in expected)


REQUEST_METRICS: dict[str, Metric] = {
    "hypic_requests_total": Metric("counter", "Finished requests.", ("policy", "finish_reason")),
    "hypic_prompt_tokens_total": Metric(
        "counter",
        "Prompt tokens: computed live, cold (built for the request), or reused.",
        ("policy", "how"),
    ),
    "hypic_prefix_tokens_total": Metric(
        "counter", "Prompt tokens, among the reused ones, that were taken from a checkpoint.", ("policy",)
    ),
    "hypic_cold_builds_total": Metric(
        "counter", "Entries built for requests, in this process (local) or by workers.", ("policy", "place")
    ),
    "hypic_cold_retries_total": Metric("counter", "Builds that were begun again elsewhere.", ("policy",)),
    "hypic_completion_tokens_total": Metric("counter", "Generated tokens.", ("policy",)),
}
STORE_METRICS: dict[str, Metric] = {
    f"hypic_store_{field.name}": Metric("gauge", f"The segment store's {field.name.replace('_', ' ')}.")
    for field in fields(StoreStats)
}
PREFIX_METRICS: dict[str, Metric] = {
    f"hypic_prefix_{field.name}": Metric("gauge", f"The prefix checkpoints' {field.name.replace('_', ' ')}.")
    for field in fields(PrefixStats)
}
ENGINE_METRICS = REQUEST_METRICS | STORE_METRICS | PREFIX_METRICS


def count_completions(metrics: Metrics, completions: Iterable[Completion]) -> None:
    """Add finished requests to :data:`REQUEST_METRICS`."""
    for one in completions:
        policy = one.report.policy
        metrics.inc("hypic_requests_total", policy=policy, finish_reason=one.finish_reason)
        metrics.inc("hypic_completion_tokens_total", one.usage.completion_tokens, policy=policy)
        metrics.inc("hypic_prompt_tokens_total", one.report.live_tokens, policy=policy, how="live")
        metrics.inc("hypic_prompt_tokens_total", one.report.cold_tokens, policy=policy, how="cold")
        metrics.inc("hypic_prompt_tokens_total", one.report.reused_tokens, policy=policy, how="reused")
        metrics.inc("hypic_cold_builds_total", one.report.builds.local, policy=policy, place="local")
        metrics.inc("hypic_cold_builds_total", one.report.builds.workers, policy=policy, place="worker")
        metrics.inc("hypic_cold_retries_total", one.report.builds.retries, policy=policy)
        metrics.inc("hypic_prefix_tokens_total", one.report.prefix_tokens, policy=policy)


def show_store(metrics: Metrics, stats: StoreStats, prefixes: PrefixStats) -> None:
    """Set :data:`STORE_METRICS` and :data:`PREFIX_METRICS` to what the store and the checkpoints say of themselves."""
    for field in fields(stats):
        metrics.set(f"hypic_store_{field.name}", getattr(stats, field.name))
    for field in fields(prefixes):
        metrics.set(f"hypic_prefix_{field.name}", getattr(prefixes, field.name))


def _escape(text: str, *, quote: bool = True) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quote else text


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)
