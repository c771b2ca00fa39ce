"""Folders of Marian, BART and T5: parity with transformers on random weights, and what is refused.

Logits within 1e-4; a source of 19 tokens is as long as relative positions tell apart here.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from models.checkpoints.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from models.checkpoints.weights import WEIGHTS_FILE
from models.networks.transformer import Transformer
from tests.fakes.marian_files import write_marian_files
from tests.fakes.seq2seq_folders import FAMILIES, VOCAB_SIZE, write_folder

TOLERANCE = 1e-4


def imported(folder: Path) -> Transformer:
    model = load_checkpoint(folder).model
    assert isinstance(model, Transformer)
    return model


def sources() -> tuple[torch.Tensor, torch.Tensor]:
    """Two rows, of 30 and of 19 tokens."""
    ids = torch.randint(4, VOCAB_SIZE, (2, 30), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    ids[1, 19:], mask[1, 19:] = 1, 0
    return ids, mask


@pytest.mark.parametrize("family", FAMILIES)
def test_an_imported_network_computes_what_transformers_computes(
    family: str, tmp_path: Path
) -> None:
    """Logits of 30 tokens of two targets, and 32 greedy tokens; saved and read again the same."""
    theirs = write_folder(family, tmp_path / "folder")
    ours = imported(tmp_path / "folder")
    ids, mask = sources()
    target = torch.randint(4, VOCAB_SIZE, (2, 30), generator=torch.Generator().manual_seed(2))
    target[:, 0] = ours.config.start_token_id
    with torch.inference_mode():
        expected = theirs(input_ids=ids, attention_mask=mask, decoder_input_ids=target).logits
        logits = ours(ids, mask, target)
    assert expected.std() > 0.1, "logits must differ, or nothing is compared"
    torch.testing.assert_close(logits, expected, rtol=0, atol=TOLERANCE)

    chosen, _ = ours.greedy(ids, mask, 32)
    # Without a cache: that of transformers 5.23 has as many layers as the encoder.
    generated = theirs.generate(
        input_ids=ids,
        attention_mask=mask,
        max_new_tokens=32,
        num_beams=1,
        do_sample=False,
        use_cache=False,
    )[:, 1:]
    assert chosen[:, : generated.shape[1]].tolist() == generated.tolist()

    save_checkpoint(load_checkpoint(tmp_path / "folder"), tmp_path / "own")
    with torch.inference_mode():
        assert torch.equal(imported(tmp_path / "own")(ids, mask, target), logits)


def test_an_output_layer_of_its_own_is_kept(tmp_path: Path) -> None:
    """As files of FLAN-T5 have it: twice the table gives twice the logits."""
    write_folder("t5 v1.1", tmp_path)
    ids, mask = sources()
    with torch.inference_mode():
        tied = imported(tmp_path)(ids, mask, ids)
    tensors = load_file(tmp_path / WEIGHTS_FILE)
    save_file({**tensors, "lm_head.weight": 2 * tensors["shared.weight"]}, tmp_path / WEIGHTS_FILE)
    network = imported(tmp_path)
    assert not network.config.is_tied
    with torch.inference_mode():
        torch.testing.assert_close(network(ids, mask, ids), 2 * tied)


def test_a_table_of_positions_in_a_file_of_marian_is_used(tmp_path: Path) -> None:
    """Files have none since its numbers are computed; transformers reads one that is there."""
    write_folder("marian", tmp_path)
    tensors = load_file(tmp_path / WEIGHTS_FILE)
    tables = {
        f"model.{half}.embed_positions.weight": torch.rand(40, 32)
        for half in ("encoder", "decoder")
    }
    save_file(tensors | tables, tmp_path / WEIGHTS_FILE, {"format": "pt"})
    theirs = transformers.MarianMTModel.from_pretrained(tmp_path)
    ids, mask = sources()
    with torch.inference_mode():
        expected = theirs(input_ids=ids, attention_mask=mask, decoder_input_ids=ids).logits
        torch.testing.assert_close(
            imported(tmp_path)(ids, mask, ids), expected, rtol=0, atol=TOLERANCE
        )


def test_a_shorter_context_has_the_first_positions(tmp_path: Path) -> None:
    write_folder("bart", tmp_path)
    whole, short = imported(tmp_path), load_checkpoint(tmp_path, context=12)
    assert (short.max_tokens, short.model.config.max_positions) == (12, 12)  # type: ignore[union-attr]
    ids = torch.arange(4, 16)[None]
    with torch.inference_mode():
        expected = whole(ids, torch.ones_like(ids), ids)
        torch.testing.assert_close(short.model(ids, torch.ones_like(ids), ids), expected)


def test_relative_positions_serve_any_context(tmp_path: Path) -> None:
    """As long as T5 was trained for where nothing is said, else as long as is said."""
    write_folder("t5", tmp_path)
    assert load_checkpoint(tmp_path).max_tokens == 512
    assert load_checkpoint(tmp_path, context=1_000).max_tokens == 1_000


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_what_outputs_begin_with_and_never_have_is_read(tmp_path: Path) -> None:
    """Both from generation_config.json; a translation is greedy unless that file says otherwise."""
    write_folder("marian", tmp_path)
    fields = {"forced_bos_token_id": 7, "bad_words_ids": [[1]], "num_beams": 4}
    change(tmp_path / "generation_config.json", **fields)
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.config.first_token_ids == (7,)
    assert checkpoint.config.banned_token_ids == (1,)
    assert checkpoint.sampling == {"temperature": 0.0}
    change(tmp_path / "generation_config.json", do_sample=True, temperature=0.7)
    assert load_checkpoint(tmp_path).sampling == {"temperature": 0.7}


@pytest.mark.parametrize(
    ("family", "fields", "message"),
    [
        ("bart", {"architectures": ["BartForSequenceClassification"]}, "BartForConditional"),
        (
            "t5",
            {"architectures": ["T5EncoderModel"]},
            "T5ForConditionalGeneration.*it cannot be imported",
        ),
        ("bart", {"decoder_ffn_dim": 64}, "decoder_ffn_dim is 64, .* 48, which encoder_ffn_dim"),
        ("bart", {"normalize_before": True}, "normalize_before is True"),
        ("marian", {"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings"),
        ("t5", {"feed_forward_proj": "gated-tanh"}, "feed_forward_proj"),
        ("bart", {"bad_words_ids": [[3, 4]]}, "bad_words_ids"),
        ("bart", {"quantization_config": {"bits": 8}}, "quantization_config"),
        ("bart", {"eos_token_id": [2, 3]}, "eos_token_id"),
        ("bart", {"decoder_layers": 10**9}, "decoder_layers is 1000000000"),
        ("t5", {"relative_attention_max_distance": 10**12}, "relative_attention_max_distance"),
    ],
)
def test_what_would_be_computed_differently_is_refused_by_name(
    family: str, fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    write_folder(family, tmp_path)
    (tmp_path / "generation_config.json").unlink()
    change(tmp_path / "config.json", **fields)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(tmp_path)


def test_tables_that_differ_are_refused_by_name(tmp_path: Path) -> None:
    write_folder("bart", tmp_path)
    tensors = load_file(tmp_path / WEIGHTS_FILE)
    name = next(name for name in tensors if name.endswith("shared.weight"))
    other = "model.encoder.embed_tokens.weight"
    save_file({**tensors, other: tensors[name] + 1}, tmp_path / WEIGHTS_FILE)
    with pytest.raises(CheckpointError, match=r"encoder.embed_tokens.weight differs from shared"):
        load_checkpoint(tmp_path)


def test_a_context_longer_than_the_table_of_positions_is_refused(tmp_path: Path) -> None:
    write_folder("bart", tmp_path)
    with pytest.raises(CheckpointError, match=r"context is 41, .* from 1 to 40"):
        load_checkpoint(tmp_path, context=41)


def test_a_folder_of_marian_s_own_files_is_imported(tmp_path: Path) -> None:
    write_folder("marian", tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    write_marian_files(tmp_path)
    save_checkpoint(load_checkpoint(tmp_path), tmp_path / "own")
    assert load_checkpoint(tmp_path / "own").tokenizer.encode("a house").ids == [15, 16, 0]


def test_a_folder_without_a_tokenizer_says_how_to_write_one(tmp_path: Path) -> None:
    write_folder("bart", tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer.json is missing: .*save_pretrained"):
        load_checkpoint(tmp_path)
