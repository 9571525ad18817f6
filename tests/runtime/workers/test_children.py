"""Starting, ending and outliving worker processes; the processes here are real and small."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hypic_agents.runtime.state import SegmentPayload
from hypic_agents.runtime.workers.child import Child
from hypic_agents.runtime.workers.contract import BuildJob, WorkerSpec
from hypic_agents.runtime.workers.process import ProcessWorkers, _share_out
from tests.runtime.workers.conftest import memory_files
from tests.runtime.workers.scripted import job

ROOT = Path(__file__).resolve().parents[3]
PYTHON = (sys.executable, "-P", "-c")
DIES = "import os; os._exit(7)"
REFUSES = """
import sys
from hypic_agents.runtime.workers.serve import Worker, open_channel
def load(spec, check): raise ValueError(f"no model {spec.model}")
Worker(open_channel(int(sys.argv[1])), load, None).run()
"""
STUBBORN = """
import signal, socket, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
from hypic_agents.runtime.workers.channel import Channel
channel = Channel(socket.socket(fileno=int(sys.argv[1])))
channel.send({"op": "ready"})
time.sleep(600)
"""
WAITS = """
import sys, time
from hypic_agents.runtime.workers.serve import Worker, open_channel
def load(spec, check):
    time.sleep(600)
Worker(open_channel(int(sys.argv[1])), load, None).run()
"""


def workers(code: str, count: int = 1, **spec: float) -> ProcessWorkers:
    return ProcessWorkers(WorkerSpec("m", "f", count, threads=1, **spec), command=(*PYTHON, code))  # type: ignore[arg-type]


def eventually(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    try:
        return "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True


def polled(group: ProcessWorkers, holds: Callable[[], bool]) -> Callable[[], bool]:
    def look() -> bool:
        group.poll()
        return holds()

    return look


def test_a_worker_that_never_starts_is_given_up_after_its_restarts() -> None:
    group = workers(DIES, max_restarts=2, backoff_s=0.01)
    pids = set(group.pids)
    eventually(polled(group, lambda: pids.update(group.pids) or group.alive == 0))  # type: ignore[func-returns-value]
    assert len(pids) == 3
    assert group.trouble == "worker 0 was lost: it ended with exit code 7"
    assert group.pids == ()
    group.close()


def test_a_worker_that_refuses_is_not_started_again() -> None:
    group = workers(REFUSES)
    eventually(polled(group, lambda: group.alive == 0))
    assert group.trouble == "worker 0 cannot work: ValueError: no model m"
    group.close()


def test_a_worker_that_does_not_get_ready_is_late() -> None:
    group = workers(WAITS, start_s=0.05, max_restarts=0)
    eventually(polled(group, lambda: group.alive == 0))
    assert "not ready within 0.05 s" in group.trouble
    group.close()


def test_close_ends_workers_that_do_not_listen() -> None:
    group = workers(STUBBORN, 2)
    eventually(polled(group, lambda: len(group.idle) == 2))
    pids = group.pids
    os.kill(pids[0], signal.SIGSTOP)
    group.send(0, job(1))
    group.send(1, job(2))
    group.close()
    assert all(gone(pid) for pid in pids)
    assert group.poll() == []
    assert memory_files() == []
    group.close()


def test_a_lost_worker_is_told_once_for_its_job() -> None:
    group = workers(STUBBORN, 1, backoff_s=0.01)
    eventually(polled(group, lambda: group.idle == (0,)))
    group.send(0, job(5))
    os.kill(group.pids[0], signal.SIGKILL)
    told = []
    eventually(lambda: bool(told.extend(group.poll()) or told))
    assert [(one.job_id, one.lost, one.load) for one in told] == [(5, True, None)]
    assert told[0].problem == "worker 0 was lost: it was killed by SIGKILL"
    eventually(polled(group, lambda: group.idle == (0,)))
    group.close()


def no_descriptors(*_: object) -> None:
    raise OSError(24, "Too many open files")


def test_a_worker_without_a_socket_is_lost_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("hypic_agents.runtime.workers.child.socket.socketpair", no_descriptors)
        group = workers(STUBBORN, backoff_s=0.01, max_restarts=9)
        assert group.poll() == []
    assert "it could not be started: [Errno 24] Too many open files" in group.trouble
    eventually(polled(group, lambda: group.idle == (0,)))
    group.close()


@pytest.mark.parametrize("where", ["child", "prefix_shelf"])
def test_a_job_that_cannot_be_written_down_is_told_as_lost(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    group = workers(STUBBORN, backoff_s=0.01)
    eventually(polled(group, lambda: group.idle == (0,)))
    behind = BuildJob(5, (3, 4), 0, 0, prefix_ids=(1, 2), prefix=SegmentPayload((), 2, is_checkpoint=True))
    with monkeypatch.context() as patch:
        patch.setattr(f"hypic_agents.runtime.workers.{where}.write_file", no_descriptors)
        group.send(0, behind)
    (told,) = group.poll()
    assert (told.job_id, told.lost, told.load) == (5, True, None)
    assert "its job cannot be written down" in told.problem
    eventually(polled(group, lambda: group.idle == (0,)))
    with monkeypatch.context() as patch:
        patch.setattr(f"hypic_agents.runtime.workers.{where}.write_file", no_descriptors)
        group.send(0, behind)
        group.abandon(0)
    assert group.poll() == [], "of what was abandoned, nothing is told"
    group.close()


def test_a_job_that_could_not_be_sent_may_be_cancelled_before_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    group = workers(STUBBORN, backoff_s=0.01)
    eventually(polled(group, lambda: group.idle == (0,)))
    with monkeypatch.context() as patch:
        patch.setattr("hypic_agents.runtime.workers.child.write_file", no_descriptors)
        group.send(0, job(1))
    group.cancel(0, 1)
    assert [one.job_id for one in group.poll()] == [1]
    eventually(polled(group, lambda: group.idle == (0,)))
    group.send(0, job(2))
    os.kill(group.pids[0], signal.SIGKILL)
    told = []
    eventually(lambda: bool(told.extend(group.poll()) or told))
    assert [one.job_id for one in told] == [2], "of the first, nothing is told again"
    group.close()


def test_waiting_for_a_worker_that_ends_meanwhile() -> None:
    class Ending(Child):
        """Another thread ends it between two looks at its channel."""

        @property
        def _channel(self) -> Any:
            seen, self.looks = self.looks, self.looks + 1
            return SimpleNamespace(fileno=lambda: 7) if seen == 0 else None

        @_channel.setter
        def _channel(self, _: object) -> None:
            self.looks = 0

    assert Ending(WorkerSpec("m", "f"), ()).fileno() == 7


def test_a_named_gpu_has_one_worker() -> None:
    spec = WorkerSpec("m", "f", device="cuda:1")
    assert [one.device for one in _share_out(spec)] == ["cuda:1"]
    assert len(_share_out(replace(spec, num_workers=2))) == 2


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_workers_end_with_the_process_that_started_them(how: signal.Signals) -> None:
    code = f"""
import sys, time
from hypic_agents.runtime.workers.contract import WorkerSpec
from hypic_agents.runtime.workers.process import ProcessWorkers
group = ProcessWorkers(WorkerSpec("m", "f", 2, threads=1), command={(*PYTHON, WAITS)!r})
print(*group.pids, flush=True)
time.sleep(600)
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([*PYTHON, code], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        parent.send_signal(how)
        parent.wait()
        eventually(lambda: all(map(gone, pids)))


def test_a_group_that_is_dropped_ends_its_workers() -> None:
    group = workers(STUBBORN)
    pids = group.pids
    del group
    eventually(lambda: all(map(gone, pids)))
