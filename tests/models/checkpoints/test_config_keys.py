"""Each field of config.json is honoured, refused by name, or known to be harmless."""

import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import transformers

from models.checkpoints.checkpoint import load_checkpoint
from models.checkpoints.config_keys import FOR_ALL, HARMLESS, HEADS, ONLY, READ
from models.checkpoints.decoder_families import FAMILIES as DECODER_FAMILIES
from models.checkpoints.gpt2 import GPT2
from models.checkpoints.seq2seq import SEQ2SEQ
from models.errors import CheckpointError
from models.remarks import DataWarning
from tests.checkpoints.fields import DECODERS, ENCODERS, VALUES, changes, heads, network, wrong
from tests.models.tiny import word_tokenizer

BOTH = ("is_causal", "use_bidirectional_attention", "head_dim", "type_vocab_size", "hidden_act")
OF_ENCODERS = (*BOTH, "is_decoder", "add_cross_attention", "position_embedding_type")
OF_DECODERS = tuple(name for name in VALUES if name not in (*OF_ENCODERS[5:], "rope_theta"))
KINDS = [(kind, OF_ENCODERS) for kind in ENCODERS] + [(kind, OF_DECODERS) for kind in DECODERS]
ALL_TYPES = {
    **dict.fromkeys(ENCODERS, "encoder"),
    **dict.fromkeys(DECODER_FAMILIES, "decoder"),
    GPT2: GPT2,
    **dict.fromkeys(SEQ2SEQ, "encoder-decoder"),
    **dict.fromkeys(("vit", "deit"), "image"),
}


@pytest.fixture(scope="module", autouse=True)
def _no_bars() -> None:
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(("kind", "names"), KINDS, ids=[kind for kind, _ in KINDS])
def test_a_changed_field_is_computed_as_by_transformers_or_refused_by_name(
    kind: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    """`python -m tests.checkpoints.fields` changes all fields; here are those of attention."""
    faults = {}
    for name in names:
        for place, value in enumerate(changes(kind, name)):
            head = heads(kind)[place % len(heads(kind))]
            folder = tmp_path / f"{name}-{place}"
            if fault := wrong(kind, head, name, value, folder):
                faults[f"{name} {value!r}"] = fault
    assert not faults


@pytest.mark.parametrize("kind", ALL_TYPES)
def test_every_field_of_transformers_classes_is_in_a_table(kind: str) -> None:
    group = ALL_TYPES[kind]
    stated = transformers.AutoConfig.for_model(kind).to_dict()
    known = {*HEADS, *READ[group], *chain(*HARMLESS.values()), *FOR_ALL, *ONLY[group]}
    assert sorted(set(stated) - known) == []


def write(folder: Path, kind: str, **fields: Any) -> Path:
    network(kind, transformers.AutoModelForSequenceClassification).save_pretrained(folder)
    word_tokenizer().save(str(folder / "tokenizer.json"))
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return folder


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_a_field_that_nobody_knows_is_named_and_refused_beside_code_of_its_own(
    kind: str, tmp_path: Path
) -> None:
    with pytest.warns(DataWarning, match="not read, as transformers knows no such field: 'swirl'"):
        load_checkpoint(write(tmp_path, kind, swirl=True, curl=False))
    code = {"auto_map": {"AutoModel": "modeling.Own"}}
    with pytest.raises(CheckpointError, match="'swirl' is True, which is not known: the folder's"):
        load_checkpoint(write(tmp_path, kind, swirl=True, **code))
    with pytest.warns(DataWarning, match="auto_map names code of the folder's own, which is never"):
        load_checkpoint(write(tmp_path, kind, **code))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("is_causal", "no"),
        ("bidirectional", True),
        ("add_cross_attention", True),
        ("num_experts", 8),
        ("pruned_heads", {"0": [1]}),
        ("quantization", {"group_size": 64, "bits": 4, "mode": "nvfp4"}),
    ],
)
def test_what_makes_another_network_is_refused_by_name(
    field: str, value: Any, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=rf"config\.json: (mode of )?{field} is "):
        load_checkpoint(write(tmp_path, "llama", **{field: value}))
