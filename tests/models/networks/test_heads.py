"""Pooling, the layer strategies and the classification head."""

import pytest
import torch
from torch import Tensor

from models.errors import SettingError
from models.networks.encoder import Encoder, EncoderConfig
from models.networks.heads import LAYERS, ClassificationHead, SequenceClassifier, TextEmbedder

STATES = tuple(torch.full((1, 1, 2), float(2**layer)) for layer in range(6))  # 1, 2, 4 .. 32


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("first", [1.0, 1.0]),
        ("last", [32.0, 32.0]),
        ("second_to_last", [16.0, 16.0]),
        ("sum_last_four", [60.0, 60.0]),
        ("concat_last_four", [4.0, 4.0, 8.0, 8.0, 16.0, 16.0, 32.0, 32.0]),
        ("sum_all", [62.0, 62.0]),
    ],
)
def test_layer_strategies_take_the_layers_they_name(layers: str, expected: list[float]) -> None:
    """Five layers of value 2, 4, 8, 16, 32 on embeddings of value 1."""
    assert LAYERS[layers](STATES)[0, 0].tolist() == expected


@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_an_embedding_is_the_same_alone_and_padded(
    config: EncoderConfig, pooling: str, layers: str
) -> None:
    torch.manual_seed(0)
    embedder = TextEmbedder(Encoder(config), pooling, layers, normalize=True).eval()
    input_ids = torch.randint(4, 32, (3, 8))
    mask = torch.tensor([[1] * 8, [1] * 3 + [0] * 5, [0] * 8])

    embedding: Tensor = embedder(input_ids, mask)

    assert embedding.shape == (3, embedder.embedding_size)
    assert embedding.isfinite().all()  # the row of padding too
    torch.testing.assert_close(embedding[:2].norm(dim=-1), torch.ones(2))
    alone = embedder(input_ids[1:2, :3], mask[1:2, :3])
    torch.testing.assert_close(embedding[1:2], alone, atol=1e-6, rtol=0)


def test_a_classifier_gives_one_logit_per_label(config: EncoderConfig) -> None:
    model = SequenceClassifier(Encoder(config), ClassificationHead(16, 3, "relu")).eval()
    input_ids = torch.randint(4, 32, (2, 5))
    assert model(input_ids, torch.ones_like(input_ids)).shape == (2, 3)


def test_a_wrong_choice_names_the_field_the_value_and_the_choices(config: EncoderConfig) -> None:
    encoder = Encoder(config)
    with pytest.raises(SettingError, match="pooling is 'median', but must be one of mean, cls"):
        TextEmbedder(encoder, pooling="median")
    with pytest.raises(SettingError, match="layers is 'middle', but must be one of first, last"):
        TextEmbedder(encoder, layers="middle")
    with pytest.raises(SettingError, match="activation is 'mish', but must be one of tanh, gelu"):
        ClassificationHead(16, 2, activation="mish")


def test_four_layers_cannot_be_taken_from_three(config: EncoderConfig) -> None:
    encoder = Encoder(EncoderConfig.from_dict({**config.to_dict(), "num_layers": 3}))
    with pytest.raises(SettingError, match="only 3 layers"):
        TextEmbedder(encoder, layers="sum_last_four")
