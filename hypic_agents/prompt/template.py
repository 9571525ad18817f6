"""Chat messages to the text the model reads, through the model's own chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jinja2

from hypic_agents.errors import InvalidMessages, UnsupportedModel
from hypic_agents.prompt.specials import ControlTokens, Shields, restore

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# What templates raise on input they cannot take: their own ``raise_exception``, or a filter on the wrong type.
_TEMPLATE_ERRORS = (jinja2.TemplateError, AttributeError, KeyError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class RenderedText:
    """A rendered chat.

    Attributes:
        text: What the model reads.
        shielded: The same, with placeholders (one private-use character each) for content that could be read as a
            control token: every control token in it is the template's.
        originals: Placeholder to the text it stands for; empty for most prompts.
    """

    text: str
    shielded: str
    originals: Mapping[str, str]


class ChatTemplate:
    """The chat template of a transformers tokenizer, or the one given."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, chat_template: str | None, controls: ControlTokens) -> None:
        self._tokenizer = tokenizer
        self._template = chat_template
        self._controls = controls

    @property
    def source(self) -> str:
        """The template's text; empty where there is none."""
        return str(self._template or self._tokenizer.chat_template or "")

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
    ) -> RenderedText:
        """Render normalised messages (see ``messages.py``).

        Raises:
            InvalidMessages: The template refuses the messages; its reason is in the error.
            UnsupportedModel: The tokenizer has no chat template.
        """
        if not self.source:
            raise UnsupportedModel("the tokenizer has no chat template; pass one as chat_template=")
        if self._writes_arguments_as_text:
            messages = [_with_text_arguments(message) for message in messages]
        shields = Shields(self._controls, avoid=self.source)
        bodies = [{key: value for key, value in message.items() if key != "role"} for message in messages]
        hidden_bodies, hidden_tools = shields.hide((bodies, list(tools or ())))
        hidden: list[dict[str, Any]] = [
            {"role": message["role"], **body} for message, body in zip(messages, hidden_bodies, strict=True)
        ]
        try:
            shielded = self._apply(hidden, hidden_tools, add_generation_prompt)
        except _TEMPLATE_ERRORS as error:
            roles = ", ".join(str(message["role"]) for message in messages)
            raise InvalidMessages(f"the chat template cannot render these messages ({roles}): {error}") from error
        shielded = shields.mend_escapes(shielded)
        return RenderedText(restore(shielded, shields.originals), shielded, shields.originals)

    def _apply(self, messages: list[dict[str, Any]], tools: list[Any], add_generation_prompt: bool) -> str:
        return str(
            self._tokenizer.apply_chat_template(
                messages,
                tools=tools or None,
                chat_template=self._template,
                add_generation_prompt=add_generation_prompt,
                tokenize=False,
            )
        )

    @cached_property
    def _writes_arguments_as_text(self) -> bool:
        """Whether the template prints tool-call arguments as they come, so a dict would show Python's spelling."""
        call = {"type": "function", "id": "c00000000", "function": {"name": "f", "arguments": {"key": "value"}}}
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
        ]
        try:
            return "{'key'" in self._apply(messages, [], False)
        except _TEMPLATE_ERRORS:
            return True


def _with_text_arguments(message: Mapping[str, Any]) -> dict[str, Any]:
    if "tool_calls" not in message:
        return dict(message)
    calls = []
    for call in message["tool_calls"]:
        function = call["function"]
        if not isinstance(function["arguments"], str):
            function = {**function, "arguments": json.dumps(function["arguments"], ensure_ascii=False)}
        calls.append({**call, "function": function})
    return {**message, "tool_calls": calls}
