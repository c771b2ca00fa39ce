"""The families and heads that are compared with transformers.

Each row is a small network with random weights, made by transformers, and a tokenizer trained in
the run; nothing is downloaded. A row says what its checkpoint is, not whether it works.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from tests.checkpoints.spellings import MAX_TOKENS, SPELLINGS, save_tokenizer, tokenizer

IMAGE = {"height": 32, "width": 32}
_ENCODER: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": MAX_TOKENS + 8,
}
_DECODER: dict[str, Any] = {**_ENCODER, "num_key_value_heads": 2, "head_dim": 16}
_IMAGES: dict[str, Any] = {**_ENCODER, "image_size": 32, "patch_size": 8}
_BART: dict[str, Any] = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "max_position_embeddings": MAX_TOKENS,
}
_T5: dict[str, Any] = {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4}
SIZES: dict[str, dict[str, Any]] = {  # by model_type; others are _ENCODER
    "distilbert": {
        "dim": 64,
        "hidden_dim": 96,
        "n_layers": 3,
        "n_heads": 4,
        "max_position_embeddings": MAX_TOKENS,
    },
    "albert": {**_ENCODER, "embedding_size": 32},
    "electra": {**_ENCODER, "embedding_size": 32},
    "deberta-v2": {
        **_ENCODER,
        "relative_attention": True,
        "pos_att_type": "p2c|c2p",
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "position_buckets": 8,
        "max_relative_positions": -1,
        "position_biased_input": False,
        "conv_kernel_size": 0,
    },
    "modernbert": {**_ENCODER, "local_attention": 8, "global_attn_every_n_layers": 2},
    "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": MAX_TOKENS},
    "llama": _DECODER,
    "qwen2": _DECODER,
    "qwen3": _DECODER,
    "mistral": {**_DECODER, "sliding_window": None},
    "gemma": _DECODER,
    "eurobert": _DECODER,
    "jina_embeddings_v3": {**_ENCODER, "max_position_embeddings": MAX_TOKENS},
    "glm4": _DECODER,
    "gemma3_text": {**_DECODER, "sliding_window": 8, "sliding_window_pattern": 2},
    "bart": _BART,
    "marian": _BART,
    "t5": _T5,
    "mt5": _T5,
    "mbart": _BART,
    "m2m_100": _BART,
    "beit": _IMAGES,
    "vit": _IMAGES,
    "deit": _IMAGES,
}
HEADS: dict[str, Any] = {  # by the part of the architecture's name
    "embedding": transformers.AutoModel,
    "three ways": transformers.AutoModel,
    "terms": transformers.AutoModelForMaskedLM,
    "classes": transformers.AutoModelForSequenceClassification,
    "score": transformers.AutoModelForSequenceClassification,
    "quality": transformers.AutoModelForSequenceClassification,
    "tokens": transformers.AutoModelForTokenClassification,
    "answers": transformers.AutoModelForQuestionAnswering,
    "masks": transformers.AutoModelForMaskedLM,
    "texts": transformers.AutoModelForSeq2SeqLM,
    "images": transformers.AutoModelForImageClassification,
}
LABELS = {
    "classes": ("ham", "spam", "eggs"),
    "score": ("match",),
    "quality": ("fluency",),
    "tokens": ("O", "B-name", "I-name", "B-place"),
    "images": ("cat", "dog", "hen"),
}
# Of sentence-transformers: what is behind the encoder.
MEAN, CLS, LAST = (
    {f"pooling_mode_{name}": True} for name in ("mean_tokens", "cls_token", "lasttoken")
)
# Several are one after the other, in this order.
SEVERAL = {
    f"pooling_mode_{name}": True
    for name in ("max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens")
}


@dataclass(frozen=True, slots=True)
class Dense:
    """A module Dense of sentence-transformers."""

    size: int  # of what it gives
    activation: str  # of torch.nn
    bias: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: a model_type, its head, and what is special in this network of it."""

    kind: str
    checkpoints: str
    head: str
    spelling: str = "bert"
    form: str = ""
    changes: dict[str, Any] = field(default_factory=dict)
    pooling: dict[str, bool] = field(default_factory=dict)  # of a sentence-transformers folder
    seed: int = 3  # with which its answers differ
    dense: tuple[Dense, ...] = ()  # of a sentence-transformers folder, behind its pooling

    @property
    def name(self) -> str:
        """The name of the served model."""
        words = "".join(
            each if each.isalnum() else " " for each in f"{self.kind} {self.head} {self.form}"
        )
        return "-".join(words.split())

    def network(self) -> Any:
        """The network of transformers, random in every tensor; norms stay near 1.

        With norms near 0 a network gives much the same for every text, and nothing would differ.
        """
        torch.manual_seed(self.seed)
        config = transformers.AutoConfig.for_model(self.kind, **self._config())
        network = HEADS[self.head].from_config(config)
        network.train(False)
        for name, parameter in network.named_parameters():
            if self.kind == "marian" and "embed_positions" in name:
                continue  # computed, and in no file
            parameter.data += NOISE * torch.randn_like(parameter)
        return network

    def write(self, folder: Path) -> Any:
        """A folder as the hub has it; the network that is in it."""
        network = self.network()
        network.save_pretrained(folder)
        if self.head == "images":
            IMAGE_PROCESSORS[self.kind].save_pretrained(folder)
        else:
            save_tokenizer(self.spelling, folder)
        if self.head == "three ways":
            write_three_ways(network, folder)
        if self.head == "terms":
            write_terms(folder, self.form.split()[0])
        if self.pooling:
            write_modules(network, folder, self)
        return network

    def _config(self) -> dict[str, Any]:
        values = {**SIZES.get(self.kind, _ENCODER)}
        if self.head != "images":
            spelling = SPELLINGS[self.spelling]
            values["vocab_size"] = tokenizer(self.spelling).get_vocab_size()
            for role in spelling.roles:
                values[f"{role}_id"] = spelling.id_of(role)
        if self.head in LABELS:
            names = dict(enumerate(LABELS[self.head]))
            values["id2label"] = names
            values["label2id"] = {label: index for index, label in names.items()}
        return {**values, **self.changes}


def write_modules(network: Any, folder: Path, row: Row) -> None:
    """What makes an embedder of it; `network` keeps the linear maps as `dense`."""
    size, network.dense = network.config.hidden_size, torch.nn.ModuleList()
    names = ["", "1_Pooling", *(f"{i}_Dense" for i, _ in enumerate(row.dense, start=2))]
    names.append(f"{len(names)}_Normalize")
    modules = [
        {"idx": i, "name": str(i), "path": name, "type": f"sentence_transformers.models.{kind}"}
        for i, name in enumerate(names)
        for kind in [name.partition("_")[2] or "Transformer"]
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    _write_config(folder / "1_Pooling", {"word_embedding_dimension": size, **row.pooling})
    for name, dense in zip(names[2:], row.dense, strict=False):
        linear = torch.nn.Linear(size, dense.size, bias=dense.bias)
        network.dense.append(torch.nn.Sequential(linear, getattr(torch.nn, dense.activation)()))
        activation = f"torch.nn.modules.activation.{dense.activation}"
        sizes = {"in_features": size, "out_features": dense.size, "bias": dense.bias}
        _write_config(folder / name, {**sizes, "activation_function": activation})
        state = {f"linear.{part}": tensor for part, tensor in linear.state_dict().items()}
        save_file(state, folder / name / "model.safetensors")
        size = dense.size


def _write_config(folder: Path, values: dict[str, Any]) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(values))


def write_three_ways(network: Any, folder: Path) -> None:
    """The maps of BGE-M3, as FlagEmbedding has them; `network` keeps them by their names."""
    size = network.config.hidden_size
    for name, num_values in (("sparse_linear", 1), ("colbert_linear", VECTOR_SIZE)):
        head = torch.nn.Linear(size, num_values)
        setattr(network, name, head)
        torch.save(head.state_dict(), folder / f"{name}.pt")


def write_terms(folder: Path, pooling: str) -> None:
    """The files that make SPLADE of a network that fills masks."""
    types = {"": "MLMTransformer", "1_SpladePooling": "SpladePooling"}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (path, name) in enumerate(types.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_SpladePooling").mkdir()
    (folder / "1_SpladePooling" / "config.json").write_text(
        json.dumps({"pooling_strategy": pooling, "activation_function": "relu"})
    )


VECTOR_SIZE = 24  # of a token, where a network has such vectors
IMAGE_PROCESSORS: dict[str, Any] = {
    "vit": ViTImageProcessorPil(size=IMAGE),
    "beit": ViTImageProcessorPil(size=IMAGE),
    "deit": DeiTImageProcessorPil(size={"height": 40, "width": 36}, crop_size=IMAGE),
}
NOISE = 0.2  # the deviation of what is added to each parameter
MULTI_LABEL = {"problem_type": "multi_label_classification"}
REGRESSION = {"problem_type": "regression"}
# A cross-encoder's score is its logit: as sentence-transformers writes it, and did before 4.0.
IDENTITY = "torch.nn.modules.linear.Identity"
RAW = {"sentence_transformers": {"activation_fn": IDENTITY, "version": "4.0.1"}}
OLD_RAW = {"sbert_ce_default_activation_function": IDENTITY}
# transformers has two classifiers of it.
WITHOUT_TEACHER, WITH_TEACHER = (
    {"architectures": [f"DeiTForImageClassification{rest}"]} for rest in ("", "WithTeacher")
)

ROWS = (
    Row("bert", "all-MiniLM-L6-v2, e5", "embedding", form="mean", pooling=MEAN),
    Row("bert", "bge-base-en", "embedding", form="first token", pooling=CLS),
    Row(
        *("bert", "LaBSE", "embedding"),
        form="first token, a dense layer",
        pooling=CLS,
        dense=(Dense(48, "Tanh"),),
    ),
    Row("bert", "older ones", "embedding", form="max, root and weighted mean", pooling=SEVERAL),
    Row("bert", "finbert", "classes"),
    Row("bert", "unitary/toxic-bert", "classes", form="several labels", changes=MULTI_LABEL),
    Row("bert", "quality estimators", "classes", form="regression", changes=REGRESSION),
    Row("bert", "quality estimators", "quality", form="one number", changes=REGRESSION),
    Row("bert", "cross-encoders of one logit", "score"),
    Row("bert", "ms-marco-MiniLM-L6-v2", "score", form="raw", changes=RAW),
    Row("bert", "bert-base-NER", "tokens"),
    Row("bert", "bert-large-squad", "answers"),
    Row("bert", "bert-base-uncased", "masks"),
    Row("bert", "splade-cocondenser", "terms", form="max"),
    Row("distilbert", "distilbert-sst-2", "classes"),
    Row("distilbert", "DistilBERT, topics", "classes", form="several labels", changes=MULTI_LABEL),
    Row("distilbert", "cross-encoders of DistilBERT", "score"),
    Row("distilbert", "distilbert-squad", "answers"),
    Row("distilbert", "distilbert-NER", "tokens"),
    Row("distilbert", "distilbert-base-uncased", "masks"),
    Row("distilbert", "msmarco-distilbert", "embedding", form="mean", pooling=MEAN),
    Row("distilbert", "opensearch-neural-sparse, splade-v1", "terms", form="sum"),
    Row("roberta", "twitter-roberta-sentiment", "classes", "roberta"),
    Row("roberta", "go_emotions", "classes", "roberta", "several labels", MULTI_LABEL),
    Row("roberta", "stsb-roberta (cross-encoder)", "score", "roberta"),
    Row("roberta", "all-distilroberta-v1", "embedding", "roberta", "mean", {}, MEAN),
    Row("roberta", "roberta-base-squad2", "answers", "roberta"),
    Row("roberta", "roberta-base", "masks", "roberta"),
    Row("camembert", "mmarco-camembert (cross-encoder)", "score", "roberta", "raw", OLD_RAW),
    Row("camembert", "camembert-ner", "tokens", "roberta"),
    Row("xlm-roberta", "multilingual-e5", "embedding", "xlm-roberta", "mean", {}, MEAN),
    Row("xlm-roberta", "bge-m3", "three ways", "xlm-roberta", pooling=CLS),
    Row("xlm-roberta", "bge-reranker-v2-m3", "score", "xlm-roberta"),
    Row("xlm-roberta", "quality estimators", "quality", "xlm-roberta", "one number", REGRESSION),
    Row("xlm-roberta", "xlm-roberta-ner", "tokens", "xlm-roberta"),
    Row("xlm-roberta", "xlm-roberta-squad2", "answers", "xlm-roberta"),
    Row("xlm-roberta", "xlm-roberta-base", "masks", "xlm-roberta"),
    Row("modernbert", "gte-modernbert-base", "embedding", "modernbert", "first token", {}, CLS),
    Row("modernbert", "ModernBERT, fine-tuned", "classes", "modernbert"),
    Row("modernbert", "ModernBERT, topics", "classes", "modernbert", "several labels", MULTI_LABEL),
    Row("modernbert", "gte-reranker-modernbert", "score", "modernbert"),
    Row("modernbert", "ModernBERT-base", "masks", "modernbert"),
    Row("modernbert", "ModernBERT, entities", "tokens", "modernbert"),
    Row("electra", "electra, fine-tuned", "classes"),
    Row("electra", "ms-marco-electra-base", "score"),
    Row("albert", "albert, fine-tuned", "classes", "albert"),
    Row("albert", "albert-squad2", "answers", "albert"),
    Row("mpnet", "all-mpnet-base-v2", "embedding", "mpnet", "mean", {}, MEAN),
    Row("deberta-v2", "DeBERTa-v3 for NLI", "classes", "albert"),
    Row("deberta-v2", "mxbai-rerank v1", "score", "albert", seed=5),
    Row("nomic_bert", "nomic-embed-text-v1.5", "embedding", form="mean", pooling=MEAN),
    Row("gte", "gte-base-en-v1.5", "embedding", form="first token", pooling=CLS),
    Row("gpt2", "GPT-2, fine-tuned", "classes", "gpt2"),
    Row("gpt2", "GPT-2, cross-encoder", "score", "gpt2"),
    Row("llama", "Llama, fine-tuned", "classes", "gpt2"),
    Row("mistral", "Mistral, fine-tuned", "classes", "gpt2", "window", {"sliding_window": 5}),
    Row("qwen2", "Qwen2, fine-tuned", "classes", "gpt2"),
    Row("gemma", "Gemma, fine-tuned", "classes", "gpt2"),
    Row("mistral", "e5-mistral", "embedding", "ending", "last token", {}, LAST),
    Row("qwen3", "Qwen3-Embedding", "embedding", "ending", "last token", {}, LAST),
    Row(
        *("qwen2", "gte-Qwen2", "embedding", "ending"),
        form="last token, both ways",
        changes={"is_causal": False},
        pooling=LAST,
    ),
    Row(
        *("qwen3", "voyage-4-nano", "embedding", "ending"),
        form="mean, both ways",
        changes={"is_causal": False},
        pooling=MEAN,
    ),
    Row("qwen3", "Qwen3-Reranker, converted", "score", "gpt2"),
    Row(
        "gemma3_text",
        "EmbeddingGemma",
        "embedding",
        "ending",
        "mean, two dense layers",
        {"use_bidirectional_attention": True},
        MEAN,
        dense=(Dense(96, "Identity", bias=False), Dense(64, "Identity", bias=False)),
    ),
    Row("eurobert", "EuroBERT, fine-tuned", "classes"),
    Row("eurobert", "EuroBERT, embedders", "embedding", form="mean", pooling=MEAN),
    Row("jina_embeddings_v3", "jina-embeddings-v3-hf", "embedding", form="mean", pooling=MEAN),
    Row("ernie", "ernie-3.0, cross-encoder", "score", seed=5),
    Row("ernie", "ernie-3.0", "masks"),
    Row("glm4", "any decoder's body", "embedding", "ending", "last token", {}, LAST),
    Row("marian", "opus-mt", "texts", "t5", changes={"decoder_start_token_id": 0}),
    Row("bart", "bart-large-cnn", "texts", "roberta"),
    Row("t5", "t5-small", "texts", "t5", changes={"decoder_start_token_id": 0}),
    Row(
        "t5",
        "FLAN-T5",
        "texts",
        "t5",
        "gated",
        {
            "decoder_start_token_id": 0,
            "feed_forward_proj": "gated-gelu",
            "tie_word_embeddings": False,
        },
    ),
    Row("mbart", "mbart-large-50", "texts", "roberta", changes={"decoder_start_token_id": 2}),
    Row("mt5", "mt5-small", "texts", "t5", changes={"decoder_start_token_id": 0}),
    Row("m2m_100", "NLLB-200, M2M100", "texts", "t5", changes={"decoder_start_token_id": 1}),
    Row("vit", "vit-base-patch16-224", "images"),
    Row("deit", "DeiT, fine-tuned", "images", changes=WITHOUT_TEACHER),
    Row("deit", "deit-base-distilled", "images", form="teacher", changes=WITH_TEACHER),
    Row("beit", "beit-base-patch16-224", "images"),
)
