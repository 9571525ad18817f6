"""A request made ready: what does not depend on the server it goes to. Pure, apart from reading the clock."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypic_agents.backend import ChatRequest
from hypic_agents.core import Prompt, Scope
from hypic_agents.errors import ContextOverflow, InvalidPolicy
from hypic_agents.integrations.sglang.dialect import ServerFacts
from hypic_agents.integrations.sglang.known import digest, prefix_digests
from hypic_agents.integrations.sglang.parts import CutPrompt, broken_up, cut
from hypic_agents.integrations.sglang.payload import AnswerForm, answer_form
from hypic_agents.integrations.sglang.route import Key
from hypic_agents.prompt import ChatTokenizer, PromptBuilder
from hypic_agents.prompt.answer import THINK
from hypic_agents.prompt.canonical import canonical_tool
from hypic_agents.prompt.messages import normalise
from hypic_agents.runtime.policy import PRESETS, parse_policy

_DEFAULT_SCOPE = Scope()


@dataclass(frozen=True, slots=True)
class Rules:
    """How prompts are made ready.

    Attributes:
        tokenizer: The model's own; None lets a stock server render and tokenise.
        escape: Break up content that the server would not read as content, rather than refuse it.
        server_scope: Whose segments a HYPIC build caches, which keeps no scopes apart.
        min_segment_len: Segments with fewer tokens are no parts of their own.
    """

    tokenizer: ChatTokenizer | None = None
    escape: bool = False
    server_scope: Scope = _DEFAULT_SCOPE
    min_segment_len: int = 24


@dataclass(frozen=True, slots=True)
class Work:
    """A request, ready to be sent.

    Attributes:
        messages: Normalised.
        prompt: None without a tokenizer.
        cut: For a HYPIC build.
        form: What its answer is held to.
        keys: What chooses its server.
        max_tokens: Longest answer.
        in_reasoning: The answer begins inside the reasoning.
        started_s: When the caller asked, on the monotonic clock.
    """

    request: ChatRequest
    messages: Sequence[Mapping[str, Any]]
    form: AnswerForm
    keys: tuple[Key, ...]
    max_tokens: int
    prompt: Prompt | None = None
    cut: CutPrompt | None = None
    in_reasoning: bool = False
    started_s: float = field(default_factory=time.monotonic)

    def shortened(self, overflow: ContextOverflow) -> Work | None:
        """With the longest answer that fits; None where none does, or the request wants its length."""
        room = overflow.window - overflow.prompt_len - 1
        return replace(self, max_tokens=room) if self.request.fit_window and 0 < room < self.max_tokens else None


def make_ready(request: ChatRequest, facts: ServerFacts, rules: Rules, started_s: float) -> Work:
    """Render, tokenise and cut a request.

    Raises:
        InvalidInput: As ``PromptBuilder.build_chat``; a policy that a server cannot follow; unsafe content.
        ContextOverflow: Prompt and answer do not fit the window.
    """
    exact = _is_exact(request)
    form = answer_form(request, server_forces_calls=facts.separated is None and facts.parses_calls)
    limit = request.sampling.max_tokens
    if rules.tokenizer is None:
        messages = normalise(request.messages).messages
        keys = tuple(_message_keys(messages))
        return Work(request, messages, form, keys, limit, started_s=started_s)
    separated = facts.separated
    if separated is not None and rules.escape:
        request = _escaped(request, rules.tokenizer, separated.separator)
    prompt = _build(request, rules.tokenizer)
    parts = None
    if separated is not None:
        whole = exact or not _is_of(rules.server_scope, request, prompt)
        parts = cut(prompt, rules.tokenizer, whole=whole, min_len=rules.min_segment_len)
        parts.text(separated.separator)
    prompt_len = len(prompt) if parts is None else sum(part.num_tokens for part in parts.parts)
    is_free = form.schema is None and form.regex is None and not form.forced
    return Work(
        request,
        normalise(request.messages).messages,
        form,
        tuple(_prompt_keys(prompt, parts)),
        _room(request, prompt_len, facts.window),
        prompt,
        parts,
        is_free and not facts.parses_reasoning and prompt.text.rstrip().endswith(THINK),
        started_s,
    )


def _build(request: ChatRequest, tokenizer: ChatTokenizer) -> Prompt:
    return PromptBuilder(tokenizer).build_chat(
        request.messages, tools=request.shown_tools, segments=request.segments, scope=request.scope
    )


def _room(request: ChatRequest, prompt_len: int, window: int) -> int:
    limit = request.sampling.max_tokens
    room = window - prompt_len - 1  # SGLang wants prompt and answer together below its context length
    if room < 1 or (limit > room + 1 and not request.fit_window):
        raise ContextOverflow(prompt_len, limit, window)
    return min(limit, room) if request.fit_window else limit


def _is_exact(request: ChatRequest) -> bool:
    """Whether nothing may be composed; a server's own way of reuse is set at its launch."""
    if request.policy is None:
        return False
    policy = parse_policy(request.policy)
    if policy not in (PRESETS["hypic"], PRESETS["exact"], PRESETS["prefix"]):
        raise InvalidPolicy(
            f"policy {policy.name!r}: how a server reuses segments is set at its launch; use 'hypic' or 'exact' here"
        )
    return policy.exact or policy.prefix


def _is_of(scope: Scope, request: ChatRequest, prompt: Prompt) -> bool:
    return request.scope == scope and all(span.segment.scope == scope for span in prompt.spans)


def _escaped(request: ChatRequest, tokenizer: ChatTokenizer, separator: str) -> ChatRequest:
    specs = [canonical_tool(tool) for tool in request.shown_tools]
    rendered = tokenizer.render(normalise(request.messages).messages, specs)
    marks = [separator, *(text for text in rendered.originals.values() if len(text) > 1)]
    segments = [replace(segment, text=broken_up(segment.text, marks)) for segment in request.segments]
    return replace(
        request,
        messages=broken_up(list(request.messages), marks),
        tools=broken_up(list(request.tools), marks),
        segments=segments,
    )


def _prompt_keys(prompt: Prompt, parts: CutPrompt | None) -> Iterator[Key]:
    if parts is not None and len(parts.parts) > 1:
        yield from (Key(part.key, part.num_tokens) for part in parts.parts[:-1] if part.segment is not None)
        return
    # A prefix is found again only whole, so each segment counts with all that stands before it.
    names = prefix_digests(prompt.token_ids, (span.end for span in prompt.spans))
    for span, name in zip(prompt.spans, names, strict=True):
        yield Key(name, span.end - span.start)
    if not prompt.spans:
        yield Key(digest(prompt.text), 1)


def _message_keys(messages: Sequence[Mapping[str, Any]]) -> Iterator[Key]:
    texts: list[str] = []
    for message in messages:
        texts.append(str(message["role"]) + str(message["content"]))
        yield Key(digest(*texts), len(texts[-1]))
