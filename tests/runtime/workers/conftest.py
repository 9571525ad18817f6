"""Two real workers with faults on demand, shared by the tests of a module."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.models.registry import LoadedModel, load_model
from hypic_agents.runtime.workers.contract import WorkerSpec
from hypic_agents.runtime.workers.dispatch import Limits, WorkerPool
from hypic_agents.runtime.workers.local import LocalPool
from hypic_agents.runtime.workers.process import ProcessWorkers
from tests.bench.stub import NoTokenizer

MODEL = "random:qwen3_5:2m"
READY_S = 500.0


class Lab:
    """Workers of one model, the faults they are to have, and engines and pools on them."""

    def __init__(self, folder: Path, loaded: LoadedModel) -> None:
        self.folder = folder
        self.loaded = loaded
        self.spec = WorkerSpec(MODEL, loaded.fingerprint, 2, threads=1, backoff_s=0.01, max_restarts=50)
        self.command = (sys.executable, "-P", "-m", "tests.runtime.workers.faulty_worker", str(folder))
        self.group = ProcessWorkers(self.spec, command=self.command)

    def set_fault(self, token: int | str, kind: str) -> None:
        (self.folder / str(token)).write_text(kind)

    def seen(self, token: int) -> bool:
        """Whether a worker has begun a job that starts with this token."""
        return (self.folder / f"seen-{token}").exists()

    def release(self) -> None:
        (self.folder / "release").touch()

    def pool(self, *, floor_s: float = 60.0, retries: int = 2) -> WorkerPool:
        """A pool over the shared workers, all of them ready, that sends every job. Not to be closed."""
        local = LocalPool(self.loaded.model, 32_768)
        pool = WorkerPool(self.group, local, Limits(retries, 10.0, floor_s), hop_s=0.0)
        assert pool.warm_up(READY_S) == 2
        return pool

    def engine(self, pool: WorkerPool | LocalPool | None = None, **config: object) -> Engine:
        """An engine with an empty store; closing it leaves the shared workers alone."""
        settings = EngineConfig(prefix_bytes=0, **config)  # type: ignore[arg-type]
        return Engine(self.loaded.model, NoTokenizer(), self.loaded.fingerprint, settings, name=MODEL, pool=pool)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def loaded() -> LoadedModel:
    return load_model(MODEL, EngineConfig(self_test=False))


@pytest.fixture(scope="module")
def shared_lab(loaded: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).resolve().parents[3]), path]))
    made = Lab(tmp_path_factory.mktemp("faults"), loaded)
    yield made
    made.group.close()
    if path is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = path


@pytest.fixture
def lab(shared_lab: Lab) -> Iterator[Lab]:
    """The shared workers, without faults, and with a look afterwards whether anything was left behind."""
    for file in shared_lab.folder.iterdir():
        file.unlink()
    yield shared_lab
    gc.collect()
    assert len(memory_files()) == len(shared_lab.group._shelf.names()), "only prefixes stay in memory"


def memory_files(pid: int | str = "self") -> list[str]:
    """Nameless memory files that a process holds."""
    found = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # the listing's own is closed by now
            found.append(str(fd.readlink()))
    return [target for target in found if target.startswith("/memfd:hypic ")]


torch.set_num_threads(1)
