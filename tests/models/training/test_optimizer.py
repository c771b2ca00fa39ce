"""The learning rate's shape, what decays, and when bfloat16 is used."""

from typing import Any

import pytest
import torch

from models.checkpoints.checkpoint import Checkpoint
from models.errors import SettingError
from models.training.optimizer import (
    build_optimizer,
    cosine_rate_at,
    learning_rate_at,
    uses_bfloat16,
)
from models.training.pretrain_settings import PretrainSettings
from models.training.settings import TrainingSettings


def test_the_rate_rises_over_the_warm_up_and_falls_to_zero_after_the_last_step() -> None:
    """20 steps, a tenth of them warm-up: 2 up, then 18 down from 1."""
    settings = TrainingSettings(learning_rate=1.0, warmup_fraction=0.1)
    rates = [learning_rate_at(step, 20, settings) for step in range(20)]
    assert rates[:4] == [0.5, 1.0, 1.0, 17 / 18]
    assert rates[-1] == pytest.approx(1 / 18)
    assert all(rate > 0 for rate in rates)


@pytest.mark.parametrize("warmup_fraction", [0.0, 1.0])
def test_no_warm_up_and_nothing_but_warm_up_are_possible(warmup_fraction: float) -> None:
    settings = TrainingSettings(learning_rate=1.0, warmup_fraction=warmup_fraction)
    rates = [learning_rate_at(step, 4, settings) for step in range(4)]
    assert rates == ([0.25, 0.5, 0.75, 1.0] if warmup_fraction else [1.0, 0.75, 0.5, 0.25])


def test_a_cosine_falls_from_the_highest_rate_to_the_floor_at_the_last_step() -> None:
    """14 steps: 2 up, then 12 from 1 to 0.1; half-way (step 2 + 11 / 2) it would be 0.55."""
    settings = PretrainSettings(learning_rate=1.0, warmup_fraction=0.1, floor_fraction=0.1)
    rates = [cosine_rate_at(step, 14, settings) for step in range(14)]
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert rates[-1] == pytest.approx(0.1)
    assert (rates[7] + rates[8]) / 2 == pytest.approx(0.55)
    assert rates[2:] == sorted(rates[2:], reverse=True)
    # A quarter of the way, 2.75 of 11 steps: 0.1 + 0.9 * (1 + cos(pi / 4)) / 2 = 0.868.
    assert rates[5] < 0.868 < rates[4]


def test_a_cosine_of_one_step_and_one_of_warm_up_alone_are_possible() -> None:
    settings = PretrainSettings(learning_rate=1.0, warmup_fraction=0.0)
    assert cosine_rate_at(0, 1, settings) == 1.0
    rising = PretrainSettings(learning_rate=1.0, warmup_fraction=1.0)
    assert [cosine_rate_at(step, 4, rising) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]


def test_biases_and_norms_do_not_decay(classifier_checkpoint: Checkpoint) -> None:
    model = classifier_checkpoint.model
    settings = TrainingSettings(learning_rate=1e-3, weight_decay=0.3)
    decaying, others = build_optimizer(model, settings).param_groups
    vectors = {id(p) for name, p in model.named_parameters() if "bias" in name or "norm" in name}
    assert {id(parameter) for parameter in others["params"]} == vectors
    assert (decaying["weight_decay"], others["weight_decay"]) == (0.3, 0.0)
    assert len(decaying["params"]) + len(vectors) == len(list(model.parameters()))


def test_auto_precision_asks_the_processor_and_on_and_off_do_not() -> None:
    flags = torch.cpu.get_capabilities()
    native = bool(flags.get("avx512_bf16") or flags.get("amx_bf16"))
    assert uses_bfloat16("auto") is native
    assert uses_bfloat16("on") is True
    assert uses_bfloat16("off") is False


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [
        ("epochs", 0, "from 1 to 1000"),
        ("batch_size", 0, "from 1 to 4096"),
        ("learning_rate", 0.0, "from 1e-08 to 1"),
        ("warmup_fraction", 1.1, "from 0 to 1"),
        ("validation_fraction", 0.6, "from 0.01 to 0.5"),
        ("test_fraction", -0.1, "from 0 to 0.5"),
        ("patience", 0, "from 1 to 1000"),
        ("max_tokens", 2, "from 3 to 1e+06"),
        ("precision", "half", "one of auto, on, off"),
        ("weight_decay", 2.0, "from 0 to 1"),
        ("clip_norm", 0.0, "from 0.001 to 1000"),
        ("seed", -1, "from 0 to"),
    ],
)
def test_a_setting_outside_its_limits_names_field_value_and_limit(
    field: str, value: object, limit: str
) -> None:
    values: dict[str, Any] = {field: value}
    with pytest.raises(SettingError) as caught:
        TrainingSettings(**values)
    assert str(caught.value).startswith(f"{field} is {value!r}, but must be {limit}")
