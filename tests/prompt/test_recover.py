from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypic_agents.core import Scope, Segment
from hypic_agents.errors import InvalidInput
from hypic_agents.prompt.chunks import MAX_CHUNK_LEN, MIN_CHUNK_LEN, chunks
from hypic_agents.prompt.recover import recover
from hypic_agents.prompt.registry import TextRegistry, spellings

SCOPE = Scope()


def words(seed: int, count: int) -> str:
    rng = random.Random(seed)
    return " ".join("".join(rng.choice("abcdefgh") for _ in range(rng.randint(2, 8))) for _ in range(count))


def prose(seed: int, paragraphs: int) -> str:
    return "\n\n".join(words(seed * 1000 + i, 60) for i in range(paragraphs))


def filled(count: int, start: int = 0) -> tuple[TextRegistry, list[Segment]]:
    registry = TextRegistry()
    made = [Segment(words(start + i, 30), source_id=f"d{i}") for i in range(count)]
    assert all(registry.register(segment) for segment in made)
    return registry, made


@pytest.mark.parametrize("count", [5, 1000], ids=["fresh", "indexed"])
@pytest.mark.parametrize(
    "spell",
    [str, str.strip, lambda t: json.dumps(t)[1:-1], lambda t: json.dumps(t, ensure_ascii=False)[1:-1], repr],
    ids=["raw", "stripped", "json", "json-utf8", "repr"],
)
def test_finds_a_text_in_every_spelling_and_nothing_else(count, spell):
    registry, made = filled(count)
    odd = Segment('  Zoë said "go".\n\tThen she left — for good, it seems.\n', source_id="odd")
    registry.register(odd)
    text = f"Context: {made[3].text}\n\n{spell(odd.text)}\n{made[1].text[:-1]}"
    assert registry.find(text, SCOPE) == [made[3], odd]
    assert registry.find("nothing of it", SCOPE) == []


@pytest.mark.parametrize("count", [3, 400], ids=["fresh", "indexed"])
def test_a_shared_header_hides_no_document(count):
    registry = TextRegistry()
    header = "ACME internal. Do not distribute. Page header that all documents share.\n"
    made = [Segment(header + words(i, 20), source_id=str(i)) for i in range(count)]
    for segment in made:
        registry.register(segment)
    text = "\n\n".join(segment.text for segment in made[::-1])
    assert registry.find(text, SCOPE) == made[::-1]


def test_scopes_share_nothing_and_old_texts_leave():
    registry = TextRegistry(max_texts=150, max_scopes=2)
    other = Scope("other")
    registry.register(Segment(words(0, 30), scope=other))
    assert registry.find(words(0, 30), SCOPE) == []
    assert len(registry.find(words(0, 30), other)) == 1
    for i in range(400):
        registry.register(Segment(words(i, 30)))
    assert len(registry) == 151
    assert registry.find(words(10, 30), SCOPE) == []
    assert len(registry.find(words(390, 30), SCOPE)) == 1
    registry.register(Segment(words(1, 30), scope=Scope("third")))
    assert registry.find(words(0, 30), other) == []


def test_of_two_versions_the_older_one_is_not_given():
    registry = TextRegistry()
    old, new = (Segment(words(i, 30), source_id="page", version=str(i)) for i in (1, 2))
    registry.register(old)
    registry.register(new)
    assert registry.find(f"{old.text}\n{new.text}", SCOPE) == [new]
    assert registry.find(old.text, SCOPE) == [old]
    assert registry.forget(SCOPE, "page") == 2
    assert registry.find(new.text, SCOPE) == []


def test_short_and_broken_texts_are_not_known():
    registry = TextRegistry()
    assert not registry.register(Segment("too short"))
    assert not registry.register(Segment("a lone surrogate \ud800 " * 4))
    with pytest.raises(InvalidInput, match="max_texts=0"):
        TextRegistry(max_texts=0)


@given(st.text(min_size=40, max_size=200).filter(lambda t: len(t.strip()) >= 32), st.text(max_size=80), st.text())
def test_a_text_is_found_wherever_it_stands(text, before, after):
    registry = TextRegistry()
    if registry.register(Segment(text)):
        assert registry.find(before + text + after, SCOPE) == [Segment(text)]
        assert all(registry.find(f"{before}{form}{after}", SCOPE) for form in spellings(text))


@given(st.text(alphabet=st.sampled_from("abc \n#-é"), max_size=20_000))
def test_chunks_are_ordered_and_of_the_promised_sizes(text):
    regions = list(chunks(text))
    at = 0
    for start, end in regions:
        assert start == at
        assert MIN_CHUNK_LEN <= end - start <= MAX_CHUNK_LEN
        at = end
    assert len(text) - at < MIN_CHUNK_LEN


def test_an_edit_moves_the_chunks_near_it_only():
    text = prose(1, 60)
    middle = len(text) // 2
    edited = text[:middle] + " a small change " + text[middle:]
    before, after = ({t[a:b] for a, b in chunks(t)} for t in (text, edited))
    assert len(before) > 12
    assert len(before - after) <= 2
    moved = {t[a:b] for t in (prose(2, 3) + "\n\n" + text,) for a, b in chunks(t)}
    assert len(before & moved) >= len(before) - 4


def test_what_nobody_declared_is_chunked_and_the_question_stays_live():
    declared = Segment(prose(5, 12), source_id="known")
    loose = prose(6, 12)
    question = "And what follows from all of this?"
    messages = [
        {"role": "system", "content": prose(7, 20)},
        {"role": "user", "content": [{"type": "text", "text": f"{declared.text}\n\n{loose}\n\n{question}"}]},
    ]
    hints = recover(messages, [declared], scope=SCOPE)
    assert hints[0] == declared
    assert len(hints) > 2
    for hint in hints[1:]:
        assert hint.text in loose
        assert hint.kind == "document"
        assert question not in hint.text
    assert recover(messages, [declared], scope=SCOPE) == hints


def test_registered_texts_come_before_chunks():
    registry, made = filled(300)
    text = "\n\n".join(segment.text for segment in made[:40])
    assert recover([{"role": "user", "content": text}], registry=registry, scope=SCOPE) == made[:40]
