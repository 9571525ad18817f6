"""Every error the package raises on purpose.

::

    HypicError
    ├── InvalidInput            the caller can mend it: exit code 2 in the CLI
    │   ├── EmptyPrompt
    │   ├── ContextOverflow     prompt and answer do not fit the model's window
    │   ├── InvalidPolicy
    │   │   └── InvalidPolicyFile   unreadable, of another format, or for another model
    │   ├── InvalidPrompts      a file of prompts, or a line of it
    │   ├── InvalidGrammar      a schema, pattern or tool choice that no answer can be held to
    │   ├── InvalidMessages     roles, content blocks or tool calls the template cannot take
    │   └── VersionConflict     two versions of one source in one prompt
    ├── ModelError
    │   ├── ModelNotFound
    │   ├── UnsupportedModel    an architecture or option without an adapter
    │   └── ModelMismatch       the load-time self-test disagrees with transformers
    ├── StoreUnavailable        the store's directory cannot be used
    ├── RequestTimeout          not answered within the request's own timeout
    ├── RequestRefused          an InvalidInput, where the framework would hide any ValueError
    ├── MissingToolCall         the answer was to call a tool, and does not
    └── EngineClosed
"""

from __future__ import annotations


class HypicError(Exception):
    """Base of all errors of this package."""


class InvalidInput(HypicError, ValueError):
    """The input is at fault; the message names the value and the remedy."""


class EmptyPrompt(InvalidInput):
    """The prompt holds no token."""


class ContextOverflow(InvalidInput):
    """Prompt and requested answer do not fit the model's window (all in tokens)."""

    def __init__(self, prompt_len: int, max_new_tokens: int, window: int) -> None:
        self.prompt_len = prompt_len
        self.max_new_tokens = max_new_tokens
        self.window = window
        super().__init__(
            f"the prompt has {prompt_len} tokens and {max_new_tokens} more were asked for, but the model's window is "
            f"{window} tokens; shorten the prompt, lower max_tokens or choose a model with a larger window"
        )


class InvalidPolicy(InvalidInput):
    """A reuse policy that does not exist or contradicts itself."""


class InvalidPolicyFile(InvalidPolicy):
    """A policy file that cannot be read or written, has another format, or belongs to another model."""


class InvalidPrompts(InvalidInput):
    """A file of prompts that cannot be read, or a line of it that is no prompt."""


class InvalidGrammar(InvalidInput):
    """A schema, regular expression or tool choice that is malformed, or asks for what cannot be enforced."""


class InvalidMessages(InvalidInput):
    """Messages, content blocks or tool specs that cannot be rendered."""


class VersionConflict(InvalidInput):
    """Two versions of one source would meet in one prompt."""


class ModelError(HypicError):
    """The model cannot be loaded or run."""


class ModelNotFound(ModelError, InvalidInput):
    """No model at that path or name."""


class UnsupportedModel(ModelError, InvalidInput):
    """The architecture, or an option of it, has no adapter."""


class ModelMismatch(ModelError):
    """Our forward pass disagrees with the untouched transformers model."""


class StoreUnavailable(HypicError):
    """A store directory that cannot be opened, or not changed in time."""


class RequestTimeout(HypicError, TimeoutError):
    """The request was not answered in the time it was given; it is cancelled."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        super().__init__(f"no answer within {timeout_s:g} s; allow more with timeout=, or lower max_tokens")


class RequestRefused(HypicError):
    """An :class:`InvalidInput` (its ``__cause__``) in a place where the framework would hide any ``ValueError``."""


class MissingToolCall(HypicError):
    """The answer was to call a tool, and holds no call that can be carried out."""


class EngineClosed(HypicError):
    """The engine was closed; create a new one."""
