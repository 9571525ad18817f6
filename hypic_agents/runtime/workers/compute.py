"""Computing jobs on a loaded model: the same code in the engine's process and in every worker."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from hypic_agents.runtime.batch import LiveRun, ReusedRun, Row
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.models.hybrid import HybridModel
from hypic_agents.runtime.models.payloads import built_payloads
from hypic_agents.runtime.models.registry import load_model
from hypic_agents.runtime.state import SegmentPayload
from hypic_agents.runtime.workers.contract import BuildJob, WorkerSpec


def job_row(job: BuildJob) -> Row:
    """The row that builds a job's payload."""
    elements: list[LiveRun | ReusedRun] = []
    at = 0
    if job.prefix is not None:
        assert isinstance(job.prefix, SegmentPayload)
        at = len(job.prefix_ids)
        elements.append(ReusedRun(0, at, job.prefix, "last"))
    elif job.prefix_live:
        at = len(job.prefix_ids)
        elements.append(LiveRun(0, job.prefix_ids))
    if job.is_prefix:
        elements.append(LiveRun(at, job.token_ids))
        return Row(tuple(elements), logits_from=0, keep=len(job.token_ids), checkpoint=True)
    if job.map_from:
        elements.append(LiveRun(at, job.token_ids[: job.map_from]))
    rest = job.token_ids[job.map_from :]
    elements.append(LiveRun(at + job.map_from, rest, begin_transition=True))
    return Row(tuple(elements), logits_from=0, keep=len(job.token_ids) - job.head)


@torch.inference_mode()
def compute(model: HybridModel, jobs: Sequence[BuildJob]) -> tuple[list[SegmentPayload], float]:
    """Payloads of jobs from one packed pass, and its seconds, the device's work included."""
    started = time.perf_counter()
    payloads = built_payloads(model.forward([job_row(job) for job in jobs]).batch)
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
    return payloads, time.perf_counter() - started


def load_worker_model(spec: WorkerSpec) -> HybridModel:
    """The model of a worker.

    Raises:
        HypicError: as ``load_model``.
        ValueError: it is another model than the engine's.
    """
    if spec.threads is not None:
        torch.set_num_threads(spec.threads)
    # The engine has compared its own copy with transformers; equal fingerprints say that this is the same model.
    loaded = load_model(spec.model, EngineConfig(model_dtype=spec.model_dtype, device=spec.device, self_test=False))
    if loaded.fingerprint != spec.fingerprint:
        raise ValueError(
            f"the model {spec.model!r} has the fingerprint {loaded.fingerprint} here and {spec.fingerprint} in the "
            "engine: give both the same weights and dtype"
        )
    return loaded.model
