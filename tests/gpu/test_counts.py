"""Operations and bytes of models, by hand and by PyTorch's own counting."""

from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from loadtests.compare.devices.counts import cache_bytes, encoder_flops, matrix_weights, step_bytes
from loadtests.compare.devices.shapes import SHAPES, config_of
from models.networks.encoder import Encoder, EncoderConfig
from models.networks.gpt import GPTConfig
from models.networks.heads import ClassificationHead, SequenceClassifier
from models.networks.llama import LlamaConfig

LLAMA_1B = LlamaConfig.plain(128_256, 2_048, 16, 32, 8, 8_192, 131_072)


def test_bert_base_has_85_million_weights_in_its_layers() -> None:
    """4 x 768 x 768 of attention and 2 x 768 x 3,072 behind it, 12 times."""
    assert matrix_weights(EncoderConfig.base()) == 84_934_656


def test_a_gated_decoder_with_shared_heads_has_the_weights_of_its_matrices() -> None:
    """Llama-3.2-1B is published with 1,235,814,400 weights, 67,584 of them in norms."""
    num_weights = matrix_weights(LLAMA_1B) + LLAMA_1B.vocab_size * LLAMA_1B.hidden_size
    assert num_weights == 1_235_814_400 - 67_584


def test_eight_rows_of_128_through_bert_base_take_179_billion_operations() -> None:
    """2 per weight and token, and 4 x 768 x 128 x 128 per row and layer."""
    flops = encoder_flops(EncoderConfig.base(), [128] * 8)
    assert flops == 2 * 84_934_656 * 1_024 + 12 * 4 * 768 * 8 * 128 * 128


@pytest.mark.parametrize("num_tokens", [3, 8])
def test_operations_are_those_that_pytorch_counts(num_tokens: int) -> None:
    config = EncoderConfig(512, 32, 2, 4, 64, 128)
    network = SequenceClassifier(Encoder(config), ClassificationHead(config.hidden_size, 2))
    counter = FlopCounterMode(display=False)
    with counter, sdpa_kernel(SDPBackend.MATH), torch.inference_mode():
        ids = torch.ones(2, num_tokens, dtype=torch.int64)
        network(ids, ids, 0 * ids)
    head = 2 * 2 * (config.hidden_size * config.hidden_size + config.hidden_size * 2)
    expected = encoder_flops(config, [num_tokens] * 2) + head
    assert counter.get_total_flops() == expected


def test_a_step_reads_all_weights_once_and_the_cache_of_each_row() -> None:
    """GPT-2 in fp16 behind 100 tokens, 32 rows: 12 layers x 2 x 768 numbers per token."""
    weights = 12 * (4 * 768 * 768 + 2 * 768 * 3_072) + 50_257 * 768
    cached = 32 * 101 * 12 * 2 * 768
    written = 32 * 12 * 2 * 768
    logits = 32 * 50_257 * 4
    assert step_bytes(GPTConfig.small(), 32, 100, 2) == 2 * (weights + cached + written) + logits


def test_shared_heads_take_less_cache() -> None:
    """8 of 32 heads have keys and values: a quarter."""
    own = replace(LLAMA_1B, num_kv_heads=32)
    assert cache_bytes(own, 2, 10, 2) == 4 * cache_bytes(LLAMA_1B, 2, 10, 2)
    assert cache_bytes(LLAMA_1B, 2, 10, 2) == 2 * 10 * 2 * 16 * 8 * 64 * 2


def test_shapes_have_the_sizes_of_our_networks() -> None:
    """config.json's fields, as the import reads them."""
    assert config_of("bert-base") == EncoderConfig.base()
    assert config_of("bert-large") == EncoderConfig.large()
    assert config_of("gpt2") == replace(GPTConfig.small(), eos_token_id=0)
    assert config_of("gpt2-xl") == replace(GPTConfig.xl(), eos_token_id=0)
    one_b = config_of("llama-1b")
    assert matrix_weights(one_b) == matrix_weights(LLAMA_1B)
    assert one_b.head_size == LLAMA_1B.head_size == 64
    assert {config_of(shape).max_positions >= 128 for shape in SHAPES} == {True}
