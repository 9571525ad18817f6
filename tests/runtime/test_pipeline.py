"""Assembly that begins before the last entry is there gives what one pass gives."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from hypic_agents.core import Prompt, SamplingParams
from hypic_agents.runtime.pipeline import leading_spans
from hypic_agents.runtime.request import Request
from hypic_agents.runtime.workers.contract import BuildJob, Built
from hypic_agents.runtime.workers.local import LocalPool
from tests.runtime.models import FAMILIES, engine, hybrid, make_prompt, segment_ids

ANSWER = SamplingParams(max_tokens=8)


class SlowPool(LocalPool):
    """Computes one job a poll, in the order given, and says that it has a worker to spare."""

    spare = True  # type: ignore[assignment]

    def __init__(self, family: str) -> None:
        super().__init__(hybrid(family), 32_768)
        self._jobs: list[BuildJob] = []

    def submit(self, jobs: Sequence[BuildJob]) -> None:
        self._jobs += jobs

    def poll(self) -> list[Built]:
        jobs, self._jobs = self._jobs[:1], self._jobs[1:]
        # Builder polls until there is nothing; a real pool has nothing until its workers have.
        self._jobs, self._later = ([], self._jobs) if jobs else (self._later, [])
        return self.compute(jobs)

    _later: list[BuildJob] = []  # noqa: RUF012  replaced, never changed


def prompt_of(seed: int, *, system: bool) -> Prompt:
    rng = random.Random(seed)
    parts = [segment_ids(rng, n) for n in (50, 130, 64, 90)]
    return make_prompt(parts, system=segment_ids(rng, 30) if system else ())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("system", [True, False])
@pytest.mark.parametrize("prefix_bytes", [0, 1 << 28])
def test_the_answer_is_that_of_one_pass(family: str, system: bool, prefix_bytes: int) -> None:
    prompt = prompt_of(3, system=system)
    expected = engine(family).generate(prompt, ANSWER)
    one = engine(family, prefix_bytes=prefix_bytes)
    one._prefill._builder._pool = SlowPool(family)
    request = one.submit(prompt, ANSWER)
    lengths: list[int] = []
    while not request.done:
        one.step()
        state = one._prefill.pipeline._states.get(request.id)
        if state is not None and (not lengths or state.length > lengths[-1]):
            lengths.append(state.length)
    assert len(lengths) >= 2, "it was assembled in several passes"
    assert request.completion is not None
    assert request.completion.token_ids == expected.token_ids
    assert request.completion.report.cold_tokens == expected.report.cold_tokens
    assert one._prefill.pipeline._states == {}
    again = one.generate(prompt, ANSWER)
    assert again.token_ids == expected.token_ids
    assert one.stats().pinned == 0


def test_a_cancelled_request_leaves_no_state() -> None:
    one = engine("qwen3_5")
    one._prefill._builder._pool = SlowPool("qwen3_5")
    request: Request = one.submit(prompt_of(4, system=True), ANSWER)
    while not one._prefill.pipeline._states:
        one.step()
    one.cancel(request)
    assert one._prefill.pipeline._states == {}
    assert one.stats().pinned == 0


def test_leading_spans_end_at_a_live_one() -> None:
    one = engine("qwen3_5")
    plan = one.plan(prompt_of(5, system=True))
    keys = [build.key(one.fingerprint) for build in plan.builds]
    assert leading_spans(plan, [], one.fingerprint) == 0
    found = [leading_spans(plan, keys[:n], one.fingerprint) for n in range(1, len(keys) + 1)]
    assert found == sorted(found)
    assert found[-1] == len(plan.spans)
    for n, count in enumerate(found[:-1], start=1):
        assert plan.spans[count].build.key(one.fingerprint) == keys[n]  # type: ignore[union-attr]
    assert leading_spans(plan, keys[1:], one.fingerprint) == 0, "the first is missing"
