"""Errors are caught by code written for either side."""

from __future__ import annotations

import pickle

import pytest
from langchain_core import exceptions

from hypic_agents import errors
from hypic_agents.integrations.langchain.errors import as_langchain_error, langchain_errors


@pytest.mark.parametrize(
    ("error", "theirs", "retryable"),
    [
        (errors.ContextOverflow(9000, 100, 8192), exceptions.ContextOverflowError, False),
        (errors.RequestTimeout(2.5), exceptions.ModelTimeoutError, True),
        (errors.ModelNotFound("no model"), exceptions.ModelNotFoundError, False),
        (errors.UnsupportedModel("no adapter"), exceptions.ModelInvalidRequestError, False),
        (errors.InvalidMessages("bad role"), exceptions.ModelInvalidRequestError, False),
        (errors.ModelMismatch("other logits"), exceptions.ModelInvalidRequestError, False),
        (errors.EngineClosed("closed"), exceptions.ModelConnectionError, True),
        (errors.HypicError("failed"), exceptions.ModelAPIError, True),
    ],
)
def test_translated(error: errors.HypicError, theirs: type[exceptions.ModelError], retryable: bool) -> None:
    both = as_langchain_error(error)
    assert isinstance(both, type(error))
    assert isinstance(both, theirs)
    assert both.is_retryable is retryable
    assert str(both) == str(error)
    assert as_langchain_error(both) is both
    assert vars(both) == vars(error)
    copy = pickle.loads(pickle.dumps(both))
    assert (type(copy), str(copy), vars(copy)) == (type(both), str(both), vars(both))


def test_every_error_of_the_package_is_covered() -> None:
    def subclasses(cls: type) -> set[type]:
        return {cls}.union(*(subclasses(sub) for sub in cls.__subclasses__()))

    for cls in subclasses(errors.HypicError):
        if not issubclass(cls, exceptions.ModelError):
            error = cls.__new__(cls)
            error.args = ("text",)
            assert isinstance(as_langchain_error(error), exceptions.ModelError)


def test_the_original_is_the_cause_and_others_pass() -> None:
    original = errors.InvalidInput("bad")
    with pytest.raises(exceptions.ModelInvalidRequestError) as caught, langchain_errors():
        raise original
    assert caught.value.__cause__ is original
    with pytest.raises(KeyError), langchain_errors():
        raise KeyError("x")
