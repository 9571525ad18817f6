"""What a server is, from what it says of itself in ``/server_info`` and ``/v1/models``.

==================================  ================================================================================
``/server_info`` says               then
==================================  ================================================================================
``pic_enable: true``                the HYPIC build (on SGLang 0.5.14): ``/generate`` splits its text at
                                    ``pic_separator_str`` and reuses every part but the last; ``pic_mode`` says how
a version, and no ``pic_enable``    stock SGLang: ``/v1/chat/completions`` takes ``input_ids`` and reuses prefixes
neither                             no SGLang server
==================================  ================================================================================
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hypic_agents.integrations.sglang.errors import UnsupportedServer

SEAM_MODE: Final = "transition_rope_recompute"
"""The one mode of the HYPIC build that places keys at their positions and computes a seam window."""

_DEFAULT_SEPARATOR: Final = "<<PIC_SEP>>"
_IDENTITY: Final = ("model_path", "revision", "weight_version", "dtype", "quantization", "lora_paths", "version")


@dataclass(frozen=True, slots=True)
class Separated:
    """How a HYPIC build takes segments.

    Attributes:
        separator: Stands between the parts of a prompt's text.
        mode: How the server composes them.
    """

    separator: str
    mode: str


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A server at a glance.

    Attributes:
        model: The name it serves its model under.
        window: Most tokens of prompt and answer together.
        fingerprint: Changes with the weights, their type and the server's version.
        separated: Set for a HYPIC build.
        parses_calls: Tool calls come apart from the text.
        parses_reasoning: Reasoning comes apart from the text.
        constrains: Answers can be held to a grammar.
        incremental: ``/generate`` streams pieces; else each event holds the text so far.
    """

    model: str
    window: int
    version: str
    fingerprint: str
    separated: Separated | None = None
    parses_calls: bool = False
    parses_reasoning: bool = False
    constrains: bool = True
    incremental: bool = False


def read_facts(url: str, info: Any, models: Any) -> ServerFacts:
    """From the replies of ``/server_info`` and ``/v1/models``.

    Raises:
        UnsupportedServer: These are no replies of an SGLang server, or one that has no window.
    """
    if not isinstance(info, Mapping) or not info.get("model_path") or not info.get("version"):
        raise UnsupportedServer(f"{url} is no SGLang server: /server_info names no model_path and no version")
    card = _first_model(models)
    window = _positive(card.get("max_model_len"), info.get("context_length"), info.get("max_req_input_len"))
    if window is None:
        raise UnsupportedServer(f"{url} does not say how long a prompt may be; launch it with --context-length")
    return ServerFacts(
        model=str(info.get("served_model_name") or card.get("id") or info["model_path"]),
        window=window,
        version=str(info["version"]),
        fingerprint=_fingerprint(info),
        separated=_separated(info),
        parses_calls=bool(info.get("tool_call_parser")),
        parses_reasoning=bool(info.get("reasoning_parser")),
        constrains=info.get("grammar_backend") != "none",
        incremental=bool(info.get("incremental_streaming_output") or info.get("stream_output")),
    )


def check_seam_mode(url: str, separated: Separated, *, allow_any: bool) -> None:
    """Refuse a HYPIC build that reuses keys at wrong positions or without a seam.

    Raises:
        UnsupportedServer: Another mode, or a separator that cannot separate.
    """
    if len(separated.separator.strip()) < 2:
        raise UnsupportedServer(
            f"{url} separates segments by {separated.separator!r}: launch it with a --pic-separator-str of two visible "
            "characters or more, such as '<<PIC_SEP>>'"
        )
    if separated.mode != SEAM_MODE and not allow_any:
        raise UnsupportedServer(
            f"{url} composes segments in the mode {separated.mode!r}, whose answers are less exact: launch it with "
            f"--pic-mode {SEAM_MODE}, or accept it with allow_any_mode=True"
        )


def _separated(info: Mapping[str, Any]) -> Separated | None:
    if not info.get("pic_enable"):
        return None
    return Separated(str(info.get("pic_separator_str") or _DEFAULT_SEPARATOR), str(info.get("pic_mode") or "addition"))


def _first_model(models: Any) -> Mapping[str, Any]:
    data = models.get("data") if isinstance(models, Mapping) else None
    first = data[0] if isinstance(data, list) and data else None
    return first if isinstance(first, Mapping) else {}


def _positive(*values: Any) -> int | None:
    return next((v for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 0), None)


def _fingerprint(info: Mapping[str, Any]) -> str:
    known = {key: info.get(key) for key in _IDENTITY}
    return hashlib.blake2b(json.dumps(known, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()
