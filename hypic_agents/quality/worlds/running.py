"""Things that change step by step over the documents: ledgers, levels and walks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from hypic_agents.quality.worlds.names import Names

Change = Literal["ledger", "level", "place"]

PLACES: Final = ("bay", "dock", "lane", "gate")
_STORES: Final = tuple("depot store barn cellar wagon warehouse shop ship".split())
_ITEMS: Final = tuple("crate barrel sack box book lamp coat bottle".split())
_LEDGER_START: Final = (
    "at first {e} has {s}", "there are {s} in {e} at first", "{e} starts with {s}", "{e} begins with {s}",
)  # fmt: skip
_LEDGER_UP: Final = (
    "{e} received {d} more", "{s} arrived at {e}", "someone brought {s} to {e}", "we added {s} to {e}",
    "{s} came to {e}",
)  # fmt: skip
_LEDGER_DOWN: Final = (
    "{s} left {e}", "someone took {s} from {e}", "{e} gave away {s}", "we removed {s} from {e}", "{e} lost {s}",
)  # fmt: skip
_LEDGER_ASK: Final = (
    "How many {i} are in {e} at the end?", "How many {i} does {e} have now?", "What is the final number of {i} in {e}?",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Level:
    """How one sort of level is told; ``{e}`` is its owner, ``{d}`` the number of steps."""

    noun: str
    start: tuple[str, ...]
    up: tuple[str, ...]
    down: tuple[str, ...]
    ask: tuple[str, ...]


_LEVELS: Final = (
    _Level(
        "lift",
        ("{e} starts on floor {d}", "at first {e} is on floor {d}", "{e} waits on floor {d} at first"),
        ("{e} goes up {d}", "{e} moves up by {d}", "{e} climbs {d} higher", "someone takes {e} up by {d}"),
        ("{e} goes down {d}", "{e} moves down by {d}", "{e} sinks {d} lower", "someone takes {e} down by {d}"),
        ("On which floor is {e} at the end?", "On what floor is {e} now?", "What is the final floor of {e}?"),
    ),
    _Level(
        "boiler",
        ("{e} starts at level {d}", "at first {e} is at level {d}", "{e} is set to level {d} at first"),
        ("{e} is turned up by {d}", "someone turns {e} up by {d}", "the level of {e} rises by {d}", "{e} goes up {d}"),
        ("{e} is turned down by {d}", "someone turns {e} down by {d}", "the level of {e} falls by {d}",
         "{e} goes down {d}"),
        ("At which level is {e} at the end?", "At what level is {e} now?", "What is the final level of {e}?"),
    ),
    _Level(
        "team",
        ("{e} starts with {d} points", "at first {e} has {d} points", "{e} begins with {d} points"),
        ("{e} wins {d} points", "{e} gets {d} points", "{e} scores {d} points", "{e} gains {d} points"),
        ("{e} loses {d} points", "{e} must return {d} points", "{e} gives up {d} points", "{e} drops {d} points"),
        ("How many points does {e} have at the end?", "How many points does {e} have now?",
         "What is the final score of {e}?"),
    ),
)  # fmt: skip
_WALKS: Final = (
    "{e} goes to {p} {d}", "{e} walks to {p} {d}", "{e} moves to {p} {d}", "{e} is seen at {p} {d}",
    "you can find {e} at {p} {d}",
)  # fmt: skip
_CARRIES: Final = (
    "{e} is pushed to {p} {d}", "someone takes {e} to {p} {d}", "{e} stands at {p} {d}", "{e} was moved to {p} {d}",
    "you can find {e} at {p} {d}",
)  # fmt: skip
_WALK_ASK: Final = ("At which {p} is {e} at the end?", "At which {p} is {e} now?")
_CARTS: Final = ("cart", "trolley", "piano", "trunk", "ladder")
_WALKERS: Final = tuple("robot courier nurse guard cook inspector gardener driver cat visitor".split())
_SORTS: Final = tuple("old new red blue green small large second".split())


@dataclass(frozen=True, slots=True)
class Event:
    """One line of one document. ``amount`` is the start, the signed change, or the place."""

    text: str
    amount: int | str


@dataclass(frozen=True, slots=True)
class Tracked:
    """Something that changes. ``events`` are in prompt order, each in its own document."""

    change: Change
    ref: str
    asks: tuple[str, ...]
    events: tuple[Event, ...]

    @property
    def answer(self) -> str:
        """The final place, or the total in digits."""
        if self.change == "place":
            return str(self.events[-1].amount)
        return str(sum(event.amount for event in self.events if isinstance(event.amount, int)))


def _walk_of_amounts(rng: random.Random, steps: int, low: int, high: int, top: int) -> list[int]:
    """A start in ``low..high`` and ``steps - 1`` signed changes, mostly of 1, every total within ``0..top``."""
    total = rng.randint(low, high)
    amounts = [total]
    while len(amounts) < steps:
        change = rng.choice((-2, -1, -1, 1, 1, 2))
        if 0 <= total + change <= top:
            total += change
            amounts.append(change)
    return amounts


def _plural(count: int, item: str) -> str:
    return f"{count} {item}" if count == 1 else f"{count} {item}es" if item == "box" else f"{count} {item}s"


def new_ref(names: Names, rng: random.Random, nouns: Sequence[str]) -> str:
    """A plain thing that this episode does not track yet, such as "the depot" or "the old depot".

    Plain on purpose: what changes step by step is hard enough to follow without an unseen name to bind it to.
    """
    fresh = [noun for noun in nouns if noun not in names.used]
    while not fresh:
        fresh = [thing for noun in nouns if (thing := f"{rng.choice(_SORTS)} {noun}") not in names.used]
    noun = rng.choice(fresh)
    names.used.add(noun)
    return f"the {noun}"


def make_ledger(names: Names, rng: random.Random, steps: int) -> Tracked:
    """A store whose stock starts, grows and shrinks over ``steps`` documents."""
    ref, item = new_ref(names, rng, _STORES), rng.choice(_ITEMS)
    events = []
    for index, amount in enumerate(_walk_of_amounts(rng, steps, 1, 6, 9)):
        forms = _LEDGER_START if index == 0 else _LEDGER_UP if amount > 0 else _LEDGER_DOWN
        text = rng.choice(forms).format(e=ref, d=abs(amount), s=_plural(abs(amount), item))
        events.append(Event(text, amount))
    items = _plural(2, item)[2:]
    return Tracked("ledger", ref, tuple(ask.format(e=ref, i=items) for ask in _LEDGER_ASK), tuple(events))


def make_level(names: Names, rng: random.Random, steps: int) -> Tracked:
    """A lift, boiler or score that starts and moves up and down over ``steps`` documents."""
    level = rng.choice(_LEVELS)
    ref = new_ref(names, rng, (level.noun,))
    events = []
    for index, amount in enumerate(_walk_of_amounts(rng, steps, 1, 6, 9)):
        forms = level.start if index == 0 else level.up if amount > 0 else level.down
        text = rng.choice(forms).format(e=ref, d=abs(amount)).replace(" 1 points", " 1 point")
        events.append(Event(text, amount))
    return Tracked("level", ref, tuple(ask.format(e=ref) for ask in level.ask), tuple(events))


def make_walk(names: Names, rng: random.Random, steps: int) -> Tracked:
    """A person or thing that is in one place after another; the last document that tells counts."""
    person = rng.random() < 0.6
    ref = new_ref(names, rng, _WALKERS if person else _CARTS)
    place = rng.choice(PLACES)
    numbers: list[str] = []
    while len(numbers) < steps:
        number = str(rng.randint(1, 9))
        if not numbers or number != numbers[-1]:
            numbers.append(number)
    forms = _WALKS if person else _CARRIES
    events = tuple(Event(rng.choice(forms).format(e=ref, p=place, d=number), number) for number in numbers)
    return Tracked("place", ref, tuple(ask.format(e=ref, p=place) for ask in _WALK_ASK), events)
