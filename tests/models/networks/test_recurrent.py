"""The recurrent network: its three scores, its padding, and decoding step by step."""

import pytest
import torch
from torch import Tensor

from models.errors import SettingError
from models.networks.recurrent import (
    ATTENTIONS,
    SCORES,
    AdditiveScore,
    DotScore,
    MultiplicativeScore,
    RecurrentConfig,
    RecurrentSeq2Seq,
)

SIZE, STEPS = 6, 5
SOURCE = torch.tensor([[4, 5, 6, 7, 8], [9, 4, 4, 0, 0], [7, 0, 0, 0, 0]])  # 5, 3 and 1 tokens


KINDS = [*((attention, "luong") for attention in ATTENTIONS), *((s, "bahdanau") for s in SCORES)]


def build(attention: str, form: str = "luong") -> RecurrentSeq2Seq:
    torch.manual_seed(3)
    config = RecurrentConfig(12, SIZE, attention, max_positions=8, form=form)
    return RecurrentSeq2Seq(config).eval()


def mask_of(source: Tensor) -> Tensor:
    return (source != 0).long()


@pytest.fixture
def states() -> tuple[Tensor, Tensor]:
    """Of a decoder [2, 3, 6] and of an encoder [2, 4, 6]."""
    torch.manual_seed(4)
    return torch.randn(2, 3, SIZE), torch.randn(2, 4, SIZE)


def by_hand(queries: Tensor, keys: Tensor, score: object) -> Tensor:
    """One pair of states after the other."""
    assert callable(score)
    rows, targets, sources = len(queries), queries.shape[1], keys.shape[1]
    return torch.tensor(
        [
            [
                [score(queries[b, t], keys[b, s]).item() for s in range(sources)]
                for t in range(targets)
            ]
            for b in range(rows)
        ]
    )


def test_dot_is_the_product_of_the_states(states: tuple[Tensor, Tensor]) -> None:
    """`h_t . h_s`."""
    torch.testing.assert_close(DotScore()(*states), by_hand(*states, torch.dot))


def test_multiplicative_has_a_matrix_between(states: tuple[Tensor, Tensor]) -> None:
    """`h_t^T W_a h_s`."""
    score = MultiplicativeScore(SIZE)
    expected = by_hand(*states, lambda h_t, h_s: h_t @ score.key.weight @ h_s)
    torch.testing.assert_close(score(*states).detach(), expected)


def test_additive_is_a_layer_over_both_states(states: tuple[Tensor, Tensor]) -> None:
    """`v_a^T tanh(W_a [h_t; h_s])`."""
    score = AdditiveScore(SIZE)
    matrix = torch.cat((score.query.weight, score.key.weight), dim=1)  # W_a [6, 12]
    expected = by_hand(
        *states,
        lambda h_t, h_s: score.value.weight[0] @ torch.tanh(matrix @ torch.cat((h_t, h_s))),
    )
    torch.testing.assert_close(score(*states).detach(), expected)


@pytest.mark.parametrize(("attention", "form"), KINDS[1:])
def test_weights_sum_to_one_and_never_look_at_padding(attention: str, form: str) -> None:
    network, mask = build(attention, form), mask_of(SOURCE)
    memory, state = network.encode(SOURCE, mask)
    weights = network.decode(torch.tensor([[1, 5], [1, 6], [1, 7]]), memory, mask, state).weights
    assert weights is not None
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(3, 2))
    assert not weights.masked_select(mask[:, None] == 0).any()
    assert (weights.masked_select(mask[:, None] != 0) > 0).all()


@pytest.mark.parametrize(("attention", "form"), KINDS)
def test_a_row_among_others_equals_the_row_alone(attention: str, form: str) -> None:
    network = build(attention, form)
    tokens, weights = network.greedy(SOURCE, mask_of(SOURCE), STEPS)
    for row, length in enumerate((5, 3, 1)):
        alone = SOURCE[row : row + 1, :length]
        expected, looked = network.greedy(alone, mask_of(alone), STEPS)
        assert tokens[row].tolist() == expected[0].tolist()
        if weights is not None and looked is not None:
            torch.testing.assert_close(weights[row, :, :length], looked[0])


@pytest.mark.parametrize(("attention", "form"), KINDS)
def test_step_by_step_equals_all_at_once(attention: str, form: str) -> None:
    """Given what it said itself, the decoder's likeliest tokens are those that it said."""
    network, mask = build(attention, form), mask_of(SOURCE)
    said, weights = network.greedy(SOURCE, mask, STEPS)
    before = torch.cat((torch.full((3, 1), 1), said[:, :-1]), dim=1)
    memory, state = network.encode(SOURCE, mask)
    at_once = network.decode(before, memory, mask, state)
    is_open = said != 0
    assert (at_once.logits.argmax(dim=-1) == said)[is_open].all()
    if weights is not None and at_once.weights is not None:
        torch.testing.assert_close(weights[is_open], at_once.weights[is_open])
    torch.testing.assert_close(network(SOURCE, mask, before), at_once.logits)


def test_bahdanaus_context_goes_into_the_cell_and_the_state_before_asks() -> None:
    """One step by hand, of a row of 5 tokens: `s_i = f(s_{i-1}, y_{i-1}, c_i)`, appendix A.1.2.

    The decoder starts from tanh(W_s h) of the encoder's backward state at the first token, and the
    context is weighed by v_a^T tanh(W_a s_{i-1} + U_a h_j), before the cell has run.
    """
    network, source = build("additive", "bahdanau"), SOURCE[:1]
    memory, state = network.encode(source, mask_of(source))
    assert memory.shape == (1, 5, SIZE)
    backward_first = memory[0, 0, SIZE // 2 :]
    hidden, cell = torch.tanh(network.start(backward_first)).chunk(2)
    torch.testing.assert_close((state[0][0, 0], state[1][0, 0]), (hidden, cell))
    score = network.score
    assert isinstance(score, AdditiveScore)
    scores = torch.stack(
        [
            score.value.weight[0] @ torch.tanh(score.query(hidden) + score.key(one))
            for one in memory[0]
        ]
    )
    context = scores.softmax(dim=0) @ memory[0]
    token = network.target_embedding.weight[1]
    cell_of = dict(network.decoder.lstm.named_parameters())
    gates = cell_of["weight_ih_l0"] @ torch.cat((token, context)) + cell_of["bias_ih_l0"]
    gates = gates + cell_of["weight_hh_l0"] @ hidden + cell_of["bias_hh_l0"]
    into, forget, new, out = gates.chunk(4)
    cell = forget.sigmoid() * cell + into.sigmoid() * new.tanh()
    hidden = out.sigmoid() * cell.tanh()
    logits = network.output(torch.tanh(network.mix(torch.cat((hidden, context, token)))))
    decoded = network.decode(torch.tensor([[1]]), memory, mask_of(source), state)
    torch.testing.assert_close(decoded.logits[0, 0], logits)
    torch.testing.assert_close(decoded.state[0][0, 0], hidden)
    assert decoded.weights is not None
    torch.testing.assert_close(decoded.weights[0, 0], scores.softmax(dim=0))


def test_a_config_without_a_form_is_luongs() -> None:
    """Checkpoints that were written before there were two forms."""
    values = build("dot").config.to_dict()
    del values["form"]
    assert RecurrentConfig.from_dict(values).form == "luong"


def test_after_the_end_there_is_padding_and_no_looking() -> None:
    network = build("dot")
    with torch.no_grad():
        network.output.weight.zero_()
        network.output.bias[:] = torch.eye(12)[2]  # the end is likeliest, always
    said, weights = network.greedy(SOURCE, mask_of(SOURCE), STEPS)
    assert said.tolist() == [[2, 0, 0, 0, 0]] * 3
    assert weights is not None
    torch.testing.assert_close(weights.sum(dim=-1), torch.eye(5)[:1].expand(3, 5))


def test_a_network_without_attention_has_no_matrices() -> None:
    assert build("none").greedy(SOURCE, mask_of(SOURCE), STEPS)[1] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention": "cosine"}, "attention is 'cosine', but must be one of none, dot"),
        ({"hidden_size": 0}, "hidden_size is 0, but must be from 1"),
        ({"end_token_id": 12}, "end_token_id is 12, but must be from 0 to 11"),
        ({"form": "cho"}, "form is 'cho', but must be one of luong, bahdanau"),
        ({"form": "bahdanau", "attention": "none"}, "form is 'bahdanau', but must be luong where"),
        ({"form": "bahdanau", "hidden_size": 5}, "hidden_size is 5, but must be even"),
        ({"layers": 2}, "recurrent.layers is 2, but must be absent"),
    ],
    ids=lambda case: next(iter(case)) if isinstance(case, dict) else "",
)
def test_a_wrong_size_is_named(change: dict[str, object], message: str) -> None:
    values = {**RecurrentConfig(12).to_dict(), **change}
    with pytest.raises(SettingError, match=message):
        RecurrentConfig.from_dict(values)
