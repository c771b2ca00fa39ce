"""Sessions and manifests of made-up models, one or more for each task."""

from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tokenizers import Tokenizer

from service.contract.image_input import ImageInput
from service.contract.manifest import Example, Manifest
from service.contract.tensors import Arrays, Signature
from tests.fakes.sessions import FIRST_ID, PAD_ID, WORDS, FakeSession, spec, token_ids, write_model

MAX_TOKENS = 20  # of models for masks, entities and answers
MASK_ID = 4 + len(WORDS)  # after the words of the fakes' tokenizer


NUM_TOKENS = MASK_ID + 1


def logits_at(ids: np.ndarray, place: int) -> np.ndarray:
    """[V] of the mask at a place: depends on the word before it and its own place."""
    weights = np.arange(NUM_TOKENS) + 1
    return (-((weights * (int(ids[place - 1]) + place)) % 17) / 2).astype(np.float32)


def mask_session() -> FakeSession:
    """Packed rows of the masks of all texts, one after the other."""
    inputs = tuple(spec(name, "INT64", -1, -1) for name in ("input_ids", "attention_mask"))

    def compute(arrays: Arrays) -> dict[str, np.ndarray]:
        rows = [
            logits_at(ids, place)
            for ids in arrays["input_ids"]
            for place in np.flatnonzero(ids == MASK_ID).tolist()
        ]
        return {"logits": np.array(rows, np.float32).reshape(-1, NUM_TOKENS)}

    return FakeSession(Signature(inputs, (spec("logits", "FP32", -1, NUM_TOKENS),)), compute)


def write_fill_mask(repository: Path, name: str = "fills") -> None:
    """A model that fills masks."""
    manifest = Manifest(
        task="fill-mask",
        precision="fp32",
        max_tokens=MAX_TOKENS,
        pad_token_id=PAD_ID,
        mask_token_id=MASK_ID,
        example="win the [MASK]",
    )
    folder = write_model(repository, name, manifest)
    tokenizer = Tokenizer.from_file(str(folder / "1" / "tokenizer.json"))
    tokenizer.add_special_tokens(["[MASK]"])
    tokenizer.save(str(folder / "1" / "tokenizer.json"))


TAGS = ("O", "B-prize", "I-prize")


WIN, PRIZE, FREE, CASH = (token_ids(word)[1] for word in ("win", "prize", "free", "cash"))


def packed_session(logits_of: Any) -> FakeSession:
    """Rows of the real tokens of all texts, one after the other."""
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = tuple(spec(name, "INT64", -1, -1) for name in names)

    def compute(arrays: Arrays) -> dict[str, np.ndarray]:
        rows = zip(*(arrays[name] for name in names), strict=True)
        return {
            "logits": np.concatenate(
                [logits_of(ids[mask == 1], types[mask == 1]) for ids, mask, types in rows]
            )
        }

    size = logits_of(np.array([FIRST_ID]), np.array([0])).shape[1]
    return FakeSession(Signature(inputs, (spec("logits", "FP32", -1, size),)), compute)


def tag_logits(ids: np.ndarray, _: np.ndarray) -> np.ndarray:
    """`win` begins an entity, and `prize` goes on with one."""
    logits = np.zeros((len(ids), len(TAGS)), np.float32)
    logits[:, 0] = 2
    logits[ids == WIN, 1], logits[ids == PRIZE, 2] = 6, 6
    return logits


def span_logits(ids: np.ndarray, _: np.ndarray) -> np.ndarray:
    """An answer starts at `free` and ends at `cash`; without both there is none."""
    logits = np.zeros((len(ids), 2), np.float32)
    logits[ids == FREE, 0], logits[ids == CASH, 1] = 6, 6
    logits[0] = 4
    return logits


def reading_manifest(task: Any, **fields: Any) -> Manifest:
    return Manifest(
        task=task, precision="fp32", max_tokens=MAX_TOKENS, pad_token_id=PAD_ID, **fields
    )


NUM_LAYERS, SIZE = 4, 3


def states_of(ids: Sequence[int]) -> np.ndarray:
    """What the model's graph says of one text, [S, L + 1, D]: of token, place, layer and value."""
    tokens = np.array(ids, np.float32)[:, None, None] * np.arange(1, len(ids) + 1)[:, None, None]
    layers = np.arange(NUM_LAYERS + 1)[None, :, None]
    values = np.arange(SIZE)[None, None, :]
    states: np.ndarray = (tokens / 4 + layers * layers - values).astype(np.float32)
    return states


def hidden_states_session(num_layers: int = NUM_LAYERS) -> FakeSession:
    """All states of the real tokens, one text after the other."""
    inputs = tuple(spec(name, "INT64", -1, -1) for name in ("input_ids", "attention_mask"))

    def compute(arrays: Arrays) -> dict[str, np.ndarray]:
        pairs = zip(arrays["input_ids"], arrays["attention_mask"], strict=True)
        rows = [states_of(ids[mask == 1].tolist())[:, : num_layers + 1] for ids, mask in pairs]
        return {"hidden_states": np.concatenate(rows)}

    output = spec("hidden_states", "FP32", -1, num_layers + 1, SIZE)
    return FakeSession(Signature(inputs, (output,)), compute)


def features_manifest(num_layers: int = NUM_LAYERS) -> Manifest:
    return Manifest(
        task="features",
        precision="fp32",
        max_tokens=12,
        pad_token_id=PAD_ID,
        embedding_size=SIZE,
        num_layers=num_layers,
    )


IMAGE_LABELS = ("dark", "bright", "neither")


def file_of(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    content = BytesIO()
    Image.fromarray(pixels).save(content, kind)
    return content.getvalue()


GREY = np.zeros((8, 8), np.uint8)
WHITE = file_of(np.full((8, 8), 255, np.uint8))
IMAGE_MANIFEST = Manifest(
    "image-classification",
    "fp32",
    17,
    0,
    IMAGE_LABELS,
    image=ImageInput(8, 8, 1, (0.0,), (1.0,)),
    examples=(Example("a blank", image=b64encode(WHITE).decode()),),
)


SEEN_MANIFEST = Manifest(
    *("image-attention", "fp32", 5, 0, IMAGE_LABELS),
    image=ImageInput(8, 8, 1, (0.0,), (1.0,)),
    num_layers=2,
    num_heads=2,
)


def image_attention_session() -> FakeSession:
    """The same with weights between four patches and the class token: all alike, but in head 1."""
    plain = image_session()
    outputs = (*plain.signature.outputs, spec("attentions", "FP32", -1, 2, 2, 5, 5))

    def compute(inputs: Arrays) -> dict[str, np.ndarray]:
        weights = np.full((len(inputs["pixel_values"]), 2, 2, 5, 5), 0.2, np.float32)
        weights[:, :, 1] = np.array([0.5, 0.25, 0.125, 0.0625, 0.0625])
        bright = inputs["pixel_values"].mean(axis=(1, 2, 3))
        logits = np.stack([1 - bright, bright, np.zeros_like(bright)], axis=1)
        return {"logits": logits, "attentions": weights}

    return FakeSession(Signature(plain.signature.inputs, outputs), compute)


def image_session(size: int = 8) -> FakeSession:
    """How bright an image is, and how dark, each from 0 to 1."""
    pixels, logits = spec("pixel_values", "FP32", -1, 1, size, 8), spec("logits", "FP32", -1, 3)

    def compute(inputs: Arrays) -> dict[str, np.ndarray]:
        bright = inputs["pixel_values"].mean(axis=(1, 2, 3))
        return {"logits": np.stack([1 - bright, bright, np.zeros_like(bright)], axis=1)}

    return FakeSession(Signature((pixels,), (logits,)), compute)
