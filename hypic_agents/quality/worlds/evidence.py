"""Where a document states a fact or an event: the characters of the statement and of its value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from hypic_agents.quality.worlds.documents import Item
from hypic_agents.quality.worlds.running import Event
from hypic_agents.quality.worlds.schema import Fact, capital

# What stands before the value and behind it.
_Form = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Found:
    """Characters ``[start, end)`` of a statement in a text, and ``[value_start, value_end)`` of the value in it."""

    start: int
    end: int
    value_start: int
    value_end: int


def find_statement(text: str, item: Item) -> Found | None:
    """The verbatim words in which ``text`` states ``item``; None if it does so in no known form.

    A sentence that names its entity counts first. Where the entity is named elsewhere (a second predicate, a row under
    a heading, a record, a line of a file), the words that follow the entity's name most closely are taken.
    """
    if isinstance(item, Event):
        before, value, after = _event_parts(item)
        return next(_matches(text, (before, after), value), None)
    for form in _sentences(item):
        for found in _matches(text, form, item.value):
            return found
    name, lower = item.entity.name.lower(), text.lower()
    candidates = [found for form in _pieces(item) for found in _matches(text, form, item.value)]
    named = [(lower.rfind(name, 0, found.start), found) for found in candidates]
    behind = [(found.start - at, found) for at, found in named if at >= 0]
    return min(behind, key=lambda pair: pair[0])[1] if behind else None


def _sentences(fact: Fact) -> Iterator[_Form]:
    attribute, ref = fact.attribute, fact.entity.ref
    for predicate in attribute.predicates:
        yield _around(f"{ref} {predicate}")
    for sentence in attribute.sentences:
        yield _around(sentence.replace("{e}", ref))


def _pieces(fact: Fact) -> Iterator[_Form]:
    """Forms that leave the entity out."""
    key, label = fact.attribute.key, fact.attribute.label
    if fact.entity.kind == "module":
        quote = "" if fact.attribute.value == "#" else '"'
        if fact.attribute.value == "module":
            yield "from ", f" import {key.removeprefix('import ')}"
        elif "(" in key:
            yield f"{key[:-1]}={quote}", f"{quote})"
        else:
            yield f"{key} = {quote}", quote
        return
    for predicate in fact.attribute.predicates:
        yield _around(predicate)
    yield f"{capital(label)}: ", ""
    yield f'"{label.replace(" ", "_")}": "', '"'


def _around(form: str) -> _Form:
    before, _, after = form.partition("{v}")
    return before, after


def _event_parts(event: Event) -> tuple[str, str, str]:
    value = str(abs(event.amount)) if isinstance(event.amount, int) else event.amount
    number = re.search(rf"(?<!\w){re.escape(value)}(?!\w)", event.text)
    assert number is not None, event.text
    return event.text[: number.start()], value, event.text[number.end() :]


def _matches(text: str, form: _Form, value: str) -> Iterator[Found]:
    """Places of one form as whole words; its first letter may be a capital."""
    before, after = form
    # A record writes its values as JSON does.
    spelled = json.dumps(value, ensure_ascii=False)[1:-1] if before.endswith('"') else value
    whole = before + spelled + after
    for found in re.finditer(rf"(?<!\w)(?:{re.escape(whole)}|{re.escape(capital(whole))})(?!\w)", text):
        first = found.start() + len(before)
        yield Found(found.start(), found.end(), first, first + len(spelled))
