"""The token-by-token reference against functions that are not ours, and its own contract."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize, softplus
from transformers import MiniMaxConfig
from transformers.models.kimi_linear import modeling_kimi_linear as kimi
from transformers.models.mamba2 import modeling_mamba2 as mamba2
from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen3_5

from hypic_agents.runtime.linear.recurrence import form_of, recurrence, transition_of

# unwrap: with fla or mamba-ssm installed the decorated names run GPU kernels.
GDN = [
    pytest.param(inspect.unwrap(qwen3_5.torch_recurrent_gated_delta_rule), id="recurrent"),
    pytest.param(inspect.unwrap(qwen3_5.torch_chunk_gated_delta_rule), id="chunk"),
]
KDA = [
    pytest.param(inspect.unwrap(kimi.recurrent_kimi_delta_attention), id="recurrent"),
    pytest.param(inspect.unwrap(kimi.chunk_kimi_delta_attention), id="chunk"),
]
HEADS, KEY_DIM, VALUE_DIM = 2, 8, 6


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, dtype=dtype)


def qkv(num_tokens: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(num_tokens)
    lead = (2, num_tokens, HEADS)
    return (
        draw(*lead, KEY_DIM, dtype=dtype),
        normalize(draw(*lead, KEY_DIM, dtype=dtype), dim=-1),
        draw(*lead, VALUE_DIM, dtype=dtype),
    )


@pytest.mark.parametrize("num_tokens", [1, 7, 70])
@pytest.mark.parametrize("with_state", [False, True], ids=["zero", "given"])
@pytest.mark.parametrize("theirs", GDN)
def test_gated_delta_rule_equals_transformers(theirs, with_state: bool, num_tokens: int) -> None:
    q, k, v = qkv(num_tokens)
    log_decay, beta = -softplus(draw(2, num_tokens, HEADS)), 2 * draw(2, num_tokens, HEADS).sigmoid()
    state = draw(2, HEADS, KEY_DIM, VALUE_DIM) if with_state else None
    expected = theirs(q, k, v, g=log_decay, beta=beta, initial_state=state, output_final_state=True)
    actual = recurrence(q * KEY_DIM**-0.5, k, v, log_decay, beta, state)
    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("num_tokens", [1, 7, 70])
@pytest.mark.parametrize("with_state", [False, True], ids=["zero", "given"])
@pytest.mark.parametrize("theirs", KDA)
def test_kimi_delta_attention_equals_transformers(theirs, with_state: bool, num_tokens: int) -> None:
    q, k, v = qkv(num_tokens)
    log_decay, beta = -softplus(draw(2, num_tokens, HEADS, KEY_DIM)), draw(2, num_tokens, HEADS).sigmoid()
    state = draw(2, HEADS, KEY_DIM, VALUE_DIM) if with_state else None
    expected = theirs(q, k, v, g=log_decay, beta=beta, initial_state=state, output_final_state=True)
    actual = recurrence(q * KEY_DIM**-0.5, k, v, log_decay, beta, state)
    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("num_tokens", [1, 7, 70])
@pytest.mark.parametrize("with_state", [False, True], ids=["zero", "given"])
def test_scalar_decay_equals_mamba2(with_state: bool, num_tokens: int) -> None:
    """Mamba-2 names: C reads (q), B times dt writes (k), x is the value; its state is [.., V, K]."""
    q, k, v = qkv(num_tokens)
    step, rate = softplus(draw(2, num_tokens, HEADS)), -draw(HEADS).exp()
    state = draw(2, HEADS, KEY_DIM, VALUE_DIM) if with_state else None
    scan = inspect.unwrap(mamba2.mamba2_chunk_scan)
    expected, end = scan(
        v,
        step,
        rate,
        k,
        q,
        chunk_size=16,
        initial_states=None if state is None else state.transpose(-1, -2),
        return_final_states=True,
    )
    actual, final_state = recurrence(q, k * step[..., None], v, rate * step, initial_state=state)
    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(final_state.transpose(-1, -2), end, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("num_tokens", [1, 7, 37])
def test_fixed_decay_equals_minimax_lightning_attention(num_tokens: int) -> None:
    torch.manual_seed(0)
    config = MiniMaxConfig(
        hidden_size=16,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=KEY_DIM,
        num_hidden_layers=2,
        block_size=16,
        layer_types=["linear_attention", "full_attention"],
    )
    layer = MiniMaxLightningAttention(config, layer_idx=0).double()
    hidden = draw(2, num_tokens, 16, dtype=torch.float64)
    seen: list[Tensor] = []
    layer.norm.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.no_grad():
        _, end_state = layer(hidden, position_embeddings=None, attention_mask=None)
        mixed = layer.act_fn(layer.qkv_proj(hidden)).view(2, num_tokens, HEADS, 3 * KEY_DIM)
        log_decay = -layer.slope_rate.view(HEADS).expand(2, num_tokens, HEADS)
    outputs, final_state = recurrence(*mixed.chunk(3, dim=-1), log_decay)
    torch.testing.assert_close(final_state, end_state)
    torch.testing.assert_close(outputs.reshape(2, num_tokens, -1), seen[0])


def test_vector_decay_equals_its_closed_form() -> None:
    """GLA: ``o_t = sum over s <= t of (q_t * product of the decays after s) . k_s v_s``."""
    num_tokens = 9
    q, k, v = qkv(num_tokens, torch.float64)
    log_decay = -softplus(draw(2, num_tokens, HEADS, KEY_DIM, dtype=torch.float64))
    cum = log_decay.cumsum(1)
    pair = (cum[:, :, None] - cum[:, None]).exp()
    scores = torch.einsum("bthk,bshk,btshk->btsh", q, k, pair) * torch.ones(num_tokens, num_tokens).tril()[..., None]
    outputs, _ = recurrence(q, k, v, log_decay)
    torch.testing.assert_close(outputs, torch.einsum("btsh,bshv->bthv", scores, v))


@pytest.mark.parametrize("beta", [False, True], ids=["plain", "delta"])
def test_a_constant_vector_decay_is_a_scalar_decay(beta: bool) -> None:
    q, k, v = qkv(11, torch.float64)
    scalar = -softplus(draw(2, 11, HEADS, dtype=torch.float64))
    strength = scalar.exp() if beta else None
    vector = scalar[..., None].expand(2, 11, HEADS, KEY_DIM)
    torch.testing.assert_close(recurrence(q, k, v, scalar, strength), recurrence(q, k, v, vector, strength))


def test_transition_of_one_token_is_the_published_matrix() -> None:
    _, k, _ = qkv(1, torch.float64)
    beta = 2 * draw(2, 1, HEADS, dtype=torch.float64).sigmoid()
    eye = torch.eye(KEY_DIM, dtype=torch.float64)
    erase = eye - beta[:, 0, :, None, None] * k[:, 0, :, :, None] * k[:, 0, :, None, :]
    scalar = -softplus(draw(2, 1, HEADS, dtype=torch.float64))
    vector = -softplus(draw(2, 1, HEADS, KEY_DIM, dtype=torch.float64))
    torch.testing.assert_close(transition_of(k, scalar, beta), scalar.exp()[:, 0, :, None, None] * erase)
    torch.testing.assert_close(transition_of(k, vector, beta), erase @ torch.diag_embed(vector.exp()[:, 0]))
    torch.testing.assert_close(transition_of(k, scalar), scalar[:, 0].exp())
    torch.testing.assert_close(transition_of(k, vector), vector[:, 0].exp())


def test_no_tokens_leave_the_state_as_it_was() -> None:
    q, k, v = (x[:, :0] for x in qkv(3))
    state = draw(2, HEADS, KEY_DIM, VALUE_DIM)
    outputs, final_state = recurrence(q, k, v, q[..., 0], q[..., 0], state)
    assert outputs.shape == (2, 0, HEADS, VALUE_DIM)
    torch.testing.assert_close(final_state, state)
    eye = torch.eye(KEY_DIM).expand(2, HEADS, -1, -1)
    torch.testing.assert_close(transition_of(k, q[..., 0], q[..., 0]), eye)


@pytest.mark.parametrize(
    ("given", "state"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)],
    ids=str,
)
def test_state_is_at_least_float32_and_outputs_keep_the_values_dtype(given: torch.dtype, state: torch.dtype) -> None:
    q, k, v = (x.to(given) for x in qkv(5))
    outputs, final_state = recurrence(q, k, v, -torch.ones(2, 5, HEADS, dtype=given))
    assert (outputs.dtype, final_state.dtype) == (given, state)


def test_form_follows_the_rule_and_the_rank_of_the_decay() -> None:
    scalar, vector = torch.zeros(1, 2, 3), torch.zeros(1, 2, 3, 3)
    assert [form_of(scalar, None), form_of(vector, None), form_of(scalar, scalar)] == ["scalar", "diagonal", "dense"]
    with pytest.raises(ValueError, match="log_decay must be"):
        form_of(torch.zeros(2, 3), None)


@pytest.mark.parametrize("vector", [False, True], ids=["scalar", "vector"])
@pytest.mark.parametrize("delta", [False, True], ids=["plain", "delta"])
def test_gradients(vector: bool, delta: bool) -> None:
    torch.manual_seed(0)
    lead = (1, 3, 1)
    inputs = [draw(*lead, 2, dtype=torch.float64), draw(*lead, 2, dtype=torch.float64)]
    inputs += [draw(*lead, 3, dtype=torch.float64), -softplus(draw(*lead, *[2] * vector, dtype=torch.float64))]
    inputs += [draw(*lead, dtype=torch.float64).sigmoid()] if delta else []
    assert torch.autograd.gradcheck(recurrence, [x.requires_grad_() for x in inputs])
