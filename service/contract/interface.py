"""One version of a model as its clients see it; knows nothing of its computation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from service.contract.manifest import Manifest
from service.contract.model_config import PLATFORM
from service.contract.tensors import Signature


@dataclass(frozen=True, slots=True)
class ModelInterface:
    """The metadata of a version for clients, and the parts that a server needs to answer."""

    name: str
    version: int
    signature: Signature  # without the batch axis
    max_batch_size: int = 0  # 0: its tensors have no batch axis
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of outputs that are classes
    manifest: Manifest | None = None  # None: a tensor model
    is_cached: bool = False  # whether the configuration asks for a response cache
    layout_reason: str = ""  # why its graph has its layout, where there were two
    shown: bytes = b""  # the completed configuration, a serialized `ModelConfig`
    platform: str = PLATFORM
    parent: str = ""  # of an adapter: the name of its base model

    @property
    def has_rows(self) -> bool:
        """Whether its tensors have a batch axis."""
        return self.max_batch_size > 0
