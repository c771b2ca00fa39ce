"""The manifest's fields of an embedder's use, and the ranges that its values have on texts.

A server writes values in 256 steps of a range: of each value and each width that vectors may be cut
to, the least and the greatest of sample texts, with each prompt of the model in front of some.
"""
# ruff: noqa: N806 - suffixes are array layouts: N texts, D values

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from export.precision.samples import default_texts
from models.checkpoints.checkpoint import Checkpoint
from models.data.tokenizer import cutting_copy
from service.batching.collate import pad_right
from service.contract.embedder_use import EmbedderUse, written_range

NUM_TEXTS = 160
MAX_TOKENS = 64  # of a text: a recurrent network takes as many steps, and values are alike
BATCH_ROWS = 16


def embedder_use(checkpoint: Checkpoint, calibration: Sequence[str]) -> EmbedderUse:
    """The use of a checkpoint's embedder, with ranges on `calibration` or on texts at hand."""
    network, declared = checkpoint.text_network, checkpoint.embedder
    use = EmbedderUse(
        prompts=dict(declared.prompts),
        default_prompt=declared.default_prompt,
        dimensions=declared.within(network.embedding_size).dimensions,
        is_normalized=bool(getattr(network, "normalize", False)),
        similarity=declared.similarity,  # type: ignore[arg-type]
    )
    if not network.embedding_size:  # weights of words have no ranges
        return use
    texts = calibration or default_texts()
    order = np.random.default_rng(1).permutation(len(texts))[:NUM_TEXTS]
    prompts = list(declared.prompts.values()) or [""]
    samples = [f"{prompts[n % len(prompts)]}{texts[i]}" for n, i in enumerate(order)]
    vectors_ND = np.concatenate(list(_vectors(checkpoint, samples)))
    widths = (network.embedding_size, *use.dimensions)
    ranges = {str(width): written_range(use.cut(vectors_ND, width)) for width in widths}
    return EmbedderUse(
        use.prompts, use.default_prompt, use.dimensions, use.is_normalized, use.similarity, ranges
    )


@torch.inference_mode()
def _vectors(checkpoint: Checkpoint, texts: Sequence[str]) -> Iterator[np.ndarray]:
    """The network's vectors of texts, those of like length together."""
    network = checkpoint.text_network
    cutting = cutting_copy(checkpoint.tokenizer, min(checkpoint.max_tokens, MAX_TOKENS))
    rows = [encoding.ids for encoding in cutting.encode_batch_fast(list(texts))]
    rows = sorted((network.as_sample(row) for row in rows if row), key=len)
    for start in range(0, len(rows), BATCH_ROWS):
        batch = rows[start : start + BATCH_ROWS]
        ids = torch.from_numpy(pad_right(batch, network.pad_token_id))
        lengths = torch.tensor([len(row) for row in batch])
        mask = (torch.arange(ids.shape[1])[None] < lengths[:, None]).to(torch.int64)
        outputs = network(ids, mask)
        vectors = outputs[0] if isinstance(outputs, tuple) else outputs
        yield vectors.float().numpy()
