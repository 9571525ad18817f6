"""Data parallelism over processes of one thread each: at this size a second thread in one process gains far less."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


class Group:
    """The processes of a run. With one process every method returns what it was given."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    def average_gradients(self, model: nn.Module) -> None:
        """Replace every gradient by its mean over the processes."""
        if self.size == 1:
            return
        gradients = []
        for parameter in model.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat)
        flat /= self.size
        for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(mean.view_as(gradient))

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, by rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values


def launch(work: Callable[[Group, Any], None], argument: Any, workers: int, threads: int) -> None:
    """Run ``work(group, argument)`` in ``workers`` processes of ``threads`` threads; in this one if it is only one."""
    if workers == 1:
        _settings(threads)
        work(Group(), argument)
        return
    with tempfile.TemporaryDirectory() as directory:
        context = torch.multiprocessing.spawn(
            _worker, (workers, threads, Path(directory) / "rendezvous", work, argument), nprocs=workers, join=False
        )
        # Workers stop in their own time, with a checkpoint.
        signal.signal(signal.SIGTERM, lambda *_: [process.terminate() for process in context.processes])
        while not context.join():
            pass


def _worker(rank: int, size: int, threads: int, rendezvous: Path, work: Callable[..., None], argument: Any) -> None:
    _settings(threads)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=rendezvous.as_uri(), rank=rank, world_size=size)
    try:
        work(Group(rank, size), argument)
    finally:
        dist.destroy_process_group()


def _settings(threads: int) -> None:
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
