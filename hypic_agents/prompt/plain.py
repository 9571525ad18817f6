"""A tokenizer in two halves: one that reads rendered chats, and one that knows no control token, for content.

Turning off "special" tokens is not enough for content: other added tokens stay on, and models whose vocabulary lists
``</s>`` as an ordinary piece (Unigram, BPE with ``ignore_merges``) find it in plain text. So the second half keeps no
added token but blanks, and where the model's own vocabulary holds control tokens, their entries are renamed to texts
that nothing can match. All ids stay. Both halves share the model's memory where it needs no such change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tokenizers import AddedToken, Tokenizer, models

from hypic_agents.errors import UnsupportedModel

# The space some tokenizers put before a text: by the model's own rule; by that rule for text behind a control token;
# not at all, for text in the middle of other text.
Prefix = Literal["as_is", "inner", "none"]
_UNLIKELY = -1e6  # log probability


@dataclass(frozen=True, slots=True)
class Backends:
    """What a chat tokenizer encodes with.

    Attributes:
        whole: Knows all added tokens; no truncation, padding or post-processing, which would change ids or offsets.
        plain: Knows no control token; by the prefix rule, most often one tokenizer for all three.
        controls: Control tokens by id: all added tokens but blanks.
        unknown_id: The id the model gives to characters it does not know, if there is one.
    """

    whole: Tokenizer
    plain: Mapping[Prefix, Tokenizer]
    controls: Mapping[int, AddedToken]
    unknown_id: int | None

    @property
    def matches_normalised_text(self) -> bool:
        """Whether some control token is looked for in normalised text, where its spelling in the text may differ."""
        return self.whole.normalizer is not None and any(token.normalized for token in self.controls.values())


def split(tokenizer: Tokenizer) -> Backends:
    """Both halves of a fast tokenizer.

    Raises:
        UnsupportedModel: The added tokens have ids that adding them again does not give.
    """
    added = dict(sorted(tokenizer.get_added_tokens_decoder().items()))
    controls = {index: token for index, token in added.items() if token.content.strip()}
    blanks = {index: token for index, token in added.items() if index not in controls}
    bare = Tokenizer(tokenizer.model)
    spec = json.loads(_with_model(tokenizer, models.BPE()).to_str())

    whole = _with_model(tokenizer, tokenizer.model)
    whole.add_tokens(list(added.values()))
    moved = [token.content for index, token in added.items() if whole.token_to_id(token.content) != index]
    if moved:
        raise UnsupportedModel(
            f"the ids of the added tokens {moved[:5]} have gaps that a tokenizer cannot be rebuilt with"
        )
    model = tokenizer.model
    in_model = any(bare.token_to_id(token.content) is not None for token in controls.values())
    if in_model or any(bare.token_to_id(token.content) != index for index, token in blanks.items()):
        data = _without(json.loads(tokenizer.to_str())["model"], controls.keys())
        model = _from_spec({**spec, "model": _with_entries(data, blanks)}).model
    built: dict[str, Tokenizer] = {}
    plain: dict[Prefix, Tokenizer] = {}
    for prefix in get_args(Prefix):
        steps = {key: _with_prefix(spec[key], prefix) for key in ("normalizer", "pre_tokenizer")}
        key = json.dumps(steps)
        if key not in built:
            built[key] = _with_model(_from_spec({**spec, **steps}), model)
            built[key].add_tokens(list(blanks.values()))
        plain[prefix] = built[key]
    return Backends(whole, plain, controls, _unknown_id(bare))


def _with_model(steps: Tokenizer, model: Any) -> Tokenizer:
    """A tokenizer with the normaliser, pre-tokeniser and decoder of another; the model is shared, not copied."""
    tokenizer = Tokenizer(model)
    if steps.normalizer is not None:
        tokenizer.normalizer = steps.normalizer
    if steps.pre_tokenizer is not None:
        tokenizer.pre_tokenizer = steps.pre_tokenizer
    if steps.decoder is not None:
        tokenizer.decoder = steps.decoder
    return tokenizer


def _from_spec(spec: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_str(json.dumps(spec))


def _unknown_id(bare: Tokenizer) -> int | None:
    if isinstance(bare.model, models.Unigram):
        found: int | None = json.loads(bare.to_str())["model"]["unk_id"]
        return found
    name = getattr(bare.model, "unk_token", None)
    return None if name is None else bare.token_to_id(name)


def _without(model: dict[str, Any], ids: AbstractSet[int]) -> dict[str, Any]:
    vocab = model["vocab"]
    if isinstance(vocab, list):
        return {
            **model,
            "vocab": [[_unreachable(i), score] if i in ids else [t, score] for i, (t, score) in enumerate(vocab)],
        }
    gone = {token for token, index in vocab.items() if index in ids}
    model = {**model, "vocab": {_unreachable(i) if i in ids else token: i for token, i in vocab.items()}}
    if model.get("unk_token") in gone:
        model["unk_token"] = _unreachable(vocab[model["unk_token"]])
    if gone and "merges" in model:
        model["merges"] = [merge for merge in model["merges"] if gone.isdisjoint(_merge_texts(merge))]
    return model


def _with_entries(model: dict[str, Any], added_tokens: Mapping[int, AddedToken]) -> dict[str, Any]:
    # An added token that the model lacks is given the next free id on loading, whatever the file says.
    vocab = model["vocab"]
    if not isinstance(vocab, list):
        return {**model, "vocab": {**vocab, **{token.content: index for index, token in added_tokens.items()}}}
    top = max(added_tokens, default=-1)
    vocab = vocab + [[_unreachable(index), _UNLIKELY] for index in range(len(vocab), top + 1)]
    for index, token in added_tokens.items():
        vocab[index] = [token.content, vocab[index][1]]
    return {**model, "vocab": vocab}


def _unreachable(index: int) -> str:
    # Byte-level and Metaspace pre-tokenisers leave no literal space in what they hand to the model.
    return f" \ufdd0 {index} \ufdd0 "


def _merge_texts(merge: str | list[str]) -> tuple[str, str, str]:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right, left + right


def _with_prefix(step: dict[str, Any] | None, prefix: Prefix) -> dict[str, Any] | None:
    """A normaliser or pre-tokeniser with the wanted ``prefix`` rule, inside sequences too."""
    if step is None or prefix == "as_is":
        return step
    kind = step["type"]
    for key in ("normalizers", "pretokenizers"):
        if key in step:
            steps = [_with_prefix(inner, prefix) for inner in step[key]]
            return {**step, key: [inner for inner in steps if inner is not None]}
    if kind == "Metaspace" and (prefix == "none" or step["prepend_scheme"] == "first"):
        return {**step, "prepend_scheme": "never"}
    if kind == "ByteLevel" and prefix == "none":
        return {**step, "add_prefix_space": False}
    if kind == "Prepend" and prefix == "none":
        return None
    return step
