"""What a ``Grammar`` means, as the text that llguidance compiles. Pure: no tokenizer, no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llguidance import LLMatcher

from hypic_agents.core import Grammar
from hypic_agents.errors import InvalidGrammar, InvalidMessages
from hypic_agents.prompt.canonical import canonical_tool, tool_name
from hypic_agents.runtime.grammar_schema import prepare_schema
from hypic_agents.runtime.grammar_tags import quoted, tagged_call

# One spelling of white space, that of ``json.dumps`` and of the chat templates: where it is free, a weak model writes
# blanks for ever.
_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_ANY_CHOICE = ("required", "auto")


@dataclass(frozen=True, slots=True)
class Marks:
    """How a model writes calls: tokens as symbols of the grammar, and the spelling between them.

    Attributes:
        call, end_call: The marks around a call: a token of its own (``<[3]>``) or quoted text.
        others: All other control tokens that text may hold, such as those around reasoning (``<[5-8,12]>``); empty
            where there is none.
        tags: Between the marks, calls are spelled with tags, not as JSON.
    """

    call: str = '"<tool_call>"'
    end_call: str = '"</tool_call>"'
    others: str = ""
    tags: bool = False


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """The calls an answer may hold.

    Attributes:
        arguments: Schema of the arguments by tool name, for the tools that may be called.
        required: Whether there is at least one call; otherwise text may stand alone, or before the calls.
        parallel: Whether there may be several.
        answer: Schema of the answer that may stand in place of calls; None for any text.
    """

    arguments: Mapping[str, Mapping[str, Any]]
    required: bool
    parallel: bool
    answer: Mapping[str, Any] | None = None


def compile_text(grammar: Grammar, marks: Marks) -> str:
    """The grammar as llguidance reads it.

    Raises:
        InvalidGrammar: ``spec`` does not have the form that its kind asks for.
    """
    if grammar.kind == "json_object":
        return schema_text({"type": "object"})
    if grammar.kind == "json_schema":
        return schema_text(_schema(grammar))
    if grammar.kind == "regex":
        text: str = LLMatcher.grammar_from_regex(grammar.spec)
        return text
    if grammar.kind == "tool_calls":
        return _calls(tool_choice(grammar), marks)
    raise InvalidGrammar(f"grammar kind {grammar.kind!r}: use json_schema, json_object, regex or tool_calls")


def schemas_of(grammar: Grammar) -> dict[str, Mapping[str, Any]]:
    """The schemas in a grammar, prepared, by what to call them in a message.

    Raises:
        InvalidGrammar: As :func:`compile_text`.
    """
    if grammar.kind == "json_schema":
        return {"the JSON schema": _schema(grammar)}
    if grammar.kind == "tool_calls":
        choice = tool_choice(grammar)
        answer = {} if choice.answer is None else {"the schema of the answer": choice.answer}
        return answer | {f"the schema of tool {name!r}": schema for name, schema in choice.arguments.items()}
    return {}


def schema_text(schema: Mapping[str, Any]) -> str:
    """A prepared schema as llguidance reads it."""
    return _grammars(json_schema=schema)


def tool_choice(grammar: Grammar) -> ToolChoice:
    """The tools and the choice of a ``tool_calls`` grammar.

    Raises:
        InvalidGrammar: A part is missing or malformed, two tools share a name, or the chosen tool is not among them.
    """
    spec = _loads(grammar)
    if not isinstance(spec, dict) or not isinstance(spec.get("tools"), list) or not spec["tools"]:
        raise InvalidGrammar(f"tool_calls needs an object with a list of tools, found {grammar.spec[:80]!r}")
    choice, parallel = spec.get("choice", "auto"), spec.get("parallel", True)
    arguments: dict[str, Mapping[str, Any]] = {}
    for given in spec["tools"]:
        try:
            tool = canonical_tool(given)
        except InvalidMessages as error:
            raise InvalidGrammar(str(error)) from error
        if tool_name(tool) in arguments:
            raise InvalidGrammar(f"two tools are called {tool_name(tool)!r}; give each its own name")
        arguments[tool_name(tool)] = _arguments(tool)
    if not isinstance(parallel, bool):
        raise InvalidGrammar(f"parallel={parallel!r}: use true or false")
    if choice not in _ANY_CHOICE:
        if not isinstance(choice, str) or choice not in arguments:
            raise InvalidGrammar(f"choice={choice!r}: use required, auto or one of {', '.join(arguments)}")
        arguments = {choice: arguments[choice]}
    answer = spec.get("answer")
    if answer is not None and not isinstance(answer, dict):
        raise InvalidGrammar(f"answer={str(answer)[:80]!r}: use the schema of the answer")
    held = None if answer is None else _prepared(answer, "the schema of the answer")
    return ToolChoice(arguments, choice != "auto", parallel, held)


def _schema(grammar: Grammar) -> Mapping[str, Any]:
    schema = _loads(grammar)
    if schema is True:
        return {}
    if not isinstance(schema, dict):
        raise InvalidGrammar(f"a JSON schema is an object or true, not {grammar.spec[:80]!r}")
    return _prepared(schema, "the JSON schema")


def _arguments(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    # A function without parameters takes none, which is not what an empty schema says.
    parameters = tool["function"].get("parameters") or {"properties": {}}
    if not isinstance(parameters, dict) or parameters.get("type", "object") != "object":
        raise InvalidGrammar(f"the parameters of tool {tool_name(tool)!r} must be the schema of an object")
    return _prepared({"type": "object", **parameters}, f"the schema of tool {tool_name(tool)!r}")


def _prepared(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    prepared = prepare_schema(schema)
    if isinstance(prepared, bool):
        raise InvalidGrammar(f"{name} requires itself inside itself, so no answer would end; make that part optional")
    return prepared


def _calls(choice: ToolChoice, marks: Marks) -> str:
    rules = {f"call_{i}": name for i, name in enumerate(choice.arguments)}
    is_held = choice.answer is not None and not choice.required
    lines = [
        "start: calls" if choice.required else "start: @answer | calls" if is_held else "start: text | text calls",
        'calls: call ("\\n" call)*' if choice.parallel else "calls: call",
        f"call: {marks.call} ({' | '.join(rules)}) {marks.end_call}",
    ]
    if not choice.required and not is_held:
        # Text holds no mark, not even spelled in ordinary tokens: whoever reads the answer takes that for a call.
        lines.append(f"text: TEXT ({marks.others} TEXT)*" if marks.others else "text: TEXT")
        lines.append("TEXT: /(?s:.*)/ & ~/(?s:.*)<tool_call>(?s:.*)/")
    schemas: dict[str, Mapping[str, Any]] = {"answer": choice.answer} if is_held and choice.answer is not None else {}
    for rule, name in rules.items():
        tagged = tagged_call(name, choice.arguments[name], rule) if marks.tags else None
        written, values = tagged or _json_call(name, choice.arguments[name], rule)
        lines += written
        schemas |= values
    return _grammars("\n".join(lines), **schemas)


def _json_call(name: str, schema: Mapping[str, Any], rule: str) -> tuple[list[str], dict[str, Any]]:
    head = f'\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": '
    return [f"{rule}: {quoted(head)} @{rule}_arguments {quoted('}' + chr(10))}"], {f"{rule}_arguments": schema}


def _grammars(lark: str = "", **schemas: Mapping[str, Any]) -> str:
    parts: list[dict[str, Any]] = [{"name": "start", "lark_grammar": lark}] if lark else []
    parts += [{"name": name, "json_schema": {**schema, "x-guidance": _STYLE}} for name, schema in schemas.items()]
    return json.dumps({"grammars": parts}, ensure_ascii=False)


def _loads(grammar: Grammar) -> Any:
    try:
        return json.loads(grammar.spec)
    except (ValueError, RecursionError) as error:
        raise InvalidGrammar(f"the spec of a {grammar.kind} grammar must be JSON: {error}") from error
