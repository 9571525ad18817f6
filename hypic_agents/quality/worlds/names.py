"""Made-up words, names, codes and numbers. A stable hash of the word decides which split may use it."""

from __future__ import annotations

import random
import zlib
from typing import Final, Literal

Split = Literal["train", "heldout"]

HELDOUT_PERCENT: Final = 12

_ONSETS: Final = tuple(
    "b br c d dr f fl g gl gr h j k kr l m n p pr r s sh st t th tr v w z b d g k l m n p r s t v - -".split()
)
_VOWELS: Final = ("a", "a", "a", "e", "e", "e", "i", "i", "o", "o", "o", "u", "ai", "ea")
_CODAS: Final = ("", "", "", "l", "l", "n", "r", "r", "s", "m")
_MIDDLES: Final = tuple("b d d f g k l m n n p r s t t v w z".split())
_ENDINGS: Final = tuple(
    "a o en is or ane ovo ia el in us ar eth um ik ora ade ess ond ura ino ett ale olm ask ire udo er ock ana".split()
)
FIRST_NAMES: Final = tuple(
    "Anna Adam Alice Boris Bella Carl Clara Daniel Dora David Elena Emil Eva Felix Fiona Frank Grace Greta Hugo Helen "
    "Ivan Iris Jack Julia Jonas Kate Karl Laura Leo Lena Liam Lucy Mark Maria Max Mira Nina Noah Nora Olga Oren Oscar "
    "Paul Petra Peter Rosa Ruth Robin Sara Simon Sofia Tom Tina Theo Uma Vera Victor Walter Wanda Yara Zoe Amir Chen "
    "Diego Farah Hana Ines Jamal Kofi Leila Mei Omar Priya Ravi Tariq".split()
)
PLAIN_SURNAMES: Final = tuple(
    "Baker Carter Cooper Fisher Miller Mason Taylor Turner Walker Weaver Hunter Gardner Porter Potter Archer Barber "
    "Brewer Butler Clark Cook Draper Farmer Fletcher Glover Harper Marsh Palmer Parker Sawyer Shepherd Smith Spencer "
    "Stone Thatcher Tyler Ward Webb Wood Wright".split()
)
_PLAIN_FIRST: Final = tuple(
    "Silver Green North South Red Long Old New Stone Cold Bright Black White Upper Lower Iron Golden High Deep Quiet "
    "Broad Grey Windy Fair Little".split()
)
_PLAIN_SECOND: Final = tuple(
    "Harbour Mill Ford Lantern Bridge Hill Field River Wood Gate Tower Creek Port Well Meadow Cross Bay Lake Valley "
    "Point Oak Spring Farm Rock Garden".split()
)
PLAIN_WORDS: Final = frozenset((*FIRST_NAMES, *PLAIN_SURNAMES, *_PLAIN_FIRST, *_PLAIN_SECOND))
_LETTERS: Final = "ABCDEFGHKLMNPRSTVWXZ"


def is_heldout(word: str) -> bool:
    """Whether a made-up word, plain two-word name or code belongs to the held-out split (case does not matter)."""
    return zlib.crc32(word.lower().encode()) % 100 < HELDOUT_PERCENT


class Names:
    """Mints names of one split for one episode; nothing is minted twice."""

    def __init__(self, rng: random.Random, split: Split) -> None:
        self._rng = rng
        self.heldout = split == "heldout"
        self.used: set[str] = set()

    def _take(self, text: str) -> bool:
        """Claim ``text`` if it is of this split and new."""
        key = text.lower()
        if key in self.used or is_heldout(key) != self.heldout:
            return False
        self.used.add(key)
        return True

    def word(self) -> str:
        """A made-up word of two or three syllables such as "Tarnovo"."""
        choice = self._rng.choice
        while True:
            stem = choice(_ONSETS).replace("-", "") + choice(_VOWELS) + choice(_CODAS) + choice(_MIDDLES)
            if len(stem) < 5 and self._rng.random() < 0.3:
                stem += choice(_VOWELS) + choice(_MIDDLES)
            # Walk over the endings of one stem: a fresh stem each time would make held-out words eight times as dear.
            first = self._rng.randrange(len(_ENDINGS))
            for step in range(len(_ENDINGS)):
                ending = _ENDINGS[(first + step) % len(_ENDINGS)]
                word = stem + ending
                if 5 <= len(word) <= 9 and self._take(word):
                    return word.capitalize()

    def plain(self) -> str:
        """A plain two-word place name such as "Silver Harbour"."""
        while True:
            pair = f"{self._rng.choice(_PLAIN_FIRST)} {self._rng.choice(_PLAIN_SECOND)}"
            if self._take(pair):
                return pair

    def person(self, first: str = "", last: str = "") -> str:
        """A surname, or a full name; ``first`` or ``last`` fixes one part (for names that are nearly alike)."""
        rng = self._rng
        if not first and not last and rng.random() < 0.6:
            return self.word()
        plain_last = not last and rng.random() < 0.15
        while True:
            given = first or (rng.choice(FIRST_NAMES) if plain_last or rng.random() < 0.65 else self.word())
            if not plain_last:
                return f"{given} {last or self.word()}"
            if given not in FIRST_NAMES:
                plain_last = False
                continue
            pair = f"{given} {rng.choice(PLAIN_SURNAMES)}"
            if self._take(pair):
                return pair

    def code(self) -> str:
        """A code such as "KX-482"."""
        rng = self._rng
        while True:
            letters = rng.choice(_LETTERS) + rng.choice(_LETTERS)
            code = (
                f"{letters}-{rng.randrange(100, 1000)}" if rng.random() < 0.7 else f"{letters}{rng.randrange(10, 100)}"
            )
            if self._take(code):
                return code

    def number(self) -> int:
        """A number of one to three digits, each length alike, from 2."""
        low, high = self._rng.choice(((2, 10), (10, 100), (100, 1000)))
        return self._rng.randrange(low, high)
