"""The whole analysis: on an engine whose failures are known, and on weights that reuse really disturbs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hypic_agents.core import Prompt, SamplingParams
from hypic_agents.errors import InvalidInput
from hypic_agents.quality.explain.changes import END, find_changes
from hypic_agents.quality.explain.picture import draw_explain
from hypic_agents.quality.explain.remedies import ladder
from hypic_agents.quality.explain.run import run_explain
from hypic_agents.quality.questions import Item, make_items
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.plan import LiveSpan, Plan, ReusedSpan
from hypic_agents.runtime.policy import ReusePolicy, parse_policy
from hypic_agents.runtime.policy_file import PolicyFile, write_policy_file
from tests.quality.explain.scripted import PREFERENCE, Script, Scripted, head_of, scripted

HYPIC = parse_policy("hypic")


def quiet(_stage: str, _done: int, _total: int) -> None:
    pass


def spoilt(item: Item, at: int, by: int = 1) -> tuple[int, ...]:
    """The exact answer with another token at one place."""
    other = 40 + (item.answer_ids[at] + by) % 40
    return (*item.answer_ids[:at], other, *item.answer_ids[at + 1 :])


def source(item: Item, which: int = 0) -> str:
    assert item.question is not None
    return item.documents[item.question.needs[which]].source_id


def below(item: Item, seam: int, wrong: tuple[int, ...]) -> Script:
    """Right where the needed segment is live or composed behind at least ``seam`` live tokens."""
    needed = source(item)

    def script(plan: Plan) -> tuple[int, ...]:
        head = head_of(plan, needed)
        return item.answer_ids if head is None or head >= seam else wrong

    return script


def fixed(full: tuple[int, ...], other: tuple[int, ...]) -> Script:
    return lambda plan: full if plan.policy.exact else other


@pytest.fixture(scope="module")
def items(engine: Engine) -> list[Item]:
    return make_items(engine, "single", 4, seed=0)


@pytest.fixture(scope="module")
def broken(engine: Engine, items: list[Item]) -> Scripted:
    """Two answers break below a head seam of 32 in the needed segment, one always, and one never."""
    always = fixed(items[2].answer_ids, spoilt(items[2], 1))
    scripts = {
        items[0].prompt.token_ids: below(items[0], 32, spoilt(items[0], 1)),
        items[1].prompt.token_ids: below(items[1], 32, spoilt(items[1], 0)),
        items[2].prompt.token_ids: always,
        items[3].prompt.token_ids: lambda _: items[3].answer_ids,
    }
    return scripted(engine, scripts)


@pytest.fixture(scope="module")
def result(broken: Scripted) -> dict[str, Any]:
    return run_explain(broken, questions_per_task=4, tasks=("single",), progress=quiet)


def test_every_changed_answer_is_listed_and_no_other(result: dict[str, Any], items: list[Item]) -> None:
    assert result["changed"] == {"to_wrong": 3, "to_right": 0, "to_other": 0}
    assert result["questions"] == 4
    listed = [answer["question"] for answer in result["answers"]]
    assert listed == [item.question.text for item in items[:3] if item.question]
    for answer, item in zip(result["answers"], items[:3], strict=True):
        assert item.question is not None
        assert answer["expected"] == answer["full_recompute"] == item.question.answer
        assert answer["reuse"] != answer["expected"]
        assert answer["prompt_tokens"] == len(item.prompt)
        assert answer["segments"] == 8
        assert 0 < answer["live_share"] < 0.3
        assert [place["source_id"] for place in answer["needed"]] == [source(item)]


def test_the_guilty_segment_and_the_cheapest_remedy_are_named(result: dict[str, Any], items: list[Item]) -> None:
    for answer, item in zip(result["answers"][:2], items[:2], strict=True):
        assert answer["guilty"] == [source(item)]
        assert answer["restored_by"] == [
            *(f"head seam {seam}, {mode}" for seam in (32, 64) for mode in ("conditioned", "alone")),
            "one segment live",
            "needed segments live",
            "all live",
        ]
        mended = answer["mended_by"]
        assert (mended["remedy"], mended["source_id"]) == ("one segment live", source(item))
        assert mended["live_share"] == mended["live_tokens"] / answer["prompt_tokens"]
        assert answer["live_share"] < mended["live_share"] < 0.4
    hopeless = result["answers"][2]
    assert hopeless["restored_by"] == ["all live"]
    assert hopeless["guilty"] == []
    assert hopeless["mended_by"]["live_share"] == 1


def test_remedies_are_in_order_of_cost_and_add_up(result: dict[str, Any]) -> None:
    rows = {row["remedy"]: row for row in result["remedies"]}
    assert set(rows) == {remedy.name for remedy in ladder(HYPIC)}
    shares = [row["live_share"] for row in result["remedies"]]
    assert shares == sorted(shares)
    assert result["remedies"][-1]["remedy"] == "all live"
    assert [row["cumulative"] for row in result["remedies"]][-2:] == [2, 3]
    assert rows["head seam 16, alone"]["mended"] == 0
    assert rows["one segment live"] | {"live_share": 0} == {
        "remedy": "one segment live",
        "live_share": 0,
        "tried": 3,
        "mended": 2,
        "mended_share": 2 / 3,
        "cumulative": 2,
        "cumulative_share": 2 / 3,
        "cheapest": 2,
    }


def test_a_policy_from_a_file_goes_by_the_file(broken: Scripted, result: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    write_policy_file(path, PolicyFile(HYPIC, broken.fingerprint))
    spec = f"file:{path}"
    again = run_explain(broken, questions_per_task=4, policy=spec, tasks=("single",), progress=quiet)
    assert again == result | {"policy": spec}


def test_the_summary_covers_all_questions(result: dict[str, Any]) -> None:
    assert list(result["summary"]) == ["task", "distance", "order", "needed", "style"]
    assert sum(row["questions"] for row in result["summary"]["distance"]) == 4
    assert sum(row["changed"] for row in result["summary"]["distance"]) == 3
    assert result["facts"] == {"needed": 4, "found": 4}
    assert result["summary"]["task"][0]["rate"] == 0.75


def test_the_result_survives_json_and_becomes_a_picture(result: dict[str, Any], tmp_path: Path) -> None:
    read = json.loads(json.dumps(result))
    assert read == result
    draw_explain(read, tmp_path / "explain.png", title="scripted")
    assert (tmp_path / "explain.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InvalidInput, match="cannot save"):
        draw_explain(read, tmp_path / "missing" / "explain.png", title="scripted")


def test_where_nothing_changes_there_is_a_result_and_a_picture(
    engine: Engine, items: list[Item], tmp_path: Path
) -> None:
    scripts = {item.prompt.token_ids: fixed(item.answer_ids, item.answer_ids) for item in items}
    unchanged = run_explain(scripted(engine, scripts), questions_per_task=4, tasks=("single",), progress=quiet)
    assert (unchanged["answers"], unchanged["remedies"]) == ([], [])
    assert unchanged["changed"] == {"to_wrong": 0, "to_right": 0, "to_other": 0}
    draw_explain(unchanged, tmp_path / "nothing.png", title="scripted")
    assert (tmp_path / "nothing.png").stat().st_size > 1000


def test_the_first_difference_and_the_sort_of_change(engine: Engine, items: list[Item]) -> None:
    ended_early = (*items[3].answer_ids[:1], items[3].answer_ids[-1])
    scripts = {
        items[0].prompt.token_ids: fixed(spoilt(items[0], 1), items[0].answer_ids),
        items[1].prompt.token_ids: fixed(spoilt(items[1], 1), spoilt(items[1], 1, by=2)),
        items[2].prompt.token_ids: fixed(spoilt(items[2], 1), spoilt(items[2], 1)),
        items[3].prompt.token_ids: fixed(items[3].answer_ids, ended_early),
    }
    one = scripted(engine, scripts)
    changes = find_changes(one, items, HYPIC, quiet)
    assert [(change.at, change.kind) for change in changes] == [(0, "to_right"), (1, "to_other"), (3, "to_wrong")]
    for change in changes:
        difference = change.difference
        assert difference.index == 1
        assert difference.full_margin == difference.policy_margin == PREFERENCE
        p, q = torch.tensor([PREFERENCE, *[0.0] * (engine.model.vocab_size - 1)]).softmax(-1)[:2].tolist()
        assert difference.kl == pytest.approx((p - q) * PREFERENCE, rel=1e-4)
    decode = engine.tokenizer.decode
    assert changes[0].difference.full == decode(spoilt(items[0], 1)[1:2])
    assert changes[0].difference.policy == decode(items[0].answer_ids[1:2])
    assert changes[2].difference.policy == END
    assert changes[2].full_ids == items[3].answer_ids
    assert changes[2].policy_ids == ended_early


def test_answers_that_are_cut_before_they_part_are_not_called_changed(engine: Engine, items: list[Item]) -> None:
    endless = (41,) * 500
    scripts = {item.prompt.token_ids: fixed(endless, endless[:100]) for item in items}
    assert find_changes(scripted(engine, scripts), items, HYPIC, quiet) == ()


class Garbled(Engine):
    """Composes every segment from an entry of its tokens in reverse: the facts in it are lost."""

    def plan(self, prompt: Prompt, policy: ReusePolicy | str | None = None, *, max_new_tokens: int = 1) -> Plan:
        plan = super().plan(prompt, policy, max_new_tokens=max_new_tokens)
        return replace(plan, spans=tuple(map(self._garbled, plan.spans)))

    @staticmethod
    def _garbled(span: LiveSpan | ReusedSpan) -> LiveSpan | ReusedSpan:
        if isinstance(span, LiveSpan) or span.build.is_prefix:
            return span
        return replace(span, build=replace(span.build, token_ids=span.build.token_ids[::-1]))


def test_on_real_weights_what_is_said_to_mend_does() -> None:
    tasks = ("single",)
    with Engine.load("tiny", EngineConfig(threads=1)) as tiny:
        garbled = Garbled(tiny.model, tiny.tokenizer, tiny.fingerprint, tiny.config)
        result = run_explain(garbled, questions_per_task=3, tasks=tasks, progress=quiet)
        assert sum(result["changed"].values()) == len(result["answers"]) > 0
        assert result["remedies"][-1]["remedy"] == "all live"
        assert result["remedies"][-1]["mended_share"] == 1
        items = {item.question.text: item for task in tasks for item in make_items(tiny, task, 3, 0) if item.question}
        asked = [items[answer["question"]] for answer in result["answers"]]
        sampling = SamplingParams(max_tokens=max(len(item.answer_ids) for item in items.values()) + 1)
        checked = ("head seam 64, conditioned", "tail seam 16", "all live")
        names = {"reuse": HYPIC} | {remedy.name: remedy.policy for remedy in ladder(HYPIC) if remedy.name in checked}
        for name, policy in names.items():
            made = garbled.generate_batch([item.prompt for item in asked], sampling, policy)
            for answer, told in zip(result["answers"], made, strict=True):
                same = told.text == answer["full_recompute"]
                assert same == (name in answer["restored_by"]), (name, told.text, answer)
                assert name != "reuse" or told.text == answer["reuse"]
        garbled.store.check_integrity()


@pytest.mark.parametrize(
    "changes", [{"policy": "exact"}, {"policy": "hypik"}, {"tasks": ("singel",)}, {"questions_per_task": 0}]
)
def test_bad_input_is_refused_at_once(engine: Engine, changes: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"questions_per_task": 1, "progress": quiet}
    with pytest.raises(InvalidInput):
        run_explain(engine, **(arguments | changes))
