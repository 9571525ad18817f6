"""Document styles: how a list of facts and events becomes the text of one document."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Literal

from hypic_agents.core import SegmentKind
from hypic_agents.quality.worlds.code import render_file
from hypic_agents.quality.worlds.running import Event
from hypic_agents.quality.worlds.schema import Fact, capital

Style = Literal["prose", "sheet", "file", "memory", "trace", "result"]
Item = Fact | Event

KIND_OF_STYLE: Final[dict[Style, SegmentKind]] = {
    "prose": "document",
    "sheet": "document",
    "file": "file",
    "memory": "memory",
    "trace": "trace",
    "result": "trace",
}
OPEN_STYLES: Final[frozenset[Style]] = frozenset(("prose", "memory", "trace"))
_MARKERS: Final = ("Update: ", "As of today, ", "Correction: ", "From now on, ", "News: ", "It has changed: ")
_PROSE_TITLES: Final = ("# About {t}", "About {t}", "Notes on {t}", "## {t}", "{t}", "REPORT: {t}", "A page on {t}")
_MEMORY_TITLES: Final = ("Memory:", "# Memory", "Notes:", "To remember:", "[memory]", "Saved notes")
_TRACE_TITLES: Final = ("Log:", "# Trace", "Trace of the last run:", "[log]", "Agent log", "Steps so far:")
_CALLS: Final = ("lookup", "get_record", "read_entry", "search", "fetch_card")


def _sentence(rng: random.Random, fact: Fact) -> str:
    """One phrasing of a fact, with capital and full stop."""
    attribute, ref = fact.attribute, fact.entity.ref
    draw = rng.randrange(len(attribute.predicates) + len(attribute.sentences))
    if draw < len(attribute.predicates):
        body = f"{ref} {attribute.predicates[draw].replace('{v}', fact.value)}"
    else:
        body = attribute.sentences[draw - len(attribute.predicates)].format(e=ref, v=fact.value)
    if fact.marker:
        marker = rng.choice(_MARKERS)
        return f"{marker}{body}." if marker[-2] == "," else f"{marker}{capital(body)}."
    return capital(body) + "."


def _predicate(rng: random.Random, fact: Fact) -> str:
    return rng.choice(fact.attribute.predicates).replace("{v}", fact.value)


def _joined(rng: random.Random, first: Fact, second: Fact) -> str:
    """One sentence, or a sentence and a pronoun, for two facts about the same entity."""
    ref = first.entity.ref
    one, two = _predicate(rng, first), _predicate(rng, second)
    person = first.entity.kind in ("person", "user")
    match rng.randrange(3):
        case 0:
            text = f"{ref} {one} and {two}."
        case 1:
            text = f"{ref}, {'who' if person else 'which'} {one}, {two}."
        case _:
            text = f"{ref} {one}, and also {two}." if person else f"{ref} {one}. It {two}."
    return capital(text)


def _say(rng: random.Random, items: Sequence[Item], join: float) -> list[str]:
    """Sentences for the items in order; two facts about one entity become one sentence with chance ``join``."""
    texts: list[str] = []
    index = 0
    while index < len(items):
        item = items[index]
        following = items[index + 1] if index + 1 < len(items) else None
        if isinstance(item, Event):
            texts.append(capital(item.text) + ".")
        elif (
            isinstance(following, Fact)
            and following.entity.name == item.entity.name
            and not (item.marker or following.marker)
            and rng.random() < join
        ):
            texts.append(_joined(rng, item, following))
            index += 1
        else:
            texts.append(_sentence(rng, item))
        index += 1
    return texts


def _grouped(rng: random.Random, items: Sequence[Item]) -> list[list[Item]]:
    """The items shuffled, those about one entity together."""
    groups: dict[str, list[Item]] = {}
    for number, item in enumerate(items):
        groups.setdefault(item.entity.name if isinstance(item, Fact) else f"event {number}", []).append(item)
    result = list(groups.values())
    for group in result:
        rng.shuffle(group)
    rng.shuffle(result)
    return result


def _ordered(rng: random.Random, items: Sequence[Item]) -> list[Item]:
    if rng.random() < 0.75:
        return [item for group in _grouped(rng, items) for item in group]
    return rng.sample(items, len(items))


def _topic(items: Sequence[Item]) -> str:
    """The entity that most of a document is about, for its title."""
    refs = Counter(item.entity.ref for item in items if isinstance(item, Fact))
    return refs.most_common(1)[0][0] if refs else "the day"


def _prose(rng: random.Random, items: Sequence[Item]) -> str:
    texts = _say(rng, _ordered(rng, items), 0.15)
    body = (" " if rng.random() < 0.75 else "\n").join(texts)
    if rng.random() < 0.25:
        return body
    title = capital(rng.choice(_PROSE_TITLES).format(t=_topic(items)))
    return f"{title}{rng.choice((chr(10), chr(10) * 2))}{body}"


def _memory(rng: random.Random, items: Sequence[Item]) -> str:
    texts = _say(rng, _ordered(rng, items), 0.0)
    bullet = rng.choice(("- ", "* ", ""))
    lines = [bullet + text for text in texts]
    return "\n".join((rng.choice(_MEMORY_TITLES), *lines) if rng.random() < 0.8 else lines)


def _trace(rng: random.Random, items: Sequence[Item]) -> str:
    texts = _say(rng, _ordered(rng, items), 0.0)
    style = rng.randrange(4)
    minute, lines = rng.randrange(480, 1000), []
    for number, text in enumerate(texts, start=1):
        minute += rng.randrange(1, 30)
        clock = f"{minute // 60:02d}:{minute % 60:02d}"
        lines.append((f"{clock} {text}", f"step {number}: {text}", f"> {text}", f"[{clock}] {text}")[style])
    return "\n".join((rng.choice(_TRACE_TITLES), *lines) if rng.random() < 0.6 else lines)


def _sheet(rng: random.Random, items: Sequence[Item]) -> str:
    head = rng.choice(("# {n}", "{n}"))
    line = rng.choice(("{k}: {v}", "- {k}: {v}"))
    blocks = []
    for group in _grouped(rng, items):
        facts = [item for item in group if isinstance(item, Fact)]
        rows = [line.format(k=capital(fact.attribute.label), v=fact.value) for fact in facts]
        blocks.append("\n".join((head.format(n=capital(facts[0].entity.name)), *rows)))
    return rng.choice(("\n", "\n\n")).join(blocks)


def _result(rng: random.Random, items: Sequence[Item]) -> str:
    call, blocks = rng.choice(_CALLS), []
    head = rng.choice(('{c}("{n}") ->', "Result of {c}: {n}"))
    for group in _grouped(rng, items):
        facts = [item for item in group if isinstance(item, Fact)]
        record = {fact.attribute.label.replace(" ", "_"): fact.value for fact in facts}
        blocks.append(f"{head.format(c=call, n=facts[0].entity.name)} {json.dumps(record, ensure_ascii=False)}")
    return "\n".join(blocks)


def _file(rng: random.Random, items: Sequence[Item]) -> str:
    facts = [item for item in items if isinstance(item, Fact)]
    return render_file(rng, facts[0].entity.name, facts)


_RENDER: Final[dict[Style, Callable[[random.Random, Sequence[Item]], str]]] = {
    "prose": _prose,
    "memory": _memory,
    "trace": _trace,
    "sheet": _sheet,
    "result": _result,
    "file": _file,
}


def render_document(rng: random.Random, style: Style, items: Sequence[Item]) -> str:
    """The text of one document. ``items`` is not empty; styles outside ``OPEN_STYLES`` take facts only."""
    return _RENDER[style](rng, items)
