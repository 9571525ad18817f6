"""Errors that code written for LangChain and code written for this package both catch.

======================  ======================================
ours                    also a langchain_core
======================  ======================================
``ContextOverflow``     ``ContextOverflowError``
``RequestTimeout``      ``ModelTimeoutError`` (retryable)
``ModelNotFound``       ``ModelNotFoundError``
``InvalidInput``        ``ModelInvalidRequestError``
``EngineClosed``        ``ModelConnectionError`` (retryable)
any other               ``ModelAPIError`` (retryable)
======================  ======================================

The first row that fits counts, so subclasses are covered.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from langchain_core import exceptions

from hypic_agents.errors import (
    ContextOverflow,
    EngineClosed,
    HypicError,
    InvalidInput,
    ModelError,
    ModelNotFound,
    RequestTimeout,
)

_TABLE: tuple[tuple[type[HypicError], type[exceptions.ModelError]], ...] = (
    (ContextOverflow, exceptions.ContextOverflowError),
    (RequestTimeout, exceptions.ModelTimeoutError),
    (ModelNotFound, exceptions.ModelNotFoundError),
    (InvalidInput, exceptions.ModelInvalidRequestError),
    (ModelError, exceptions.ModelInvalidRequestError),
    (EngineClosed, exceptions.ModelConnectionError),
    (HypicError, exceptions.ModelAPIError),
)

_made: dict[type[HypicError], type[HypicError]] = {}


def as_langchain_error(error: HypicError) -> HypicError:
    """The same error, as an instance of its own class and of LangChain's. One that is both already is returned."""
    if isinstance(error, exceptions.ModelError):
        return error
    both = _both(type(error))
    translated = both.__new__(both)
    translated.args = error.args
    translated.__dict__.update(error.__dict__)
    return translated


@contextmanager
def langchain_errors() -> Iterator[None]:
    """Raise our errors as LangChain's too."""
    try:
        yield
    except HypicError as error:
        raise as_langchain_error(error) from error


def _both(ours: type[HypicError]) -> type[HypicError]:
    if ours in _made:
        return _made[ours]
    theirs = next(theirs for base, theirs in _TABLE if issubclass(ours, base))
    # Pickled as the original, because a class made here cannot be found by its name.
    methods = {"__module__": ours.__module__, "__doc__": ours.__doc__, "__reduce__": _reduce}
    return _made.setdefault(ours, type(ours.__name__, (ours, theirs), methods))


def _reduce(self: HypicError) -> tuple[object, ...]:
    original = type(self).__mro__[1]
    return _restore, (original, self.args, self.__dict__)


def _restore(original: type[HypicError], args: tuple[object, ...], attributes: dict[str, object]) -> HypicError:
    error = original.__new__(original)
    error.args = args
    error.__dict__.update(attributes)
    return as_langchain_error(error)
