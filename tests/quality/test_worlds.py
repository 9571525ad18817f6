"""The generated world: answers follow from the documents, splits share no words, everything repeats by seed."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hypic_agents.quality import worlds as worlds_package
from hypic_agents.quality.worlds import (
    TASKS,
    Episode,
    Question,
    is_heldout,
    make_episode,
    names,
    render_messages,
    running,
    schema,
)
from hypic_agents.quality.worlds.board import Board
from hypic_agents.quality.worlds.episode import build_world
from hypic_agents.quality.worlds.names import Split

LEVELS = ((1, 3), (2, 3), (2, 5), (3, 6), (5, 6), (8, 6))
SPLITS: tuple[Split, ...] = ("train", "heldout")


def worlds(count: int, level: tuple[int, int] = (5, 6), task: str | None = None) -> Iterator[tuple[Episode, Board]]:
    rng = random.Random(f"{level} {task}")
    for index in range(count):
        yield build_world(
            rng,
            num_documents=level[0],
            facts_per_document=level[1],
            split=SPLITS[index % 2],
            tasks=(task,) if task else None,
        )


def asked(task: str, count: int = 40, level: tuple[int, int] = (5, 6)) -> Iterator[tuple[Episode, Board, Question]]:
    for made, board in worlds(count, level, task):
        for question in made.questions:
            if question.task == task:
                yield made, board, question


def evidence(made: Episode, question: Question) -> str:
    return "\n".join(made.documents[index].text for index in question.needs)


@pytest.mark.parametrize("level", LEVELS, ids=str)
@pytest.mark.parametrize("task", [None, *TASKS])
def test_every_task_generates_at_every_level(level, task):
    rng = random.Random(3)
    for split in SPLITS:
        made = make_episode(
            rng, num_documents=level[0], facts_per_document=level[1], split=split, tasks=task and (task,)
        )
        assert len(made.documents) == level[0]
        assert len({document.source_id for document in made.documents}) == level[0]
        assert all(
            document.text and document.kind in ("document", "file", "memory", "trace") for document in made.documents
        )
        assert 1 <= len(made.questions) <= 16
        assert len({question.text for question in made.questions}) == len(made.questions)
        assert {question.task for question in made.questions} <= (
            {task, "single", "not_stated"} if task else set(TASKS)
        )
        for question in made.questions:
            assert list(question.needs) == sorted(set(question.needs))
            assert all(0 <= index < level[0] for index in question.needs)


@pytest.mark.parametrize("task", TASKS)
def test_a_large_episode_asks_only_the_task_it_was_made_for(task):
    rng = random.Random(5)
    for _ in range(30):
        made = make_episode(rng, num_documents=8, facts_per_document=6, split="train", tasks=(task,), num_questions=1)
        assert [question.task for question in made.questions] == [task]


def test_same_seed_same_episode():
    for seed in range(5):
        first, second = (
            make_episode(random.Random(seed), num_documents=5, facts_per_document=6, split="train") for _ in range(2)
        )
        assert first == second


def test_sizes_and_tasks_are_checked():
    with pytest.raises(ValueError, match="at least 1"):
        make_episode(random.Random(0), num_documents=0, facts_per_document=3, split="train")
    with pytest.raises(ValueError, match="unknown tasks"):
        make_episode(random.Random(0), num_documents=1, facts_per_document=3, split="train", tasks=("three_hop",))


def test_single_answers_stand_in_the_document_they_need_and_nowhere_differently():
    for made, board, question in asked("single"):
        assert question.answer in evidence(made, question)
        facts = [facts for facts in board.by_key.values() if any(fact.value == question.answer for fact in facts)]
        assert any(len(group) == 1 and group[0].document == question.needs[0] for group in facts)


def test_two_hop_answers_join_two_documents():
    seen = 0
    for made, board, question in asked("two_hop"):
        first, second = question.answer[:-1].split(". ", 1)
        assert len(question.needs) == 2
        value = second.rsplit(" is ", 1)[1]
        links = [group[0] for group in board.by_key.values() if group[0].target and group[0].value in first]
        texts = [made.documents[index].text for index in question.needs]
        assert any(value in text for text in texts)
        assert any(len(board.by_key[link.key]) == 1 and link.document in question.needs for link in links)
        seen += 1
    assert seen > 100


def test_override_answers_are_the_last_value_in_prompt_order():
    unmarked = total = 0
    for made, board, question in asked("override"):
        groups = [group for group in board.by_key.values() if len(group) > 1]
        group = next(
            group
            for group in groups
            if question.text
            in {schema.capital(form.format(e=group[0].entity.ref)) for form in group[0].attribute.questions}
        )
        last = max(group, key=lambda fact: fact.document)
        assert question.answer == last.value
        assert len({fact.document for fact in group}) == len(group) == len(question.needs)
        assert question.answer in made.documents[question.needs[-1]].text
        unmarked += not last.marker
        total += 1
    assert unmarked > total / 2


def test_running_answers_follow_from_the_events_in_the_documents():
    changes = set()
    for made, board, question in asked("running", 80):
        tracked, needs = next(entry for entry in board.tracked if question.text in map(schema.capital, entry[0].asks))
        assert needs == question.needs
        # In training a quantity may stay what it was at first.
        least = 2 if board.names.heldout or tracked.change == "place" else 1
        assert least <= len(needs) == len(tracked.events) <= 6
        for index, event in zip(needs, tracked.events, strict=True):
            assert schema.capital(event.text) in made.documents[index].text
        changes.add(tracked.change)
        if tracked.change == "place":
            assert question.answer in tracked.events[-1].text
            continue
        total = 0
        for number, event in enumerate(tracked.events):
            told = re.search(r"\b(\d+)\b", event.text)
            assert told is not None and int(told[1]) == abs(int(event.amount))
            assert number == 0 or 1 <= abs(int(event.amount)) <= 5
            total += int(event.amount)
            assert 0 <= total <= 30
        assert question.answer == str(total)
    assert changes == {"ledger", "level", "place"}


def test_signs_of_events_match_their_words():
    rng = random.Random(1)
    ups = r"received|arrived|brought|added|came|up|climbs|rises|wins|gets|scores|gains"
    downs = r"left|took|gave away|removed|lost|down|sinks|falls|loses|return|gives up|drops"
    for make in (running.make_ledger, running.make_level):
        for _ in range(200):
            for event in make(names.Names(rng, "train"), rng, 6).events[1:]:
                pattern = ups if int(event.amount) > 0 else downs
                assert re.search(rf"\b({pattern})\b", event.text), event


def test_many_tools_questions_need_one_to_three_different_calls():
    counts = set()
    for made, _, question in asked("multi_tool", 40, (2, 3)):
        assert len(made.tools) == 20
        assert len({tool["function"]["name"] for tool in made.tools}) == 20
        calls = [json.loads(call) for call in re.findall(r"<tool_call>\n(.*)\n</tool_call>", question.answer)]
        assert {call["name"] for call in calls} <= {tool["function"]["name"] for tool in made.tools}
        assert len({call["name"] for call in calls}) == len(calls)
        assert all(str(value) in question.text for call in calls for value in call["arguments"].values())
        counts.add(len(calls))
    assert counts == {1, 2, 3}


def test_not_stated_questions_have_no_answer_in_the_documents():
    for made, board, question in asked("not_stated"):
        assert question.answer == "not stated"
        assert question.needs == ()
        stated = {
            schema.capital(form.format(e=fact.entity.ref))
            for group in board.by_key.values()
            for fact in group
            for form in fact.attribute.questions
        }
        assert question.text not in stated
        assert all(question.text not in map(schema.capital, tracked.asks) for tracked, _ in board.tracked)
        assert "not stated" not in "".join(document.text for document in made.documents).lower()


def test_tool_calls_name_a_tool_and_copy_their_arguments():
    indirect = total = 0
    for made, _, question in asked("tool", 80):
        body = re.fullmatch(r"<tool_call>\n(.*)\n</tool_call>", question.answer)
        assert body is not None
        call = json.loads(body[1])
        assert body[1] == json.dumps(call, ensure_ascii=False)
        function = next(tool["function"] for tool in made.tools if tool["function"]["name"] == call["name"])
        assert list(call["arguments"]) == function["parameters"]["required"]
        for name, value in call["arguments"].items():
            kind = function["parameters"]["properties"][name]["type"]
            assert isinstance(value, int if kind == "integer" else str)
            assert str(value) in question.text or str(value) in evidence(made, question)
        indirect += bool(question.needs)
        total += 1
    assert 0.03 < indirect / total < 0.3


def test_tool_results_hold_the_answer_and_come_only_alone():
    results, rng = 0, random.Random(2)
    for _ in range(200):
        made = make_episode(rng, num_documents=2, facts_per_document=3, split="train", tasks=("tool",), num_questions=1)
        (question,) = made.questions
        if question.history:
            call, result = question.history
            assert question.answer in json.loads(result["content"]).values()
            assert call["tool_calls"][0]["function"]["name"] in {tool["function"]["name"] for tool in made.tools}
            assert render_messages(made, question)[-2:] == [call, result]
            results += 1
    assert 20 < results < 80
    assert all(not question.history for _, _, question in asked("tool", 20))


def test_tools_are_two_to_five_and_never_in_doubt():
    share = 0
    for made, _ in worlds(200, (2, 3)):
        share += bool(made.tools)
        assert not made.tools or 2 <= len(made.tools) <= 5
        found = [tool["function"]["name"] for tool in made.tools]
        assert len(set(found)) == len(found)
    assert 0.15 < share / 200 < 0.35


def test_messages_put_the_documents_first():
    made = make_episode(random.Random(0), num_documents=3, facts_per_document=4, split="train", tasks=("single",))
    system, user = render_messages(made, made.questions[0])
    assert system == {"role": "system", "content": made.system}
    assert user["content"].split("\n\n")[-1] == made.questions[0].text
    assert user["content"].startswith(made.documents[0].text + "\n\n")


def closed_words() -> set[str]:
    """Every word of the world's source: templates and short lists, which both splits may use."""
    folder = Path(worlds_package.__file__).parent
    words = {word for path in folder.glob("*.py") for word in re.findall(r"[a-z]+", path.read_text().lower())}
    return words | {word + ending for word in words for ending in ("s", "es")}


def test_splits_share_no_made_up_word():
    words: dict[Split, set[str]] = {"train": set(), "heldout": set()}
    rng = random.Random(11)
    for split in SPLITS:
        for _ in range(60):
            made = make_episode(rng, num_documents=5, facts_per_document=6, split=split)
            texts = [document.text for document in made.documents]
            texts += [text for question in made.questions for text in (question.text, question.answer)]
            words[split].update(re.findall(r"[a-z]+", "\n".join(texts).lower()))
    closed = closed_words()
    made_up = {split: {word for word in found - closed if len(word) >= 5} for split, found in words.items()}
    assert min(map(len, made_up.values())) > 1000
    assert made_up["train"].isdisjoint(made_up["heldout"]), made_up["train"] & made_up["heldout"]
    assert all(is_heldout(word) for word in made_up["heldout"])
    assert not any(is_heldout(word) for word in made_up["train"])


def test_about_twelve_percent_of_the_words_are_held_out():
    share = sum(is_heldout(f"word{index}") for index in range(5000)) / 5000
    assert 0.10 < share < 0.14
    assert is_heldout("Tarnovo") == is_heldout("tarnovo")


def test_names_do_not_repeat():
    for split in SPLITS:
        minted = names.Names(random.Random(0), split)
        words = [minted.word() for _ in range(2000)]
        assert len(set(words)) == len(words)
