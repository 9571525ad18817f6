"""Questions over a finished board, with the exact answers that follow from its documents."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from hypic_agents.quality.worlds.board import Board
from hypic_agents.quality.worlds.documents import Item
from hypic_agents.quality.worlds.schema import Attribute, Entity, Fact, alike_entity, capital, new_entity
from hypic_agents.quality.worlds.tables import ATTRIBUTES
from hypic_agents.quality.worlds.tools import Tool, make_request, make_result, make_tool

_T = TypeVar("_T")

NOT_STATED: Final = "not stated"
_IMPORT_FORMS: Final = (
    "Which value does the {c} have that {e} imports?",
    "{e} imports {c}. What is its value?",
    "What is the value of {c} as imported by {e}?",
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its exact answer.

    Attributes:
        task: One of ``TASKS``.
        text: The question as the user asks it.
        answer: The exact text of the assistant.
        needs: Indices of the documents that hold the evidence, ascending.
        history: Chat messages between the question and the answer: a tool call and its result.
        evidence: What the answer follows from, each with the index of the document that states it.
    """

    task: str
    text: str
    answer: str
    needs: tuple[int, ...] = ()
    history: tuple[dict[str, Any], ...] = ()
    evidence: tuple[tuple[int, Item], ...] = ()


def _evidence(*facts: Fact) -> tuple[tuple[int, Item], ...]:
    return tuple((fact.document, fact) for fact in facts)


class Asker:
    """Draws questions of each task from a board; a method returns None when the board holds no (more) such question."""

    def __init__(self, board: Board, rng: random.Random, tools: Sequence[Tool]) -> None:
        self._board, self._rng, self._tools = board, rng, tools
        self._asked: set[object] = set()
        self._once = [facts[0] for facts in board.by_key.values() if len(facts) == 1]
        self._changed = [facts for facts in board.by_key.values() if len(facts) > 1]
        self._hops: list[tuple[Fact, Fact]] | None = None

    def ask(self, task: str, *, history: bool = False) -> Question | None:
        """One new question of ``task``; ``history`` asks for one that is answered from a tool result."""
        if task == "tool":
            return self._tool_result() if history else self._tool_call()
        return getattr(self, f"_{task}")()  # type: ignore[no-any-return]

    def _pick(self, options: Sequence[_T], key: Callable[[_T], object]) -> _T | None:
        """A random option that was not asked before, by ``key``."""
        fresh = [option for option in options if key(option) not in self._asked]
        if not fresh:
            return None
        option = self._rng.choice(fresh)
        self._asked.add(key(option))
        return option

    def _phrase(self, attribute: Attribute, ref: str) -> str:
        return capital(self._rng.choice(attribute.questions).format(e=ref))

    def _single(self) -> Question | None:
        fact = self._pick(self._once, lambda fact: fact.key)
        if fact is None:
            return None
        text = self._phrase(fact.attribute, fact.entity.ref)
        return Question("single", text, fact.value, (fact.document,), evidence=_evidence(fact))

    def _find_hops(self) -> list[tuple[Fact, Fact]]:
        about: dict[str, list[Fact]] = {}
        for fact in self._once:
            about.setdefault(fact.entity.name, []).append(fact)
        hops = [
            (link, fact)
            for link in self._once
            if link.target is not None and link.attribute.links
            for fact in about.get(link.target.name, ())
            if fact.document != link.document
        ]
        return hops + [chain for chain in self._board.chains if not chain[0].attribute.links]

    def _two_hop(self) -> Question | None:
        if self._hops is None:
            self._hops = self._find_hops()
        hop = self._pick(self._hops, lambda hop: (hop[0].key, hop[1].key))
        if hop is None:
            return None
        link, fact = hop
        restated = capital(f"{link.entity.ref} {link.attribute.predicates[0].replace('{v}', link.value)}.")
        needs = tuple(sorted((link.document, fact.document)))
        if link.attribute.links:
            via = self._rng.choice(link.attribute.links).format(e=link.entity.ref)
            forms = [form for form in fact.attribute.questions if "{e}'s" not in form]
            text = capital(self._rng.choice(forms).format(e=via))
            owner = "Their" if fact.entity.kind == "person" else "Its"
            answer = f"{restated} {owner} {fact.attribute.label} is {fact.value}."
        else:
            text = capital(self._rng.choice(_IMPORT_FORMS).format(c=fact.attribute.key, e=link.entity.ref))
            answer = f"{restated} Its value is {fact.value}."
        return Question("two_hop", text, answer, needs, evidence=_evidence(link, fact))

    def _override(self) -> Question | None:
        facts = self._pick(self._changed, lambda facts: facts[0].key)
        if facts is None:
            return None
        last = max(facts, key=lambda fact: fact.document)
        needs = tuple(sorted(fact.document for fact in facts))
        text = self._phrase(last.attribute, last.entity.ref)
        return Question("override", text, last.value, needs, evidence=_evidence(*facts))

    def _running(self) -> Question | None:
        entry = self._pick(self._board.tracked, lambda entry: entry[0].ref)
        if entry is None:
            return None
        tracked, needs = entry
        text = capital(self._rng.choice(tracked.asks))
        evidence = tuple(zip(needs, tracked.events, strict=True))
        return Question("running", text, tracked.answer, needs, evidence=evidence)

    def _not_stated(self) -> Question | None:
        for _ in range(8):
            text = self._unanswerable()
            if text is not None and text not in self._asked:
                self._asked.add(text)
                return Question("not_stated", text, NOT_STATED)
        return None

    def _unanswerable(self) -> str | None:
        """A question that is close to the documents and that none of them answers."""
        board, rng = self._board, self._rng
        draw = rng.random()
        if self._tools and draw < 0.12:
            tool = make_tool(rng)
            if not tool.fields or any(tool.noun == other.noun for other in self._tools):
                return None
            return make_request(board.names, rng, tool).text
        facts = [fact for fact in self._once if fact.entity.kind != "module"]
        if draw < 0.6:
            entity: Entity = rng.choice(facts).entity if facts else new_entity(board.names, rng, "person")
            free = board.free_attributes(entity)
            # An attribute that is stated of something else of the kind is the harder question.
            others = {fact.attribute.key for fact in facts if fact.entity.kind == entity.kind}
            near = [attribute for attribute in free if attribute.key in others]
            options = near if near and rng.random() < 0.7 else free
            return self._phrase(rng.choice(options), entity.ref) if options else None
        if self._once:
            fact = rng.choice(self._once)
            entity = alike_entity(board.names, rng, fact.entity)
            return None if entity.name in board.entities else self._phrase(fact.attribute, entity.ref)
        entity = new_entity(board.names, rng, "person")
        return self._phrase(rng.choice(ATTRIBUTES["person"]), entity.ref)

    def _tool_call(self) -> Question | None:
        if not self._tools:
            return None
        rng = self._rng
        tool = rng.choice(self._tools)
        if rng.random() < 0.15:
            # The argument stands in a document; the request names it in a roundabout way.
            sorts = {other.parameters[0].value for other in self._tools}
            links = [fact for fact in self._once if fact.attribute.links and fact.attribute.value in sorts]
            link = self._pick(links, lambda fact: ("tool", fact.key))
            if link is not None:
                tool = rng.choice([other for other in self._tools if other.parameters[0].value == link.attribute.value])
                via = rng.choice(link.attribute.links).format(e=link.entity.ref)
                request = make_request(self._board.names, rng, tool, (link.value, via))
                return Question("tool", request.text, request.call, (link.document,), evidence=_evidence(link))
        request = make_request(self._board.names, rng, tool)
        return Question("tool", request.text, request.call)

    def _multi_tool(self) -> Question | None:
        """One, two or three requests in a row, each for another tool."""
        count = min(self._rng.randint(1, 3), len(self._tools))
        if not count:
            return None
        chosen = self._rng.sample(self._tools, count)
        requests = [make_request(self._board.names, self._rng, tool) for tool in chosen]
        text = " ".join(request.text for request in requests)
        return Question("multi_tool", text, "\n".join(request.call for request in requests))

    def _tool_result(self) -> Question | None:
        lookups = [tool for tool in self._tools if tool.fields]
        if not lookups:
            return self._tool_call()
        tool = self._rng.choice(lookups)
        request = make_request(self._board.names, self._rng, tool)
        result, answer = make_result(self._board.names, self._rng, tool, request)
        function = {"name": request.name, "arguments": json.dumps(request.arguments, ensure_ascii=False)}
        call = {"id": "call_0", "type": "function", "function": function}
        history = (
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_0", "content": result},
        )
        return Question("tool", request.text, answer, history=history)
