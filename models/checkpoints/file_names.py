"""Names of the files of a folder of transformers. Looking at one needs no torch."""

import re
from collections.abc import Collection

CONFIG_FILE, MODULES_FILE = "config.json", "modules.json"
ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREPROCESSOR_FILE = "preprocessor_config.json"  # of images
HEAD_FILES = "sparse_linear.pt", "colbert_linear.pt"  # of BGE-M3
# Of tokenizers without tokenizer.json; the first that fits is read. Mistral numbers its own.
OTHER_TOKENIZERS = (
    *("tekken.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "spm.model"),
    *("sentencepiece.model", "tokenizer.model.v*", "tiktoken.model", "*.tiktoken"),
)
WEIGHTS_FILE = "model.safetensors"
PICKLED_FILE = "pytorch_model.bin"  # taken where there is no other
INDEX_FILE = "model.safetensors.index.json"  # of weights in several files
PICKLED_INDEX_FILE = "pytorch_model.bin.index.json"
WEIGHT_FORMS = (WEIGHTS_FILE, INDEX_FILE, PICKLED_FILE, PICKLED_INDEX_FILE)  # the first is read
KEPT_FILE = "rounded.safetensors"  # of our own checkpoints: weights as they were rounded
# Of Mistral's own programs, with other names of tensors, and the sizes of the network.
CONSOLIDATED = ("consolidated.safetensors", "consolidated.safetensors.index.json")
PARAMS_FILE = "params.json"
# Variants as transformers names them: before the end of a file, and behind the word index.
VARIANT = re.compile(
    r"(?:model|pytorch_model)\.(?P<of_file>[a-z]\w{0,20})\.(?:safetensors|bin)"
    r"|(?:model\.safetensors|pytorch_model\.bin)\.index\.(?P<of_index>[a-z]\w{0,20})\.json"
)
PREFERRED = ("fp32", "bf16", "fp16")  # of several variants


def variant_of(name: str) -> str:
    """The variant of a file of weights or of a list of their parts; empty for any other file."""
    match = VARIANT.fullmatch(name)
    return "" if match is None else str(match["of_file"] or match["of_index"])


def weights_in(names: Collection[str]) -> str:
    """The file of weights that is read of those in a folder, or the list of its parts.

    That is the first of WEIGHT_FORMS, else that of a variant, else of Mistral's own programs; empty
    where there is none.
    """

    def order(name: str) -> tuple[int, bool, str]:
        what = variant_of(name)
        place = PREFERRED.index(what) if what in PREFERRED else len(PREFERRED)
        return place, name.startswith("pytorch_model"), name

    variants = sorted(filter(variant_of, names), key=order)
    plain = [name for name in WEIGHT_FORMS if name in names]
    consolidated = [name for name in CONSOLIDATED if name in names]
    return next(iter((*plain, *variants, *consolidated)), "")
