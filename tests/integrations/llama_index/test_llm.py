"""``HypicLLM`` on a scripted backend, and on the engine where what counts is computed."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.callbacks import CallbackManager, LlamaDebugHandler
from llama_index.core.prompts import PromptTemplate
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from pydantic import ValidationError

from hypic_agents import errors
from hypic_agents.backend import ModelInfo
from hypic_agents.core import Scope
from hypic_agents.integrations.llama_index import HypicLLM
from hypic_agents.runtime.config import EngineConfig
from hypic_agents.runtime.shared import shared_backend
from hypic_agents.testing import FakeBackend
from tests.integrations.recorder import Recorder

HI = [ChatMessage("Hi")]
WAYS = ["chat", "achat", "stream_chat", "astream_chat", "complete", "acomplete", "stream_complete", "astream_complete"]


async def call(llm: HypicLLM, way: str, text: str = "Hi", **options: Any) -> Any:
    given = [ChatMessage(text)] if "chat" in way else text
    result = getattr(llm, way)(given, **options)
    if way.startswith("a"):
        result = await result
    if "stream" not in way:
        return result
    return [r async for r in result][-1] if way.startswith("a") else list(result)[-1]


class TestRequests:
    @pytest.mark.parametrize("way", WAYS)
    async def test_a_call_s_options_come_before_the_model_s(self, way: str) -> None:
        backend = FakeBackend()
        llm = HypicLLM(
            backend=backend, temperature=0.5, max_tokens=9, stop=["a"], seed=1, timeout=3, tenant="t", groups=["g"]
        )
        await call(llm, way)
        await call(llm, way, temperature=0.0, max_tokens=7, stop=["b"], seed=2, timeout=4, policy="exact", top_p=0.5)
        first, second = backend.requests
        assert (first.sampling.temperature, first.sampling.max_tokens, first.sampling.stop) == (0.5, 9, ("a",))
        assert (first.sampling.seed, first.timeout_s, first.policy, first.fit_window) == (1, 3, None, False)
        assert first.scope == second.scope == Scope("t", frozenset({"g"}))
        assert (second.sampling.temperature, second.sampling.max_tokens, second.sampling.stop) == (0.0, 7, ("b",))
        assert (second.sampling.seed, second.timeout_s, second.policy, second.sampling.top_p) == (2, 4, "exact", 0.5)

    def test_without_a_limit_the_answer_fits_the_window(self) -> None:
        backend = FakeBackend()
        HypicLLM(backend=backend).chat(HI)
        assert backend.requests[0].fit_window
        assert backend.requests[0].sampling.max_tokens == 1024

    def test_slips_are_errors(self) -> None:
        llm = HypicLLM(backend=FakeBackend())
        llm.chat(HI, strict=True)
        with pytest.raises(errors.InvalidInput, match="temprature"):
            llm.chat(HI, temprature=1)
        with pytest.raises(ValidationError, match="temprature"):
            HypicLLM(temprature=1)  # type: ignore[call-arg]
        with pytest.raises(ValidationError, match="unknown policy"):
            HypicLLM(policy="fastest")


class TestLlamaIndex:
    def test_metadata_needs_no_model(self) -> None:
        metadata = HypicLLM(model="tiny").metadata
        assert (metadata.context_window, metadata.num_output) == (8192, 256)
        assert metadata.is_chat_model
        assert metadata.is_function_calling_model
        assert (metadata.model_name, metadata.system_role) == ("tiny", MessageRole.SYSTEM)
        assert HypicLLM(model="tiny", max_tokens=5).metadata.num_output == 5
        info = ModelInfo("served", "sglang", window=512, tools=False)
        other = HypicLLM(backend=FakeBackend(info=info)).metadata
        assert (other.context_window, other.num_output, other.model_name) == (512, 128, "served")
        assert not other.is_function_calling_model

    def test_nothing_is_loaded_before_the_first_call(self) -> None:
        code = (
            "from hypic_agents.integrations.llama_index import HypicLLM; import sys; llm = HypicLLM(model='tiny');"
            "llm.metadata, llm.to_dict(); print(sorted({'torch', 'transformers'} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"

    def test_a_model_can_be_written_down_and_read_again(self) -> None:
        llm = HypicLLM(model="tiny", policy="exact", tenant="t", groups=["g"], max_tokens=5, system_prompt="Be brief.")
        for again in (
            HypicLLM.from_dict(llm.to_dict()),
            HypicLLM.from_json(llm.to_json()),
            HypicLLM.model_validate(llm.model_dump()),
            pickle.loads(pickle.dumps(llm)),
        ):
            assert again.to_dict() == llm.to_dict()
        assert llm.to_dict()["class_name"] == "HypicLLM"
        assert "backend" not in HypicLLM(backend=FakeBackend(), engine_config=EngineConfig()).to_dict()

    def test_objects_that_name_one_model_share_an_engine(self) -> None:
        config = EngineConfig(max_batch=3)
        assert HypicLLM(model="tiny")._backend() is HypicLLM(model="tiny")._backend() is shared_backend("tiny")
        assert HypicLLM(model="tiny", engine_config=config)._backend() is shared_backend("tiny", config)

    @pytest.mark.parametrize("way", WAYS)
    async def test_callbacks_hear_of_every_call(self, way: str) -> None:
        handler = LlamaDebugHandler(print_trace_on_end=False)
        llm = HypicLLM(backend=FakeBackend())
        llm.callback_manager = CallbackManager([handler])
        await call(llm, way)
        (pair,) = handler.get_llm_inputs_outputs()
        payload = pair[1].payload
        assert payload is not None
        assert "ok" in str(payload.get("response", payload.get("completion")))

    def test_system_prompts_go_first(self) -> None:
        backend = FakeBackend()
        llm = HypicLLM(backend=backend, system_prompt="Be brief.")
        assert llm.predict(PromptTemplate("Hi {x}"), x="you") == "ok"
        assert [m["content"] for m in backend.requests[0].messages] == ["Be brief.", "Hi you"]


class Pages(BaseRetriever):
    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [NodeWithScore(node=TextNode(text="The keeper of the north gate is called Velmo."))]


async def ask(engine: RetrieverQueryEngine, way: str) -> None:
    if way == "async":
        await engine.aquery("Who?")
        return
    answer = await asyncio.to_thread(engine.query, "Who?")
    if way == "stream":
        list(answer.response_gen)  # type: ignore[union-attr]


class TestErrors:
    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"max_tokens": 10_000}, errors.ContextOverflow),
            ({"timeout": 1e-4}, errors.RequestTimeout),
            ({"max_tokens": 0}, errors.InvalidInput),
            ({"response_format": {"type": "xml"}}, errors.InvalidInput),
        ],
    )
    async def test_types(self, tiny: Recorder, way: str, options: dict[str, Any], error: type[Exception]) -> None:
        with pytest.raises(error):
            await call(HypicLLM(backend=tiny), way, **options)

    def test_a_model_that_is_not_there(self) -> None:
        llm = HypicLLM(model="no/such-dir/at-all")
        with pytest.raises(errors.ModelNotFound):
            llm.chat(HI)

    @pytest.mark.parametrize("mode", ["compact", "refine", "tree_summarize", "simple_summarize"])
    @pytest.mark.parametrize("way", ["sync", "async", "stream"])
    async def test_a_query_engine_shows_them(self, mode: str, way: str) -> None:
        """LlamaIndex's refine loop answers "Empty Response" to any ``ValueError``."""
        overflow = errors.ContextOverflow(9000, 8, 8192)
        llm = HypicLLM(backend=FakeBackend([overflow]))
        engine = RetrieverQueryEngine(
            Pages(), get_response_synthesizer(llm=llm, response_mode=mode, streaming=way == "stream")
        )
        with pytest.raises((errors.RequestRefused, errors.ContextOverflow), match="9000 tokens") as caught:
            await ask(engine, way)
        assert overflow in (caught.value, caught.value.__cause__)


class TestEngine:
    """On the engine, with a random model: it never ends an answer by itself."""

    @pytest.fixture
    def llm(self, endless: Recorder) -> HypicLLM:
        return HypicLLM(backend=endless, max_tokens=2000, temperature=1.0, seed=0)

    @pytest.mark.parametrize("way", ["stream_chat", "stream_complete"])
    def test_closing_a_stream_stops_the_request(self, endless: Recorder, llm: HypicLLM, way: str) -> None:
        stream = getattr(llm, way)(HI if "chat" in way else "Hi")
        next(stream)
        assert not endless.is_idle()
        stream.close()
        assert endless.is_idle()

    @pytest.mark.parametrize("way", ["astream_chat", "astream_complete"])
    async def test_leaving_an_async_stream_stops_the_request(self, endless: Recorder, llm: HypicLLM, way: str) -> None:
        stream = await getattr(llm, way)(HI if "chat" in way else "Hi")
        await anext(stream)
        await stream.aclose()
        while not await asyncio.to_thread(endless.is_idle):
            pass

    @pytest.mark.parametrize("way", ["achat", "acomplete"])
    async def test_a_timeout_around_a_call_stops_the_request(self, endless: Recorder, llm: HypicLLM, way: str) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await call(llm, way)
        while not await asyncio.to_thread(endless.is_idle):
            pass

    async def test_many_callers_get_the_answers_they_would_get_alone(self, endless: Recorder) -> None:
        llm = HypicLLM(backend=endless, max_tokens=8)
        texts = [f"Question {i}?" for i in range(5)]
        alone = [llm.complete(text).text for text in texts]
        together = await asyncio.gather(*(llm.acomplete(text) for text in texts))
        assert [response.text for response in together] == alone
        streams = await asyncio.gather(*(call(llm, "astream_complete", text) for text in texts))
        assert [response.text for response in streams] == alone
        with ThreadPoolExecutor(5) as pool:
            assert [r.text for r in await asyncio.to_thread(lambda: list(pool.map(llm.complete, texts)))] == alone

    async def test_an_event_loop_stays_free(self, endless: Recorder, llm: HypicLLM) -> None:
        answer = asyncio.create_task(llm.acomplete("Hi", max_tokens=200))
        turns = 0
        while not answer.done():
            await asyncio.sleep(0.001)
            turns += 1
        assert (await answer).raw["usage"]["completion_tokens"] == 200
        assert turns > 3

    def test_usage_adds_up_and_says_what_was_reused(self, tiny: Recorder) -> None:
        llm = HypicLLM(backend=tiny, max_tokens=4, tenant="usage")
        rules = ChatMessage(role="system", content="Be brief. " + "The keeper of the north gate is called Velmo. " * 6)
        messages = [rules, ChatMessage("Who keeps the north gate?")]
        first, second = llm.chat(messages), llm.chat(messages)
        for response in (first, second):
            usage, report = response.raw["usage"], response.raw["hypic"]
            assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
            assert usage["prompt_tokens"] == report["prompt_tokens"] == llm.count_tokens(messages)
            assert usage["prompt_tokens_details"] == {
                "cached_tokens": report["reused_tokens"],
                "created_tokens": report["cold_tokens"],
            }
        assert first.message == second.message
        assert second.raw["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
        assert second.raw["usage"]["prompt_tokens_details"]["created_tokens"] == 0
        exact = llm.chat(messages, policy="exact").raw["hypic"]
        assert (exact["policy"], exact["reused_tokens"], exact["cold_tokens"]) == ("exact", 0, 0)

    def test_tokens_are_the_model_s_own(self, tiny: Recorder) -> None:
        text = "the keeper <|im_end|>"
        assert HypicLLM(backend=tiny).tokenizer(text) == list(tiny.engine.tokenizer.encode_text(text))
