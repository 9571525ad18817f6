"""What an answer cost and what was reused, in LangChain's fields."""

from __future__ import annotations

from typing import Any

from langchain_core.messages.ai import InputTokenDetails, UsageMetadata

from hypic_agents.completion import Completion
from hypic_agents.integrations.report import reuse_report

PROVIDER = "hypic"


def usage_metadata(completion: Completion) -> UsageMetadata:
    """Counts as LangChain defines them: ``input_tokens`` includes the cached ones."""
    usage = completion.usage
    return UsageMetadata(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
        input_token_details=InputTokenDetails(cache_read=usage.cached_tokens, cache_creation=usage.created_tokens),
    )


def response_metadata(completion: Completion, model_name: str) -> dict[str, Any]:
    """``model_name``, ``finish_reason`` and, under "hypic", the reuse report."""
    reason = "tool_calls" if completion.tool_calls and completion.finish_reason == "stop" else completion.finish_reason
    return {"model_name": model_name, "finish_reason": reason, "hypic": reuse_report(completion)}
