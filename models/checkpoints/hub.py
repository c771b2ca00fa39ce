"""Download what a checkpoint needs from the Hugging Face hub, and nothing else.

Knows nothing about the contents. The hub's own cache decides whether anything is fetched.
"""

import re
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from models.checkpoints.chat_templates import CHAT_FILES
from models.checkpoints.embedder_use import USE_FILE
from models.checkpoints.image_processors import PREPROCESSOR_FILE
from models.checkpoints.retrieval import HEAD_FILES
from models.checkpoints.setting_keys import ADDED, TEXT_SETTINGS
from models.checkpoints.weights import INDEX_FILE, PICKLED_FILE, WEIGHTS_FILE
from models.data.marian_tokenizer import SOURCE_FILE
from models.errors import CheckpointError

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
MODEL_FILES = (
    "config.json",
    "generation_config.json",
    WEIGHTS_FILE,
    INDEX_FILE,
    "model-*-of-*.safetensors",
    "tokenizer.json",
    *CHAT_FILES,
    "vocab.txt",
    "vocab.json",
    SOURCE_FILE,
    "merges.txt",
    *TEXT_SETTINGS,
    ADDED,
    PREPROCESSOR_FILE,
)
NEEDED_FILES = (
    *MODEL_FILES,
    "modules.json",
    USE_FILE,
    "1_Pooling/config.json",
    "1_SpladePooling/config.json",
    *HEAD_FILES,
    # older sentence-transformers repositories keep the encoder in a folder
    *(f"0_Transformer/{name}" for name in MODEL_FILES),
)


def is_hub_id(source: str) -> bool:
    """`name` or `owner/name`; a path has more slashes, or starts with one or a dot."""
    return HUB_ID.fullmatch(source) is not None


def download_folder(hub_id: str, endpoint: str | None = None) -> Path:
    """Return a folder with those of NEEDED_FILES that the repository has."""
    try:
        folder = snapshot_download(hub_id, allow_patterns=list(NEEDED_FILES), endpoint=endpoint)
        if not any(Path(folder).rglob("*.safetensors")):
            patterns = [PICKLED_FILE, f"0_Transformer/{PICKLED_FILE}"]
            folder = snapshot_download(hub_id, allow_patterns=patterns, endpoint=endpoint)
    except LocalEntryNotFoundError as error:
        raise CheckpointError(
            f"there is no folder {hub_id!r}, and the hub cannot be reached to download it "
            "(give a folder, or check the network, HF_ENDPOINT and HF_HUB_OFFLINE)"
        ) from error
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise CheckpointError(
            f"there is no folder {hub_id!r}, and the hub did not give it: {error}"
        ) from error
    return Path(folder)
