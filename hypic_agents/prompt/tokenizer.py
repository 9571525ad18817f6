"""A chat model's tokenizer: rendered chats, whole and exact, to ids; content to ids without control tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from tokenizers import Encoding, Tokenizer

from hypic_agents.errors import InvalidInput, ModelNotFound, UnsupportedModel
from hypic_agents.prompt.plain import split
from hypic_agents.prompt.specials import ControlTokens, Region, restore
from hypic_agents.prompt.template import ChatTemplate, RenderedText

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_NUM_STANDALONE_KEPT = 512
_STANDALONE_KEPT_LEN = 32_768  # characters; with the number above it bounds the memory


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids with the character region ``[start, end)`` of the text that each came from.

    Regions never go backwards; the tokens of one multi-byte character share its region.
    """

    ids: tuple[int, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]


class ChatTokenizer:
    """Wraps a fast transformers tokenizer.

    The tokenizer is copied, so padding or truncation set on the original changes nothing here. Safe to share between
    threads.

    Raises:
        UnsupportedModel: The tokenizer has no ``tokenizers`` backend ("slow" tokenizers).
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, chat_template: str | None = None) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise UnsupportedModel(f"{type(tokenizer).__name__} is no fast tokenizer: exact character offsets need one")
        self._tokenizer = tokenizer
        self._backends = split(backend)
        self._control_texts = {index: token.content for index, token in self._backends.controls.items()}
        self._special_ids = frozenset(index for index, token in self._backends.controls.items() if token.special)
        also_find = self._control_regions if self._backends.matches_normalised_text else None
        self._template = ChatTemplate(tokenizer, chat_template, ControlTokens(self._control_texts.values(), also_find))
        self._standalone = lru_cache(maxsize=_NUM_STANDALONE_KEPT)(self._encode_standalone)

    @classmethod
    def from_pretrained(cls, path_or_name: str) -> ChatTokenizer:
        """Load by directory or hub name.

        Raises:
            ModelNotFound: Nothing there that holds a tokenizer.
        """
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(path_or_name)
        except (OSError, ValueError) as error:
            raise ModelNotFound(f"no tokenizer at {str(path_or_name)!r}: {error}") from error
        return cls(tokenizer)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
    ) -> RenderedText:
        """Render normalised messages through the chat template.

        Raises:
            InvalidMessages: The template refuses the messages.
            UnsupportedModel: There is no chat template.
        """
        return self._template.render(messages, tools, add_generation_prompt)

    def encode(self, rendered: RenderedText) -> Tokens:
        """Tokens of a rendered chat; regions refer to ``rendered.text``.

        The ids are those of ``apply_chat_template``, except that content never becomes a control token.
        """
        tokens = _Collector()
        whole = self._backends.whole.encode(rendered.shielded, add_special_tokens=False)
        ids, regions = whole.ids, whole.offsets
        if not rendered.originals:
            tokens.extend(ids, regions, 0)
            return tokens.finish()
        at = first = begin = 0  # at: in rendered.text; first: token of the piece; begin: its place in rendered.shielded
        end_of_text = (len(ids), len(rendered.shielded), len(rendered.shielded))
        for last, start, end in [*self._controls_in(whole, rendered.shielded), end_of_text]:
            piece = rendered.shielded[begin:start]
            original = restore(piece, rendered.originals)
            if original == piece:
                tokens.extend(ids[first:last], regions[first:last], at - begin)
            else:
                plain = self._backends.plain["inner" if begin else "as_is"].encode(original, add_special_tokens=False)
                tokens.extend(plain.ids, plain.offsets, at)
            at += len(original)
            tokens.extend(ids[last : last + 1], regions[last : last + 1], at - start)
            at, first, begin = at + end - start, last + 1, end
        return tokens.finish()

    def encode_text(self, text: str) -> tuple[int, ...]:
        """Ids of content as it stands in the middle of other text; none is a control token.

        A vocabulary that lacks some characters still gives its "unknown" id for them.
        """
        return self._standalone(text) if len(text) <= _STANDALONE_KEPT_LEN else self._encode_standalone(text)

    @property
    def chat_template(self) -> str:
        """Source of the chat template; empty where there is none."""
        return self._template.source

    def to_json(self) -> str:
        """The tokenizer in the format of ``tokenizer.json``, all added tokens included."""
        return str(self._backends.whole.to_str())

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ``ids``, without special tokens but with all other added tokens (``<tool_call>`` in many models)."""
        return str(self._backends.whole.decode(list(ids), skip_special_tokens=True))

    @cached_property
    def byte_token_ids(self) -> frozenset[int]:
        """Tokens of one byte that are decoded together where they stand in a row (byte fallback); most often none.

        Special tokens are among them where there are any: they have no text, and a row goes on behind them.
        """
        found = [self._backends.whole.token_to_id(f"<0x{byte:02X}>") for byte in range(256)]
        letter = found[ord("A")]
        if letter is None or self.decode([letter]) != "A":
            return frozenset()
        special = (i for i, token in self._backends.whole.get_added_tokens_decoder().items() if token.special)
        return frozenset(i for i in (*found, *special) if i is not None)

    @cached_property
    def eos_token_ids(self) -> frozenset[int]:
        """Ids that end an answer: the tokenizer's own, and the special token its template puts behind a turn."""
        own = {self._tokenizer.eos_token_id} - {None}
        answer = "answer"
        messages = [{"role": "user", "content": "question"}, {"role": "assistant", "content": answer}]
        try:
            rendered = self.render(messages, add_generation_prompt=False)
        except InvalidInput:
            return frozenset(own)
        behind = rendered.text.rfind(answer) + len(answer)
        tokens = self.encode(rendered)
        ends = (
            i for i, start in zip(tokens.ids, tokens.starts, strict=True) if start >= behind and i in self._special_ids
        )
        return frozenset(own | {*islice(ends, 1)})

    def _encode_standalone(self, text: str) -> tuple[int, ...]:
        return tuple(self._backends.plain["none"].encode(text, add_special_tokens=False).ids)

    def _control_regions(self, text: str) -> list[Region]:
        found = self._controls_in(self._backends.whole.encode(text, add_special_tokens=False), text)
        return [(start, end) for _, start, end in found]

    def _controls_in(self, encoding: Encoding, text: str) -> Iterator[tuple[int, int, int]]:
        """Index, start and end of each control token."""
        found = [(index, token_id) for index, token_id in enumerate(encoding.ids) if token_id in self._control_texts]
        offsets = encoding.offsets if found else []
        for index, token_id in found:
            start, end = offsets[index]
            # The "unknown" token is a control token where the text spells it out, else ordinary text.
            spelled = self._control_texts[token_id].strip()
            if token_id != self._backends.unknown_id or text[start:end].strip() == spelled:
                yield index, start, end


class _Collector:
    def __init__(self) -> None:
        self._ids: list[int] = []
        self._starts: list[int] = []
        self._ends: list[int] = []

    def extend(self, ids: Sequence[int], offsets: Sequence[Region], shift: int) -> None:
        self._ids += ids
        self._starts += [start + shift for start, _ in offsets]
        self._ends += [end + shift for _, end in offsets]

    def finish(self) -> Tokens:
        return Tokens(tuple(self._ids), tuple(self._starts), tuple(self._ends))
