"""Errors that LlamaIndex would not show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hypic_agents.errors import InvalidInput, RequestRefused


@contextmanager
def shown_to_the_user() -> Iterator[None]:
    """Raise an invalid input as what is no ``ValueError``: LlamaIndex's refine loop takes any of these for an answer
    that could not be read, and says "Empty Response".
    """
    try:
        yield
    except InvalidInput as error:
        raise RequestRefused(str(error)) from error
