"""Tools, the choice among them, and answers of a given form."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import pytest
from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.program.function_program import FunctionCallingProgram
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from pydantic import BaseModel

from hypic_agents.calls import InvalidToolCall, ToolCall
from hypic_agents.completion import Completion, ReuseReport, Usage
from hypic_agents.errors import InvalidInput, MissingToolCall
from hypic_agents.integrations.llama_index import HypicLLM
from hypic_agents.testing import FakeBackend
from tests.integrations.recorder import Recorder

ASK = PromptTemplate("Make one of {topic}.")


class Gate(BaseModel):
    """A gate."""

    name: str
    widths: list[int]


class Town(BaseModel):
    """A town."""

    name: str
    gates: list[Gate]


TOWN = {"name": "Besk", "gates": [{"name": "north", "widths": [3]}]}


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def find(q: str) -> str:
    """Find a thing."""
    return f"found {q}"


TOOLS = [FunctionTool.from_defaults(add, description="Add two numbers."), FunctionTool.from_defaults(find)]


def model(*replies: Any, **options: Any) -> tuple[HypicLLM, FakeBackend]:
    backend = FakeBackend(replies or ["ok"])
    return HypicLLM(backend=backend, **options), backend


@pytest.mark.parametrize(
    ("options", "choice"),
    [
        ({}, "auto"),
        ({"tool_required": True}, "required"),
        ({"tool_choice": "find"}, "find"),
        ({"tool_choice": {"type": "function", "function": {"name": "add"}}, "tool_required": True}, "add"),
        ({"tool_choice": "none", "tool_required": True}, "none"),
    ],
)
def test_the_choice_reaches_the_backend(options: dict[str, Any], choice: str) -> None:
    llm, backend = model(ToolCall("add", {"a": 1, "b": 2}))
    llm.chat_with_tools(TOOLS, "1 + 2?", **options)
    assert backend.requests[0].tool_choice == choice
    with pytest.raises(InvalidInput, match="add, find"):
        llm.chat_with_tools(TOOLS, "1 + 2?", tool_choice="multiply")


async def test_chat_with_tools_in_every_way_of_calling() -> None:
    llm, backend = model(ToolCall("add", {"a": 1, "b": 2}, "c1"))
    history = [ChatMessage(role="system", content="Be brief."), ChatMessage("Hi")]
    before = [message.model_copy(deep=True) for message in history]
    responses = [
        llm.chat_with_tools(TOOLS, "1 + 2?", history, allow_parallel_tool_calls=True),
        await llm.achat_with_tools(TOOLS, ChatMessage("1 + 2?"), history),
        list(llm.stream_chat_with_tools(TOOLS, "1 + 2?", history))[-1],
        [r async for r in await llm.astream_chat_with_tools(TOOLS, "1 + 2?", history)][-1],
    ]
    for response in responses:
        assert llm.get_tool_calls_from_response(response) == [
            ToolSelection(tool_id="c1", tool_name="add", tool_kwargs={"a": 1, "b": 2})
        ]
    assert [request.parallel_tool_calls for request in backend.requests] == [True, False, False, False]
    for request in backend.requests:
        assert [message["content"] for message in request.messages] == ["Be brief.", "Hi", "1 + 2?"]
        assert request.tools[0]["function"] == {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": {
                "properties": {"a": {"title": "A", "type": "integer"}, "b": {"title": "B", "type": "integer"}},
                "required": ["a", "b"],
                "type": "object",
            },
        }
    assert history == before


async def test_calls_are_carried_out() -> None:
    llm, _ = model([ToolCall("add", {"a": 1, "b": 2}), ToolCall("find", {"q": "tea"})])
    answer = llm.predict_and_call(TOOLS, "Go.", allow_parallel_tool_calls=True)
    assert str(answer) == "3\n\nfound tea"
    assert str(await llm.apredict_and_call(TOOLS, "Go.", allow_parallel_tool_calls=True)) == "3\n\nfound tea"


def test_no_tools_at_all() -> None:
    llm, backend = model("Hello")
    assert llm.chat_with_tools([], "Hi", tool_required=True).message.content == "Hello"
    assert (backend.requests[0].tool_choice, list(backend.requests[0].tools)) == ("auto", [])


def test_long_descriptions_and_repeated_names() -> None:
    llm, backend = model("Hello")
    long = FunctionTool.from_defaults(find, name="add", description="Adds. " * 400)
    llm.chat_with_tools([*TOOLS, long], "Hi")
    assert [t["function"]["name"] for t in backend.requests[0].tools] == ["add", "find"]
    assert backend.requests[0].tools[0]["function"]["description"] == "Adds. " * 400


@pytest.mark.parametrize("tool", [TOOLS[0], TOOLS[0].metadata.to_openai_tool()])
def test_tools_as_an_option_of_a_plain_call(tool: Any) -> None:
    llm, backend = model(ToolCall("add", {"a": 1, "b": 2}))
    llm.chat([ChatMessage("1 + 2?")], tools=[tool], tool_choice="add")
    assert backend.requests[0].tools[0] == TOOLS[0].metadata.to_openai_tool()


def test_without_a_call() -> None:
    llm, _ = model("I will not.")
    response = llm.chat_with_tools(TOOLS, "Go.")
    assert llm.get_tool_calls_from_response(response, error_on_no_tool_call=False) == []
    with pytest.raises(MissingToolCall, match="I will not"):
        llm.get_tool_calls_from_response(response)
    cut = InvalidToolCall("Town", '{"name": "Be', "c1", "it ends early")
    llm, _ = model(
        Completion("", (), "length", Usage(1, 1), ReuseReport("hypic", 1, 1, 0, 0), invalid_tool_calls=(cut,))
    )
    with pytest.raises(MissingToolCall, match=r"'Town' was cut short: it ends early; raise max_tokens"):
        llm.structured_predict(Town, ASK, topic="towns")


def test_arguments_that_other_models_wrote_as_text() -> None:
    llm, _ = model()
    blocks = [ToolCallBlock(tool_name="add", tool_kwargs=text) for text in ('{"a": 1, "b": 2}', "[1]", "{]")]
    response = llm.chat([ChatMessage("Hi")]).model_copy(
        update={"message": ChatMessage(role="assistant", blocks=blocks)}
    )
    assert [c.tool_kwargs for c in llm.get_tool_calls_from_response(response)] == [{"a": 1, "b": 2}, {}, {}]


async def test_structured_prediction() -> None:
    llm, backend = model(ToolCall("Town", TOWN))
    expected = Town(**TOWN)
    assert llm.structured_predict(Town, ASK, topic="towns") == expected
    assert await llm.astructured_predict(Town, ASK, topic="towns") == expected
    partial = list(llm.stream_structured_predict(Town, ASK, topic="towns"))
    assert partial[-1] == expected
    assert any(getattr(p, "name", None) == "Besk" and not getattr(p, "gates", None) for p in partial)
    assert [p async for p in await llm.astream_structured_predict(Town, ASK, topic="towns")][-1] == expected
    assert llm.as_structured_llm(Town).complete("Hi").raw == expected
    assert {request.tool_choice for request in backend.requests} == {"required"}
    assert not any(request.parallel_tool_calls for request in backend.requests)


T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    """A box."""

    content: T


def test_generic_forms_keep_their_name() -> None:
    llm, backend = model(ToolCall("Box[int]", {"content": 3}))
    assert llm.structured_predict(Box[int], ASK, topic="boxes") == Box[int](content=3)
    assert backend.requests[0].tools[0]["function"]["name"] == "Box[int]"


def test_several_objects_at_once() -> None:
    llm, backend = model([ToolCall("Gate", {"name": name, "widths": []}) for name in ("north", "south")])
    program = FunctionCallingProgram.from_defaults(Gate, prompt=ASK, llm=llm, allow_parallel_tool_calls=True)
    assert [gate.name for gate in program(topic="gates")] == ["north", "south"]  # type: ignore[union-attr]
    assert backend.requests[0].parallel_tool_calls


class TestEngine:
    """What the model's wits could spoil: the answer is held to the form while it is written."""

    @pytest.fixture
    def llm(self, tiny: Recorder) -> HypicLLM:
        return HypicLLM(backend=tiny, max_tokens=200)

    async def test_nested_forms(self, llm: HypicLLM) -> None:
        town = llm.structured_predict(Town, ASK, topic="gates")
        assert isinstance(town, Town)
        assert list(llm.stream_structured_predict(Town, ASK, topic="gates"))[-1] == town
        assert await llm.astructured_predict(Town, ASK, topic="gates") == town

    async def test_calls_have_ids_of_their_own(self, llm: HypicLLM) -> None:
        responses = [
            llm.chat_with_tools(TOOLS, "1 + 2?", tool_required=True),
            await llm.achat_with_tools(TOOLS, "1 + 2?", tool_required=True),
            list(llm.stream_chat_with_tools(TOOLS, "1 + 2?", tool_required=True))[-1],
        ]
        calls = [llm.get_tool_calls_from_response(response)[0] for response in responses]
        assert len({call.tool_id for call in calls}) == 3
        assert all(set(call.tool_kwargs) == ({"a", "b"} if call.tool_name == "add" else {"q"}) for call in calls)
        assert calls[0].tool_kwargs == calls[1].tool_kwargs == calls[2].tool_kwargs

    def test_json_answers(self, llm: HypicLLM) -> None:
        schema = {"name": "gate", "schema": Gate.model_json_schema()}
        response = llm.complete("A gate.", response_format={"type": "json_schema", "json_schema": schema})
        Gate.model_validate_json(response.text)

    def test_an_answer_too_short_for_its_form(self, llm: HypicLLM) -> None:
        with pytest.raises(MissingToolCall):
            llm.structured_predict(Town, ASK, llm_kwargs={"max_tokens": 3}, topic="towns")
