"""The plan for loading and serving one version of a model, read once from files and settings.

Loading, warm-up and serving take plain values from the plan: beside the plan only
`placement.py` and `limits.py`, which read parts of it, know the configuration's protobuf.
Opens no session. docs/how-to/cuda.md says what was verified on CUDA.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

from tritonclient.grpc.model_config_pb2 import ModelConfig

from service.batching.limits import BatchLimits
from service.contract.config_checks import check_generative
from service.contract.config_completion import complete_from_graph, copy_of, signature_of
from service.contract.files import read_labels, read_version
from service.contract.interface import ModelInterface
from service.contract.manifest import Manifest
from service.contract.model_config import parameter
from service.contract.precision import Choice, choose_graph, has_graph_for, of_layout
from service.contract.session_tuning import session_tuning
from service.contract.tensors import Signature
from service.contract.warmup_samples import WarmupSample, warmup_samples
from service.errors import LoadError
from service.generation.steps.scheduler import SchedulerLimits
from service.repository.graph_checks import check_graph
from service.repository.limits import batch_limits, scheduler_limits, with_terms
from service.repository.placement import ChooseDevice, Graphs, place
from service.runtime.cpus import cpu_flags
from service.runtime.session import SessionOptions
from service.serving.tasks.table import complete_config, text_task
from service.serving.tasks.task import TextTask
from service.settings import Settings
from service.text.conversation import CHAT_FILES


@dataclass(frozen=True)  # no slots: what is derived from it is kept
class ModelPlan:
    """One version of a model. `config` is complete but for what only an open graph can say."""

    folder: Path  # of the model
    number: int
    config: ModelConfig  # shared, and never changed
    settings: Settings
    manifest: Manifest | None  # of the graph that was chosen; None: a tensor model
    task: TextTask | None  # of a model whose requests are texts, each an item of a batch
    graph: Path
    choice: Choice | None  # of the graph; None: there is nothing to choose from
    options: SessionOptions
    labels: Mapping[str, list[str]]  # of outputs whose values are classes
    chat_files: Mapping[str, str]  # texts of a generative model's templates, by path
    # An encoder's graph of the other layout, to be measured beside this one.
    alternative: "ModelPlan | None" = None
    layout_reason: str = ""  # why its graph has this layout; empty where there is no other

    @property
    def name(self) -> str:
        return str(self.config.name)

    @property
    def instances(self) -> int:
        """The number of concurrent runs."""
        return sum(group.count for group in self.config.instance_group)

    @property
    def layout(self) -> str:
        """Layout in which an encoder's graph takes a batch: packed or padded."""
        return (self.manifest and self.manifest.layout) or "packed"

    @property
    def is_generative(self) -> bool:
        return self.manifest is not None and self.manifest.is_generative

    @property
    def can_measure_cost(self) -> bool:
        """Whether runs of texts are cheap to try, and their cost decides something.

        Not on a GPU: until it is full the time of a run does not grow with its tokens, so small
        batches say nothing of large ones, and new shapes choose kernels.
        """
        is_stated = "batch_overhead_tokens" in self.config.parameters
        has_batches = self.config.max_batch_size != 1
        is_cheap = self.options.device == "cpu" and self.settings.measure_cost_s > 0
        return self.task is not None and is_cheap and has_batches and not is_stated

    @property
    def max_context_tokens(self) -> int:
        """The longest sequence of a generative model; 0 leaves it to the model."""
        return parameter(self.config, "max_context_tokens", self.settings.max_context_tokens)

    @property
    def kv_cache_bytes(self) -> int:
        return parameter(self.config, "kv_cache_bytes", self.settings.kv_cache_bytes)

    @property
    def records_steps(self) -> bool:
        """Whether decoding steps of a generative model on a GPU are kept as CUDA graphs."""
        own = self.options.tuning.cuda_graphs
        return self.settings.cuda_graphs if own is None else own

    @cached_property
    def interface(self) -> ModelInterface:
        """The configuration as clients see it; the parameter `precision` is this version's."""
        config, shown = self.config, copy_of(self.config)
        if self.choice is not None:
            shown.parameters["precision"].string_value = self.choice.precision
        if self.layout_reason:
            shown.parameters["encoder_layout"].string_value = self.layout
        return ModelInterface(
            name=config.name,
            version=self.number,
            signature=signature_of(config),
            max_batch_size=config.max_batch_size,
            labels=self.labels,
            manifest=self.manifest,
            is_cached=config.response_cache.enable,
            layout_reason=self.layout_reason,
            shown=shown.SerializeToString(deterministic=True),
        )

    @cached_property
    def limits(self) -> BatchLimits:
        """The bounds of its queue and batches, as long as the cost of runs is not measured."""
        return with_terms(batch_limits(self.config, self.settings), self.manifest)

    @cached_property
    def steps(self) -> SchedulerLimits:
        """The bounds of a generative model's steps."""
        return scheduler_limits(self.config, self.settings)

    @cached_property
    def samples(self) -> tuple[WarmupSample, ...]:
        return warmup_samples(self.config)

    def completed(self, graph: Signature, rows_obstacle: str = "") -> Self:
        """The plan with what only the open graph can say.

        `rows_obstacle` is why requests cannot share its runs. Raises `LoadError` where the graph is
        not what the files promise.
        """
        if self.manifest is not None and not self.manifest.is_recurrent:
            check_graph(graph, self.manifest, self.task)
            plan = self
        else:
            default_rows = self.settings.default_max_batch_size
            config = complete_from_graph(self.config, graph, default_rows, rows_obstacle)
            plan = replace(self, config=config)
        max_rows, max_tokens = plan.limits.max_rows, plan.limits.max_tokens
        if plan.manifest is not None and plan.task is not None:
            if plan.manifest.max_tokens > max_tokens:
                raise LoadError(
                    f"max_batch_tokens is {max_tokens}, but a text of this model may have "
                    f"{plan.manifest.max_tokens} tokens"
                )
        elif max_rows > max_tokens:
            raise LoadError(
                f"max_batch_tokens is {max_tokens}, but a request of this model may have "
                f"{max_rows} rows, a token each"
            )
        return plan


def plan_of(
    folder: Path,
    number: int,
    config: ModelConfig,
    settings: Settings,
    choose_device: ChooseDevice,
) -> ModelPlan:
    """The plan of one version in a model's folder, or `LoadError` saying what is wrong.

    `config` is as it was parsed, or as the plan of the version before this one completed it: all
    versions of a model share one.
    """
    files = read_version(folder, number, config.default_model_filename, CHAT_FILES)
    manifest, names, choice = files.manifest, files.graphs[:1], None
    is_generative = manifest is not None and manifest.is_generative
    label_files = {output.name: output.label_filename for output in config.output}
    labels = {} if is_generative else read_labels(folder, label_files)
    if is_generative:
        check_generative(config)
    task = None
    if manifest is not None and manifest.reads_texts:
        task = text_task(manifest)
        labels = {"logits": list(manifest.labels), **labels}
    if manifest is not None and not manifest.is_recurrent:
        config = complete_config(config, manifest, settings.default_max_batch_size)
    tuning = session_tuning(config)
    precision, source = tuning.precision, "config.pbtxt"
    if not precision:
        precision, source = settings.precision, "--precision"
    can_use_cuda = manifest is None or has_graph_for("cuda", manifest, files.graphs, precision)
    graphs = Graphs(manifest is not None, is_generative, can_use_cuda)
    config, options = place(config, settings, choose_device, tuning, graphs)
    if manifest is not None:
        device = "openvino" if tuning.cpu_accelerators else options.device
        names, choice = choose_graph(manifest, files.graphs, precision, source, device, cpu_flags())
        layout = tuning.encoder_layout or settings.encoder_layout
        if is_generative:
            layout = tuning.cache_layout or settings.cache_layout
        names = of_layout(manifest, names, layout)
        names = names[:1] if task is None else names
    plan = ModelPlan(
        folder=folder,
        number=number,
        config=config,
        settings=settings,
        manifest=manifest and manifest.of_graph(names[0]),
        task=task,
        graph=files.folder / names[0],
        choice=choice,
        options=options,
        labels=labels,
        chat_files=files.chat,
    )
    if manifest is None or len(names) == 1:
        return plan
    other = replace(plan, graph=files.folder / names[1], manifest=manifest.of_graph(names[1]))
    return replace(plan, alternative=other)
