"""The loss of a language model, against worked numbers."""

import math

import pytest
import torch

from models.checkpoints.checkpoint import Checkpoint
from models.networks.gpt import GPT
from models.recipes.gpt import HeldOut, mean_loss, next_token_loss


@pytest.fixture
def gpt(gpt_checkpoint: Checkpoint) -> GPT:
    assert isinstance(gpt_checkpoint.model, GPT)
    return gpt_checkpoint.model


def test_a_model_that_knows_nothing_has_the_perplexity_of_its_vocabulary(gpt: GPT) -> None:
    """All logits zero: every one of 32 tokens has probability 1 / 32."""
    with torch.no_grad():
        gpt.words.weight.zero_()
    loss = mean_loss(gpt, HeldOut(torch.arange(30), 60), max_windows=9)
    assert math.exp(loss) == pytest.approx(32.0, rel=1e-5)


def test_perplexity_equals_a_computation_token_by_token(gpt: GPT) -> None:
    """45 targets in windows of 20, 20 and 5: the mean is over tokens, not over windows."""
    stream = torch.randint(0, 32, (46,), generator=torch.Generator().manual_seed(1))
    losses = []
    with torch.inference_mode():
        for place in range(1, 46):
            start = (place - 1) // 20 * 20
            logits = gpt(stream[None, start:place])[0, -1]
            losses.append(-float(logits.log_softmax(dim=-1)[stream[place]]))
    found = mean_loss(gpt, HeldOut(stream, 100), max_windows=9)
    assert found == pytest.approx(sum(losses) / 45, abs=1e-5)


def test_a_loss_of_ln_4_with_a_token_of_two_bytes_is_one_bit_per_byte() -> None:
    assert HeldOut(torch.zeros(50), 100).bits_per_byte(math.log(4.0)) == pytest.approx(1.0)


def test_measuring_leaves_the_model_in_its_mode_and_uses_no_dropout(gpt: GPT) -> None:
    held_out = HeldOut(torch.arange(30), 60)
    assert mean_loss(gpt.train(), held_out, 9) == mean_loss(gpt.train(), held_out, 9)
    assert gpt.training


def test_the_loss_of_a_batch_is_the_mean_of_its_rows(gpt: GPT) -> None:
    windows = torch.randint(0, 32, (4, 21))
    rows = [next_token_loss(gpt, windows[i : i + 1]).item() for i in range(4)]
    assert next_token_loss(gpt, windows).item() == pytest.approx(sum(rows) / 4, abs=1e-5)
