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
    "modernbert": {**_ENCODER, "local_attention": 8, "global_attn_every_n_layers": 2},
    "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": MAX_TOKENS},
    "llama": _DECODER,
    "qwen2": _DECODER,
    "qwen3": _DECODER,
    "mistral": {**_DECODER, "sliding_window": None},
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
    "classes": transformers.AutoModelForSequenceClassification,
    "score": transformers.AutoModelForSequenceClassification,
    "tokens": transformers.AutoModelForTokenClassification,
    "answers": transformers.AutoModelForQuestionAnswering,
    "masks": transformers.AutoModelForMaskedLM,
    "texts": transformers.AutoModelForSeq2SeqLM,
    "images": transformers.AutoModelForImageClassification,
}
LABELS = {
    "classes": ("ham", "spam", "eggs"),
    "score": ("match",),
    "tokens": ("O", "B-name", "I-name", "B-place"),
    "images": ("cat", "dog", "hen"),
}
# Of sentence-transformers: what is behind the encoder.
MEAN, CLS, LAST = (
    {f"pooling_mode_{name}": True} for name in ("mean_tokens", "cls_token", "lasttoken")
)


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
        torch.manual_seed(3)
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
        if self.pooling:
            size = {"word_embedding_dimension": network.config.hidden_size}
            (folder / "1_Pooling").mkdir()
            (folder / "modules.json").write_text(json.dumps(MODULES))
            pooling = json.dumps({**size, **self.pooling})
            (folder / "1_Pooling" / "config.json").write_text(pooling)
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


MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {
        "idx": 2,
        "name": "2",
        "path": "2_Normalize",
        "type": "sentence_transformers.models.Normalize",
    },
]
IMAGE_PROCESSORS: dict[str, Any] = {
    "vit": ViTImageProcessorPil(size=IMAGE),
    "beit": ViTImageProcessorPil(size=IMAGE),
    "deit": DeiTImageProcessorPil(size={"height": 40, "width": 36}, crop_size=IMAGE),
}
NOISE = 0.2  # the deviation of what is added to each parameter
MULTI_LABEL = {"problem_type": "multi_label_classification"}
REGRESSION = {"problem_type": "regression"}
# transformers has two classifiers of it.
WITHOUT_TEACHER, WITH_TEACHER = (
    {"architectures": [f"DeiTForImageClassification{rest}"]} for rest in ("", "WithTeacher")
)

ROWS = (
    Row("bert", "all-MiniLM-L6-v2, e5", "embedding", form="mean", pooling=MEAN),
    Row("bert", "bge-base-en", "embedding", form="first token", pooling=CLS),
    Row("bert", "finbert", "classes"),
    Row("bert", "unitary/toxic-bert", "classes", form="several labels", changes=MULTI_LABEL),
    Row("bert", "quality estimators", "classes", form="regression", changes=REGRESSION),
    Row("bert", "ms-marco-MiniLM-L6-v2", "score"),
    Row("bert", "bert-base-NER", "tokens"),
    Row("bert", "bert-large-squad", "answers"),
    Row("bert", "bert-base-uncased", "masks"),
    Row("distilbert", "distilbert-sst-2", "classes"),
    Row("distilbert", "distilbert-squad", "answers"),
    Row("distilbert", "distilbert-NER", "tokens"),
    Row("distilbert", "distilbert-base-uncased", "masks"),
    Row("distilbert", "msmarco-distilbert", "embedding", form="mean", pooling=MEAN),
    Row("roberta", "twitter-roberta-sentiment", "classes", "roberta"),
    Row("roberta", "stsb-roberta (cross-encoder)", "score", "roberta"),
    Row("roberta", "all-distilroberta-v1", "embedding", "roberta", "mean", {}, MEAN),
    Row("roberta", "roberta-base-squad2", "answers", "roberta"),
    Row("roberta", "roberta-base", "masks", "roberta"),
    Row("camembert", "camembert-ner", "tokens", "roberta"),
    Row("xlm-roberta", "multilingual-e5", "embedding", "xlm-roberta", "mean", {}, MEAN),
    Row("xlm-roberta", "bge-reranker-v2-m3", "score", "xlm-roberta"),
    Row("xlm-roberta", "xlm-roberta-ner", "tokens", "xlm-roberta"),
    Row("xlm-roberta", "xlm-roberta-squad2", "answers", "xlm-roberta"),
    Row("xlm-roberta", "xlm-roberta-base", "masks", "xlm-roberta"),
    Row("modernbert", "gte-modernbert-base", "embedding", "modernbert", "first token", {}, CLS),
    Row("modernbert", "ModernBERT, fine-tuned", "classes", "modernbert"),
    Row("modernbert", "gte-reranker-modernbert", "score", "modernbert"),
    Row("modernbert", "ModernBERT-base", "masks", "modernbert"),
    Row("modernbert", "ModernBERT, entities", "tokens", "modernbert"),
    Row("electra", "electra, fine-tuned", "classes"),
    Row("electra", "ms-marco-electra-base", "score"),
    Row("albert", "albert, fine-tuned", "classes", "albert"),
    Row("albert", "albert-squad2", "answers", "albert"),
    Row("mpnet", "all-mpnet-base-v2", "embedding", "mpnet", "mean", {}, MEAN),
    Row("deberta-v2", "DeBERTa-v3 for NLI", "classes", "albert"),
    Row("deberta-v2", "mxbai-rerank v1", "score", "albert"),
    Row("nomic_bert", "nomic-embed-text-v1.5", "embedding", form="mean", pooling=MEAN),
    Row("gte", "gte-base-en-v1.5", "embedding", form="first token", pooling=CLS),
    Row("gpt2", "GPT-2, fine-tuned", "classes", "gpt2"),
    Row("llama", "Llama, fine-tuned", "classes", "gpt2"),
    Row("mistral", "e5-mistral", "embedding", "ending", "last token", {}, LAST),
    Row("qwen3", "Qwen3-Embedding", "embedding", "ending", "last token", {}, LAST),
    Row("qwen3", "Qwen3-Reranker, converted", "score", "gpt2"),
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
