"""A world under construction: which document states which fact, with room for a fixed number in each."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from hypic_agents.quality.worlds.code import constant, imported, random_code_attribute
from hypic_agents.quality.worlds.documents import OPEN_STYLES, Item, Style
from hypic_agents.quality.worlds.names import Names
from hypic_agents.quality.worlds.running import Tracked, make_walk
from hypic_agents.quality.worlds.schema import Attribute, Entity, Fact, alike_entity, new_entity, new_value
from hypic_agents.quality.worlds.tables import ATTRIBUTES

_STYLES: Final[tuple[Style, ...]] = ("prose", "sheet", "file", "memory", "trace", "result")
_STYLE_WEIGHTS: Final = (42, 9, 9, 18, 17, 5)
_THEMES: Final[dict[Style, tuple[str, ...]]] = {
    "prose": ("person", "city", "company", "product", "policy", "project", "service", "shipment"),
    "sheet": ("product", "policy", "company", "city", "project"),
    "result": ("product", "shipment", "service", "company", "person"),
    "memory": ("user", "person", "project", "policy", "shipment"),
    "trace": ("service", "shipment", "project", "person"),
    "file": ("module",),
}


@dataclass(slots=True)
class Draft:
    """A document to be: its style, what it states so far, and, for a file, its module."""

    index: int
    style: Style
    theme: str
    items: list[Item] = field(default_factory=list)
    module: Entity | None = None
    entity: Entity | None = None


class Board:
    """Places facts and events. ``capacity`` is the number of items in every document."""

    def __init__(self, names: Names, rng: random.Random, styles: Sequence[Style], capacity: int) -> None:
        self.names, self.rng, self.capacity = names, rng, capacity
        self.drafts = [Draft(index, style, rng.choice(_THEMES[style])) for index, style in enumerate(styles)]
        self.by_key: dict[tuple[str, str], list[Fact]] = {}
        self.entities: dict[str, Entity] = {}
        self.tracked: list[tuple[Tracked, tuple[int, ...]]] = []
        self.chains: list[tuple[Fact, Fact]] = []
        for draft in self.drafts:
            if draft.style == "file":
                draft.module = self._register(new_entity(names, rng, "module"))

    def _register(self, entity: Entity) -> Entity:
        return self.entities.setdefault(entity.name, entity)

    def _room(self, draft: Draft) -> int:
        return self.capacity - len(draft.items)

    def _docs(self, accept: Callable[[Draft], bool], count: int) -> list[Draft]:
        """``count`` random documents with room, in prompt order; empty if there are not so many."""
        fit = [draft for draft in self.drafts if len(draft.items) < self.capacity and accept(draft)]
        if len(fit) < count:
            return []
        return sorted(self.rng.sample(fit, count), key=lambda draft: draft.index)

    def state(
        self, draft: Draft, entity: Entity, attribute: Attribute, target: Entity | None = None, marker: bool = False
    ) -> Fact:
        """Put a fact with a new value (or one that names ``target``) into a document."""
        if target is None:
            value, target = new_value(self.names, self.rng, attribute.value)
        else:
            value = target.name.removesuffix(".py") if target.kind == "module" else target.name
        if target is not None:
            self._register(target)
        fact = Fact(entity, attribute, value, draft.index, target, marker)
        self.by_key.setdefault(fact.key, []).append(fact)
        draft.items.append(fact)
        draft.entity = self._register(entity)
        return fact

    def free_attributes(self, entity: Entity) -> list[Attribute]:
        """Attributes that no document states about ``entity``; not for modules."""
        return [a for a in ATTRIBUTES[entity.kind] if (entity.name, a.key) not in self.by_key]

    def _choose(self, attributes: Sequence[Attribute]) -> Attribute:
        choice = self.rng.choice(attributes)
        return self.rng.choice(attributes) if choice.closed else choice

    def add_chain(self) -> bool:
        """Two facts in two documents, the first naming what the second is about."""
        rng = self.rng
        files = [draft for draft in self.drafts if draft.module is not None and self._room(draft)]
        if len(files) >= 2 and rng.random() < 0.4:
            first, second = rng.sample(files, 2)
            attribute = random_code_attribute(rng)
            while "(" in attribute.key:
                attribute = random_code_attribute(rng)
            name = attribute.key.removeprefix("import ")
            assert first.module is not None and second.module is not None
            fresh = (first.module.name, name) not in self.by_key and (second.module.name, name) not in self.by_key
            if not fresh or (first.module.name, f"import {name}") in self.by_key:
                return False
            link = self.state(first, first.module, imported(name), second.module)
            self.chains.append((link, self.state(second, second.module, constant(name))))
            return True
        pair = self._docs(lambda draft: draft.style != "file", 2)
        if not pair:
            return False
        rng.shuffle(pair)
        kind = rng.choice(_THEMES[pair[0].style])
        entity = new_entity(self.names, rng, kind)
        links = [a for a in self.free_attributes(entity) if a.links]
        if not links:
            return False
        link = self.state(pair[0], entity, rng.choice(links))
        assert link.target is not None
        self.chains.append((link, self.state(pair[1], link.target, self._choose(self.free_attributes(link.target)))))
        return True

    def add_override(self) -> bool:
        """The same fact in two documents (at times three) with different values; the last one counts."""
        rng = self.rng
        docs = self._docs(lambda draft: draft.style != "file", 3 if rng.random() < 0.2 else 2)
        if not docs:
            return False
        entity = new_entity(self.names, rng, rng.choice(_THEMES[docs[0].style]))
        options = [a for a in self.free_attributes(entity) if not a.closed]
        if not options:
            return False
        attribute = rng.choice(options)
        for number, draft in enumerate(docs):
            self.state(draft, entity, attribute, marker=number > 0 and rng.random() < 0.35)
        return True

    def add_steps(self, make: Callable[[Names, random.Random, int], Tracked]) -> bool:
        """Something that changes over two to four documents; a quantity over three at most.

        In training some quantities stay what they are at first: a model that cannot find the start never learns to add
        to it.
        """
        fit = [d for d in self.drafts if d.style in OPEN_STYLES and self._room(d)]
        if len(fit) < 2:
            return False
        least = 2 if self.names.heldout or make is make_walk or self.rng.random() < 0.6 else 1
        steps = self.rng.randint(least, min(4 if make is make_walk else 3, len(fit)))
        docs = sorted(self.rng.sample(fit, steps), key=lambda draft: draft.index)
        tracked = make(self.names, self.rng, steps)
        for draft, event in zip(docs, tracked.events, strict=True):
            draft.items.append(event)
        self.tracked.append((tracked, tuple(draft.index for draft in docs)))
        return True

    def fill(self) -> None:
        """Fill every document with facts about what is there, what other documents name, and new entities."""
        for draft in self.drafts:
            while self._room(draft):
                if draft.module is not None:
                    self._fill_file(draft, draft.module)
                    continue
                entity = self._next_entity(draft)
                self.state(draft, entity, self._choose(self.free_attributes(entity)))

    def _fill_file(self, draft: Draft, module: Entity) -> None:
        attribute = random_code_attribute(self.rng, imports=self.rng.random() < 0.3)
        name = _code_name(attribute)
        if all(name != _code_name(item.attribute) for item in draft.items if isinstance(item, Fact)):
            self.state(draft, module, attribute)

    def _next_entity(self, draft: Draft) -> Entity:
        """The entity of the last fact, one that another document names, or a new one; with something left to say."""
        rng, draw = self.rng, self.rng.random()
        stay = 0.55 if draft.style in OPEN_STYLES else 0.8
        if draft.entity is not None and draw < stay and self.free_attributes(draft.entity):
            return draft.entity
        if draw < stay + 0.15 and self.entities:
            entity = rng.choice(list(self.entities.values()))
            if entity.kind in ("person", "product") and rng.random() < 0.3:
                entity = self._register(alike_entity(self.names, rng, entity))
            if entity.kind != "module" and self.free_attributes(entity):
                return entity
        kind = draft.theme if rng.random() < 0.6 else rng.choice(_THEMES[draft.style])
        if kind == "user" and ("user" in self.entities and not self.free_attributes(self.entities["user"])):
            kind = "person"
        return self._register(new_entity(self.names, rng, kind))


def _code_name(attribute: Attribute) -> str:
    """The constant or function that a fact of a file is about."""
    return attribute.key.removeprefix("import ").split("(")[0]


def draw_styles(rng: random.Random, count: int, num_open: int) -> tuple[Style, ...]:
    """A style for each of ``count`` documents: at least ``num_open`` can tell events, all but two may be files."""
    styles: list[Style] = rng.choices(_STYLES, _STYLE_WEIGHTS, k=count)
    files = [index for index, style in enumerate(styles) if style == "file"]
    for index in files[max(0, count - 2) :]:
        styles[index] = "prose"
    missing = num_open - sum(style in OPEN_STYLES for style in styles)
    closed = [index for index, style in enumerate(styles) if style not in OPEN_STYLES]
    for index in rng.sample(closed, max(0, min(missing, len(closed)))):
        styles[index] = rng.choices(("prose", "memory", "trace"), (36, 15, 14))[0]
    return tuple(styles)
