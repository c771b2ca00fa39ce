"""The name in the configuration of a model: a kept one has none, so that any may be given.

Imports no PyTorch.
"""

from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from export.writer import CONFIG_FILE


def name_in(model: Path) -> str:
    """The name that the configuration of a model states; empty for none."""
    path = model / CONFIG_FILE
    if not path.is_file():
        return ""
    try:
        config = text_format.Parse(path.read_text(encoding="utf-8"), ModelConfig())
    except (text_format.ParseError, UnicodeDecodeError):
        return ""  # loading it says why
    return str(config.name)


def without_name(model: Path) -> None:
    """Take the model's name out of its configuration, so that it may be served under any."""
    path = model / CONFIG_FILE
    if path.is_file():
        config = text_format.Parse(path.read_text(encoding="utf-8"), ModelConfig())
        config.ClearField("name")
        path.write_text(text_format.MessageToString(config), encoding="utf-8")
