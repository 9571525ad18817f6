"""Small tokenizers of every make: what the prompt layer must be exact for."""

from __future__ import annotations

from functools import cache
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

CORPUS = [
    "The lease ends in May. The tenant pays the rent on the first day of each month.",
    "You are a helpful assistant. Current time is 15:09:20. Answer the question about the house.",
    '{"type": "function", "function": {"name": "find", "description": "Find.", "parameters": {"type": "object"}}}',
    "def main():\n    for i in range(10):\n        print(i)\n\nHanzi are logograms. 汉字是记录汉语的文字。",
    "system user assistant tool message question document weather in Oslo, 4 degrees <b>bold</b> | a < b > c",
]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TOOL_MARKS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]

CHATML = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- '# Tools\\n\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
{{- '\\n</tools><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'system' and not loop.first %}{{- raise_exception('system message must come first') }}
{%- elif message.role == 'user' %}
{{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' + message.content }}
{%- for call in message.tool_calls or [] %}
{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{%- if call.function.arguments is string %}{{- call.function.arguments }}
{%- else %}{{- call.function.arguments | tojson }}{%- endif %}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
# Alternating roles only, trimmed contents, arguments printed as they come.
STRICT = """\
{{- '<|endoftext|>' }}
{%- set ns = namespace(last='') %}
{%- for message in messages %}
{%- if message.role == ns.last %}{{- raise_exception('roles must alternate') }}{%- endif %}
{%- set ns.last = message.role %}
{{- '<|im_start|>' + message.role + '\\n' + message.content | trim }}
{%- for call in message.tool_calls or [] %}{{- ' CALL ' ~ call.function.name ~ call.function.arguments }}{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
# Escapes everything beyond ASCII and spreads tools over lines, as some templates do.
ESCAPING = """\
{%- for tool in tools or [] %}{{- tool | tojson(ensure_ascii=True, indent=4) }}{%- endfor %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + ' ' + message.content | tojson(ensure_ascii=True) + '<|im_end|>' }}
{%- endfor %}
"""


def byte_level(*, tool_marks: bool = False, prefix_space: bool = False) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    _train(tokenizer, trainers.BpeTrainer, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    if tool_marks:
        tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in TOOL_MARKS])
    return tokenizer


def added_apart() -> Tokenizer:
    """No control token in the model's vocabulary, as in Qwen's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        CORPUS * 3,
        trainers.BpeTrainer(vocab_size=480, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False),
    )
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in TOOL_MARKS])
    return tokenizer


def metaspace(scheme: str) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    _train(tokenizer, trainers.BpeTrainer)
    return tokenizer


def prepending() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    _train(tokenizer, trainers.BpeTrainer)
    return tokenizer


def unigram() -> Tokenizer:
    # The control tokens are ordinary pieces of this vocabulary, and likelier than any other reading.
    pieces = [("<unk>", 0.0), *((token, 0.0) for token in SPECIAL), ("<think>", 0.0)]
    letters = sorted(set("".join(CORPUS)) | {"▁"} - {" "})
    words = sorted({f"▁{word}" for line in CORPUS for word in line.split()})
    pieces += [(letter, -9.0) for letter in letters] + [(word, -5.0) for word in words]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.add_special_tokens(["<unk>", *SPECIAL])
    tokenizer.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    return tokenizer


def odd() -> Tokenizer:
    """Every flag an added token can have, a word and a run of spaces among them."""
    tokenizer = byte_level(tool_marks=True)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.add_tokens(
        [
            AddedToken("<Tool>", normalized=True),
            AddedToken("<left>", lstrip=True, normalized=False),
            AddedToken("<right>", rstrip=True, normalized=False),
            AddedToken("lease", single_word=True, normalized=False),
            AddedToken("two words", normalized=False),
            AddedToken("    ", normalized=False),
        ]
    )
    return tokenizer


def whole_words() -> Tokenizer:
    """Pre-tokens that stand in the vocabulary are taken whole, control tokens too, as in tiktoken conversions."""
    tokenizer = byte_level(tool_marks=True)
    tokenizer.model.ignore_merges = True
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(" ", "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    return tokenizer


MAKES = {
    "bytes": byte_level,
    "bytes-tool-marks": lambda: byte_level(tool_marks=True),
    "bytes-apart": added_apart,
    "bytes-prefix-space": lambda: byte_level(prefix_space=True),
    "metaspace-first": lambda: metaspace("first"),
    "metaspace-always": lambda: metaspace("always"),
    "prepend": prepending,
    "unigram": unigram,
    "odd": odd,
    "whole-words": whole_words,
}


@cache
def hf_tokenizer(make: str, template: str = CHATML) -> Any:
    return PreTrainedTokenizerFast(tokenizer_object=MAKES[make](), eos_token="<|endoftext|>", chat_template=template)


def _train(tokenizer: Tokenizer, trainer: Any, **options: Any) -> None:
    tokens = [*SPECIAL, "<unk>"] if tokenizer.model.unk_token else SPECIAL
    tokenizer.train_from_iterator(
        CORPUS * 3, trainer(vocab_size=480, special_tokens=tokens, show_progress=False, **options)
    )
