"""The loop: errors before work, sampling, streaming, cancellation, isolation of requests and tenants."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from typing import Any

import pytest
import torch

from hypic_agents.core import Prompt, SamplingParams, Scope
from hypic_agents.errors import ContextOverflow, EmptyPrompt, EngineClosed, HypicError, InvalidInput, InvalidPolicy
from tests.runtime.models import Failing, engine, hybrid, make_prompt, segment_ids


def some_prompt(seed: int = 0, **changes: Any) -> Prompt:
    rng = random.Random(seed)
    return make_prompt([segment_ids(rng, n) for n in (40, 57)], system=segment_ids(rng, 20), **changes)


def test_bad_input_is_refused_before_anything_is_computed() -> None:
    one = engine()
    window = one.model.window
    with pytest.raises(EmptyPrompt):
        one.generate(Prompt(()))
    with pytest.raises(ContextOverflow, match=f"{window}"):
        one.generate(Prompt((5,) * 10), SamplingParams(max_tokens=window))
    with pytest.raises(InvalidPolicy):
        one.generate(some_prompt(), policy="nothing")
    with pytest.raises(InvalidInput, match="1024"):
        one.generate(Prompt((5, 1024)))
    for bad in ({"max_tokens": 0}, {"temperature": -1.0}, {"temperature": 1e-40}, {"top_p": 0.0}, {"stop": ("",)}):
        with pytest.raises(InvalidInput):
            one.generate(some_prompt(), SamplingParams(**bad))  # type: ignore[arg-type]
    stats = one.stats()
    assert (stats.entries, stats.hits, stats.misses) == (0, 0, 0)


def test_a_seed_repeats_a_sample_and_temperature_changes_it() -> None:
    one = engine()
    hot = SamplingParams(max_tokens=16, temperature=1.5, seed=3)
    first, second = one.generate(some_prompt(), hot), one.generate(some_prompt(), hot)
    assert first.token_ids == second.token_ids
    assert first.token_ids != one.generate(some_prompt(), SamplingParams(max_tokens=16)).token_ids
    other = one.generate(some_prompt(), SamplingParams(max_tokens=16, temperature=1.5, seed=4))
    assert first.token_ids != other.token_ids


def test_a_tiny_top_p_is_greedy() -> None:
    one = engine()
    greedy = one.generate(some_prompt(), SamplingParams(max_tokens=12))
    narrow = one.generate(some_prompt(), SamplingParams(max_tokens=12, temperature=1.0, top_p=1e-6, seed=1))
    assert narrow.token_ids == greedy.token_ids


def test_a_stream_is_the_completion_in_pieces() -> None:
    one = engine()
    chunks = list(one.stream(some_prompt(), SamplingParams(max_tokens=20)))
    done = chunks[-1].completion
    assert done is not None
    assert "".join(chunk.text for chunk in chunks) == done.text
    assert done.text == one.generate(some_prompt(), SamplingParams(max_tokens=20)).text


def test_a_stop_string_ends_the_answer_before_it() -> None:
    one = engine()
    whole = one.generate(some_prompt(), SamplingParams(max_tokens=20)).text
    stop = whole[len(whole) // 2 :][:3]
    cut = one.generate(some_prompt(), SamplingParams(max_tokens=20, stop=(stop,)))
    assert cut.text == whole[: whole.index(stop)]
    assert cut.finish_reason == "stop"
    streamed = "".join(c.text for c in one.stream(some_prompt(), SamplingParams(max_tokens=20, stop=(stop,))))
    assert streamed == cut.text


def test_closing_a_stream_cancels_its_request() -> None:
    one = engine()
    stream = one.stream(some_prompt(), SamplingParams(max_tokens=200))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert one.step() == []
    assert one.stats().pinned == 0


def test_batched_requests_answer_as_alone() -> None:
    one = engine()
    prompts = [some_prompt(seed) for seed in range(5)]
    sampling = SamplingParams(max_tokens=10)
    together = one.generate_batch(prompts, sampling)
    for prompt, got in zip(prompts, together, strict=True):
        assert engine().generate(prompt, sampling).token_ids == got.token_ids


def test_one_segment_twice_is_one_entry() -> None:
    one = engine()
    rng = random.Random(5)
    part = segment_ids(rng, 50)
    report = one.generate(make_prompt([part, part], system=segment_ids(rng, 20))).report
    assert one.stats().entries == 2
    assert [s.composed_tokens for s in report.spans[1:]] == [40, 40]
    one.store.check_integrity()


def test_law_6_scopes_do_not_share_entries() -> None:
    one = engine()
    first = one.generate(some_prompt(scope=Scope("a")))
    again = one.generate(some_prompt(scope=Scope("a")))
    other = one.generate(some_prompt(scope=Scope("b")))
    assert [s.state for s in again.report.spans] == ["hit"] * 3
    assert [s.state for s in other.report.spans] == ["cold"] * 3
    assert first.token_ids == other.token_ids
    assert one.invalidate(tenant="a") == 3
    assert [s.state for s in one.generate(some_prompt(scope=Scope("a"))).report.spans] == ["cold"] * 3


def test_a_shared_document_behind_a_private_system_prompt() -> None:
    one = engine()
    prompt = some_prompt(scope=Scope("a"))
    shared = replace(prompt.spans[1], segment=replace(prompt.spans[1].segment, scope=Scope("everyone")))
    mixed = replace(prompt, spans=(prompt.spans[0], shared, prompt.spans[2]))
    assert one.generate(mixed).token_ids == engine().generate(prompt).token_ids


@pytest.mark.parametrize("where", ["prompt", "decode"])
def test_law_10_one_request_s_failure_touches_no_other(where: str) -> None:
    sampling = SamplingParams(max_tokens=10)
    good = [some_prompt(seed) for seed in (1, 2)]
    expected = [engine().generate(p, sampling).token_ids for p in good]
    victim = some_prompt(9, question=(7, 8, 1001))
    token = 1001 if where == "prompt" else engine().generate(victim, sampling).token_ids[2]
    assert where == "prompt" or all(token not in ids for ids in expected)
    one = engine()
    broken: Any = Failing(hybrid("qwen3_5"), token)
    one.model = broken
    one._prefill._model = broken
    requests = [one.submit(p, sampling) for p in (good[0], victim, good[1])]
    while not all(r.done for r in requests):
        one.step()
    assert isinstance(requests[1].error, HypicError)
    assert [requests[i].completion.token_ids for i in (0, 2)] == expected  # type: ignore[union-attr]
    assert one.stats().pinned == 0
    one.store.check_integrity()


def test_a_full_store_still_answers_right() -> None:
    sampling = SamplingParams(max_tokens=8)
    tight, roomy = engine(store_bytes=200_000), engine()
    for seed in range(6):
        assert (
            tight.generate(some_prompt(seed), sampling).token_ids
            == roomy.generate(some_prompt(seed), sampling).token_ids
        )
        tight.store.check_integrity()
    stats = tight.stats()
    assert stats.evictions + stats.rejected > 0
    assert stats.pinned == 0


def test_threads_share_the_loop() -> None:
    one = engine(max_batch=3)
    sampling = SamplingParams(max_tokens=8)
    expected = [engine().generate(some_prompt(s), sampling).token_ids for s in range(6)]
    got: dict[int, tuple[int, ...]] = {}

    def ask(seed: int) -> None:
        got[seed] = one.generate(some_prompt(seed), sampling).token_ids

    threads = [threading.Thread(target=ask, args=(s,)) for s in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[s] for s in range(6)] == expected


def test_a_closed_engine_refuses_and_cancels() -> None:
    one = engine()
    request = one.submit(some_prompt(), SamplingParams(max_tokens=50))
    one.step()
    one.close()
    assert request.completion is not None
    assert request.completion.finish_reason == "cancelled"
    with pytest.raises(EngineClosed):
        one.generate(some_prompt())


def test_score_rows_are_the_logits_of_generation() -> None:
    one = engine()
    prompt = some_prompt()
    for policy in ("exact", "hypic"):
        answer = one.generate(prompt, SamplingParams(max_tokens=12), policy).token_ids
        logits = one.score([prompt, prompt], [answer, answer[:3]], policy)
        assert tuple(logits[0].argmax(-1).tolist()) == answer
        assert torch.allclose(logits[0][:3], logits[1], atol=1e-4)
