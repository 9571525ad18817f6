"""Answers of a given form: what to bind to the model, and how to read them."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.output_parsers import (
    BaseOutputParser,
    JsonOutputKeyToolsParser,
    JsonOutputParser,
    PydanticOutputParser,
    PydanticToolsParser,
)
from langchain_core.runnables import Runnable, RunnableMap, RunnablePassthrough
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
from langchain_core.utils.pydantic import is_basemodel_subclass

from hypic_agents.errors import InvalidInput

Method = Literal["json_schema", "function_calling", "json_mode"]
METHODS = ("json_schema", "function_calling", "json_mode")


def structured_model(
    model: BaseChatModel,
    schema: Any,
    method: Method,
    *,
    strict: bool | None,
    include_raw: bool,
    options: Mapping[str, Any],
) -> Runnable[LanguageModelInput, Any]:
    """The model held to ``schema``, and a parser behind it.

    Raises:
        InvalidInput: An unknown method, or a schema that is missing.
    """
    if method not in METHODS:
        raise InvalidInput(f"method={method!r}: use {', '.join(METHODS)}")
    if schema is None and method != "json_mode":
        raise InvalidInput(f"method {method!r} needs a schema; only json_mode does without")
    bound = dict(options)
    if schema is not None:
        bound["ls_structured_output_format"] = {
            "kwargs": {"method": method, "strict": strict},
            "schema": convert_to_json_schema(schema),
        }
    if method == "function_calling":
        bound |= {"tool_choice": _tool_name(schema), "strict": strict, "parallel_tool_calls": False}
        held = model.bind_tools([schema], **bound)
    else:
        bound["response_format"] = response_format(schema, method, strict)
        held = model.bind(**bound)
    parser = _parser(schema, method)
    return _with_raw(held, parser) if include_raw else held | parser


def response_format(schema: Any, method: Method, strict: bool | None) -> dict[str, Any]:
    """The backend's form of a schema. Both methods hold the answer to it; the names differ for other readers' sake."""
    if schema is None:
        return {"type": "json_object"}
    plain = convert_to_json_schema(schema)
    if method == "json_mode":
        return {"type": "json_object", "schema": plain}
    named = {"name": str(plain.get("title", "answer")), "schema": plain}
    return {"type": "json_schema", "json_schema": named if strict is None else {**named, "strict": strict}}


def _parser(schema: Any, method: Method) -> BaseOutputParser[Any]:
    """Reads the message into an object of a Pydantic class, else into a dict."""
    is_model = isinstance(schema, type) and is_basemodel_subclass(schema)
    if method == "function_calling":
        if is_model:
            return PydanticToolsParser(tools=[schema], first_tool_only=True)
        return JsonOutputKeyToolsParser(key_name=_tool_name(schema), first_tool_only=True)
    return PydanticOutputParser(pydantic_object=schema) if is_model else JsonOutputParser()


def _tool_name(schema: Any) -> str:
    return str(convert_to_openai_tool(schema)["function"]["name"])


def _with_raw(model: Runnable[Any, Any], parser: BaseOutputParser[Any]) -> Runnable[Any, Any]:
    """A dict of "raw", "parsed" and "parsing_error", which takes the place of raising."""
    parsed = RunnablePassthrough.assign(parsed=itemgetter("raw") | parser, parsing_error=lambda _: None)
    failed = RunnablePassthrough.assign(parsed=lambda _: None)
    return RunnableMap(raw=model) | parsed.with_fallbacks([failed], exception_key="parsing_error")
