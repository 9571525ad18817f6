"""What a request may ask, and how its failure is told. No torch."""

from __future__ import annotations

from hypic_agents.core import Prompt
from hypic_agents.errors import ContextOverflow, EmptyPrompt, HypicError, InvalidInput


def check_prompt(prompt: Prompt, vocab_size: int, window: int, max_new_tokens: int) -> None:
    """Raise before anything is computed.

    Raises:
        EmptyPrompt, ContextOverflow, InvalidInput: no token, more than the window holds, or an unknown id.
    """
    if not prompt.token_ids:
        raise EmptyPrompt("the prompt is empty; pass at least one token")
    top = max(prompt.token_ids)
    if min(prompt.token_ids) < 0 or top >= vocab_size:
        raise InvalidInput(f"token id {top} is outside the model's vocabulary of {vocab_size}")
    if len(prompt) + max_new_tokens > window:
        raise ContextOverflow(len(prompt), max_new_tokens, window)


def as_hypic(error: Exception) -> HypicError:
    """The error itself if it is ours, else one of ours that names it."""
    if isinstance(error, HypicError):
        return error
    failure = HypicError(f"the request failed: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure
