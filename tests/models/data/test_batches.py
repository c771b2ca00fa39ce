"""Every row once per epoch, similar lengths together, padding on the right."""

import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from models.data.batches import TokenizedDataset, epoch_batches, sorted_batches, tokenize
from models.data.datasets import Dataset, Example

LENGTHS = [(7 * i) % 61 + 1 for i in range(1_000)]


def padded_tokens(batches: list[list[int]]) -> int:
    return sum(len(batch) * max(LENGTHS[i] for i in batch) for batch in batches)


def test_an_epoch_has_every_row_once_in_batches_of_the_given_size() -> None:
    batches = epoch_batches(LENGTHS, 32, seed=0, epoch=0)
    assert sorted(i for batch in batches for i in batch) == list(range(1_000))
    assert sorted(map(len, batches)) == [8] + [32] * 31  # 1000 = 31 * 32 + 8


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    first = epoch_batches(LENGTHS, 32, seed=0, epoch=1)
    assert epoch_batches(LENGTHS, 32, seed=0, epoch=1) == first
    assert epoch_batches(LENGTHS, 32, seed=0, epoch=2) != first
    assert epoch_batches(LENGTHS, 32, seed=1, epoch=1) != first


def test_batches_of_similar_length_waste_little_on_padding() -> None:
    """Lengths 1 to 61, uniform: random batches of 32 would pad nearly every row to 60."""
    assert padded_tokens(epoch_batches(LENGTHS, 32, seed=0, epoch=0)) < 1.1 * sum(LENGTHS)
    assert padded_tokens(list(sorted_batches(LENGTHS, 32))) < 1.1 * sum(LENGTHS)


def test_a_batch_is_padded_on_the_right_to_its_longest_row() -> None:
    rows = TokenizedDataset(rows=((5, 6, 7), (8,), (9, 9)), targets=(0, 1, 1), pad_token_id=1)
    input_ids, attention_mask, targets = rows.batch([1, 2])
    assert input_ids.tolist() == [[8, 1], [9, 9]]
    assert attention_mask.tolist() == [[1, 0], [1, 1]]
    assert targets.tolist() == [1, 1]
    assert {t.dtype for t in (input_ids, attention_mask, targets)} == {torch.int64}


def test_the_second_texts_of_pairs_are_of_type_one(tokenizer: Tokenizer) -> None:
    """And a pair that is too long loses from the longer of its texts."""
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    pairs = (Example(1, "x", "win", "home now"), Example(2, "y", "win win", "home " * 9))
    rows = tokenize(Dataset("a", pairs), ("x", "y"), tokenizer, max_tokens=8, pad_token_id=0)
    input_ids, attention_mask, token_types, targets = rows.batch([0, 1])
    assert input_ids.tolist() == [[2, 4, 3, 9, 12, 3, 0, 0], [2, 4, 4, 3, 9, 9, 9, 3]]
    assert token_types.tolist() == [[0, 0, 0, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1]]
    assert attention_mask[0].tolist() == [1] * 6 + [0] * 2
    assert targets.tolist() == [0, 1]


def test_long_texts_are_cut_with_their_special_tokens_kept(tokenizer: Tokenizer) -> None:
    dataset = Dataset("a", (Example(1, "spam", "win win win win"), Example(2, "ham", "home")))
    rows = tokenize(dataset, ("ham", "spam"), tokenizer, max_tokens=4, pad_token_id=0)
    assert rows.rows == ((2, 4, 4, 3), (2, 9, 3))
    assert rows.targets == (1, 0)
    assert tokenizer.truncation is None  # the checkpoint's own tokenizer is as it was
