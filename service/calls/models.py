"""The call `ListModels`, and the record of what a served model says of itself."""

from collections.abc import Mapping, Sequence

import msgspec


class Prompt(msgspec.Struct, frozen=True):
    """A text that is put in front of others, and its name."""

    name: str
    text: str


class Example(msgspec.Struct, frozen=True):
    """A text or an image to try a model with, and its second part where the task takes two."""

    text: str = ""
    text_pair: str = ""
    context: str = ""
    image: bytes = b""


class ListModels(msgspec.Struct, frozen=True):
    """A request for the facts of all models."""


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a model. The fields are those of the message `Model`, which explains them."""

    name: str
    version: str
    task: str = "tensors"
    max_batch_size: int = 0
    parent: str = ""
    precision: str = ""
    layout: str = ""
    layout_reason: str = ""
    graph_device: str = ""
    origin: str = ""
    max_tokens: int = 0
    num_layers: int = 0
    num_heads: int = 0
    labels: Sequence[str] = ()
    score_function: str = ""
    example: str = ""
    examples: Sequence[Example] = ()
    vocabulary_size: int = 0
    eos_token_ids: Sequence[int] = ()
    has_source: bool = False
    has_words: bool = False
    mask_token: str = ""
    symbols: Sequence[str] = ()
    image_height: int = 0
    image_width: int = 0
    image_channels: int = 0
    has_chat_template: bool = False
    tool_call_form: str = ""
    reasoning_form: str = ""
    sampling_defaults: Mapping[str, float] = {}
    grammar_kinds: Sequence[str] = ()
    embedding_size: int = 0
    pooling: str = ""
    prompts: Sequence[Prompt] = ()
    default_prompt: str = ""
    dimensions: Sequence[int] = ()
    embedding_kinds: Sequence[str] = ()
    sparse_size: int = 0
    token_vector_size: int = 0

    def also(self, **more: object) -> "ModelFacts":
        """A copy of the facts, with further ones."""
        return msgspec.structs.replace(self, **more)


class Models(msgspec.Struct, frozen=True):
    """The facts of all models, and the number of texts that a request has at most."""

    models: Sequence[ModelFacts]
    max_texts: int
