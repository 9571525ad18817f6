"""Real processes: killed while they write, and writing side by side."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.runtime.cache.blobs import make, open_tier, same

ROOT = Path(__file__).resolve().parents[3]
ROOMY, TIGHT = 1 << 30, 1_500_000


class Nursery:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def start(self, root: Path, budget: int, seed: int, count: int) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{root} {budget} {seed} {count}\n")
        self._process.stdin.flush()
        return int(self.line().split()[1])

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def nursery() -> Iterator[Nursery]:
    command = [sys.executable, "-m", "tests.runtime.cache.writing_child"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as process:
        yield Nursery(process)
        assert process.stdin is not None
        process.stdin.close()


def run_and_kill(child: Nursery, root: Path, budget: int, seed: int) -> list[str]:
    """What a writer said before it was killed at a random point."""
    rng = random.Random(seed)
    pid = child.start(root, budget, seed, 10_000)
    said = [child.line() for _ in range(rng.randrange(1, 25))]
    time.sleep(rng.uniform(0, 0.01))
    os.kill(pid, signal.SIGKILL)
    while (line := child.line()) != "ended":
        said.append(line)
    return said


def check(root: Path, budget: int, said: list[str]) -> None:
    """The directory opens, is whole, and holds all that was acknowledged and not taken away."""
    lasting: dict[int, int] = {}
    for line in said:
        what, token, *size = line.split()
        assert what != "wrong", line
        if what == "written":
            lasting[int(token)] = int(size[0])
        else:  # all that was written before, and what comes now is written again
            lasting = {each: nbytes for each, nbytes in lasting.items() if each % 7 != int(token)}
    tier = open_tier(root, budget)
    tier.check_integrity()
    assert list(tier._files.drafts()) == []
    assert tier.held_bytes() <= budget
    assert tier.damaged == 0
    for token, nbytes in lasting.items():
        entry = make(token, nbytes, source_id=f"s{token % 7}")
        found = tier.read(entry.key, entry.token_ids)
        assert same(found, entry) or (found is None and budget == TIGHT)
    for row in tier.rows():
        assert row.info is not None
    tier.close()


@pytest.mark.parametrize("rounds", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_kill_at_random_points(tmp_path: Path, rounds: int) -> None:
    with nursery() as child:
        for seed in range(rounds):
            budget = ROOMY if seed % 2 else TIGHT
            root = tmp_path / f"{seed % 4}"  # directories that survived crashes before
            check(root, budget, run_and_kill(child, root, budget, seed))


def test_two_processes_write_together(tmp_path: Path) -> None:
    with nursery() as one, nursery() as two:
        for child, seed in ((one, 1), (two, 1)):
            child.start(tmp_path, TIGHT, seed, 40)
        tier = open_tier(tmp_path, TIGHT)
        for child in (one, two):
            while (line := child.line()) != "ended":
                assert not line.startswith("wrong")
                assert tier.held_bytes() <= TIGHT
        tier.check_integrity()
        assert [problem for _, problem in tier.verify() if problem] == []
        tier.close()


def test_one_is_killed_and_the_other_goes_on(tmp_path: Path) -> None:
    with nursery() as one, nursery() as two:
        for seed in range(3):
            two.start(tmp_path, TIGHT, 100 + seed, 30)
            run_and_kill(one, tmp_path, TIGHT, seed)
            said = []
            while (line := two.line()) != "ended":
                said.append(line)
            assert said[-1] == "finished"
            tier = open_tier(tmp_path, TIGHT)
            tier.check_integrity()
            assert tier.held_bytes() <= TIGHT
            tier.close()
