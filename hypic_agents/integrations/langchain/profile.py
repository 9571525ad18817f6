"""What LangChain wants to know of a model before it answers: its profile, and what identifies it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.language_models import ModelProfile

from hypic_agents.backend import ModelInfo
from hypic_agents.runtime.models.describe import describe

if TYPE_CHECKING:
    from hypic_agents.integrations.langchain.chat_model import ChatHypic


def resolve_profile(model: ChatHypic) -> ModelProfile:
    """The model's abilities, from its files: nothing is loaded, no server is asked.

    The window is left out where it is not known yet.
    """
    info = _info(model)
    window = describe(model.model_name).window if model.backend is None else info.window if info else None
    profile = ModelProfile(
        name=info.name if info else model.model_name,
        text_inputs=True,
        image_inputs=False,
        image_url_inputs=False,
        pdf_inputs=False,
        audio_inputs=False,
        video_inputs=False,
        image_tool_message=False,
        pdf_tool_message=False,
        text_outputs=True,
        image_outputs=False,
        audio_outputs=False,
        video_outputs=False,
        tool_calling=info is None or info.tools,
        tool_choice=info is None or info.structured_output,
        tool_call_streaming=True,
        structured_output=info is None or info.structured_output,
        temperature=True,
    )
    if info is not None:
        profile["reasoning_output"] = info.reasoning
    if window is not None:
        profile["max_input_tokens"] = profile["max_output_tokens"] = window
    return profile


def identity(model: ChatHypic) -> dict[str, Any]:
    """All that an answer depends on besides the messages."""
    info = _info(model)
    return {
        "model_name": info.name if info else model.model_name,
        "revision": info.fingerprint if info else describe(model.model_name).revision if model.backend is None else "",
        "temperature": model.temperature,
        "top_p": model.top_p,
        "max_tokens": model.max_tokens,
        "stop": model.stop,
        "seed": model.seed,
        "policy": model.policy,
        "tenant": model.tenant,
        "groups": sorted(model.groups),
        "device": model.device,
        "dtype": model.dtype,
        "engine_config": repr(model.engine_config) if model.engine_config is not None else None,
    }


def _info(model: ChatHypic) -> ModelInfo | None:
    """Of the backend given, where it knows at once."""
    return model.backend.model_info() if model.backend is not None and model.backend.loaded else None
