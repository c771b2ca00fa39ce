"""The encoder alone: sizes, padding, export. Parity with transformers is in test_huggingface."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from models.checkpoints.weights import build_on_meta
from models.errors import SettingError
from models.networks.attention import MultiHeadAttention
from models.networks.encoder import Encoder, EncoderConfig, EncoderLayer


def test_base_and_large_have_the_sizes_of_the_paper() -> None:
    """110 and 340 million in Devlin et al. 2018, rounded up and with the pooler, which is a head.

    30,522 + 512 + 2 embeddings and a norm, then 12 layers of 7,087,872 or 24 of 12,596,224.
    """
    sizes = []
    for config in (EncoderConfig.base(), EncoderConfig.large()):
        encoder = build_on_meta(partial(Encoder, config))
        sizes.append(sum(parameter.numel() for parameter in encoder.parameters()))
    assert sizes == [31_038 * 768 + 12 * 7_087_872, 31_038 * 1_024 + 24 * 12_596_224]


def test_hidden_states_are_the_embeddings_and_one_per_layer(config: EncoderConfig) -> None:
    encoder = Encoder(config).eval()
    input_ids = torch.randint(0, 32, (2, 5))
    states = encoder(input_ids, torch.ones_like(input_ids))
    assert [tuple(state.shape) for state in states] == [(2, 5, 16)] * 5
    torch.testing.assert_close(states[0], encoder.embeddings(input_ids))
    for layer in encoder.layers:
        assert isinstance(layer, EncoderLayer)
        assert isinstance(layer.attention, MultiHeadAttention)


def test_a_padded_row_equals_the_row_alone(config: EncoderConfig) -> None:
    torch.manual_seed(0)
    encoder = Encoder(config).eval()
    input_ids = torch.randint(4, 32, (2, 9))
    attention_mask = torch.ones_like(input_ids)
    attention_mask[1, 4:] = 0

    together = encoder(input_ids, attention_mask)[-1]
    alone = encoder(input_ids[1:, :4], attention_mask[1:, :4])[-1]

    torch.testing.assert_close(together[1:, :4], alone, atol=1e-6, rtol=0)
    assert together.isfinite().all()


def test_token_types_are_zero_unless_given(config: EncoderConfig) -> None:
    encoder = Encoder(config).eval()
    input_ids = torch.randint(4, 32, (1, 6))
    mask, zeros = torch.ones_like(input_ids), torch.zeros_like(input_ids)
    without = encoder(input_ids, mask)[-1]
    torch.testing.assert_close(encoder(input_ids, mask, zeros)[-1], without)
    assert not torch.allclose(encoder(input_ids, mask, zeros + 1)[-1], without)


def test_an_encoder_without_token_types_ignores_them(config: EncoderConfig) -> None:
    encoder = Encoder(replace(config, type_vocab_size=0)).eval()
    input_ids = torch.randint(4, 32, (1, 6))
    mask = torch.ones_like(input_ids)
    torch.testing.assert_close(encoder(input_ids, mask, mask)[-1], encoder(input_ids, mask)[-1])


def test_the_encoder_exports_with_any_number_of_rows_and_tokens(config: EncoderConfig) -> None:
    encoder = Encoder(config).eval()
    dynamic = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    example = tuple(torch.ones(3, 2, 3, dtype=torch.int64))
    exported = torch.export.export(encoder, example, dynamic_shapes=(dynamic, dynamic, dynamic))
    for rows, tokens in ((1, 20), (5, 7)):
        input_ids = torch.randint(4, 32, (rows, tokens))
        inputs = (input_ids, torch.ones_like(input_ids), torch.zeros_like(input_ids))
        torch.testing.assert_close(exported.module()(*inputs)[-1], encoder(*inputs)[-1])


def test_a_config_survives_its_dictionary(config: EncoderConfig) -> None:
    assert EncoderConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [
        ("activation", "swiglu", "one of gelu, gelu_tanh, relu, silu"),
        ("num_heads", 3, "a divisor of hidden_size 16"),
        ("num_layers", 0, "at least 1"),
        ("num_layers", 10**9, "at most 1024"),
        ("hidden_size", 10**12, "at most 100000000"),
        ("dropout", 1.0, "from 0 to 0.9"),
    ],
)
def test_a_wrong_size_names_the_field_the_value_and_the_limit(
    config: EncoderConfig, field: str, value: object, limit: str
) -> None:
    with pytest.raises(SettingError) as caught:
        EncoderConfig.from_dict({**config.to_dict(), field: value})
    assert str(caught.value) == f"{field} is {value!r}, but must be {limit}"


def test_unknown_and_missing_fields_are_named(config: EncoderConfig) -> None:
    values = config.to_dict()
    with pytest.raises(SettingError, match=r"encoder\.rotary"):
        EncoderConfig.from_dict({**values, "rotary": True})
    del values["num_layers"]
    with pytest.raises(SettingError, match=r"encoder\.num_layers"):
        EncoderConfig.from_dict(values)
