"""Perplexity is what its definition gives, from the network and from the graph."""

import math

import numpy as np
import onnx
import pytest
import torch
from torch.nn import functional as F

from export.checks.perplexity import (
    MAX_WINDOWS,
    WINDOW_TOKENS,
    graph_perplexity,
    network_perplexity,
    windows_of,
)
from export.errors import ExportError
from tests.fakes.tiny_gpt import (
    MAX_TOKENS,
    VOCAB_SIZE,
    liked_text,
    random_prompts,
    tiny_generator,
    tiny_gpt,
    tiny_graph,
)


@pytest.fixture(scope="module")
def liked() -> np.ndarray:
    """4 windows of 96 tokens that the network expects more or less."""
    ids = tiny_generator().tokenizer.encode(liked_text(tiny_gpt(), 4)).ids
    return windows_of(ids, MAX_TOKENS)


@pytest.mark.parametrize(
    ("num_tokens", "max_tokens", "num_windows", "size"),
    [
        (96, 96, 1, 96),
        (191, 96, 1, 96),
        (192, 96, 2, 96),
        (1_000, 96, 10, 96),
        (256, 1_024, 1, 256),
        (4_095, 1_024, 15, 256),
        (4_096, 1_024, 16, 256),
        (1_000_000, 1_024, 16, 256),
        (1_000_000, 2, 16, 2),
    ],
)
def test_windows_are_spread_over_the_text_and_bounded(
    num_tokens: int, max_tokens: int, num_windows: int, size: int
) -> None:
    """At most 16 of at most 256 tokens, which do not overlap, from the first token to the last."""
    windows = windows_of(range(num_tokens), max_tokens)
    assert windows.shape == (num_windows, size)
    assert num_windows <= MAX_WINDOWS
    assert size <= WINDOW_TOKENS
    assert (np.diff(windows, axis=1) == 1).all()
    assert windows[0, 0] == 0
    if num_windows > 1:
        gaps = np.diff(windows[:, 0])
        assert gaps.min() >= size
        assert np.ptp(gaps) <= 1, "evenly"
        assert windows[-1, -1] == num_tokens - 1


@pytest.mark.parametrize(
    ("num_tokens", "max_tokens", "size"), [(0, 96, 96), (95, 96, 96), (255, 1_024, 256)]
)
def test_text_shorter_than_a_window_is_refused_with_both_numbers(
    num_tokens: int, max_tokens: int, size: int
) -> None:
    expected = f"the held-out text has {num_tokens} tokens, expected at least {size}"
    with pytest.raises(ExportError, match=expected):
        windows_of(range(num_tokens), max_tokens)


def test_each_window_begins_as_a_text_does() -> None:
    """With the tokens that a tokenizer puts first, which count as the window's."""
    windows = windows_of(range(1_000), 96, first=(7, 8))
    assert windows.shape == (1_000 // 94, 96)
    assert (windows[:, :2] == (7, 8)).all()
    assert windows[-1, -1] == 999


def test_perplexity_is_that_of_pytorch_s_cross_entropy(liked: np.ndarray) -> None:
    """The exponent of the mean over 4 * 95 predictions, none of a first token."""
    ids = torch.from_numpy(liked)
    with torch.inference_mode():
        logits = tiny_gpt()(ids[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, VOCAB_SIZE), ids[:, 1:].reshape(-1))
    assert network_perplexity(tiny_gpt(), liked) == pytest.approx(math.exp(loss), rel=1e-5)


def test_network_that_knows_nothing_is_as_good_as_a_die() -> None:
    """Logits of 0 for each of 257 tokens: perplexity 257."""
    network = tiny_gpt(num_layers=1)
    torch.nn.init.zeros_(network.words.weight)
    windows = windows_of(random_prompts((200,))[0], MAX_TOKENS)
    assert network_perplexity(network, windows) == pytest.approx(VOCAB_SIZE, rel=1e-9)


def test_decoded_graph_is_as_surprised_as_the_network(liked: np.ndarray) -> None:
    """Token by token, 4 rows at once; within 1e-5 of PyTorch's in one pass."""
    steps: list[int] = []
    found = graph_perplexity(tiny_graph(), liked, steps.append)
    assert found == pytest.approx(network_perplexity(tiny_gpt(), liked), rel=1e-5)
    assert steps == list(range(1, MAX_TOKENS)), "each predicted place is told of"


def test_fewer_bits_cost_more(liked: np.ndarray) -> None:
    """On text it likes, within 1 % of 23.8 with 8 bits; 16 % more with 4."""

    def rise(graph: onnx.ModelProto) -> float:
        return graph_perplexity(graph, liked) / network_perplexity(tiny_gpt(), liked) - 1

    assert abs(rise(tiny_graph("fp16"))) < 1e-3
    assert abs(rise(tiny_graph("int8-weights"))) < 0.01
    assert abs(rise(tiny_graph("int8"))) < 0.01
    assert 0.05 < rise(tiny_graph("int4-weights")) < 0.3
