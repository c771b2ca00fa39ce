"""Make a pair scorer of a decoder that was taught to answer yes or no, as Qwen3-Reranker.

Its score is the probability of one of two words behind a template that a query and a document are
put into. Softmax over two logits is the sigmoid of their difference, so one row does it: the output
layer's of the first word minus that of the second.

The template is split at special tokens. What is before the last of them in front of the query, and
what follows the document, is put around every text by the tokenizer itself, which neither cuts it
nor takes it from a text; the rest goes to the server, which puts query and document into it.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch import nn

from models.checkpoints.checkpoint import Checkpoint
from models.choices import ScoreFunction
from models.errors import CheckpointError, SettingError, reason, shown
from models.networks.decoder_readers import DecoderPairScorer, without_output
from models.networks.gpt import GPT
from models.networks.llama import Llama
from models.networks.reader_makers import is_linear, yes_no_scorer_of
from models.networks.traced import TracedDecoder
from models.networks.traced_readers import TracedYesNoScorer

Scorer: TypeAlias = DecoderPairScorer | TracedYesNoScorer
QUERY, DOCUMENT = "{query}", "{document}"
BEFORE, BEHIND = "<pair-before>", "<pair-behind>"  # names of the parts around all texts


def as_yes_no_scorer(checkpoint: Checkpoint, words: str) -> Checkpoint:
    """The decoder that writes texts, as a scorer by `words`: two with a comma between, or one.

    With one word the score is its logit. Raises `SettingError`.
    """
    decoder = checkpoint.model
    if not isinstance(decoder, GPT | Llama | TracedDecoder):
        limit = f"left out: it is for decoders, and the task of the folder is {checkpoint.task}"
        raise SettingError("yes_no", words, limit)
    is_bent = isinstance(decoder, TracedDecoder) and not is_linear(decoder)
    softcap: float = getattr(decoder.config, "final_softcap", 0.0)
    if softcap or is_bent:
        limit = "left out: the logits of this decoder are capped or scaled, and not linear"
        raise SettingError("yes_no", words, limit)
    given = words.split(",")
    if len(given) > 2:
        raise SettingError("yes_no", words, "one word, or two with a comma between")
    ids = [_id_of(checkpoint.tokenizer, word, words) for word in given]
    rows = _output_of(decoder).weight.detach()[ids]
    row = rows[0] - rows[1] if len(ids) == 2 else rows[0]
    function: ScoreFunction = "" if len(ids) == 2 else "identity"
    if isinstance(decoder, TracedDecoder):
        scorer: Scorer = yes_no_scorer_of(decoder, row, function)
    else:
        scorer = DecoderPairScorer(without_output(decoder), None, function)
        scorer.output.weight = nn.Parameter(row[None].clone())
    others: dict[str, Any] = {"labels": (), "metrics": {}, "chat": {}, "sampling": {}}
    return replace(checkpoint, model=scorer.eval(), task="pair-scoring", **others)


def _output_of(decoder: GPT | Llama | TracedDecoder) -> Any:  # noqa: ANN401
    """The layer that gives logits."""
    if isinstance(decoder, TracedDecoder):
        return decoder.network.get_output_embeddings()
    return decoder.words if isinstance(decoder, GPT) else decoder.output or decoder.words


def read_template(path: Path) -> str:
    """The text of a file; one line feed at its end is the editor's. Raises `CheckpointError`."""
    try:
        return path.read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not a readable text: {reason(error)}") from error


def with_pair_template(checkpoint: Checkpoint, template: str) -> Checkpoint:
    """The scorer of a decoder with a template for its pairs; raises `SettingError`."""
    scorer = checkpoint.model
    if not isinstance(scorer, DecoderPairScorer | TracedYesNoScorer):
        limit = "left out: it is for decoders that score pairs"
        raise SettingError("pair_template", template, limit)
    before, body, behind = split_template(template, checkpoint.tokenizer)
    scorer.template = body
    return replace(checkpoint, tokenizer=surrounding(checkpoint.tokenizer, before, behind))


def split_template(template: str, tokenizer: Tokenizer) -> tuple[str, str, str]:
    """Parts of a template: before all texts, what the server fills in, and behind.

    Raises `SettingError` unless the query and then the document are there, each once.
    """
    if template.count(QUERY) != 1 or template.count(DOCUMENT) != 1:
        raise SettingError("pair_template", template, f"{QUERY} and {DOCUMENT}, each once")
    start, rest = template.split(QUERY)
    if DOCUMENT in start:
        limit = f"{QUERY} before {DOCUMENT}: a long document is cut at the end"
        raise SettingError("pair_template", template, limit)
    between, behind = rest.split(DOCUMENT)
    special = [
        token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special
    ]
    if any(token in between for token in special):
        limit = f"no special token between {QUERY} and {DOCUMENT}"
        raise SettingError("pair_template", template, limit)
    end = max((start.rfind(token) + len(token) for token in special if token in start), default=0)
    return start[:end], f"{start[end:]}{QUERY}{between}{DOCUMENT}", behind


def surrounding(tokenizer: Tokenizer, before: str, behind: str) -> Tokenizer:
    """A copy that puts two texts, as tokens, around every text, and nothing else."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    parts = {name: copy.encode(text, add_special_tokens=False) for name, text in
             ((BEFORE, before), (BEHIND, behind))}  # fmt: skip
    special = [
        {"id": name, "ids": encoding.ids, "tokens": encoding.tokens}
        for name, encoding in parts.items()
        if encoding.ids
    ]
    first = f"{BEFORE} " * bool(parts[BEFORE].ids)
    last = f" {BEHIND}" * bool(parts[BEHIND].ids)
    copy.post_processor = TemplateProcessing(
        single=f"{first}$A{last}", pair=f"{first}$A $B{last}", special_tokens=special
    )
    return copy


def _id_of(tokenizer: Tokenizer, word: str, words: str) -> int:
    ids: list[int] = tokenizer.encode(word, add_special_tokens=False).ids
    if len(ids) != 1:
        limit = f"words of one token each; {shown(word)} has {len(ids)}"
        raise SettingError("yes_no", words, limit)
    return ids[0]
