"""An agent's loop on the trained model: from the second turn on, a turn costs what is new in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from hypic_agents import Engine, EngineConfig
from hypic_agents.completion import Completion
from hypic_agents.core import Grammar, Prompt, SamplingParams, Scope
from hypic_agents.runtime.batch import LiveRun, Row
from hypic_agents.runtime.models.hybrid import HybridModel
from hypic_agents.runtime.policy import PRESETS
from tests.runtime.models import StandIn

TURNS = 20
ACME = Scope("acme")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "find_ticket",
            "description": "Look a ticket up by its number.",
            "parameters": {
                "type": "object",
                "properties": {"number": {"type": "integer", "enum": [3, 5, 7]}},
                "required": ["number"],
            },
        },
    }
]
SAMPLING = SamplingParams(
    max_tokens=48, grammar=Grammar("tool_calls", json.dumps({"tools": TOOLS, "choice": "required", "parallel": False}))
)
NOTHING_COMPOSED = "hypic:min_segment_len=100000"
# Only these tokens of a turn are computed without being new in its prompt: the last ones of the answer before, which
# ended there, so that no pass took them (see ``Loop.behind``); and for every segment that is built, the lead and the
# head seam that it is built behind.
MOST_BEHIND = PRESETS["hypic"].head_seam
SEAM = PRESETS["hypic"].head_seam + PRESETS["hypic"].lead_max


class Counting(StandIn):
    """A model that counts the tokens it computes.

    Attributes:
        prompt_len: What lies behind it belongs to the answer.
        tokens, answered: Of prompts and segments, and of answers.
    """

    def __init__(self, model: HybridModel) -> None:
        super().__init__(model)
        self.prompt_len = self.tokens = self.answered = 0

    def forward(self, rows: list[Row]) -> Any:
        for run in (run for row in rows for run in row.elements if isinstance(run, LiveRun)):
            behind = max(0, run.start + run.length - max(run.start, self.prompt_len))
            self.answered += behind
            self.tokens += run.length - behind
        return self._model.forward(rows)


@pytest.fixture(scope="module")
def tiny() -> Iterator[Engine]:
    with Engine.load("tiny", EngineConfig(threads=1, self_test=False)) as engine:
        yield engine


@dataclass
class Loop:
    """One agent on one engine.

    Attributes:
        computed: Tokens that the last turn computed before its answer.
        behind: The answer's last tokens, which it did not compute.
        known: The tokens of the last prompt and of its answer.
        new: Tokens of the last prompt that no pass took before.
    """

    engine: Engine
    policy: str = "hypic"
    scope: Scope = ACME
    messages: list[dict[str, Any]] = field(
        default_factory=lambda: [
            {"role": "system", "content": "You are a careful assistant. Look tickets up and answer briefly."},
            {"role": "user", "content": "Go through the tickets one by one and say which ones are open."},
        ]
    )
    known: tuple[int, ...] = ()
    new: int = 0
    computed: int = 0
    behind: int = 0

    def turn(self) -> Completion:
        prompt = self.engine.builder.build_chat(self.messages, tools=TOOLS, scope=self.scope)
        assert prompt.token_ids[: len(self.known)] == self.known, "the chat template wrote the last answer otherwise"
        model: Any = self.engine.model
        model.prompt_len, model.tokens, model.answered = len(prompt), 0, 0
        self.new = len(prompt) - len(self.known) + self.behind
        done = self.engine.generate(prompt, SAMPLING, self.policy)
        self.computed = model.tokens
        self.behind = len(done.token_ids) - model.answered
        assert 1 <= self.behind <= MOST_BEHIND
        self.known = prompt.token_ids + done.token_ids
        return done

    def answer(self, done: Completion, result: str) -> None:
        """Append the calls and their result."""
        (call,) = done.tool_calls
        function = {"name": call.name, "arguments": dict(call.arguments)}
        made = f"c{len(self.messages)}"
        self.messages.append({"role": "assistant", "content": "", "tool_calls": [{"id": made, "function": function}]})
        self.messages.append({"role": "tool", "tool_call_id": made, "content": result})


def loop(tiny: Engine, policy: str = "hypic", **config: Any) -> Loop:
    model: Any = Counting(tiny.model)
    return Loop(Engine(model, tiny.tokenizer, tiny.fingerprint, EngineConfig(threads=1, **config)), policy)


def result(turn: int) -> str:
    """What the tool says: on some turns so much that it becomes a segment."""
    line = f"Ticket {turn}: the lift on floor {turn * 7 % 10} is broken. "
    return line * (5 if turn % 5 == 3 else 1)


def test_a_turn_costs_its_new_tokens_and_answers_as_full_recompute(tiny: Engine) -> None:
    agent, exact = loop(tiny, NOTHING_COMPOSED), loop(tiny, "exact")
    for turn in range(TURNS):
        done, truth = agent.turn(), exact.turn()
        assert done.token_ids == truth.token_ids
        assert all(span.kind == "system" for span in done.report.spans if span.state == "cold")  # exact, not composed
        if turn:
            assert agent.computed <= agent.new
            assert agent.computed == done.report.live_tokens
            assert done.report.prefix_tokens == done.report.prompt_tokens - done.report.live_tokens
            assert done.usage.cached_tokens == done.report.reused_tokens == done.report.prefix_tokens
            assert exact.computed == len(exact.known) - len(truth.token_ids)
        agent.answer(done, result(turn))
        exact.answer(truth, result(turn))
    agent.engine.prefixes.check_integrity()


def test_composed_parts_change_neither_the_cost_nor_an_answer(tiny: Engine) -> None:
    agent, without = loop(tiny), loop(tiny, prefix_bytes=0)
    composed = 0
    for turn in range(TURNS):
        done, cold = agent.turn(), without.turn()
        assert done.token_ids == cold.token_ids
        report = done.report
        if turn:
            built = [span for span in report.spans if span.state == "cold"]
            composed += len(built)
            assert report.live_tokens + report.cold_tokens <= agent.new
            assert agent.computed <= agent.new + SEAM * len(built)
            assert cold.report.prefix_tokens == 0
            assert {span.state for span in report.spans if span not in built} == {"hit"}
        agent.answer(done, result(turn))
        without.answer(cold, result(turn))
    assert composed >= 3, "no tool result was long enough to be composed"
    agent.engine.prefixes.check_integrity()
    agent.engine.store.check_integrity()
    # Keys and values of a conversation are held once, not once a turn.
    assert agent.engine.prefixes.stats().tokens <= len(agent.known)


def test_an_answer_that_the_template_writes_otherwise_is_computed_again_and_nothing_before_it(tiny: Engine) -> None:
    agent = loop(tiny)
    first = agent.turn()
    said = len(agent.known) - len(first.token_ids)
    agent.answer(first, result(0))
    agent.messages[-2]["content"] = "Let me see."
    agent.known, agent.behind = (), 0
    done = agent.turn()
    header = len(tiny.tokenizer.encode_text("<|im_start|>assistant\n")) + 2
    assert said - header <= done.report.prefix_tokens < said
    assert agent.computed == done.report.live_tokens == done.report.prompt_tokens - done.report.prefix_tokens


def test_a_question_that_becomes_an_earlier_turn_keeps_its_checkpoint(tiny: Engine) -> None:
    agent = loop(tiny)
    agent.messages[-1]["content"] = "Go through the tickets one by one. " * 8
    agent.answer(agent.turn(), result(0))
    agent.messages += [{"role": "assistant", "content": "They are open."}, {"role": "user", "content": "And now?"}]
    before = agent.known
    agent.turn()
    assert any(span.segment.kind == "turn" for span in prompt_of(agent).spans)
    assert agent.computed <= agent.new
    assert agent.known[: len(before)] == before


def prompt_of(agent: Loop) -> Prompt:
    return agent.engine.builder.build_chat(agent.messages, tools=TOOLS, scope=agent.scope)
