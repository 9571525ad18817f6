"""Grammars compiled for one engine's vocabulary, with the last ones kept. No torch."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from functools import cached_property
from threading import Lock

from llguidance import LLMatcher, LLTokenizer

from hypic_agents.core import Grammar
from hypic_agents.errors import InvalidGrammar, UnsupportedModel
from hypic_agents.prompt import ChatTokenizer
from hypic_agents.prompt.call_text import CALL, END_CALL
from hypic_agents.runtime.grammar_closing import Closer
from hypic_agents.runtime.grammar_schema import Schema, find_fault, walk
from hypic_agents.runtime.grammar_spec import Marks, compile_text, schema_text, schemas_of
from hypic_agents.runtime.grammar_state import CompiledGrammar, GrammarState, reason

_NUM_KEPT = 64
_LONGEST_WAY = 4096
_LONGEST_HINT = 64


class Grammars:
    """Compiles grammars for one tokenizer and keeps the last ones. Safe to share between threads.

    Args:
        tokenizer: Its vocabulary; prepared when the first grammar comes.
        vocab_size: Number of the model's logits.
        loop_len: An answer that repeats itself for this many tokens is led on; 0 lets it loop.
    """

    def __init__(self, tokenizer: ChatTokenizer, vocab_size: int, loop_len: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._loop_len = loop_len
        self._compiled: OrderedDict[Grammar, CompiledGrammar] = OrderedDict()
        self._lock = Lock()

    def start(self, grammar: Grammar, max_tokens: int) -> GrammarState:
        """A fresh state of ``grammar`` for one answer.

        Raises:
            InvalidGrammar: It is malformed, or asks for what cannot be enforced; names the part.
            UnsupportedModel: The tokenizer cannot be used with grammars.
        """
        with self._lock:
            if grammar not in self._compiled:
                self._compiled[grammar] = self._compile(grammar)
                if len(self._compiled) > _NUM_KEPT:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end(grammar)
            return GrammarState(self._compiled[grammar], self._closer, max_tokens, self._loop_len)

    @cached_property
    def _vocabulary(self) -> LLTokenizer:
        ends = sorted(self._tokenizer.eos_token_ids)
        if not ends:
            raise UnsupportedModel("the tokenizer has no token that ends an answer; grammars need one")
        try:
            return LLTokenizer(self._tokenizer.to_json(), n_vocab=self._vocab_size, eos_token=ends)
        except ValueError as error:
            raise UnsupportedModel(f"this tokenizer cannot be used with grammars: {error}") from error

    @cached_property
    def _closer(self) -> Closer:
        return Closer(self._vocabulary)

    @cached_property
    def _marks(self) -> Marks:
        vocabulary, marks = self._vocabulary, (self._symbol(CALL), self._symbol(END_CALL))
        ends = {*self._tokenizer.eos_token_ids}
        controls = [i for i in range(self._vocab_size) if vocabulary.is_special_token(i) and i not in ends]
        others = [str(i) for i in controls if self._tokenizer.decode([i]) and f"<[{i}]>" not in marks]
        tags = "<function=" in self._tokenizer.chat_template
        return Marks(*marks, f"<[{','.join(others)}]>" if others else "", tags=tags)

    def _symbol(self, mark: str) -> str:
        """The mark's own token, where there is one that decoding shows; else its text."""
        ids = self._vocabulary.tokenize_str(mark, parse_special=True)
        return f"<[{ids[0]}]>" if len(ids) == 1 and self._tokenizer.decode(ids) == mark else json.dumps(mark)

    def _compile(self, grammar: Grammar) -> CompiledGrammar:
        try:
            text = compile_text(grammar, self._marks)
        except RecursionError as error:
            raise InvalidGrammar(f"the spec of the {grammar.kind} grammar is nested too deeply") from error
        matcher = self._matcher(text)
        if matcher.is_error():
            raise InvalidGrammar(self._fault(grammar, matcher.get_error()))
        probe = matcher.deep_copy()
        probe.compute_bitmask()
        if probe.is_error() or (probe.is_stopped() and not probe.is_accepting()):
            raise InvalidGrammar(f"no answer satisfies the {grammar.kind} grammar {grammar.spec[:200]}")
        hints = list(self._hints(grammar))
        return CompiledGrammar(matcher, self._closer.find(matcher, _LONGEST_WAY, hints), hints)

    def _matcher(self, text: str) -> LLMatcher:
        return LLMatcher(self._vocabulary, text, log_level=0)

    def _hints(self, grammar: Grammar) -> Iterator[list[int]]:
        """A short match of each pattern: it may complete a string that holds none yet."""
        parts = [part for schema in schemas_of(grammar).values() for _, part in walk(schema)]
        for pattern in dict.fromkeys(part["pattern"] for part in parts if isinstance(part.get("pattern"), str)):
            matcher = self._matcher(LLMatcher.grammar_from_regex(pattern))
            found = None if matcher.is_error() else self._closer.find(matcher, _LONGEST_HINT)
            if found:
                yield found

    def _fault(self, grammar: Grammar, message: str) -> str:
        """What is wrong, and where."""
        if grammar.kind == "regex":
            return f"regular expression {grammar.spec!r} cannot be enforced: {reason(message)}"
        for name, schema in schemas_of(grammar).items():
            pointer, problem = find_fault(schema, self._problem)
            if problem:
                return f"{name} cannot be enforced: at {pointer}: {reason(problem)}"
        return f"the {grammar.kind} grammar cannot be enforced: {reason(message)}"

    def _problem(self, schema: Schema) -> str:
        failed, messages = LLMatcher.validate_grammar_with_warnings(schema_text(schema), self._vocabulary)
        return str(messages[0]) if failed else ""
