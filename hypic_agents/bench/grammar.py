"""What a grammar adds to decoding: seconds a token with it against without, on the same prompts, interleaved."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from hypic_agents.bench.prompts import Prompts, Shape
from hypic_agents.bench.timing import Progress, interleave
from hypic_agents.core import Grammar, Prompt, SamplingParams
from hypic_agents.errors import HypicError
from hypic_agents.runtime.engine import Engine
from hypic_agents.runtime.request import Request

_SHAPE = Shape(num_documents=4, document_len=64, system_len=16, question_len=32)
BATCHES = (1, 8)
_ROOM = 2048  # tokens an answer may have, so that no step is spent on bringing it to an end

_RECORD = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "kind": {"enum": ["person", "place", "thing"]},
        "amount": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "kind", "amount", "tags"],
}
_SUM = {
    "type": "object",
    "properties": {"kind": {"const": "sum"}, "left": {"$ref": "#/$defs/term"}, "right": {"$ref": "#/$defs/term"}},
    "required": ["kind", "left", "right"],
}
_VALUE = {
    "type": "object",
    "properties": {"kind": {"const": "value"}, "value": {"type": "integer"}},
    "required": ["kind", "value"],
}
_MANY = {"type": "array", "minItems": 12}
_ROWS = {"type": "object", "properties": {"rows": _MANY | {"items": _RECORD}}, "required": ["rows"]}
_TOOL = {"type": "function", "function": {"name": "save", "parameters": _ROWS}}

GRAMMARS = {
    "records": Grammar("json_schema", json.dumps(_MANY | {"items": _RECORD})),
    "recursive": Grammar(
        "json_schema",
        json.dumps(_MANY | {"items": {"$ref": "#/$defs/term"}, "$defs": {"term": {"anyOf": [_SUM, _VALUE]}}}),
    ),
    "tool call": Grammar("tool_calls", json.dumps({"tools": [_TOOL], "choice": "save", "parallel": False})),
    "regex": Grammar("regex", r"([A-Z]{2}-[0-9]{4}: [a-z ]{3,30}\n){100,200}"),
}
"""None of them lets an answer end within the steps that are timed."""


def run(engine: Engine, *, repeats: int, seed: int, progress: Progress, steps: int = 128) -> dict[str, Any]:
    """Time decoding with each grammar and without any, alone and in a batch of eight.

    Args:
        engine: Any with a tokenizer.
        repeats: Timed repeats behind one untimed.
        seed: Of the prompts' tokens.
        progress: Told of repeats.
        steps: Decoded tokens a request and repeat; with a grammar, some need no pass of their own.

    Raises:
        HypicError: an answer ended before the last step.
    """
    prompts = Prompts(_SHAPE, engine.model.vocab_size, seed)
    engine.warm(prompts.one_each())
    rows: list[dict[str, Any]] = []
    overheads: list[float] = []
    for name, grammar in GRAMMARS.items():
        started = time.perf_counter()
        _decode(engine, [prompts.shuffled()], grammar, 1)
        first = time.perf_counter() - started
        for batch in BATCHES:
            asked = {repeat: [prompts.shuffled() for _ in range(batch)] for repeat in range(-1, repeats)}
            free, held = _pair(engine, asked, grammar, steps, progress, f"{name}, batch {batch}")
            overheads.append(held / free - 1)
            row = {"grammar": name, "batch": batch, "free_s": free, "grammar_s": held, "overhead": overheads[-1]}
            rows.append(row | {"first_answer_s": first})
    return {
        "rows": rows,
        "overhead": median(overheads),
        "overhead_worst": max(overheads),
        "steps": steps,
        "repeats": repeats,
        "params": sum(p.numel() for p in engine.model.hf.parameters()),
    }


def _pair(
    engine: Engine, asked: Mapping[int, Sequence[Prompt]], grammar: Grammar, steps: int, progress: Progress, stage: str
) -> tuple[float, float]:
    """Median seconds a token of each request, without and with the grammar, for the prompts of each repeat."""
    seconds: dict[str, list[float]] = {"free": [], "grammar": []}

    def mode(name: str, held_to: Grammar | None) -> Callable[[int], None]:
        def run(repeat: int) -> None:
            taken = _decode(engine, asked[repeat], held_to, steps)
            if repeat >= 0:
                seconds[name].append(taken)

        return run

    modes = {"free": mode("free", None), "grammar": mode("grammar", grammar)}
    interleave(modes, repeats=len(asked) - 1, progress=progress, stage=stage)
    return median(seconds["free"]), median(seconds["grammar"])


def _decode(engine: Engine, prompts: Sequence[Prompt], grammar: Grammar | None, steps: int) -> float:
    """Seconds a token of each request; prefill, and the compilation of a grammar, come before."""
    sampling = replace(SamplingParams(max_tokens=_ROOM), grammar=grammar)
    requests = [engine.submit(prompt, sampling) for prompt in prompts]
    if grammar is None:
        for request in requests:
            request.eos_token_ids = frozenset()
    while any(not request.token_ids for request in requests):
        engine.step()
    before = _count(requests)
    started = time.perf_counter()
    while _count(requests) - before < steps * len(requests):
        engine.step()
        if any(request.done for request in requests):
            raise HypicError(f"an answer ended before {steps} tokens")
    taken = time.perf_counter() - started
    decoded = (_count(requests) - before) / len(requests)
    for request in requests:
        engine.cancel(request)
    return taken / decoded


def _count(requests: Sequence[Request]) -> int:
    return sum(len(request.token_ids) for request in requests)
