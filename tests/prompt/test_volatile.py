from __future__ import annotations

import time

import pytest

from hypic_agents.core import Prompt, Segment
from hypic_agents.prompt import ChatTokenizer, PromptBuilder
from hypic_agents.prompt.volatile import steady_pieces

RULES = "You answer questions about the house. Breakfast is at 8:00 for everybody in it."
TIME, ID, COUNT = "states the date or time", "states an id", "states a count"
VOLATILE = {
    "Current time is 15:09:20.": TIME,
    "Today is 5 January 2026.": TIME,
    "Today's date: Jan 5, 2026": TIME,
    "date = 2026-01-05": TIME,
    "[2026-01-05T15:09]": TIME,
    "Request 1767625760000.": TIME,
    "The conversation id is some-long-name-before-its-only-number-1.": ID,
    "Session 123e4567-e89b-12d3-a456-426614174000.": ID,
    "Your session id is a81f-77.": ID,
    "trace_id=00f067aa0ba902b7": ID,
    "Message number 12.": COUNT,
    "You have 1,200 tokens left.": COUNT,
    "You have 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1 tokens left.": COUNT,
    "Step   count   is   :   #4": COUNT,
    "Steps remaining: 4": COUNT,
    "This is request #7.": COUNT,
}


@pytest.mark.parametrize("volatile", VOLATILE)
def test_what_changes_with_every_request_is_cut_out(volatile: str) -> None:
    assert steady_pieces(f"{volatile}\n{RULES}") == [RULES]
    assert steady_pieces(f"{RULES}\n{volatile}\n{RULES} Really.") == [RULES, f"{RULES} Really."]
    assert steady_pieces(f"{RULES} {volatile}") == [RULES]


@pytest.mark.parametrize(
    "text",
    [
        RULES,
        "Be brief.",
        f"{RULES}\n\n- item 2026\n- open 9:00 to 17:00",
        "Founded 1 May 1890.",
        "Step 1: read the question. Step 2: make at most 3 calls, with 200 tokens each.",
        "Give the session id of each answer, and its request id.",
    ],
)
def test_steady_texts_stay_whole(text: str) -> None:
    assert steady_pieces(text) == [text]


@pytest.mark.parametrize(
    ("head", "filling"),
    [
        *(
            ("", filling)
            for filling in ("1", "1,", "1,,", "1 ", "1:", "1-", "a", "0a-", " ", ":", "-", "_1,", "1 jan ")
        ),
        *(("", filling) for filling in ("session-id-", "session id ", "step ", "step#", "1 tokens ", "tokens left ")),
        *(
            (head, filling)
            for head in ("session id", "session id is", "step", "step count", "step count is", "step #", "1", "1 token")
            for filling in (" ", "\t ", "a", "1", "-", ":", "is ", "1,")
        ),
        ("tokens left", " "),
        ("10 tokens are", " "),
    ],
)
def test_one_long_sentence_takes_a_time_linear_in_it(head: str, filling: str) -> None:
    def cost(length: int) -> float:
        text = head + (filling * length)[:length] + "x"
        times = []
        for _ in range(3):
            begun = time.process_time()
            steady_pieces(text)
            times.append(time.process_time() - begun)
        return min(times)

    # Four times as long: 4 times the cost where it is linear, 16 times where it is quadratic.
    short, long = 4_000, 16_000
    assert cost(long) <= 8 * cost(short) + 0.004


@pytest.mark.parametrize(("volatile", "reason"), VOLATILE.items())
def test_it_is_named_with_its_place(
    volatile: str, reason: str, builder: PromptBuilder, tokenizer: ChatTokenizer
) -> None:
    prompt = builder.build(system=f"{RULES}\n{volatile}\n{RULES} Really.", documents=[RULES * 2], question="q")
    (found,) = prompt.volatile
    assert (found.text, found.reason) == (volatile, reason)
    assert volatile in tokenizer.decode(prompt.token_ids[found.start : found.end])
    assert volatile not in tokenizer.decode(prompt.token_ids[found.start + 1 : found.end - 1])
    assert all(span.end <= found.start or found.end <= span.start for span in prompt.spans)


def test_what_the_caller_declared_is_a_segment_whatever_it_says(builder: PromptBuilder) -> None:
    text = f"Current time is 15:09:20.\n{RULES}"
    assert [span.segment.text for span in builder.build(system=Segment(text, "system"), question="q").spans] == [text]
    for prompt in (
        builder.build(system=Segment(text, "system"), question="q"),
        builder.build(documents=[text], question="What was said at 15:09, on 2026-01-05?"),
        builder.build(system=RULES, memory=["Today is 5 January 2026."], question="q"),
    ):
        assert prompt.volatile == ()


def test_places_follow_each_other(builder: PromptBuilder, tokenizer: ChatTokenizer) -> None:
    def shown(prompt: Prompt) -> list[str]:
        return [tokenizer.decode(prompt.token_ids[one.start : one.end]).strip() for one in prompt.volatile]

    same = "Current time is 15:09:20."
    prompt = builder.build(system=f"{same}\n{RULES}\n{same}\n{RULES} 汉字 now: 2026-01-05", question=same)
    assert shown(prompt) == [same, same, f"{RULES} 汉字 now: 2026-01-05".partition(". ")[2].partition("it. ")[2]]
    assert [one.start for one in prompt.volatile] == sorted({one.start for one in prompt.volatile})
