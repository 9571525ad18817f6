from __future__ import annotations

import pytest

from hypic_agents.core import Segment
from hypic_agents.prompt import ChatTokenizer, PromptBuilder
from hypic_agents.runtime.lead import find_leads
from tests.prompt.tokenizers_for_tests import hf_tokenizer

SHEETS = [Segment(f"Gate {i} of the old town opens at {i} in the morning and closes at dusk.") for i in range(2)]
EARLIER = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Good morning."}]


@pytest.fixture(scope="module")
def builder() -> PromptBuilder:
    return PromptBuilder(ChatTokenizer(hf_tokenizer("bytes-tool-marks")))


@pytest.mark.parametrize("system", [None, "Answer from the documents, and from nothing else."])
def test_the_first_turn_and_later_ones_lead_alike(builder: PromptBuilder, system: str | None) -> None:
    found = []
    for earlier in ([], EARLIER):
        prompt = builder.build(system=system, documents=SHEETS, messages=earlier, question="When?")
        is_first = prompt.spans[0].segment.kind == "system"
        spans, start = prompt.spans[is_first:], prompt.spans[0].end if is_first else 0
        leads = find_leads(prompt, spans, start, 5)
        assert len(leads) == len(SHEETS) and len(set(leads)) == 1
        found.append(leads[0].token_ids)
    assert found[0] == found[1]
    assert 3 <= len(found[0]) <= 5
