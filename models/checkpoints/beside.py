"""Files of weights in a folder that an import does not read.

Other forms of the same weights, and the state of a training, are passed over. Anything else that
holds weights or pickled objects may be part of the model, as the classifier of SetFit is, so that
the folder is refused until it is taken out. Knows nothing about the contents of files.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from models.checkpoints.retrieval import HEAD_FILES
from models.errors import CheckpointError

WEIGHTS = (
    *(".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib"),
    *(".npz", ".npy", ".h5", ".msgpack"),
)
READ = re.compile(
    r"(model|pytorch_model)(-\d{1,6}-of-\d{1,6})?\.(safetensors|bin)|"
    + "|".join(map(re.escape, HEAD_FILES))
)
OTHER_FORMS = re.compile(
    r"(model|pytorch_model|tf_model|flax_model)(\.[\w-]+)?(-\d{1,6}-of-\d{1,6})?"
    r"\.(safetensors|bin|h5|msgpack)"
    r"|(openvino|rust|coreml)_?model\w*\.\w+|consolidated[\w.-]*|model\.weights\.h5"
)
OF_TRAINING = re.compile(
    r"(training_args|optimizer|scheduler|scaler|rng_state\w*|trainer_state|random_states_\d+)\.\w+"
)
SETFIT_FILES = ("config_setfit.json", "model_head.pkl", "model_head.safetensors")
MAX_NAMED = 6


def check_beside(folder: Path, names: Iterable[str] | None = None) -> None:
    """Raise `CheckpointError` for files of weights that would be left out; `names` are of files.

    Without names they are those of the folder.
    """
    there = sorted(path.name for path in folder.iterdir()) if names is None else sorted(names)
    setfit = [name for name in SETFIT_FILES if name in there]
    if setfit:
        raise CheckpointError(
            f"{folder} is SetFit's: {' and '.join(setfit)} belong to its classifier, which is not "
            "read. To import its embedder alone, take these files out of the folder; a classifier "
            "on it is trained with attendant train --from the folder"
        )
    unread = [name for name in there if name.endswith(WEIGHTS) and not _is_known(name)]
    if unread:
        rest = len(unread) - MAX_NAMED
        more = f" and {rest} more" if rest > 0 else ""
        raise CheckpointError(
            f"{folder} has {', '.join(unread[:MAX_NAMED])}{more}, which may be part of the model, "
            "and is not read: take what is not out of the folder, and import it again"
        )


def _is_known(name: str) -> bool:
    return any(form.fullmatch(name) for form in (READ, OTHER_FORMS, OF_TRAINING))
