"""What names a beginning: the same for a prompt and for all that continue it, other where a decision is another."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.core import Prompt, Scope, Segment, SegmentKind, SegmentSpan
from hypic_agents.runtime.plan import ReusedSpan, make_plan
from hypic_agents.runtime.policy import PRESETS
from hypic_agents.runtime.prefix_beginning import Beginning, find_beginning

END = 2
ACME = Scope("acme")


def prompt_of(messages: list[list[tuple[SegmentKind | None, int]]], scope: Scope = ACME) -> Prompt:
    """Messages of parts; a part without a kind is plain text. Ends with the header of an answer."""
    ids: list[int] = []
    spans: list[SegmentSpan] = []
    for m, message in enumerate(messages):
        ids += [5, 6]
        for p, (kind, length) in enumerate(message):
            tokens = tuple(100 + (7 * m + 3 * p + i * i) % 400 for i in range(length))
            if kind is not None:
                segment = Segment(str(tokens), kind, f"source-{m}-{p}", "1", scope)
                spans.append(SegmentSpan(segment, tokens, len(ids), len(ids) + length, len(ids)))
            ids += [*tokens, 7]
        ids += [END, 8]
    return Prompt((*ids, 5, 9), tuple(spans), scope=scope)


def beginning(prompt: Prompt, policy: str = "hypic") -> Beginning:
    found = find_beginning(prompt, make_plan(prompt, PRESETS[policy]), {END})
    assert found is not None
    return found


texts = st.tuples(st.none(), st.integers(1, 40))
parts = st.tuples(st.sampled_from(["document", "file", "tool", "trace", "turn", "memory"]), st.integers(1, 60)) | texts
message = st.lists(parts, min_size=1, max_size=3)
first = st.lists(st.tuples(st.just("system"), st.integers(1, 60)) | parts, min_size=1, max_size=3)


@given(first, st.lists(message, min_size=2, max_size=5), st.sampled_from(["hypic", "paper_code", "zero_state"]))
def test_it_stays_the_same_when_messages_are_appended(
    head: list[tuple[SegmentKind | None, int]], rest: list[list[tuple[SegmentKind | None, int]]], policy: str
) -> None:
    longer = beginning(prompt_of([head, *rest]), policy)
    for length in range(1, len(rest)):
        messages = [head, *rest[:length]]
        shorter = beginning(prompt_of(messages), policy)
        common = len(shorter.symbols) - 2  # up to the answer's header
        assert longer.symbols[:common] == shorter.symbols[:common]
        assert longer.sources[: len(shorter.sources)] == shorter.sources
        # A question is plain text as long as it is the last one, and a turn of the conversation later.
        messages[-1] = [(None if kind == "turn" else kind, size) for kind, size in messages[-1]]
        asked = beginning(prompt_of(messages), policy)
        assert longer.symbols[:common] == asked.symbols[:common]


def test_the_end_of_the_last_whole_message_is_where_all_behind_it_is_live() -> None:
    prompt = prompt_of([[("system", 30)], [("document", 60), (None, 9)]])
    found = beginning(prompt)
    assert prompt.token_ids[found.message_end - 1] == END
    assert found.message_end == len(prompt) - 3
    assert found.least == 2 + 30
    cut = replace(prompt, token_ids=prompt.token_ids[:-3])
    assert beginning(cut).message_end == 0, "the last token is computed for its logits"
    assert beginning(prompt_of([[("document", 60)]])).message_end > 0


def test_composed_tokens_are_named_by_their_entry_and_exact_ones_by_themselves() -> None:
    prompt = prompt_of([[("system", 30)], [("document", 60), (None, 9)]])
    plan = make_plan(prompt, PRESETS["hypic"])
    found = beginning(prompt)
    (span,) = [one for one in plan.spans if isinstance(one, ReusedSpan) and not one.build.is_prefix]
    composed = [i for i, symbol in enumerate(found.symbols) if not isinstance(symbol, int)]
    assert composed == list(range(span.start, span.end))
    assert [s if isinstance(s, int) else s[0] for s in found.symbols] == list(prompt.token_ids)
    others = [beginning(prompt, policy).symbols for policy in ("paper_code", "addition", "last_state", "zero_state")]
    assert len({found.symbols, *others}) == 5
    seam = make_plan(prompt, PRESETS["hypic"].with_(head_seam=9))
    assert find_beginning(prompt, seam, {END}).symbols != found.symbols  # type: ignore[union-attr]


def test_every_scope_of_a_prompt_is_in_its_domain() -> None:
    prompt = prompt_of([[("system", 30)], [("document", 60)]])
    other = Scope("acme", frozenset({"legal"}))
    shared = replace(prompt.spans[1], segment=replace(prompt.spans[1].segment, scope=other))
    assert beginning(prompt).domain == {ACME}
    assert beginning(replace(prompt, spans=(prompt.spans[0], shared))).domain == {ACME, other}
    assert beginning(replace(prompt, scope=other)).domain == {ACME, other}
    assert beginning(replace(prompt, spans=(), scope=other)).domain == {other}


@pytest.mark.parametrize("policy", ["exact", "prefix"])
def test_policies_without_composition_have_none(policy: str) -> None:
    prompt = prompt_of([[("system", 30)], [("document", 60)]])
    assert find_beginning(prompt, make_plan(prompt, PRESETS[policy]), {END}) is None


def test_a_prompt_that_anyone_may_have_sent_has_none() -> None:
    prompt = Prompt(tuple(range(3, 60)))
    assert find_beginning(prompt, make_plan(prompt, PRESETS["hypic"]), {END}) is None
