"""A linear classifier on frozen features, by layer (Devlin et al. 2018, table 7).

Knows nothing about files or terminals. The network is run once; all ways are made of its states.
A word's features are those of its first token. Since only a linear map is learnt, what it finds was
there: the table tells which layers know what entities are.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: W words, L layers, D values, C labels

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.checkpoints.checkpoint import Checkpoint
from models.checkpoints.uses import used_for
from models.data.batches import sorted_batches
from models.data.tagged import (
    OUTSIDE,
    Counts,
    TaggedDataset,
    TaggedSentence,
    count_entities,
    total,
)
from models.networks.elmo import ScalarMix
from models.networks.heads import LAYERS, NEEDS_FOUR_LAYERS
from models.recipes.probe_settings import ProbeSettings
from models.recipes.tagging import TaggedRows, tokenize_tagged

BATCH_ROWS = 32  # run at once through the network
SMALLEST_SPREAD = 1e-6  # of a value over all words


@dataclass(frozen=True, slots=True)
class TaggedStates:
    """All hidden states of the words of some sentences that have a token."""

    sentences: tuple[TaggedSentence, ...]
    places: tuple[tuple[int, int], ...]  # of each word: its sentence, and where in it
    states: Tensor  # float16 [W, L + 1, D], the embeddings first
    targets: Tensor  # [W], labels by index

    def tags_of(self, labels: Sequence[str], predicted_W: Tensor) -> list[list[str]]:
        """The labels of all words of the sentences; those without a token are outside."""
        tags = [[OUTSIDE] * len(sentence.words) for sentence in self.sentences]
        for (sentence, word), label in zip(self.places, predicted_W.tolist(), strict=True):
            tags[sentence][word] = labels[label]
        return tags


@dataclass(frozen=True, slots=True)
class Probed:
    """The figures for entities from features of one kind."""

    features: str
    size: int  # values per word
    found: Counts
    weights: tuple[float, ...] = ()  # of layers, where they were learnt


def probe(
    checkpoint: Checkpoint,
    train: TaggedDataset,
    test: TaggedDataset,
    settings: ProbeSettings,
    on_step: Callable[[str], None] = lambda _: None,
) -> list[Probed]:
    """Train on one set and judge on the other, for every strategy that the network has layers for.

    The last is a mix whose weights are learnt with the classifier, as ELMo's are. Raises
    CheckpointError for a network without hidden states, and DatasetError for sets that do not fit.
    """
    train.check([test])
    labels = train.labels()
    features = used_for(checkpoint, "features")
    on_step(f"computing the states of {len(train) + len(test)} sentences")
    learnt_from, judged_on = (
        states_of(features, part, labels, settings.max_tokens) for part in (train, test)
    )
    num_layers = learnt_from.states.shape[1] - 1
    names = [name for name in LAYERS if num_layers >= 4 or name not in NEEDS_FOUR_LAYERS]
    probed = []
    for name in (*names, "mix"):
        on_step(f"learning from {name.replace('_', ' ')}")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            probed.append(_probe_one(name, learnt_from, judged_on, labels, settings))
    return probed


def states_of(
    features: Checkpoint, dataset: TaggedDataset, labels: Sequence[str], max_tokens: int
) -> TaggedStates:
    """Run the sentences once; half precision halves what is held of them in memory."""
    network = features.text_network.eval()
    max_tokens = min(max_tokens, features.max_tokens)
    rows = tokenize_tagged(dataset, labels, features.tokenizer, max_tokens, network.pad_token_id)
    by_row: dict[int, Tensor] = {}
    with torch.inference_mode():
        for indices in sorted_batches(rows.lengths(), BATCH_ROWS):
            input_ids, attention_mask, _ = rows.batch(indices)
            packed = network(input_ids, attention_mask).half()
            counts = [len(rows.rows[i]) for i in indices]
            for i, states in zip(indices, packed.split(counts), strict=True):
                by_row[i] = states[[token for _, token in _words_of(rows, i)]]
    index = {label: i for i, label in enumerate(labels)}
    places = tuple((i, word) for i in range(len(rows)) for word, _ in _words_of(rows, i))
    tags = [rows.sentences[i].tags[word] for i, word in places]
    states = torch.cat([by_row[i] for i in range(len(rows))])
    return TaggedStates(rows.sentences, places, states, torch.tensor([index[tag] for tag in tags]))


def _words_of(rows: TaggedRows, row: int) -> Iterator[tuple[int, int]]:
    """The words of a row that have a token, and the first one's place."""
    for word, token in enumerate(rows.first_tokens[row]):
        if token is not None:
            yield word, token


class _Classifier(nn.Module):
    """States to label scores: layers as the strategy says, then a linear map.

    Features are centred and scaled to the same spread, so that one learning rate suits all
    strategies. It begins with how frequent labels are, which small steps would take long to learn.
    """

    def __init__(
        self, strategy: str, states_WLD: Tensor, targets_W: Tensor, num_labels: int
    ) -> None:
        super().__init__()
        self.mix = ScalarMix(states_WLD.shape[1]) if strategy == "mix" else None
        self._strategy = strategy
        features_WD = self._features(states_WLD).detach()
        self._mean_D, spread_D = features_WD.mean(dim=0), features_WD.std(dim=0)
        self._spread_D = spread_D.clamp(min=SMALLEST_SPREAD)
        self.size = features_WD.shape[1]
        self.output = nn.Linear(self.size, num_labels)
        counts_C = torch.bincount(targets_W, minlength=num_labels).clamp(min=1)
        with torch.no_grad():
            self.output.weight.zero_()
            self.output.bias.copy_((counts_C / counts_C.sum()).log())

    def forward(self, states_WLD: Tensor) -> Tensor:
        """Scores [W, C]."""
        features_WD = (self._features(states_WLD) - self._mean_D) / self._spread_D
        scores_WC: Tensor = self.output(features_WD)
        return scores_WC

    def _features(self, states_WLD: Tensor) -> Tensor:
        states_WLD = states_WLD.float()
        if self.mix is not None:
            mixed_WD: Tensor = self.mix(states_WLD)
            return mixed_WD
        return LAYERS[self._strategy](states_WLD.unbind(dim=1))


def _probe_one(
    strategy: str,
    train: TaggedStates,
    test: TaggedStates,
    labels: Sequence[str],
    settings: ProbeSettings,
) -> Probed:
    classifier = _Classifier(strategy, train.states, train.targets, len(labels))
    optimizer = torch.optim.AdamW(
        classifier.parameters(), settings.learning_rate, weight_decay=settings.weight_decay
    )
    num_words, size = len(train.targets), settings.batch_size
    num_steps = settings.epochs * len(range(0, num_words, size))
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, num_steps)
    for _ in range(settings.epochs):
        for words in torch.split(torch.randperm(num_words), size):
            loss = F.cross_entropy(classifier(train.states[words]), train.targets[words])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            falling.step()
    with torch.inference_mode():
        parts = [classifier(part).argmax(dim=1) for part in torch.split(test.states, num_words)]
    predicted = test.tags_of(labels, torch.cat(parts))
    true = [sentence.tags for sentence in test.sentences]
    mix = classifier.mix
    weights = mix.weights.softmax(dim=0).tolist() if mix is not None else []
    found = total(count_entities(true, predicted).values())
    return Probed(strategy, classifier.size, found, tuple(weights))
