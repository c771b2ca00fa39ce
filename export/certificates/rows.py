"""All comparisons, a row each: what is compared, how, what it needs, and by how much it may differ.

Of rows in one group the first that can be made counts, so that what needs another library stands
before what transformers and our own reading of the folder tell. A row's two sides are functions of
a case and an item; what fails on the other side is not compared, and says why.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from export.certificates.case import Case, NotComparedError
from export.certificates.probes import (
    COMPARED,
    COMPARED_PAIRS,
    CONVERSATIONS,
    NUM_IMAGES,
    PAIRS,
    PROBES,
    Conversation,
)
from export.checks.parity import pad, run_network
from models.errors import shown
from models.networks.decoder_readers import DecoderEmbedder, DecoderPairScorer
from models.networks.heads import LAYERS, TextEmbedder
from models.networks.retrieval import TermEmbedder, ThreeWayEmbedder
from models.networks.transformer import Transformer
from service.calls.conversation import Conversation as Asked
from service.errors import InvalidArgument
from service.text.conversation import TOKENIZER_CONFIG, ChatTemplates
from service.text.template_process import TemplateLimits, TemplateProcess

Texts = tuple[str, ...]  # one text, or a pair
MAX_PROMPTS = 4  # of an embedder that are compared
RENDER = TemplateLimits(limit_s=5.0, max_characters=2**20)
REFUSED = "refused by the template"
PAIR_TASKS = "pair-scoring", "question-answering"
SCORES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda logits: logits.softmax(-1),
    "sigmoid": torch.sigmoid,
    "identity": lambda logits: logits,
}


class Item(NamedTuple):
    """A value that both sides are given, and its name for people."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row of the table."""

    what: str
    group: str
    library: str
    is_for: Callable[[Case], bool]
    items: Callable[[Case], Sequence[Item]]
    ours: Callable[[Case, Any], Any]
    theirs: Callable[[Case, Any], Any]
    class_name: str = ""  # of transformers, whose network gives the other side
    note: str = ""
    allowed_of_gguf: int = 0  # that may differ, as transformers' own conversion may be at fault


# Items.
def _text_items(rows: Sequence[Texts], case: Case) -> list[Item]:
    """Items of the rows that the model takes as a whole."""
    items = [
        Item(f"the text {shown(' / '.join(row))}", row)
        for row in rows
        if len(case.encoded(row).ids) <= case.checkpoint.max_tokens
    ]
    if not items:
        raise NotComparedError(f"no text has {case.checkpoint.max_tokens} tokens at most")
    return items


def compared(case: Case) -> list[Item]:
    single = [(text,) for text in COMPARED]
    return _text_items(COMPARED_PAIRS if case.checkpoint.task in PAIR_TASKS else single, case)


def probes(case: Case) -> list[Item]:
    rows: list[Texts] = [(text,) for text in PROBES[: len(PROBES) - len(PAIRS)]]
    is_written = case.checkpoint.task == "text-generation"
    rows += [(text,) for text in PROBES[-len(PAIRS) :]] if is_written else list(PAIRS)
    return [Item(f"the text {shown(' / '.join(row))}", row) for row in rows]


def masked(case: Case) -> list[Item]:
    """Texts with a mask in place of a word."""
    mask = case.checkpoint.tokenizer.id_to_token(case.model.mask_token_id) or ""
    split = [text.split(" ") for text in COMPARED]
    rows = [(" ".join([*words[:2], mask, *words[3:]]),) for words in split]
    return _text_items(rows, case)


def prompted(case: Case) -> list[Item]:
    """Texts behind each of the first prompts, and behind that of the folder's own choice."""
    use = case.checkpoint.embedder
    names = [None, *list(use.prompts)[:MAX_PROMPTS]]
    return [
        Item(
            f"{item.name} with the prompt {name or use.default_prompt or 'none'}",
            (name, item.value[0]),
        )
        for name in names
        for item in _text_items([(text,) for text in COMPARED], case)
    ]


def conversations(_: Case) -> list[Item]:
    return [Item(f"the conversation of {each.name}", each) for each in CONVERSATIONS]


def _images(case: Case) -> list[Item]:
    config = case.checkpoint.config
    random = torch.Generator().manual_seed(1)
    shape = (1, config.channels, config.height, config.width)
    return [
        Item(f"image {number} of noise", torch.randn(shape, generator=random))
        for number in range(NUM_IMAGES)
    ]


# Tokens, conversations and labels.
def _has_template(case: Case) -> bool:
    return bool(getattr(case.checkpoint.model, "pair_template", ""))


def _typed(ids: Sequence[int], types: Sequence[int], case: Case) -> list[Any]:
    """Ids, with their types where the network reads these."""
    has_types = getattr(case.checkpoint.model, "has_token_types", False)
    return list(zip(ids, types, strict=True)) if has_types else list(ids)


def our_tokens(case: Case, row: Texts) -> list[Any]:
    encoding = case.encoded(row, adds_special=not _has_template(case))
    return _typed(encoding.ids, encoding.type_ids, case)


def _their_tokens(case: Case, row: Texts) -> list[Any] | None:
    """Tokens of transformers; None where it adds one to the vocabulary of a GGUF file."""
    made = case.tokenizer(
        *case.given(row), verbose=False, add_special_tokens=not _has_template(case)
    )
    ids = list(made["input_ids"])
    if case.gguf is not None and max(ids, default=0) >= case.checkpoint.config.vocab_size:
        return None
    return _typed(ids, made.get("token_type_ids", [0] * len(ids)), case)


def our_prompt(case: Case, asked: Conversation) -> tuple[str, list[int]]:
    templates = ChatTemplates.of({TOKENIZER_CONFIG: json.dumps(dict(case.checkpoint.chat))})
    if templates is None:
        return "no template", []
    conversation = Asked(asked.messages, asked.tools, asked.variables)
    process = TemplateProcess(templates.texts, templates.special_tokens, RENDER)
    try:
        name = templates.choose(conversation)
        text = process.render(
            {
                "template": name,
                "messages": templates.messages_for(name, conversation),
                "tools": list(asked.tools),
                "variables": dict(asked.variables),
                "has_answer_prompt": True,
                "continues_last": False,
            }
        )
    except InvalidArgument:
        return REFUSED, []
    finally:
        process.close()
    return text, case.checkpoint.tokenizer.encode(text, add_special_tokens=False).ids


def _their_prompt(case: Case, asked: Conversation) -> tuple[str, list[int]]:
    if not case.tokenizer.chat_template:
        return "no template", []
    try:
        text = case.tokenizer.apply_chat_template(
            [dict(message) for message in asked.messages],
            tools=list(asked.tools) or None,
            add_generation_prompt=True,
            tokenize=False,
            **asked.variables,
        )
    except Exception as error:
        if not type(error).__module__.startswith("jinja2"):
            raise
        return REFUSED, []
    return text, list(case.tokenizer(text, add_special_tokens=False)["input_ids"])


def _their_label(case: Case, number: int) -> str:
    return str(case.config.id2label[number])


# Outputs of networks.
def _batch(case: Case, row: Texts) -> dict[str, Any]:
    template = getattr(case.checkpoint.model, "pair_template", "")
    if template:
        row = (template.replace("{query}", row[0]).replace("{document}", row[1]),)
    encoding = case.encoded(row)
    return pad([encoding.ids], case.model.pad_token_id, [encoding.type_ids])


def output(case: Case, row: Texts) -> np.ndarray:
    """The first output of a network that reads texts."""
    values: np.ndarray = next(iter(run_network(case.model, _batch(case, row)).values()))
    return values


def _inputs(case: Case, row: Texts, theirs: Any) -> dict[str, Tensor]:  # noqa: ANN401
    """Inputs by transformers' tokenizer; our tokens where it makes none of the files."""
    try:
        made = dict(case.tokenizer(*case.given(row), return_tensors="pt"))
    except NotComparedError:
        encoding = case.encoded(row)
        named = {"input_ids": encoding.ids, "token_type_ids": encoding.type_ids}
        made = {name: torch.tensor([values]) for name, values in named.items()}
    ids = made["input_ids"]
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    has_types = (getattr(theirs.config, "type_vocab_size", 0) or 0) > 1
    types = made.get("token_type_ids")
    return {**inputs, "token_type_ids": types} if has_types and types is not None else inputs


def _made(class_name: str, case: Case, row: Texts, **more: Any) -> tuple[Any, Tensor]:  # noqa: ANN401
    """The outputs of the other side's network, and the token ids [1, S] that it was given."""
    theirs, _ = case.network(class_name)
    inputs = _inputs(case, row, theirs)
    return theirs(**inputs, **more), inputs["input_ids"]


CLASSES = "AutoModelForSequenceClassification"
TOKENS = "AutoModelForTokenClassification"
SPANS = "AutoModelForQuestionAnswering"
WORDS = "AutoModelForMaskedLM"
STATES = "AutoModel"
TEXTS = "AutoModelForCausalLM"
SOURCES = "AutoModelForSeq2SeqLM"
IMAGES = "AutoModelForImageClassification"


def _their_logits(case: Case, row: Texts) -> np.ndarray:
    return _numbers(_made(CLASSES, case, row)[0].logits)


def _their_token_logits(case: Case, row: Texts) -> np.ndarray:
    return _numbers(_made(TOKENS, case, row)[0].logits[0])


def _their_spans(case: Case, row: Texts) -> np.ndarray:
    made, _ = _made(SPANS, case, row)
    return _numbers(torch.stack([made.start_logits[0], made.end_logits[0]], dim=1))


def our_words(case: Case, row: Texts) -> np.ndarray:
    return _numbers(torch.from_numpy(output(case, row)).log_softmax(-1))


def _their_words(case: Case, row: Texts) -> np.ndarray:
    made, ids = _made(WORDS, case, row)
    return _numbers(made.logits[ids == case.tokenizer.mask_token_id].log_softmax(-1))


def _our_states(case: Case, row: Texts) -> np.ndarray:
    """Hidden states that vectors are made of."""
    encoding = case.encoded(row)
    ids = torch.tensor([encoding.ids])
    mask = torch.ones_like(ids)
    if isinstance(case.model, DecoderEmbedder):
        return _numbers(case.model.decoder.hidden_states(ids, mask))
    types = torch.tensor([encoding.type_ids]) if case.model.encoder.config.type_vocab_size else None
    return _numbers(LAYERS[_layers(case)](case.model.encoder(ids, mask, types)))


def _their_states(case: Case, row: Texts) -> np.ndarray:
    layers = _layers(case)
    made, _ = _made(STATES, case, row, output_hidden_states=layers != "last")
    if layers == "last":
        return _numbers(made.last_hidden_state)
    return _numbers(LAYERS[layers](made.hidden_states))


def _layers(case: Case) -> str:
    return str(getattr(case.model, "layers", "last"))


def _their_terms(case: Case, row: Texts) -> np.ndarray:
    """Weights of words by transformers' logits, pooled as the folder says."""
    logits = _made(WORDS, case, row)[0].logits[0]
    weights = torch.log1p(torch.relu(logits))
    weights = torch.log1p(weights) if case.model.weights == "log1p_relu" else weights
    pooled = weights.amax(0) if case.model.pooling == "max" else weights.sum(0)
    return _numbers(pooled[None])


def _our_next(case: Case, row: Texts) -> np.ndarray:
    ids = torch.tensor([case.encoded(row).ids])
    return _numbers(case.model(ids).log_softmax(-1))


def _their_next(case: Case, row: Texts) -> np.ndarray:
    logits = _made(TEXTS, case, row)[0].logits[..., : case.model.config.vocab_size]
    return _numbers(logits.log_softmax(-1))


def _their_judgement(case: Case, row: Texts) -> np.ndarray:
    """The logit of the first of two words less that of the second, behind our tokens."""
    assert case.yes_no is not None, "the row is for such scorers"
    theirs, _ = case.network(TEXTS)
    ids = torch.from_numpy(_batch(case, row)["input_ids"])
    last = theirs(input_ids=ids).logits[0, -1]
    words = [case.checkpoint.tokenizer.encode(each, add_special_tokens=False).ids[0]
             for each in case.yes_no.split(",")]  # fmt: skip
    score = last[words[0]] - (last[words[1]] if len(words) > 1 else 0)
    return _numbers(score.reshape(1, 1))


def _target(ids: Tensor, start: int) -> Tensor:
    """The source in place of an output, behind the start token."""
    return torch.cat([torch.full((1, 1), start), ids[:, :-1]], dim=1)


def _our_translation(case: Case, row: Texts) -> np.ndarray:
    ids = torch.tensor([case.encoded(row).ids])
    target = _target(ids, case.model.config.start_token_id)
    return _numbers(case.model(ids, torch.ones_like(ids), target).log_softmax(-1))


def _their_translation(case: Case, row: Texts) -> np.ndarray:
    theirs, _ = case.network(SOURCES)
    inputs = _inputs(case, row, theirs)
    target = _target(inputs["input_ids"], theirs.config.decoder_start_token_id)
    return _numbers(theirs(**inputs, decoder_input_ids=target).logits.log_softmax(-1))


def _our_image(case: Case, pixels: Tensor) -> np.ndarray:
    return _numbers(case.model(pixels))


def _their_image(case: Case, pixels: Tensor) -> np.ndarray:
    return _numbers(case.network(IMAGES)[0](pixels).logits)


def _numbers(tensor: Tensor) -> np.ndarray:
    values: np.ndarray = tensor.detach().to(torch.float32).numpy()
    return values


# sentence-transformers, which reads a folder as a whole.
@lru_cache(maxsize=1)
def _whole(class_name: str, folder: str) -> Any:  # noqa: ANN401 - of the library
    whole = getattr(import_module("sentence_transformers"), class_name)
    return whole(folder, device="cpu", trust_remote_code=False, local_files_only=True)


def _is_whole(case: Case) -> bool:
    """Whether sentence-transformers reads the folder, and it was imported as it is."""
    plain = case.adapter is None and case.gguf is None and not case.is_rounded
    return plain and case.is_as_declared and not case.is_large


def _is_vector(case: Case) -> bool:
    is_declared = (case.folder / "modules.json").is_file()
    is_one = isinstance(case.checkpoint.model, TextEmbedder | DecoderEmbedder | ThreeWayEmbedder)
    return is_declared and is_one and _is_whole(case)


def our_vector(case: Case, prompted: tuple[str | None, str]) -> np.ndarray:
    name, text = prompted
    use = case.checkpoint.embedder
    prompt = use.prompts.get(name or use.default_prompt, "")
    return output(case, (prompt + text,))


def _their_vector(case: Case, prompted: tuple[str | None, str]) -> np.ndarray:
    name, text = prompted
    model = _whole("SentenceTransformer", str(case.folder))
    return _numbers(model.encode([text], prompt_name=name, convert_to_tensor=True))


def our_score(case: Case, row: Texts) -> np.ndarray:
    function = SCORES[case.model.score_function or "sigmoid"]
    return _numbers(function(torch.from_numpy(output(case, row)))[0])


def _their_score(case: Case, row: Texts) -> np.ndarray:
    model = _whole("CrossEncoder", str(case.folder))
    scores: np.ndarray = model.predict([row], show_progress_bar=False)
    return scores


def _their_sparse(case: Case, row: Texts) -> np.ndarray:
    model = _whole("SparseEncoder", str(case.folder))
    made = model.encode([row[0]], convert_to_sparse_tensor=False, show_progress_bar=False)
    return _numbers(made)


def _is(task: str) -> Callable[[Case], bool]:
    return lambda case: case.checkpoint.task == task


def _is_translator(case: Case) -> bool:
    return isinstance(case.checkpoint.model, Transformer)


OUTPUTS = "outputs"
POOLED = "prompts, pooling and maps as we read them, without sentence-transformers"
_row = partial(Comparison, group=OUTPUTS, library="transformers", items=compared, ours=output)
ROWS: tuple[Comparison, ...] = (
    Comparison(
        "tokens",
        "tokens",
        "transformers",
        lambda case: case.checkpoint.task != "image-classification",
        probes,
        our_tokens,
        _their_tokens,
        allowed_of_gguf=10,
    ),
    Comparison(
        "conversations",
        "conversations",
        "transformers",
        lambda case: bool(case.checkpoint.chat),
        conversations,
        our_prompt,
        _their_prompt,
    ),
    Comparison(
        "labels",
        "labels",
        "transformers",
        lambda case: bool(case.checkpoint.labels) and case.adapter is None,
        lambda case: [Item(f"label {n}", n) for n in range(len(case.checkpoint.labels))],
        lambda case, number: case.checkpoint.labels[number],
        _their_label,
    ),
    _row(
        "vectors",
        library="sentence_transformers",
        is_for=_is_vector,
        items=prompted,
        ours=our_vector,
        theirs=_their_vector,
    ),
    _row(
        "weights of words",
        library="sentence_transformers",
        is_for=lambda case: isinstance(case.checkpoint.model, TermEmbedder) and _is_whole(case),
        theirs=_their_sparse,
    ),
    _row(
        "scores",
        library="sentence_transformers",
        is_for=lambda case: (
            case.checkpoint.task == "pair-scoring"
            and not case.yes_no
            and _is_whole(case)
            and not _has_template(case)
        ),
        ours=our_score,
        theirs=_their_score,
    ),
    _row(
        "weights of words",
        is_for=lambda case: isinstance(case.checkpoint.model, TermEmbedder),
        theirs=_their_terms,
        class_name=WORDS,
        note=POOLED,
    ),
    _row(
        "hidden states",
        is_for=_is("embedding"),
        ours=_our_states,
        theirs=_their_states,
        class_name=STATES,
        note=POOLED,
    ),
    _row(
        "logits",
        is_for=lambda case: (
            isinstance(case.checkpoint.model, DecoderPairScorer) and case.yes_no is not None
        ),
        theirs=_their_judgement,
        class_name=TEXTS,
    ),
    *(
        _row("logits", is_for=_is(task), theirs=theirs, class_name=class_name)
        for task, theirs, class_name in (
            ("text-classification", _their_logits, CLASSES),
            ("pair-scoring", _their_logits, CLASSES),
            ("token-classification", _their_token_logits, TOKENS),
            ("question-answering", _their_spans, SPANS),
        )
    ),
    _row(
        "log probabilities",
        is_for=_is("fill-mask"),
        items=masked,
        ours=our_words,
        theirs=_their_words,
        class_name=WORDS,
    ),
    _row(
        "log probabilities",
        is_for=_is_translator,
        ours=_our_translation,
        theirs=_their_translation,
        class_name=SOURCES,
    ),
    _row(
        "log probabilities",
        is_for=lambda case: _is("text-generation")(case) and not _is_translator(case),
        ours=_our_next,
        theirs=_their_next,
        class_name=TEXTS,
    ),
    _row(
        "logits",
        is_for=_is("image-classification"),
        items=_images,
        ours=_our_image,
        theirs=_their_image,
        class_name=IMAGES,
    ),
)
