"""Download what a checkpoint needs from the Hugging Face hub, and nothing else.

First come the small files that say what there is: configurations, tokenizers, the list of
modules and the indices of weights. They name the rest: the folders of modules, and the files of
weights in the first of the forms that an import reads. The hub's own cache decides whether
anything is fetched. Knows nothing about what the files mean for a network.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
)

from models.checkpoints.chat_templates import CHAT_FILES
from models.checkpoints.embedder_use import USE_FILE
from models.checkpoints.file_names import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    CONFIG_FILE,
    HEAD_FILES,
    INDEX_FILE,
    MODULES_FILE,
    OTHER_TOKENIZERS,
    PICKLED_FILE,
    PICKLED_INDEX_FILE,
    PREPROCESSOR_FILE,
    WEIGHTS_FILE,
)
from models.checkpoints.foreign import is_complete
from models.checkpoints.graph_files import DATA, GraphFile, GraphWish, choose, graphs_in
from models.checkpoints.headers import parts_of
from models.checkpoints.plan import takes_graphs
from models.checkpoints.setting_keys import TEXT_SETTINGS
from models.checkpoints.whole import like_it
from models.data.marian_tokenizer import SOURCE_FILE
from models.data.tokenizer import TOKENIZER_FILE
from models.errors import CheckpointError, shown
from models.json_files import read_json

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
MAX_MODULES = 64
TIMEOUT_S = 10.0
MODEL_FILES = (
    CONFIG_FILE,
    "generation_config.json",
    INDEX_FILE,
    PICKLED_INDEX_FILE,
    TOKENIZER_FILE,
    "tokenizer_config.json",
    "added_tokens.json",
    "special_tokens_map.json",
    *CHAT_FILES,
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    SOURCE_FILE,
    *TEXT_SETTINGS,
    PREPROCESSOR_FILE,
    "processor_config.json",
)
# What tells a folder of another program from one of transformers, for a message.
SIGNS = (
    *("config_setfit.json", "gliner_config.json", "genai_config.json", "model_index.json"),
    *("params.json", "openvino_model.xml", "mlc-chat-config.json"),
)
SMALL_FILES = (*MODEL_FILES, MODULES_FILE, USE_FILE, ADAPTER_CONFIG, *SIGNS)
# The forms of weights in the order in which they are read, each with the index of its parts.
FORMS = ((WEIGHTS_FILE, INDEX_FILE), (PICKLED_FILE, PICKLED_INDEX_FILE))


def is_hub_id(source: str) -> bool:
    """`name` or `owner/name`; a path has more slashes, or starts with one or a dot."""
    return HUB_ID.fullmatch(source) is not None


def download_folder(
    hub_id: str,
    endpoint: str | None = None,
    revision: str | None = None,
    *,
    is_offline: bool = False,
    check: Callable[[Path], object] = lambda _: None,
    wish: GraphWish | None = None,
) -> Path:
    """Return a folder with the files of the repository that an import reads.

    `endpoint` is that of HF_ENDPOINT, or the hub's own, unless one is given; `revision` is a
    branch, a tag or a commit. Offline, the files are those of the hub's cache. `check` is called
    with the small files alone, and what it raises comes before the weights are fetched. With a
    `wish` a graph in ONNX is fetched in place of weights where there are none, where it names a
    variant, or where no PyTorch could read weights.
    """
    source = Repository(hub_id, endpoint, revision, is_offline=is_offline)
    folder = fetch_small_files(source)
    graph = None if wish is None else _graph_of(source.names(folder), wish)
    if graph is None:
        check(folder)
    encoder, *others = modules_of(folder)
    if graph is not None:
        source.fetch([graph.name, *(f"{graph.name}{end}" for end in DATA)])
        for module in others:
            _fetch_weights(source, folder, module)
        return folder
    if (folder / ADAPTER_CONFIG).is_file():
        source.fetch([ADAPTER_WEIGHTS])
    source.fetch(HEAD_FILES)
    for module in dict.fromkeys(["", encoder, *others]):
        if (folder / module / CONFIG_FILE).is_file():
            _fetch_weights(source, folder, module)
    return folder


def _graph_of(names: Collection[str], wish: GraphWish) -> GraphFile | None:
    """The graph to fetch in place of weights; None where weights are to be fetched."""
    graphs = graphs_in(names)
    if not graphs or not takes_graphs(names, wish):
        return None
    return choose(graphs, wish, has_weights=is_complete(names))


def fetch_small_files(source: "Repository") -> Path:
    """The folder with all that says what there is."""
    folder = source.fetch(SMALL_FILES)
    encoder, *others = modules_of(folder)
    source.fetch(
        [
            *_in(encoder, MODEL_FILES),
            *(path for module in others for path in _in(module, [CONFIG_FILE])),
        ]
    )
    if not (folder / encoder / TOKENIZER_FILE).is_file():
        source.fetch(_in(encoder, OTHER_TOKENIZERS))
    return folder


def modules_of(folder: Path) -> list[str]:
    """The folders of its modules, that of the network first; itself where it lists none."""
    return module_folders(folder / MODULES_FILE) or [""]


def module_folders(path: Path) -> list[str]:
    """The folders of the modules that a modules.json lists, each below its own."""
    listed = read_json(path) if path.is_file() else []
    if not isinstance(listed, list) or len(listed) > MAX_MODULES:
        raise CheckpointError(f"{path} must hold a list of at most {MAX_MODULES} modules")
    folders = []
    for module in listed:
        name = str(module.get("path", "")) if isinstance(module, dict) else ""
        place = PurePosixPath(name)
        if place.is_absolute() or ".." in place.parts or re.search(r"[*?\[\]\\]", name):
            raise CheckpointError(f"{path}: {shown(name)} is no folder of the repository")
        folders.append("" if name in ("", ".") else str(place))
    return folders


def _fetch_weights(source: "Repository", folder: Path, module: str) -> None:
    """Weights of a module in the first form that the repository has."""
    place = folder / module
    for whole, index in FORMS:
        if (place / index).is_file() and not (place / whole).is_file():
            source.fetch(_in(module, [whole]))
        if (place / index).is_file() and not (place / whole).is_file():
            source.fetch(_in(module, parts_of(place / index)))
            return
        source.fetch(_in(module, [whole]))
        if (place / whole).is_file():
            return


def _in(module: str, names: Iterable[str]) -> list[str]:
    return [f"{module}/{name}" if module else name for name in names]


class Repository:
    """The files of one repository; all are of the commit that was the newest at first."""

    def __init__(
        self,
        hub_id: str,
        endpoint: str | None,
        revision: str | None = None,
        *,
        is_offline: bool = False,
    ) -> None:
        self._hub_id, self._is_offline = hub_id, is_offline
        self._endpoint = endpoint or os.environ.get("HF_ENDPOINT") or None
        self._commit = revision

    def names(self, folder: Path) -> list[str]:
        """Names of all files of the repository; of those that are here where it says none."""
        if not self._is_offline:
            with suppress(HfHubHTTPError, HFValidationError, OSError):
                api = HfApi(endpoint=self._endpoint)
                return list(api.list_repo_files(self._hub_id, revision=self._commit))
        return [str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()]

    def fetch(self, names: Sequence[str]) -> Path:
        """The folder with those of the files that there are; raises `CheckpointError`."""
        with _errors_of(self._hub_id, is_offline=self._is_offline):
            folder = Path(
                snapshot_download(
                    self._hub_id,
                    allow_patterns=list(names),
                    endpoint=self._endpoint,
                    revision=self._commit,
                    local_files_only=self._is_offline,
                )
            )
        self._commit = folder.name  # the cache has a folder for each commit
        return folder

    def sizes(self) -> dict[str, int]:
        """Bytes of all files by name; none where the hub does not say."""
        try:
            listed = HfApi(self._endpoint).model_info(
                self._hub_id, revision=self._commit, files_metadata=True, timeout=TIMEOUT_S
            )
        except Exception:  # of the network, whose library is the hub's own choice
            return {}
        return {each.rfilename: each.size or 0 for each in listed.siblings or ()}

    def header(self, name: str) -> dict[str, Any]:
        """Types and shapes of the tensors of a file, as its first bytes state them; or nothing.

        Their places are left out: the file has others when it is written here without values.
        """
        try:
            read = HfApi(self._endpoint).parse_safetensors_file_metadata(
                self._hub_id, name, revision=self._commit
            )
        except Exception:  # the same
            return {}
        return {
            tensor: {"dtype": stated.dtype, "shape": list(stated.shape)}
            for tensor, stated in read.tensors.items()
        }


@contextmanager
def _errors_of(hub_id: str, *, is_offline: bool) -> Iterator[None]:
    """While entered, what the hub refuses is a `CheckpointError` that says what to do."""
    try:
        yield
    except LocalEntryNotFoundError as error:
        why = "the hub cannot be reached to download it (give a folder, or check the network and "
        why += "HF_ENDPOINT)"
        if is_offline:
            why = f"the hub's cache {constants.HF_HUB_CACHE} does not have it, which alone is "
            why += "looked at with --offline or HF_HUB_OFFLINE"
        raise CheckpointError(
            f"there is no folder {hub_id!r}{like_it(hub_id)}, and {why}"
        ) from error
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise CheckpointError(
            f"there is no folder {hub_id!r}{like_it(hub_id)}, and the hub did not give it: {error}"
        ) from error
