"""The Transformer against the paper's formulas, and against what it must not depend on."""

import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models.errors import SettingError, TrainingInterruptedError
from models.networks.transformer import Transformer, TransformerConfig
from models.recipes.seq2seq import target_loss, train
from models.recipes.seq2seq_settings import Seq2SeqSettings
from models.recipes.seq2seq_systems import NETWORKS, TASKS, prepare
from models.recipes.transformer import TRAINING, build, rate_at, tokenizer_of
from models.training.state import read_state
from models.training.trainer import Session

TINY = TransformerConfig(
    vocab_size=20,
    hidden_size=16,
    num_layers=3,
    num_heads=2,
    intermediate_size=24,
    max_positions=12,
)
SETTINGS = Seq2SeqSettings(network="transformer", learning_rate=2e-3, warmup_fraction=0.04)


@pytest.fixture
def network() -> Transformer:
    torch.manual_seed(0)
    return Transformer(TINY).eval()


def rows(*shape: int, seed: int = 1) -> Tensor:
    """Ids that mean nothing special: 3 to 19."""
    return torch.randint(3, 20, shape, generator=torch.Generator().manual_seed(seed))


def logits_of(network: Transformer, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
    with torch.inference_mode():
        logits: Tensor = network(source, mask, target)
    return logits


# --- sizes ----------------------------------------------------------------------------------------


def test_published_sizes_are_the_paper_s_base_model() -> None:
    """Table 3: 65 million weights with the paper's 37,000 tokens; 63.1 with one table of them.

    A layer has 4 maps of 512 x 512 and 2 of 512 x 2048, with biases, and norms; a decoder's layer 4
    maps and a norm more. Positions are not learnt.
    """
    config = TransformerConfig.published()
    assert (config.num_layers, config.hidden_size, config.num_heads) == (6, 512, 8)
    assert (config.intermediate_size, config.activation, config.dropout) == (2_048, "relu", 0.1)
    with torch.device("meta"):
        network = Transformer(config)
    attention, norm = 4 * (512 * 512 + 512), 2 * 512
    feed_forward = 2 * 512 * 2_048 + 2_048 + 512
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    wanted = 37_000 * 512 + 6 * (encoder + decoder)
    assert sum(p.numel() for p in network.parameters()) == wanted == 63_082_496


def test_one_table_of_vectors_is_source_target_and_output(network: Transformer) -> None:
    """Section 3.4: changing the vector of token 7 changes what is read and token 7's logits."""
    names = [name for name, weight in network.named_parameters() if 20 in weight.shape]
    assert names == ["words.weight"]
    source, target = rows(1, 5), rows(1, 4)
    hidden = network.decode(target, network.encode(source, source), source)
    assert torch.equal(network.logits(hidden), hidden @ network.words.weight.T)


def test_embeddings_are_vectors_times_the_root_of_their_size_plus_sinusoids(
    network: Transformer,
) -> None:
    """sqrt(16) = 4; position 3, values 4 and 5: sin and cos of 3 / 10000^(4/16)."""
    ids = rows(1, 5)
    added = network.embed(ids)[0] - 4.0 * network.words.weight[ids[0]]
    angle = 3 / 10_000 ** (4 / 16)
    torch.testing.assert_close(
        added[3, 4:6], torch.tensor([math.sin(angle), math.cos(angle)]), atol=1e-6, rtol=0
    )
    torch.testing.assert_close(added[0], torch.tensor([0.0, 1.0] * 8), atol=1e-6, rtol=0)
    at_three = network.embed_target(ids[:, :1], torch.tensor([[3]]))[0, 0]
    torch.testing.assert_close(at_three - 4.0 * network.words.weight[ids[0, 0]], added[3])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_heads", 3),
        ("hidden_size", 0),
        ("max_positions", 0),
        ("activation", "tanh"),
        ("dropout", 0.95),
        ("pad_token_id", -1),
        ("start_token_id", 20),
        ("end_token_id", 20),
    ],
)
def test_a_size_outside_its_limits_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(SettingError, match=field):
        replace(TINY, **{field: value})  # type: ignore[arg-type]


def test_sizes_come_back_from_their_dictionary_and_nothing_else_does() -> None:
    assert TransformerConfig.from_dict(TINY.to_dict()) == TINY
    with pytest.raises(SettingError, match=r"transformer\.heads"):
        TransformerConfig.from_dict({**TINY.to_dict(), "heads": 2})


# --- what an output depends on --------------------------------------------------------------------


def test_a_later_target_token_changes_no_earlier_logit(network: Transformer) -> None:
    source, target = rows(2, 6), rows(2, 8, seed=2)
    mask = torch.ones_like(source)
    before = logits_of(network, source, mask, target)
    changed = target.clone()
    changed[:, 5] = (target[:, 5] - 2) % 17 + 3
    after = logits_of(network, source, mask, changed)
    assert before.shape == (2, 8, 20)
    assert torch.equal(before[:, :5], after[:, :5])
    assert (before[:, 5:] != after[:, 5:]).any(dim=-1).all()


def test_every_source_token_reaches_the_first_logit(network: Transformer) -> None:
    source, start = rows(1, 6), torch.tensor([[TINY.start_token_id]])
    mask = torch.ones_like(source)
    plain = logits_of(network, source, mask, start)
    for place in range(6):
        other = source.clone()
        other[0, place] = (source[0, place] - 2) % 17 + 3
        assert not torch.equal(plain, logits_of(network, other, mask, start)), place


def test_padding_of_the_source_changes_nothing(network: Transformer) -> None:
    """4 tokens alone, and beside 9 others: whatever ids stand in the padding."""
    source, target = rows(1, 4), rows(2, 5, seed=3)
    alone = logits_of(network, source, torch.ones_like(source), target[:1])
    padded = rows(2, 9, seed=4)
    padded[0, :4] = source[0]
    mask = torch.ones_like(padded)
    mask[0, 4:] = 0
    beside = logits_of(network, padded, mask, target)[:1]
    torch.testing.assert_close(alone, beside, atol=1e-5, rtol=0)


def test_greedy_takes_the_likeliest_token_of_a_whole_pass(network: Transformer) -> None:
    """Ragged rows, together: each token is the argmax after those before it, padding after the end.

    Row 0 is made to end at its third token, by calling that token the end.
    """
    source = rows(3, 7)
    mask = torch.ones_like(source)
    mask[1, 4:], mask[2, 1:] = 0, 0
    free, weights = Transformer.greedy(network, source, mask, 10)
    assert weights is None
    end = int(free[0, 2])
    network.config = replace(TINY, end_token_id=end)
    said, _ = network.greedy(source, mask, 10)
    for row in range(3):
        tokens = said[row].tolist()
        ended = tokens.index(end) + 1 if end in tokens else len(tokens)
        before = torch.tensor([[TINY.start_token_id, *tokens[: ended - 1]]])
        alone = source[row : row + 1, : int(mask[row].sum())]
        wanted = logits_of(network, alone, torch.ones_like(alone), before)[0].argmax(dim=-1)
        assert tokens[:ended] == wanted.tolist()
        assert set(tokens[ended:]) <= {TINY.pad_token_id}
    assert said[0].tolist().index(end) == free[0].tolist().index(end)


# --- training as published ------------------------------------------------------------------------


def test_rate_is_the_paper_s_formula() -> None:
    """D^-0.5 * min(n^-0.5, n * w^-1.5) with D 512 and w 4,000 of 100,000, which peaks at 7e-4."""
    settings = replace(SETTINGS, learning_rate=512**-0.5 * 4_000**-0.5)
    assert settings.learning_rate == pytest.approx(7e-4, rel=0.01)
    for step in (1, 100, 3_999, 4_000, 4_001, 16_000, 100_000):
        wanted = 512**-0.5 * min(step**-0.5, step * 4_000**-1.5)
        assert rate_at(step - 1, 100_000, settings) == pytest.approx(wanted)


def test_the_published_size_has_the_published_schedule_whatever_the_task() -> None:
    """Its rates are the formula's at steps 1 to 100,000, its dropout 0.1; small has the task's."""
    for task in TASKS:
        given = Seq2SeqSettings(network="transformer", size="published", samples=8, test_samples=2)
        settings = prepare(task, given)[1]
        assert (settings.hidden_size, settings.dropout, settings.weight_decay) == (512, 0.1, 0.0)
        for step in (1, 100, 3_999, 4_000, 4_001, 16_000, 100_000):
            formula = 512**-0.5 * min(step**-0.5, step * 4_000**-1.5)
            assert rate_at(step - 1, 100_000, settings) == pytest.approx(formula)
        assert rate_at(3_999, 100_000, settings) == pytest.approx(6.9877e-4, rel=1e-4)
        small = prepare(task, replace(given, size="small"))[1]
        assert (small.learning_rate, small.warmup_steps) == (2e-3, None)
    assert TransformerConfig.published().hidden_size == 512


@pytest.mark.parametrize(
    ("given", "at_2", "at_8"),
    [
        ({}, 2 * 16**-0.5 * 4_000**-1.5, 8 * 16**-0.5 * 4_000**-1.5),
        ({"warmup_steps": 4}, 2 * 16**-0.5 * 4**-1.5, 16**-0.5 * 8**-0.5),
        ({"learning_rate": 1e-3, "warmup_steps": 4}, 5e-4, 1e-3 * math.sqrt(4 / 8)),
        ({"learning_rate": 1e-3, "warmup_fraction": 1.0}, 2.5e-4, 1e-3),
    ],
)
def test_the_published_schedule_reaches_adam(
    given: dict[str, float], at_2: float, at_8: float, tmp_path: Path
) -> None:
    """16 values per token, 8 steps: rates at steps 2 and 8; epsilon 1e-9, betas 0.9 and 0.98."""
    settings = Seq2SeqSettings(
        network="transformer",
        size="published",
        hidden_size=16,
        num_layers=1,
        num_heads=1,
        samples=8,
        test_samples=2,
        batch_size=1,
        epochs=1,
        **given,  # type: ignore[arg-type]
    )
    pairs, completed = prepare("dates", settings)
    state_file, answers = tmp_path / "run.resume.pt", iter([False, True])
    session = Session(state_file, should_stop=lambda: next(answers))
    with pytest.raises(TrainingInterruptedError, match="after step 2"):
        train(pairs, TRAINING, completed, session)
    first = _adam_of(state_file)
    train(pairs, TRAINING, completed, Session(state_file))
    last = _adam_of(state_file)
    assert (first["lr"], last["lr"]) == (pytest.approx(at_2), pytest.approx(at_8))
    assert (last["eps"], last["betas"], last["weight_decay"]) == (1e-9, (0.9, 0.98), 0.0)


def _adam_of(state_file: Path) -> dict[str, Any]:
    group: dict[str, Any] = read_state(state_file)["optimizer"]["param_groups"][0]
    return group


def test_help_says_the_published_schedule() -> None:
    texts = {field.name: field.metadata["help"] for field in fields(Seq2SeqSettings)}
    assert "dropout of 0.1" in texts["size"]
    assert "rises for 4,000 steps to 7e-4" in texts["size"]


def test_a_warm_up_is_either_steps_or_a_share() -> None:
    with pytest.raises(SettingError, match="warmup_steps is 100, but must be left out, since"):
        replace(SETTINGS, warmup_steps=100)


@pytest.mark.parametrize("total_steps", [1, 2, 7])
def test_no_step_has_a_rate_of_zero(total_steps: int) -> None:
    for fraction in (0.0, 0.2, 1.0):
        settings = replace(SETTINGS, warmup_fraction=fraction)
        rates = [rate_at(step, total_steps, settings) for step in range(total_steps)]
        assert all(0.0 < rate <= settings.learning_rate for rate in rates)


def test_smoothed_loss_is_that_of_a_target_spread_over_the_vocabulary() -> None:
    """Of 4 tokens with a smoothing of 0.1 the right one is 0.925 and each other 0.025.

    Probabilities 1/2, 1/4, 1/8, 1/8: -(0.925 ln 1/2 + 0.025 (ln 1/4 + ln 1/8 + ln 1/8)).
    """
    logits = torch.tensor([[[4.0, 2.0, 1.0, 1.0], [9.0, 0.0, 0.0, 0.0]]]).log()
    target = torch.tensor([[0, 3]])  # 3 is padding: its place counts nothing
    wanted = 0.925 * math.log(2) + 0.025 * (math.log(4) + 2 * math.log(8))
    assert float(target_loss(logits, target, 3, smoothing=0.1)) == pytest.approx(wanted)
    assert float(target_loss(logits, target, 3)) == pytest.approx(math.log(2))
    assert TRAINING.label_smoothing == 0.1
    assert TRAINING.betas == (0.9, 0.98)


def test_a_size_is_built_with_what_the_settings_give_in_its_place() -> None:
    pairs, _ = prepare("dates", replace(SETTINGS, samples=200, test_samples=10))
    tokenizer = tokenizer_of(pairs.train, SETTINGS)
    plain = build(SETTINGS, tokenizer, 17).config
    assert plain == replace(TransformerConfig.small(), vocab_size=tokenizer.get_vocab_size())
    given = replace(SETTINGS, hidden_size=32, num_layers=1, num_heads=2, dropout=0.0)
    config = build(given, tokenizer, 90).config
    assert (config.hidden_size, config.num_layers, config.num_heads) == (32, 1, 2)
    assert (config.intermediate_size, config.dropout, config.max_positions) == (64, 0.0, 90)


def test_a_few_dates_are_learnt_by_heart_in_seconds() -> None:
    """12 pairs, 200 steps: all 10 characters of each, and its end, by the network's own words."""
    settings = Seq2SeqSettings(
        network="transformer",
        hidden_size=32,
        num_layers=1,
        num_heads=2,
        dropout=0.0,
        samples=12,
        test_samples=4,
        epochs=200,
        batch_size=12,
        learning_rate=5e-3,
        warmup_fraction=0.2,
        seed=1,
    )
    pairs, completed = prepare("dates", settings)
    result = train(pairs, NETWORKS["transformer"].load(), completed)
    assert result.train.exact == result.train.symbols == 1.0
    assert result.progress.step_losses[0] > 3.0 > 1.0 > result.progress.step_losses[-1]
