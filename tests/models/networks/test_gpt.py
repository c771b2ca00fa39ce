"""The decoder: what a token sees, what is shared, and how generation ends."""
# ruff: noqa: N806 - suffixes are array layouts

from dataclasses import replace
from typing import Any

import pytest
import torch

from models.errors import SettingError
from models.networks.attention import attention_reference, causal_mask
from models.networks.gpt import GPT, GPTConfig, generate


@pytest.fixture
def gpt(gpt_config: GPTConfig) -> GPT:
    """With large weights, so that a wrong wire shows."""
    torch.manual_seed(0)
    model = GPT(gpt_config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def test_what_comes_later_changes_no_earlier_logits(gpt: GPT) -> None:
    input_ids = torch.randint(0, 32, (2, 12))
    changed = input_ids.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % 32

    before, after = gpt(input_ids), gpt(changed)

    assert torch.equal(before[:, :7], after[:, :7])
    assert not torch.isclose(before[:, 7:], after[:, 7:]).all()


def test_a_padded_row_equals_the_row_alone(gpt: GPT) -> None:
    """Padding is on the right, so nothing that is used sees it and no mask is needed."""
    row = torch.randint(0, 32, (1, 5))
    padded = torch.cat([row, torch.zeros(1, 7, dtype=torch.int64)], dim=1)
    torch.testing.assert_close(gpt(padded)[:, :5], gpt(row))


def test_a_layer_is_causal_attention_on_a_normalised_copy_then_feed_forward(gpt: GPT) -> None:
    layer: Any = gpt.layers[0]
    hidden_BSD = torch.randn(2, 6, 16)
    normed_BSD = layer.attention_norm(hidden_BSD)
    query, key, value = (
        linear(normed_BSD).unflatten(-1, (2, 8)).transpose(1, 2)
        for linear in (layer.attention.query, layer.attention.key, layer.attention.value)
    )
    attended, _ = attention_reference(query, key, value, causal_mask(6))
    middle_BSD = hidden_BSD + layer.attention.output(attended.transpose(1, 2).flatten(2))
    expected_BSD = middle_BSD + layer.feed_forward(layer.feed_forward_norm(middle_BSD))

    torch.testing.assert_close(layer(hidden_BSD), expected_BSD)


def test_the_output_layer_is_the_table_of_word_vectors(gpt: GPT) -> None:
    """One tensor, stored once: what changes a word's vector changes its logits."""
    assert sum(tensor.shape == (32, 16) for tensor in gpt.state_dict().values()) == 1
    hidden_BSD = gpt.hidden_states(torch.tensor([[1, 2, 3]]))
    torch.testing.assert_close(gpt(torch.tensor([[1, 2, 3]])), hidden_BSD @ gpt.words.weight.T)


def test_fresh_weights_are_scaled_where_layers_add_to_the_residual_stream() -> None:
    """0.02 / sqrt(2 * 8 layers) = 0.005 there, and 0.02 elsewhere."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(300, 128, 8, 4, 512, 64, eos_token_id=0))
    layer: Any = model.layers[0]
    assert layer.attention.output.weight.std().item() == pytest.approx(0.005, rel=0.05)
    assert layer.feed_forward.contract.weight.std().item() == pytest.approx(0.005, rel=0.05)
    assert layer.feed_forward.expand.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert model.words.weight.std().item() == pytest.approx(0.02, rel=0.05)


def test_greedy_generation_takes_the_best_token_of_the_whole_sequence_each_time(gpt: GPT) -> None:
    ids = [5, 6, 7]
    found = generate(gpt, ids, 8, ignore_eos=True)
    for token in found:
        assert token == int(gpt(torch.tensor([ids]))[0, -1].argmax())
        ids.append(token)
    assert len(found) == 8


def test_generation_ends_at_the_last_position_and_at_the_end_of_text(gpt: GPT) -> None:
    assert len(generate(gpt, [5] * 18, 8, ignore_eos=True)) == 2  # max_positions is 20
    greedy = generate(gpt, [5, 6, 7], 8, ignore_eos=True)
    gpt.config = replace(gpt.config, eos_token_id=greedy[3])
    assert generate(gpt, [5, 6, 7], 8) == greedy[: greedy.index(greedy[3])]


def test_sampling_follows_the_seed_and_the_temperature(gpt: GPT) -> None:
    def sample(seed: int, temperature: float) -> list[int]:
        random = torch.Generator().manual_seed(seed)
        return generate(gpt, [5], 12, temperature=temperature, generator=random, ignore_eos=True)

    assert sample(0, 1.0) == sample(0, 1.0) != sample(1, 1.0)
    assert sample(0, 1e-3) == generate(gpt, [5], 12, ignore_eos=True)


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [
        ("vocab_size", 0, "at least 1"),
        ("max_positions", 0, "at least 1"),
        ("eos_token_id", 50_257, "from 0 to 50256"),
        ("dropout", 1.0, "from 0 to 0.9"),
        ("activation", "mish", "one of gelu, gelu_tanh, relu, silu"),
        ("num_heads", 7, "a divisor of hidden_size 768"),
    ],
)
def test_a_size_outside_its_limits_names_field_value_and_limit(
    field: str, value: object, limit: str
) -> None:
    values: dict[str, Any] = {field: value}
    with pytest.raises(SettingError) as caught:
        GPTConfig(**values)
    assert str(caught.value).startswith(f"{field} is {value!r}, but must be {limit}")


def test_a_config_survives_its_dictionary_and_refuses_another(gpt_config: GPTConfig) -> None:
    assert GPTConfig.from_dict(gpt_config.to_dict()) == gpt_config
    with pytest.raises(SettingError, match=r"decoder\.rotary is True, but must be absent"):
        GPTConfig.from_dict({**gpt_config.to_dict(), "rotary": True})


@pytest.mark.parametrize(
    ("config", "millions"),
    [(GPTConfig.small(), 124), (GPTConfig.medium(), 355), (GPTConfig.large(), 774)],
)
def test_presets_have_gpt_2s_numbers_of_weights(config: GPTConfig, millions: int) -> None:
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in GPT(config).parameters())
    assert round(count / 1e6) == millions
