"""Embedders and rerankers as Hugging Face folders, and what float32 transformers makes of texts.

MiniLM-L6 is the real one, out of the checkout's build/; BERT-base, which bge-base is too, and
ModernBERT-base have random weights, as nothing may be downloaded: their speed is right, and their
errors say little. A reranker is the same network with a head of one label, random in all three.
The texts are prose of Python's help, cut to the lengths of reviews, SMS and passages.
"""

import json
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from loadtests.compare.connection import ROOT
from loadtests.compare.models import (
    Reference,
    add_keys,
    enlarge,
    reference_path,
    write_bert_tokenizer,
)
from loadtests.compare.traffic import EMBED, RERANK, Traffic
from loadtests.compare.worker import Work
from loadtests.load.lengths import SEED, mixed
from models.data.generated.python_topics import python_topics

NUM_TEXTS = {EMBED: 128, RERANK: 100}
MINILM = ROOT / "build" / "all-MiniLM-L6-v2"
QUERY = "how are names bound to objects in a nested scope"
QUICK_TEXTS = 48
PARTS = "sentence_transformers.models"
IN_FLIGHT = 4  # requests of 32 texts, of a server
SPREAD = 1.5  # times as large as fresh weights of layers, so that texts differ
# Keys that transformers 5 does not write, and converters of other engines still read.
OLD_KEYS = {"bert": {"position_embedding_type": "absolute"}}


@dataclass(frozen=True, slots=True)
class Encoder:
    """A network of a family, and what is behind it."""

    title: str
    kind: str  # model_type; empty is MiniLM, whose weights are there
    task: str
    pooling: str = ""  # mean or cls, of an embedder
    max_tokens: int = 512  # of a text, or of a query and a document; the folder of MiniLM says 256
    fields: dict[str, Any] = field(default_factory=dict)  # where it is not the family's base
    word_spread: float = 1.0  # of word vectors, over the family's


def _both(name: str, title: str, kind: str, pooling: str) -> dict[str, Encoder]:
    return {
        name: Encoder(title, kind, EMBED, pooling),
        f"{name}-reranker": Encoder(f"{title} with one label", kind, RERANK),
    }


# Random BERT's scores hardly follow the words, and int8 would change more of them than it may.
FOLLOWING_WORDS = 3.0
ENCODERS: dict[str, Encoder] = {
    "minilm": Encoder("all-MiniLM-L6-v2", "", EMBED, "mean", max_tokens=256),
    "minilm-reranker": Encoder("all-MiniLM-L6-v2 with one label", "", RERANK),
    **_both("bert-base", "BERT-base", "bert", "cls"),
    **_both("modernbert-base", "ModernBERT-base", "modernbert", "cls"),
}
ENCODERS["bert-base-reranker"] = replace(
    ENCODERS["bert-base-reranker"], word_spread=FOLLOWING_WORDS
)


def texts_of_real_lengths(count: int) -> list[str]:
    """Prose in as many pieces, their lengths those of reviews, SMS and passages, mixed."""
    paragraphs = (text for topic in python_topics() for text in topic.split("\n\n"))
    words = [word for text in paragraphs for word in text.split() if word.strip(".,;:()").isalpha()]
    generator = random.Random(SEED)
    texts, start = [], 0
    for lengths in mixed(count, generator):
        size = lengths.draw(generator)
        texts.append(" ".join(words[start : start + size]))
        start += size
    assert start <= len(words), "there is prose for all texts"
    return texts


def write_encoder(folder: Path, name: str) -> None:
    """`{name}/` and, when it is whole, its reference."""
    encoder, target = ENCODERS[name], folder / name
    shutil.rmtree(target, ignore_errors=True)
    (_write_random if encoder.kind else _write_minilm)(encoder, target)
    texts = texts_of_real_lengths(NUM_TEXTS[encoder.task])
    query = QUERY if encoder.task == RERANK else ""
    outputs = reference_outputs(encoder, target, texts, query)
    reference = Reference([], outputs, [], [], texts=texts, query=query)
    reference.write(reference_path(folder, name))


def _write_minilm(encoder: Encoder, target: Path) -> None:
    """A copy of the embedder; or its encoder with a head."""
    if encoder.task == EMBED:
        shutil.copytree(MINILM, target)
        return
    import torch
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(1)
    model = AutoModelForSequenceClassification.from_pretrained(MINILM, num_labels=1)
    with torch.no_grad():
        model.classifier.weight.mul_(20.0)  # fresh ones give every pair about the same score
    model.save_pretrained(target)
    for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        shutil.copy(MINILM / file, target)
    add_keys(target, OLD_KEYS["bert"])


def _write_random(encoder: Encoder, target: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

    torch.manual_seed(1)
    ids = {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3}
    labels = {"num_labels": 1} if encoder.task == RERANK else {}
    config = AutoConfig.for_model(encoder.kind, **labels, **ids, **encoder.fields)
    make: Any = AutoModelForSequenceClassification if encoder.task == RERANK else AutoModel
    model = make.from_config(config, dtype=torch.float32)
    enlarge(model, lambda _: SPREAD)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(encoder.word_spread)
    model.save_pretrained(target)
    _write_shared_tokenizer(target)
    add_keys(target, OLD_KEYS.get(encoder.kind, {}))
    if encoder.task == EMBED:
        _write_modules(target, encoder.pooling, int(config.hidden_size))


def _write_shared_tokenizer(target: Path) -> None:
    """The tokenizer is trained once: all networks of random weights have the same."""
    others = (target.parent / name for name, each in ENCODERS.items() if each.kind)
    made = next((other for other in others if (other / "vocab.txt").exists()), None)
    if made is None:
        write_bert_tokenizer(target)
    else:
        for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
            shutil.copy(made / file, target)
    path = target / "tokenizer_config.json"
    names = ["input_ids", "attention_mask"]  # ModernBERT has no types of tokens
    if "modernbert" not in target.name:
        names.insert(1, "token_type_ids")
    changes = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": names}
    path.write_text(json.dumps(json.loads(path.read_text()) | changes, indent=1))


def _write_modules(target: Path, pooling: str, size: int) -> None:
    """As sentence-transformers writes an encoder, its pooling and its normalisation."""
    steps = ("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"{PARTS}.{kind}"}
        for index, (kind, path) in enumerate(steps)
    ]
    (target / "modules.json").write_text(json.dumps(modules, indent=1))
    (target / "sentence_bert_config.json").write_text('{"max_seq_length": 512}')
    for _, path in steps[1:]:
        (target / path).mkdir()
    flags = {"mean": "mean_tokens", "cls": "cls_token"}
    # Each is said: an older reader takes the mean unless it is told not to.
    poolings = {f"pooling_mode_{flag}": name == pooling for name, flag in flags.items()}
    values = {"word_embedding_dimension": size, **poolings}
    (target / "1_Pooling" / "config.json").write_text(json.dumps(values))


def reference_outputs(
    encoder: Encoder, folder: Path, texts: Sequence[str], query: str
) -> list[list[float]]:
    """Vectors of length 1, or scores from 0 to 1, of every text alone.

    On one thread: where others are busy, two would wait for each other at every operator.
    """
    import torch
    from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    make: Any = AutoModelForSequenceClassification if encoder.task == RERANK else AutoModel
    model = make.from_pretrained(folder, dtype=torch.float32).eval()
    outputs = []
    with torch.inference_mode():
        for text in texts:
            parts = (query, text) if encoder.task == RERANK else (text,)
            feed = tokenizer(
                *parts, truncation=True, max_length=encoder.max_tokens, return_tensors="pt"
            )
            if encoder.task == RERANK:
                values = torch.sigmoid(model(**feed).logits[0])
            else:
                hidden = model(**feed).last_hidden_state[0]
                pooled = hidden.mean(0) if encoder.pooling == "mean" else hidden[0]
                values = torch.nn.functional.normalize(pooled, dim=0)
            outputs.append(values.tolist())
    return outputs


def _traffic(model: str) -> tuple[Traffic, ...]:
    task = ENCODERS[model].task
    is_embedder = task == EMBED

    def texts(count: int) -> Work:
        chosen = texts_of_real_lengths(NUM_TEXTS[task])[:count]
        return Work([], IN_FLIGHT, texts=chosen, query="" if is_embedder else QUERY)

    what = "texts embedded" if is_embedder else "documents scored for a query"
    return (
        Traffic(
            f"{model}-real",
            task,
            f"{ENCODERS[model].title}: {NUM_TEXTS[task]} {what}, lengths of reviews, SMS, passages",
            lambda _: texts(NUM_TEXTS[task]),
            lambda _: texts(QUICK_TEXTS),
        ),
    )


ENCODER_TRAFFIC = {name: _traffic(name) for name in ENCODERS}
