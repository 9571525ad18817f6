"""The pool that a configuration asks for."""

from __future__ import annotations

from hypic_agents.errors import InvalidInput
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.models.hybrid import HybridModel
from hypic_agents.runtime.workers.contract import ColdPrefillPool, WorkerGroup, WorkerSpec
from hypic_agents.runtime.workers.dispatch import Limits, WorkerPool
from hypic_agents.runtime.workers.local import LocalPool


def make_pool(config: EngineConfig, model: HybridModel, name: str, fingerprint: str) -> ColdPrefillPool:
    """A pool whose workers, if any, begin to load the model now.

    Args:
        config: ``cold_prefill`` and what goes with it.
        model: The engine's own.
        name: What the model was loaded by; workers load the same.
        fingerprint: What names its weights.

    Raises:
        InvalidInput: workers are asked for, and the model has no name to load it by, or Ray is not installed.
    """
    local = LocalPool(model, config.max_pass_tokens)
    form, num_workers = config.cold_form
    if form == "local":
        return local
    if not name:
        raise InvalidInput(
            f"cold_prefill={config.cold_prefill!r} needs a model that workers can load by name: make the engine with "
            "Engine.load, or use cold_prefill='local'"
        )
    spec = WorkerSpec(name, fingerprint, num_workers, config.model_dtype, config.device)
    limits = Limits(config.cold_retries, config.cold_deadline_factor, config.cold_deadline_floor_s)
    return WorkerPool(_group(form, spec, str(model.device), config.ray_address), local, limits)


def _group(form: str, spec: WorkerSpec, device: str, ray_address: str | None) -> WorkerGroup:
    if form == "processes":
        from hypic_agents.runtime.workers.process import ProcessWorkers

        return ProcessWorkers(spec, device)
    from hypic_agents.runtime.workers.ray_pool import RayWorkers

    return RayWorkers(spec, device, address=ray_address)
