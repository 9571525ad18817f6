"""Affine maps: forms, promotion, and law 9 (composition is associative and agrees with the recurrence)."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hypic_agents.runtime.linear.affine import AffineMap, Form, compose
from hypic_agents.runtime.linear.recurrence import affine_map_of, recurrence

FORMS: tuple[Form, ...] = ("scalar", "diagonal", "dense")
FAMILIES = ("scalar", "diagonal", "scalar_delta", "diagonal_delta")


def random_map(form: Form, heads: int, key_dim: int, value_dim: int, *, lead: tuple[int, ...] = (), seed: int = 0):
    gen = torch.Generator().manual_seed(seed)
    size = (heads, key_dim, key_dim)[: {"scalar": 1, "diagonal": 2, "dense": 3}[form]]
    transition = torch.randn(*lead, *size, generator=gen, dtype=torch.float64)
    end_state = torch.randn(*lead, heads, key_dim, value_dim, generator=gen, dtype=torch.float64)
    return AffineMap(form, transition, end_state)


def random_run(
    family: str, num_tokens: int, *, rows: int = 2, heads: int = 2, key_dim: int = 3, value_dim: int = 4, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """q, k, v, log_decay, beta of one run in float64; keys of unit length, beta up to 2."""
    gen = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=gen, dtype=torch.float64)

    lead = (rows, num_tokens, heads)
    decay_shape = (*lead, key_dim) if family.startswith("diagonal") else lead
    k = torch.nn.functional.normalize(draw(*lead, key_dim), dim=-1)
    beta = 2 * draw(*lead).sigmoid() if family.endswith("delta") else None
    return draw(*lead, key_dim), k, draw(*lead, value_dim), -torch.nn.functional.softplus(draw(*decay_shape)), beta


def cut(tensor: Tensor | None, start: int, end: int) -> Tensor | None:
    return None if tensor is None else tensor[:, start:end]


def assert_same_map(actual: AffineMap, expected: AffineMap) -> None:
    torch.testing.assert_close(actual.to_dense().transition, expected.to_dense().transition)
    torch.testing.assert_close(actual.end_state, expected.end_state)


@pytest.mark.parametrize("first_form", FORMS)
@pytest.mark.parametrize("second_form", FORMS)
@pytest.mark.parametrize("lead", [(), (2,), (2, 3)], ids=str)
def test_compose_is_first_then_second_in_the_wider_form(
    first_form: Form, second_form: Form, lead: tuple[int, ...]
) -> None:
    first = random_map(first_form, 2, 3, 5, lead=lead, seed=1)
    second = random_map(second_form, 2, 3, 5, lead=lead, seed=2)
    state = torch.randn(*lead, 2, 3, 5, dtype=torch.float64)
    composed = compose(first, second)
    assert composed.form == max(first_form, second_form, key=FORMS.index)
    torch.testing.assert_close(composed.apply(state), second.apply(first.apply(state)))
    assert_same_map(composed, compose(first.to_dense(), second.to_dense()))
    assert_same_map(composed, first.compose(second))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("other", FORMS)
def test_identity_changes_nothing(form: Form, other: Form) -> None:
    some = random_map(other, 2, 3, 4, lead=(2,))
    identity = AffineMap.identity(form, (2, 2, 3, 4), dtype=torch.float64)
    torch.testing.assert_close(identity.apply(some.end_state), some.end_state)
    assert_same_map(identity.compose(some), some)
    assert_same_map(some.compose(identity), some)


@pytest.mark.parametrize("form", FORMS)
def test_leading_dimensions_broadcast(form: Form) -> None:
    one = random_map(form, 2, 3, 4)
    many = random_map("dense", 2, 3, 4, lead=(5,))
    states = torch.randn(5, 2, 3, 4, dtype=torch.float64)
    assert one.apply(states).shape == states.shape
    for composed in (one.compose(many), many.compose(one)):
        assert composed.end_state.shape == states.shape
    torch.testing.assert_close(one.compose(many).apply(states)[3], many.apply(one.apply(states))[3])


@pytest.mark.parametrize("lead", [(), (3,)], ids=str)
def test_form_is_not_guessed_where_shapes_are_ambiguous(lead: tuple[int, ...]) -> None:
    heads = key_dim = 3
    transition = torch.rand(3, 3, dtype=torch.float64)
    state = torch.randn(3, heads, key_dim, 2, dtype=torch.float64)
    end_state = torch.zeros(*lead, heads, key_dim, 2, dtype=torch.float64)
    as_diagonal = AffineMap("diagonal", transition, end_state).apply(state)
    as_scalars = AffineMap("scalar", transition, end_state).apply(state)
    torch.testing.assert_close(as_diagonal, transition[None, :, :, None] * state)
    torch.testing.assert_close(as_scalars, transition[:, :, None, None] * state)


@pytest.mark.parametrize("form", FORMS)
def test_half_precision_transition_acts_on_a_float32_state(form: Form) -> None:
    full = random_map(form, 2, 3, 4)
    half = AffineMap(form, full.transition.bfloat16(), full.end_state.bfloat16())
    state = torch.randn(2, 3, 4)
    assert half.apply(state).dtype == torch.float32
    torch.testing.assert_close(half.apply(state).double(), full.apply(state.double()), atol=0.1, rtol=0.05)


def test_nbytes_counts_both_tensors() -> None:
    assert random_map("dense", 2, 3, 4).nbytes == 8 * (2 * 3 * 3 + 2 * 3 * 4)
    assert random_map("scalar", 2, 3, 4).nbytes == 8 * (2 + 2 * 3 * 4)


@pytest.mark.parametrize(
    ("form", "transition", "end_state", "message"),
    [
        ("matrix", (2, 3, 3), (2, 3, 4), "use scalar, diagonal, dense"),
        ("dense", (2, 3, 4), (2, 3, 4), "must end in"),
        ("diagonal", (2,), (2, 3, 4), "must end in"),
        ("scalar", (3,), (2, 3, 4), "must end in"),
        ("scalar", (2,), (2, 3), "end_state must be"),
    ],
)
def test_rejects_parts_that_do_not_fit(form: Form, transition: tuple, end_state: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AffineMap(form, torch.zeros(transition), torch.zeros(end_state))


def test_rejects_maps_of_different_sizes() -> None:
    with pytest.raises(ValueError, match="do not compose"):
        compose(random_map("scalar", 2, 3, 4), random_map("scalar", 2, 3, 5))


@pytest.mark.parametrize("first_form", FORMS)
@pytest.mark.parametrize("second_form", FORMS)
def test_gradients(first_form: Form, second_form: Form) -> None:
    maps = random_map(first_form, 1, 2, 3, seed=3), random_map(second_form, 1, 2, 3, seed=4)
    inputs = [t.requires_grad_() for m in maps for t in (m.transition, m.end_state)]

    def run(t1: Tensor, e1: Tensor, t2: Tensor, e2: Tensor) -> tuple[Tensor, Tensor]:
        composed = compose(AffineMap(first_form, t1, e1), AffineMap(second_form, t2, e2))
        return composed.to_dense().transition, composed.end_state

    assert torch.autograd.gradcheck(run, inputs)


@settings(max_examples=60, deadline=None)
@given(
    forms=st.tuples(*[st.sampled_from(FORMS)] * 3),
    lead=st.sampled_from([(), (1,), (2,), (2, 2)]),
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4)),
    seed=st.integers(0, 999),
)
def test_composition_is_associative(
    forms: tuple[Form, Form, Form], lead: tuple[int, ...], sizes: tuple[int, int, int], seed: int
) -> None:
    a, b, c = (random_map(form, *sizes, lead=lead, seed=seed + i) for i, form in enumerate(forms))
    left, right = compose(compose(a, b), c), compose(a, compose(b, c))
    assert left.form == right.form
    assert_same_map(left, right)


@settings(max_examples=60, deadline=None)
@given(
    family=st.sampled_from(FAMILIES),
    num_tokens=st.integers(0, 12),
    cuts=st.lists(st.integers(0, 12), max_size=3),
    sizes=st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4)),
    seed=st.integers(0, 999),
)
def test_maps_of_parts_compose_to_the_map_of_the_whole(
    family: str, num_tokens: int, cuts: list[int], sizes: tuple[int, int, int, int], seed: int
) -> None:
    rows, heads, key_dim, value_dim = sizes
    q, k, v, log_decay, beta = random_run(
        family, num_tokens, rows=rows, heads=heads, key_dim=key_dim, value_dim=value_dim, seed=seed
    )
    start = torch.randn(rows, heads, key_dim, value_dim, dtype=torch.float64)
    whole = affine_map_of(k, v, log_decay, beta)
    _, final_state = recurrence(q, k, v, log_decay, beta, start)
    torch.testing.assert_close(whole.apply(start), final_state)

    bounds = [0, *sorted(min(c, num_tokens) for c in cuts), num_tokens]
    composed = AffineMap.identity("scalar", tuple(start.shape), dtype=torch.float64)
    state = start
    for begin, end in pairwise(bounds):
        part = affine_map_of(*(cut(x, begin, end) for x in (k, v, log_decay, beta)))
        composed = composed.compose(part)
        _, state = recurrence(*(cut(x, begin, end) for x in (q, k, v, log_decay, beta)), state)
    assert_same_map(composed, whole)
    torch.testing.assert_close(state, final_state)
