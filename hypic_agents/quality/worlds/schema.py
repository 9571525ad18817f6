"""What the world is made of: kinds of entities, their attributes, facts, and minting of names and values."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from hypic_agents.quality.worlds.names import PLAIN_SURNAMES, Names

COLOURS: Final = tuple("red blue green yellow black white brown grey purple orange".split())
WEEKDAYS: Final = tuple("Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split())
PRODUCT_NOUNS: Final = tuple(
    "lamp kettle chair table radio clock bicycle tent jacket camera printer drill fan heater mirror shelf desk phone "
    "speaker toaster mixer pump ladder saw stove scale piano guitar sofa rug helmet boot".split()
)
COMPANY_SUFFIXES: Final = ("Works", "Group", "Brothers", "Trading", "Foods", "Motors", "Labs", "Press")
POLICY_NOUNS: Final = ("travel", "refund", "leave", "parking", "security", "training", "expense", "guest")


@dataclass(frozen=True, slots=True)
class Attribute:
    """One thing that can be said about a kind of entity; ``{e}`` stands for the entity, ``{v}`` for the value.

    Attributes:
        key: Unique within the kind.
        value: What is minted: an entity kind, "word", "code", "colour", "weekday", or "#unit" (a number and a unit).
        label: Noun for sheets, records and "Its {label} is ...".
        predicates: Verb phrases that follow the entity's name.
        sentences: Whole sentences, without capital and full stop.
        questions: Whole questions.
        links: Noun phrases that name the value in another question; only where the value is an entity.
    """

    key: str
    value: str
    label: str
    predicates: tuple[str, ...]
    sentences: tuple[str, ...]
    questions: tuple[str, ...]
    links: tuple[str, ...] = ()

    @property
    def closed(self) -> bool:
        """Whether the value comes from a short list."""
        return self.value in ("colour", "weekday")


@dataclass(frozen=True, slots=True)
class Entity:
    """Something that facts are about. ``name`` heads a sheet, ``ref`` stands in a sentence."""

    kind: str
    name: str
    ref: str


@dataclass(frozen=True, slots=True)
class Fact:
    """One statement in one document. ``target`` is the entity that the value names, if any."""

    entity: Entity
    attribute: Attribute
    value: str
    document: int
    target: Entity | None = None
    marker: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """What the fact is about: entity name and attribute key."""
        return self.entity.name, self.attribute.key


def attribute(
    key: str, value: str, predicates: str, sentences: str, questions: str, links: str = "", *, label: str = ""
) -> Attribute:
    """An attribute from phrases that are separated by bars; ``label`` defaults to the key."""
    says, tells, asks = (tuple(text.split("|")) for text in (predicates, sentences, questions))
    says, tells, asks = says[:2], tells[:1], asks[:2]
    return Attribute(key, value, label or key, says, tells, asks, tuple(links.split("|")) if links else ())


def capital(sentence: str) -> str:
    """The sentence with its first letter in upper case."""
    return sentence[0].upper() + sentence[1:]


def new_entity(names: Names, rng: random.Random, kind: str) -> Entity:
    """Mint an entity of ``kind``; there is only one user."""
    match kind:
        case "person":
            name = ref = names.person()
        case "city":
            name = ref = names.word() if rng.random() < 0.8 else names.plain()
        case "company":
            name = names.word() if rng.random() < 0.8 else names.plain()
            name = ref = f"{name} {rng.choice(COMPANY_SUFFIXES)}" if rng.random() < 0.5 else name
        case "product":
            name = f"{names.word()} {rng.choice(PRODUCT_NOUNS)}"
            ref = f"the {name}"
        case "policy" | "service":
            sort = f"{rng.choice(POLICY_NOUNS)} policy" if kind == "policy" else "service"
            name = f"{names.word()} {sort}"
            ref = f"the {name}"
        case "project":
            name = ref = f"project {names.word()}"
        case "shipment":
            name = ref = f"shipment {names.code()}"
        case "module":
            name = f"{names.word().lower()}.py"
            ref = f"file {name}"
        case _:
            name, ref = "user", "the user"
    return Entity(kind, name, ref)


def alike_entity(names: Names, rng: random.Random, entity: Entity) -> Entity:
    """Mint an entity whose name is nearly that of ``entity`` (one word differs), or a fresh one of its kind."""
    first, _, rest = entity.name.partition(" ")
    if entity.kind == "person" and rng.random() < 0.7:
        keep_first = rng.random() < 0.5 or rest in PLAIN_SURNAMES
        name = names.person(first=first) if keep_first else names.person(last=rest)
        return Entity("person", name, name)
    if entity.kind == "product" and rng.random() < 0.7:
        name = f"{first} {rng.choice([noun for noun in PRODUCT_NOUNS if noun != rest])}"
        return Entity("product", name, f"the {name}")
    if entity.kind == "product":
        name = f"{names.word()} {rest}"
        return Entity("product", name, f"the {name}")
    return new_entity(names, rng, entity.kind)


def new_value(names: Names, rng: random.Random, value: str) -> tuple[str, Entity | None]:
    """Mint a value of the sort that an attribute asks for, and the entity it names where there is one."""
    if value[0] == "#":
        return f"{names.number()} {value[1:]}".rstrip(), None
    match value:
        case "word":
            return (names.word() if rng.random() < 0.85 else names.plain()), None
        case "code":
            return names.code(), None
        case "colour":
            return rng.choice(COLOURS), None
        case "weekday":
            return rng.choice(WEEKDAYS), None
        case "module":
            entity = new_entity(names, rng, "module")
            return entity.name.removesuffix(".py"), entity
    entity = new_entity(names, rng, value)
    return entity.name, entity
