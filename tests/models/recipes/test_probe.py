"""The probe: features of all layers as the network gives them, entities found where they are."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from typer.testing import Result

from models.checkpoints.checkpoint import Checkpoint, save_checkpoint
from models.checkpoints.uses import as_features, used_for
from models.data.tagged import TaggedDataset, read_sentences
from models.errors import CheckpointError, DatasetError, SettingError
from models.networks.encoder import Encoder, EncoderConfig
from models.networks.features import TokenFeatures
from models.networks.heads import LAYERS, TextEmbedder
from models.recipes.probe import probe, states_of
from models.recipes.probe_settings import ProbeSettings

Run = Callable[..., Result]
# `cash` and `prize` are things, `home` a place: the word alone tells.
TAGS = {"cash": "B-thing", "prize": "B-thing", "home": "B-place"}
SENTENCES = ["win a prize now", "free cash later", "the home", "sorry the lunch", "a prize home"]


def conll(repeats: int = 1) -> str:
    """The sentences in CoNLL's format; words of their own, so that every word has a token."""
    blocks = ["\n".join(f"{w}\t{TAGS.get(w, 'O')}" for w in text.split()) for text in SENTENCES]
    return "\n\n".join(blocks * repeats) + "\n"


@pytest.fixture
def dataset(tmp_path: Path) -> TaggedDataset:
    path = tmp_path / "things.conll"
    path.write_text(conll())
    return read_sentences(path)


def test_packed_features_are_the_encoders_states(
    config: EncoderConfig, tokenizer: Tokenizer
) -> None:
    """Of rows of 6, 2 and 4 tokens, every layer in its order, and no padding."""
    encoder = Encoder(config).eval()
    ids = torch.randint(1, 15, (3, 6), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(6) < torch.tensor([6, 2, 4])[:, None]).long()
    packed = TokenFeatures(encoder).eval()(ids, mask)
    assert packed.shape == (12, config.num_layers + 1, config.hidden_size)
    states = encoder(ids, mask)
    for layer, state in enumerate(states):
        assert torch.equal(packed[:, layer], state[mask != 0])


def test_any_checkpoint_with_an_encoder_can_be_used_for_features(
    classifier_checkpoint: Checkpoint, gpt_checkpoint: Checkpoint
) -> None:
    features = as_features(classifier_checkpoint)
    assert (features.task, features.labels) == ("features", ())
    assert features.text_network.embedding_size == 16
    assert used_for(classifier_checkpoint, None) is classifier_checkpoint
    assert used_for(features, "features") is features
    with pytest.raises(CheckpointError, match="needs an encoder"):
        used_for(gpt_checkpoint, "features")
    with pytest.raises(SettingError, match="'embedding', but must be features"):
        used_for(classifier_checkpoint, "embedding")


def test_states_are_of_each_words_first_token(
    embedder_checkpoint: Checkpoint, dataset: TaggedDataset
) -> None:
    """Batched by length and brought back in order: as each sentence alone."""
    features = as_features(embedder_checkpoint)
    found = states_of(features, dataset, dataset.labels(), 12)
    places = [(i, w) for i, text in enumerate(SENTENCES) for w in range(len(text.split()))]
    assert list(found.places) == places
    model = features.model
    alone = []
    for text in SENTENCES:
        ids = torch.tensor([features.tokenizer.encode(text).ids])
        alone.append(model(ids, torch.ones_like(ids))[1:-1])
    assert torch.allclose(found.states.float(), torch.cat(alone).half().float(), atol=1e-2)
    labels = dataset.labels()
    tags = [TAGS.get(word, "O") for text in SENTENCES for word in text.split()]
    assert [labels[target] for target in found.targets] == tags
    assert [tag for row in found.tags_of(labels, found.targets) for tag in row] == tags


def test_words_that_were_cut_away_are_outside(
    embedder_checkpoint: Checkpoint, dataset: TaggedDataset
) -> None:
    """Of four words between two special tokens, four tokens leave two."""
    found = states_of(as_features(embedder_checkpoint), dataset, dataset.labels(), 4)
    everything_a_thing = torch.full_like(found.targets, dataset.labels().index("B-thing"))
    tags = found.tags_of(dataset.labels(), everything_a_thing)
    assert tags[0] == ["B-thing", "B-thing", "O", "O"]


def test_every_strategy_finds_what_words_alone_tell(
    embedder_checkpoint: Checkpoint, dataset: TaggedDataset
) -> None:
    settings = ProbeSettings(epochs=60, batch_size=8, learning_rate=0.05)
    probed = probe(embedder_checkpoint, dataset, dataset, settings)
    assert [each.features for each in probed] == [*LAYERS, "mix"]
    assert [each.size for each in probed] == [16, 16, 16, 16, 64, 16, 16]
    assert all(each.found.f1 == 1.0 for each in probed)
    assert len(probed[-1].weights) == 5
    assert sum(probed[-1].weights) == pytest.approx(1.0)


def test_few_layers_have_fewer_strategies(
    config: EncoderConfig, tokenizer: Tokenizer, dataset: TaggedDataset
) -> None:
    embedder = TextEmbedder(Encoder(replace(config, num_layers=2))).eval()
    checkpoint = Checkpoint(embedder, "embedding", (), tokenizer, 12, "tiny")
    probed = probe(checkpoint, dataset, dataset, ProbeSettings(epochs=1))
    names = [each.features for each in probed]
    assert names == ["first", "last", "second_to_last", "sum_all", "mix"]


def test_a_set_with_other_entities_is_refused(
    embedder_checkpoint: Checkpoint, dataset: TaggedDataset, tmp_path: Path
) -> None:
    other = tmp_path / "other.conll"
    other.write_text("win\tB-verb\n")
    with pytest.raises(DatasetError, match="'verb' is not among"):
        probe(embedder_checkpoint, dataset, read_sentences(other), ProbeSettings())


def test_the_command_prints_a_row_per_strategy(
    run: Run, embedder_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    save_checkpoint(embedder_checkpoint, tmp_path / "tiny")
    path = tmp_path / "things.conll"
    path.write_text(conll(3))
    result = run("probe", tmp_path / "tiny", path, path, "--epochs", 2)
    assert result.exit_code == 0, result.output
    for name in LAYERS:
        assert name.replace("_", " ") in result.output
    assert "F1" in result.output
    refused = run("probe", tmp_path / "tiny", path, tmp_path / "absent.conll")
    assert refused.exit_code == 1
    assert "absent.conll cannot be read" in refused.output
