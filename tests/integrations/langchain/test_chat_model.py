"""``ChatHypic`` on a scripted backend, and on the engine where what counts is computed."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core import exceptions
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.load import dumpd, load
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from pydantic import BaseModel, ValidationError
from typing_extensions import TypedDict

from hypic_agents import errors
from hypic_agents.calls import ToolCall
from hypic_agents.core import Scope
from hypic_agents.integrations.langchain import ChatHypic
from hypic_agents.integrations.langchain.chat_model import shared_backend
from hypic_agents.runtime.embedded import EmbeddedBackend
from hypic_agents.testing import FakeBackend

RULES = SystemMessage("Answer in one word. " + "The keeper of the north gate is called Velmo. " * 6)


@tool
def find(q: str) -> str:
    """Find a thing."""
    return q


class Town(BaseModel):
    """A town."""

    name: str
    size: int


class TownDict(TypedDict):
    """A town."""

    name: str


def engine_of(model: ChatHypic) -> EmbeddedBackend:
    return shared_backend(model.model_name)


def is_idle(backend: EmbeddedBackend) -> bool:
    driver = backend._running()
    return driver.call(lambda: not driver._jobs and driver.engine._schedule.idle).result(30)


class TestRequests:
    def test_a_call_s_options_come_before_the_model_s(self) -> None:
        backend = FakeBackend()
        model = ChatHypic(
            backend=backend, temperature=0.5, max_tokens=9, stop=["a"], seed=1, timeout=3, tenant="t", groups=["g"]
        )
        model.invoke("Hi")
        model.invoke("Hi", temperature=0.0, max_tokens=7, stop=["b"], seed=2, timeout=4, policy="exact", top_p=0.5)
        first, second = backend.requests
        assert (first.sampling.temperature, first.sampling.max_tokens, first.sampling.stop) == (0.5, 9, ("a",))
        assert (first.sampling.seed, first.timeout_s, first.policy, first.fit_window) == (1, 3, None, False)
        assert first.scope == second.scope == Scope("t", frozenset({"g"}))
        assert (second.sampling.temperature, second.sampling.max_tokens, second.sampling.stop) == (0.0, 7, ("b",))
        assert (second.sampling.seed, second.timeout_s, second.policy, second.sampling.top_p) == (2, 4, "exact", 0.5)

    def test_without_a_limit_the_answer_fits_the_window(self) -> None:
        backend = FakeBackend()
        ChatHypic(backend=backend).invoke("Hi")
        assert backend.requests[0].fit_window
        assert backend.requests[0].sampling.max_tokens == 1024

    def test_what_frameworks_send_along_is_no_error_and_a_slip_is_one(self) -> None:
        model = ChatHypic(backend=FakeBackend())
        model.invoke("Hi", cache_control={"type": "ephemeral"}, strict=True, parallel_tool_calls=None)
        with pytest.raises(exceptions.ModelInvalidRequestError, match="temprature"):
            model.invoke("Hi", temprature=1)

    def test_names_of_the_fields(self) -> None:
        model = ChatHypic(model="some/model", stop_sequences=["a"])
        assert (model.model_name, model.stop) == ("some/model", ["a"])
        assert ChatHypic(model_name="other").model_name == "other"
        with pytest.raises(ValidationError, match="unknown policy"):
            ChatHypic(policy="fastest")

    def test_bound_tools_reach_the_backend(self) -> None:
        backend = FakeBackend([ToolCall("find", {"q": "x"})])
        bound = ChatHypic(backend=backend).bind_tools([find], tool_choice="any", parallel_tool_calls=False)
        assert bound.invoke("Hi").tool_calls[0]["args"] == {"q": "x"}
        request = backend.requests[0]
        assert request.tools[0]["function"]["name"] == "find"
        assert (request.tool_choice, request.parallel_tool_calls) == ("required", False)
        with pytest.raises(errors.InvalidInput, match="find"):
            ChatHypic(backend=backend).bind_tools([find], tool_choice="search")

    def test_another_model_needs_no_other_object_but_another_backend_does(self) -> None:
        assert ChatHypic(model="tiny", max_tokens=2).invoke("Hi", model="random:qwen3_5:2m").response_metadata[
            "model_name"
        ] == ("random:qwen3_5:2m")
        with pytest.raises(errors.InvalidInput, match="alone"):
            ChatHypic(backend=FakeBackend()).invoke("Hi", model="another")


class TestStructuredOutput:
    @pytest.mark.parametrize("method", ["json_schema", "json_mode", "function_calling"])
    @pytest.mark.parametrize("strict", [None, True, False])
    def test_methods(self, method: Any, strict: bool | None) -> None:
        reply = (
            ToolCall("Town", {"name": "Besk", "size": 3})
            if method == "function_calling"
            else '{"name": "Besk", "size": 3}'
        )
        backend = FakeBackend([reply])
        model = ChatHypic(backend=backend)
        town = Town(name="Besk", size=3)
        assert model.with_structured_output(Town, method=method, strict=strict).invoke("Hi") == town
        assert model.with_structured_output(Town.model_json_schema(), method=method).invoke("Hi") == town.model_dump()
        assert list(model.with_structured_output(Town, method=method).stream("Hi"))[-1] == town
        request = backend.requests[0]
        if method == "function_calling":
            assert request.tool_choice == "Town"
        else:
            assert request.response_format is not None
            assert request.response_format["type"] == ("json_schema" if method == "json_schema" else "json_object")

    def test_raw_answers_and_errors_side_by_side(self) -> None:
        model = ChatHypic(backend=FakeBackend(['{"name": "Besk", "size": "big"}']))
        got = model.with_structured_output(Town, include_raw=True).invoke("Hi")
        assert got["parsed"] is None
        assert isinstance(got["parsing_error"], exceptions.OutputParserException)
        assert isinstance(got["raw"], AIMessage)
        good = ChatHypic(backend=FakeBackend(['{"name": "Besk", "size": 3}']))
        assert good.with_structured_output(Town, include_raw=True).invoke("Hi")["parsed"] == Town(name="Besk", size=3)

    def test_json_mode_needs_no_schema_and_the_others_do(self) -> None:
        model = ChatHypic(backend=FakeBackend(['{"a": [1]}']))
        assert model.with_structured_output(method="json_mode").invoke("Hi") == {"a": [1]}
        assert model.with_structured_output(TownDict, method="json_mode").invoke("Hi") == {"a": [1]}
        for bad in ({}, {"schema": Town, "method": "xml"}):
            with pytest.raises(errors.InvalidInput):
                model.with_structured_output(**bad)


class TestErrors:
    @pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "astream"])
    @pytest.mark.parametrize(
        ("options", "ours", "theirs"),
        [
            ({"max_tokens": 10_000}, errors.ContextOverflow, exceptions.ContextOverflowError),
            ({"timeout": 1e-4}, errors.RequestTimeout, exceptions.ModelTimeoutError),
            ({"max_tokens": 0}, errors.InvalidInput, exceptions.ModelInvalidRequestError),
            ({"model": "no/such-dir/at-all"}, errors.ModelNotFound, exceptions.ModelNotFoundError),
        ],
    )
    async def test_types(
        self, way: str, options: dict[str, Any], ours: type[Exception], theirs: type[Exception]
    ) -> None:
        model = ChatHypic(**({"model": "tiny"} | options))
        with pytest.raises(ours) as caught:
            await call(model, way, "Hello")
        assert isinstance(caught.value, theirs)


async def call(model: ChatHypic, way: str, text: str) -> Any:
    if way == "invoke":
        return model.invoke(text)
    if way == "ainvoke":
        return await model.ainvoke(text)
    if way == "stream":
        return list(model.stream(text))
    return [chunk async for chunk in model.astream(text)]


class TestEngine:
    """On the engine, with a random model: it never ends an answer by itself."""

    model = ChatHypic(model="random:qwen3_5:2m", max_tokens=2000, temperature=1.0, seed=0)

    def test_closing_a_stream_stops_the_request(self) -> None:
        stream = self.model.stream("Hello")
        next(stream)
        assert not is_idle(engine_of(self.model))
        stream.close()  # type: ignore[attr-defined]
        assert is_idle(engine_of(self.model))

    async def test_leaving_an_async_stream_stops_the_request(self) -> None:
        stream = self.model.astream("Hello")
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        while not await asyncio.to_thread(is_idle, engine_of(self.model)):
            pass

    async def test_a_timeout_around_a_call_stops_the_request(self) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await self.model.ainvoke("Hello")
        while not await asyncio.to_thread(is_idle, engine_of(self.model)):
            pass

    async def test_many_callers_get_the_answers_they_would_get_alone(self) -> None:
        # Trained weights: among random ones the two best tokens are so close that a batch's rounding may swap them.
        model = ChatHypic(model="tiny", max_tokens=8)
        names = ("Tarnovo", "Velmo", "Soldane", "Misdel", "Ogoser")
        texts = [
            f"Notes on {name}\nThe mayor of {name} is called {name[::-1].title()}. Who is the mayor of {name}?"
            for name in names
        ]
        alone = [model.invoke(text).content for text in texts]
        assert len(set(alone)) > 2
        assert [message.content for message in await model.abatch(texts)] == alone
        with ThreadPoolExecutor(5) as pool:
            assert [message.content for message in pool.map(model.invoke, texts)] == alone

    def test_usage_adds_up_and_says_what_was_reused(self) -> None:
        model = ChatHypic(model="tiny", max_tokens=4)
        messages = [RULES, HumanMessage("Who keeps the north gate?")]
        first, second = model.invoke(messages), model.invoke(messages)
        for message in (first, second):
            usage = message.usage_metadata
            assert usage is not None
            assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
            report = message.response_metadata["hypic"]
            assert usage["input_tokens"] == report["prompt_tokens"] == model.get_num_tokens_from_messages(messages)
            assert usage["input_token_details"] == {
                "cache_read": report["reused_tokens"],
                "cache_creation": report["cold_tokens"],
            }
        assert first.content == second.content
        details = second.usage_metadata["input_token_details"]  # type: ignore[index]
        assert details["cache_read"] > 0
        assert details["cache_creation"] == 0

    def test_reuse_is_off_where_the_policy_says_so(self) -> None:
        model = ChatHypic(model="tiny", max_tokens=4, policy="exact")
        report = model.invoke([RULES, HumanMessage("Who?")]).response_metadata["hypic"]
        assert (report["policy"], report["reused_tokens"], report["cold_tokens"]) == ("exact", 0, 0)
        assert {segment["reason"] for segment in report["segments"]} == {"policy is exact"}

    def test_tokens_are_the_model_s_own(self) -> None:
        model = ChatHypic(model="tiny")
        tokenizer = engine_of(model).engine.tokenizer
        assert model.get_token_ids("the keeper <|im_end|>") == list(tokenizer.encode_text("the keeper <|im_end|>"))
        bare = model.get_num_tokens_from_messages([HumanMessage("Hi")])
        assert model.get_num_tokens_from_messages([HumanMessage("Hi")], tools=[find]) > bare


class _Tokens(BaseCallbackHandler):
    """Counts what core tells of a stream."""

    def __init__(self) -> None:
        self.tokens: list[Any] = []
        self.ends = 0

    def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
        self.tokens.append(token)

    def on_llm_end(self, *args: Any, **kwargs: Any) -> None:
        self.ends += 1


class TestLangChain:
    def test_callbacks_hear_every_piece_once(self) -> None:
        handler = _Tokens()
        model = ChatHypic(backend=FakeBackend(["one two three"]))
        list(model.stream("Hi", config={"callbacks": [handler]}))
        assert [token for token in handler.tokens if token] == ["one ", "two ", "three"]
        assert handler.ends == 1

    def test_profile_and_parameters_need_no_model(self) -> None:
        model = ChatHypic(model="tiny", temperature=0.3, max_tokens=5)
        assert model.profile is not None
        assert model.profile["max_input_tokens"] == 8192
        assert model.profile["tool_calling"]
        assert model._get_ls_params()["ls_provider"] == "hypic"
        assert ChatHypic(model="not/here").profile is not None
        assert "max_input_tokens" not in ChatHypic(model="not/here").profile  # type: ignore[operator]
        assert ChatHypic(backend=FakeBackend()).profile["max_input_tokens"] == 8192  # type: ignore[index]

    def test_the_response_cache_tells_policies_apart(self) -> None:
        backend = FakeBackend(["one", "two"])
        cache = InMemoryCache()
        first = ChatHypic(backend=backend, cache=cache)
        assert [first.invoke("Hi").content, first.invoke("Hi").content] == ["one", "one"]
        assert ChatHypic(backend=backend, cache=cache, policy="exact").invoke("Hi").content == "two"
        assert ChatHypic(backend=backend, cache=cache, tenant="t").invoke("Hi").content == "two"

    @pytest.mark.filterwarnings("ignore:The function `load` is in beta")
    def test_a_model_can_be_written_down_and_read_again(self) -> None:
        model = ChatHypic(model="tiny", policy="exact", tenant="t", groups=["g"], max_tokens=5)
        again = load(dumpd(model), allowed_objects=[ChatHypic], valid_namespaces=["hypic_agents"])
        assert again._identifying_params == model._identifying_params
        assert dumpd(ChatHypic(backend=FakeBackend()))["type"] == "not_implemented"
