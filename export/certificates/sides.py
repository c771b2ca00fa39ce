"""The sides of comparisons: what our import gives for an item, and what another library does."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from export.adopted.reference import vector_of
from export.certificates.case import Case, NotComparedError
from export.certificates.graphs import GraphSubject
from export.certificates.items import Texts
from export.certificates.probes import Conversation
from export.checks.parity import pad, run_network
from models.networks.decoder_readers import DecoderEmbedder
from models.networks.heads import LAYERS
from models.networks.traced_readers import TracedEmbedder
from service.calls.conversation import Conversation as Asked
from service.errors import InvalidArgument
from service.text.conversation import TOKENIZER_CONFIG, ChatTemplates
from service.text.template_process import TemplateLimits, TemplateProcess

RENDER = TemplateLimits(limit_s=5.0, max_characters=2**20)
REFUSED = "refused by the template"
SCORES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda logits: logits.softmax(-1),
    "sigmoid": torch.sigmoid,
    "identity": lambda logits: logits,
}
# Classes of transformers.
CLASSES = "AutoModelForSequenceClassification"
TOKENS = "AutoModelForTokenClassification"
SPANS = "AutoModelForQuestionAnswering"
WORDS = "AutoModelForMaskedLM"
STATES = "AutoModel"
TEXTS = "AutoModelForCausalLM"
SOURCES = "AutoModelForSeq2SeqLM"
IMAGES = "AutoModelForImageClassification"


# Tokens, conversations and labels.
def has_template(case: Case) -> bool:
    return bool(getattr(case.checkpoint.model, "pair_template", ""))


def _typed(ids: Sequence[int], types: Sequence[int], case: Case) -> list[Any]:
    """Ids, with their types where the network reads these."""
    has_types = getattr(case.checkpoint.model, "has_token_types", False)
    return list(zip(ids, types, strict=True)) if has_types else list(ids)


def our_tokens(case: Case, row: Texts) -> list[Any]:
    encoding = case.encoded(row, adds_special=not has_template(case))
    return _typed(encoding.ids, encoding.type_ids, case)


def their_tokens(case: Case, row: Texts) -> list[Any] | None:
    """Tokens of transformers; None where it adds one to the vocabulary of a GGUF file."""
    made = case.tokenizer(
        *case.given(row), verbose=False, add_special_tokens=not has_template(case)
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


def their_prompt(case: Case, asked: Conversation) -> tuple[str, list[int]]:
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


def their_label(case: Case, number: int) -> str:
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


def their_logits(case: Case, row: Texts) -> np.ndarray:
    return _numbers(_made(CLASSES, case, row)[0].logits)


def their_token_logits(case: Case, row: Texts) -> np.ndarray:
    return _numbers(_made(TOKENS, case, row)[0].logits[0])


def their_spans(case: Case, row: Texts) -> np.ndarray:
    made, _ = _made(SPANS, case, row)
    return _numbers(torch.stack([made.start_logits[0], made.end_logits[0]], dim=1))


def our_words(case: Case, row: Texts) -> np.ndarray:
    return _numbers(torch.from_numpy(output(case, row)).log_softmax(-1))


def their_words(case: Case, row: Texts) -> np.ndarray:
    made, ids = _made(WORDS, case, row)
    return _numbers(made.logits[ids == case.tokenizer.mask_token_id].log_softmax(-1))


def our_states(case: Case, row: Texts) -> np.ndarray:
    """Hidden states that vectors are made of."""
    encoding = case.encoded(row)
    ids = torch.tensor([encoding.ids])
    mask = torch.ones_like(ids)
    if isinstance(case.model, DecoderEmbedder):
        return _numbers(case.model.decoder.hidden_states(ids, mask))
    if isinstance(case.model, TracedEmbedder):
        types = torch.tensor([encoding.type_ids]) if case.model.has_token_types else None
        made = case.model.network(**case.model.inputs(ids, mask, types))
        return _numbers(made.last_hidden_state)
    types = torch.tensor([encoding.type_ids]) if case.model.encoder.config.type_vocab_size else None
    return _numbers(LAYERS[_layers(case)](case.model.encoder(ids, mask, types)))


def their_states(case: Case, row: Texts) -> np.ndarray:
    layers = _layers(case)
    made, _ = _made(STATES, case, row, output_hidden_states=layers != "last")
    if layers == "last":
        return _numbers(made.last_hidden_state)
    return _numbers(LAYERS[layers](made.hidden_states))


def has_own_pooling(case: Case) -> bool:
    """Whether vectors are pooled as a folder's files say, in a graph."""
    return isinstance(case.checkpoint, GraphSubject) and case.checkpoint.vectors is not None


def their_pooled(case: Case, prompted: tuple[str | None, str]) -> np.ndarray:
    """The vector of transformers' states, as the graph pools its own."""
    subject = case.checkpoint
    assert isinstance(subject, GraphSubject), "the row is for graphs"
    assert subject.vectors is not None, "the row is for vectors that are pooled"
    made, _ = _made(STATES, case, (prompt_of(case, prompted),))
    return vector_of(_numbers(made.last_hidden_state[0]), subject.vectors)[None]


def _layers(case: Case) -> str:
    return str(getattr(case.model, "layers", "last"))


def their_terms(case: Case, row: Texts) -> np.ndarray:
    """Weights of words by transformers' logits, pooled as the folder says."""
    logits = _made(WORDS, case, row)[0].logits[0]
    weights = torch.log1p(torch.relu(logits))
    weights = torch.log1p(weights) if case.model.weights == "log1p_relu" else weights
    pooled = weights.amax(0) if case.model.pooling == "max" else weights.sum(0)
    return _numbers(pooled[None])


def our_next(case: Case, row: Texts) -> np.ndarray:
    ids = torch.tensor([case.encoded(row).ids])
    return _numbers(case.model(ids).log_softmax(-1))


def their_next(case: Case, row: Texts) -> np.ndarray:
    logits = _made(TEXTS, case, row)[0].logits[..., : case.model.config.vocab_size]
    return _numbers(logits.log_softmax(-1))


def their_judgement(case: Case, row: Texts) -> np.ndarray:
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


def our_translation(case: Case, row: Texts) -> np.ndarray:
    ids = torch.tensor([case.encoded(row).ids])
    target = _target(ids, case.model.config.start_token_id)
    return _numbers(case.model(ids, torch.ones_like(ids), target).log_softmax(-1))


def their_translation(case: Case, row: Texts) -> np.ndarray:
    theirs, _ = case.network(SOURCES)
    inputs = _inputs(case, row, theirs)
    target = _target(inputs["input_ids"], theirs.config.decoder_start_token_id)
    return _numbers(theirs(**inputs, decoder_input_ids=target).logits.log_softmax(-1))


def our_image(case: Case, pixels: Tensor) -> np.ndarray:
    return _numbers(case.model(pixels))


def their_image(case: Case, pixels: Tensor) -> np.ndarray:
    return _numbers(case.network(IMAGES)[0](pixels).logits)


def _numbers(tensor: Tensor) -> np.ndarray:
    values: np.ndarray = tensor.detach().to(torch.float32).numpy()
    return values


# sentence-transformers, which reads a folder as a whole.
@lru_cache(maxsize=1)
def _whole(class_name: str, folder: str) -> Any:  # noqa: ANN401 - of the library
    whole = getattr(import_module("sentence_transformers"), class_name)
    return whole(folder, device="cpu", trust_remote_code=False, local_files_only=True)


def our_vector(case: Case, prompted: tuple[str | None, str]) -> np.ndarray:
    return output(case, (prompt_of(case, prompted),))


def prompt_of(case: Case, prompted: tuple[str | None, str]) -> str:
    """A text behind the prompt of that name, or of the folder's own choice."""
    name, text = prompted
    use = case.checkpoint.embedder
    return use.prompts.get(name or use.default_prompt, "") + text


def their_vector(case: Case, prompted: tuple[str | None, str]) -> np.ndarray:
    name, text = prompted
    model = _whole("SentenceTransformer", str(case.folder))
    return _numbers(model.encode([text], prompt_name=name, convert_to_tensor=True))


def our_score(case: Case, row: Texts) -> np.ndarray:
    function = SCORES[case.model.score_function or "sigmoid"]
    return _numbers(function(torch.from_numpy(output(case, row)))[0])


def their_score(case: Case, row: Texts) -> np.ndarray:
    model = _whole("CrossEncoder", str(case.folder))
    scores: np.ndarray = model.predict([row], show_progress_bar=False)
    return scores


def their_sparse(case: Case, row: Texts) -> np.ndarray:
    model = _whole("SparseEncoder", str(case.folder))
    made = model.encode([row[0]], convert_to_sparse_tensor=False, show_progress_bar=False)
    return _numbers(made)
