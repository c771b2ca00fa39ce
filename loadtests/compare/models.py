"""The two models of all comparisons, as Hugging Face folders, with transformers' outputs.

BERT-base with two labels and GPT-2, 109 and 124 million random weights: speed does not depend on
what they know, and nothing has to be downloaded. Weights of layers are larger than fresh ones, so
that greedy text varies instead of repeating one token, and logits differ from row to row: outputs
that agree do not agree by accident. The tokenizers are trained on Python's standard library.
"""

import json
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from loadtests.load.byte_pairs import END_OF_TEXT, write_tokenizer_config

BERT, GPT2 = "bert", "gpt2"
SPREAD = {BERT: 2.0, GPT2: 4.0}  # how many times larger
CORPUS_CHARACTERS = 8_000_000
BERT_VOCABULARY, GPT2_VOCABULARY = 30_522, 50_257
LEAST_VOCABULARY = 49_152  # of all decoders that are compared
# Keys that folders of the hub have, transformers 5 does not write, and converters still read.
OLD_KEYS: dict[str, dict[str, object]] = {
    BERT: {
        "position_embedding_type": "absolute",
        "id2label": {"0": "LABEL_0", "1": "LABEL_1"},
        "label2id": {"LABEL_0": 0, "LABEL_1": 1},
    },
    GPT2: {"n_ctx": 1024},
}
# Random weights have ties: of 6 prompts 4 had two first tokens a fifth of the spread apart.
CHECK_ROWS, CHECK_PROMPTS, CHECK_TOKENS = 8, 24, 16


@dataclass(frozen=True, slots=True)
class Reference:
    """Rows or texts and prompts, and what float32 transformers makes of each, alone."""

    rows: list[list[int]]
    logits: list[list[float]]
    prompts: list[list[int]]
    tokens: list[list[int]]
    likely: list[list[int]] = field(default_factory=list)  # first tokens of each prompt, best first
    texts: list[str] = field(default_factory=list)  # in place of rows: `logits` are their outputs
    query: str = ""

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> "Reference":
        return cls(**json.loads(path.read_text()))


def reference_path(folder: Path, name: str) -> Path:
    """The reference of a model of this name."""
    return folder / f"reference-{name}.json"


def write_model(folder: Path, name: str) -> None:
    """`bert/` or `gpt2/` and, when it is whole, its reference."""
    if name == BERT:
        write_bert(folder / BERT)
        reference = _bert_reference(folder / BERT)
    else:
        write_gpt2(folder / GPT2)
        reference = greedy_reference(folder / GPT2, CHECK_PROMPTS, CHECK_TOKENS, 128)
    reference.write(reference_path(folder, name))


def write_bert(folder: Path) -> None:
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(1)
    _save(BertForSequenceClassification(BertConfig()), BERT, folder)
    write_bert_tokenizer(folder)


def write_bert_tokenizer(folder: Path) -> None:
    """A WordPiece tokenizer of BERT's size, in the files that a hub's folder has."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from tokenizers.processors import TemplateProcessing

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # noqa: S106 - no secret
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=BERT_VOCABULARY, min_frequency=0, show_progress=False, special_tokens=special
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    _fill(tokenizer, BERT_VOCABULARY)
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    (folder / "vocab.txt").write_text("\n".join(token for token, _ in ids) + "\n")
    names = dict(zip(("pad", "unk", "cls", "sep", "mask"), special, strict=True))
    write_tokenizer_config(
        folder,
        tokenizer_class="BertTokenizer",
        do_lower_case=True,
        model_max_length=512,
        **{f"{kind}_token": token for kind, token in names.items()},
    )


def write_gpt2(folder: Path) -> None:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    config = GPT2Config(bos_token_id=GPT2_VOCABULARY - 1, eos_token_id=GPT2_VOCABULARY - 1)
    _save(GPT2LMHeadModel(config), GPT2, folder)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=GPT2_VOCABULARY - 1,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    _fill(tokenizer, GPT2_VOCABULARY - 1)
    tokenizer.add_special_tokens([END_OF_TEXT])
    tokenizer.save(str(folder / "tokenizer.json"))
    saved = json.loads((folder / "tokenizer.json").read_text())["model"]["merges"]
    merges = (merge if isinstance(merge, str) else " ".join(merge) for merge in saved)
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    (folder / "vocab.json").write_text(json.dumps(tokenizer.get_vocab(), ensure_ascii=False))
    write_tokenizer_config(
        folder,
        tokenizer_class="GPT2Tokenizer",
        add_prefix_space=False,
        model_max_length=1024,
        **{f"{kind}_token": END_OF_TEXT for kind in ("bos", "eos", "unk")},
    )


def _bert_reference(folder: Path) -> Reference:
    """Every row alone: nothing is padded.

    On one thread: where others are busy, two would wait for each other at every operator.
    """
    import torch
    from transformers import AutoModelForSequenceClassification

    torch.set_num_threads(1)
    generator = np.random.default_rng(7)
    rows = [random_row(generator, size) for size in generator.integers(8, 200, CHECK_ROWS)]
    bert = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        logits = [bert(torch.tensor([row])).logits[0].tolist() for row in rows]
    return Reference(rows, logits, [], [])


def greedy_reference(
    folder: Path, num_prompts: int, num_tokens: int, longest: int, num_likely: int = 0
) -> Reference:
    """Greedy tokens of random prompts of 16 tokens or more, each alone, and likely first ones."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    generator = np.random.default_rng(7)
    sizes = generator.integers(16, longest + 1, num_prompts)
    prompts = [random_prompt(generator, size) for size in sizes]
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokens, likely = [], []
    with torch.inference_mode():
        for prompt in prompts:
            found = model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                do_sample=False,
                max_new_tokens=num_tokens,
                min_new_tokens=num_tokens,
                eos_token_id=None,
                pad_token_id=0,
                output_logits=True,
                return_dict_in_generate=True,
            )
            tokens.append(found.sequences[0, len(prompt) :].tolist())
            if num_likely:
                likely.append(found.logits[0][0].topk(num_likely).indices.tolist())
    return Reference([], [], prompts, tokens, likely)


def random_row(generator: np.random.Generator, size: int) -> list[int]:
    """Token ids of one text for BERT: `[CLS]`, words, `[SEP]`."""
    return [2, *generator.integers(5, BERT_VOCABULARY, size - 2).tolist(), 3]


def random_prompt(generator: np.random.Generator, size: int) -> list[int]:
    return [int(token) for token in generator.integers(1, LEAST_VOCABULARY, size)]


def _save(model: Any, name: str, folder: Path) -> None:
    enlarge(model, lambda _: SPREAD[name])
    model.save_pretrained(folder)
    add_keys(folder, OLD_KEYS[name])


def enlarge(model: Any, factor: Callable[[str], float]) -> None:
    """Make weights of layers this many times as large, by their names; not those of embeddings."""
    import torch

    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.dim() == 2 and not any(part in key for part in ("wte", "wpe", "embed")):
                parameter.mul_(factor(key))


def add_keys(folder: Path, keys: Mapping[str, object]) -> None:
    """Add keys to the config.json of a folder."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | dict(keys), indent=2))


def _corpus() -> Iterator[str]:
    num_characters = 0
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        num_characters += len(text)
        if num_characters > CORPUS_CHARACTERS:
            return
        yield text


def _fill(tokenizer: "tokenizers.Tokenizer", size: int) -> None:  # type: ignore[name-defined] # noqa: F821
    """Tokens that no text has, where the corpus ran out of pairs before the vocabulary was full."""
    missing = size - tokenizer.get_vocab_size()
    tokenizer.add_tokens([f"<unused{number}>" for number in range(missing)])
