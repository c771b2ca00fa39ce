"""Opens the graph of a version, or the faster one of two, and tries whether it runs here.

Runs on the thread that loads. Knows neither engines nor requests. Unverified on CUDA:
docs/how-to/cuda.md.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from service.batching.collate import pad_rows
from service.batching.request import Item
from service.contract.config_completion import leaves_batching_open
from service.contract.manifest import Manifest
from service.contract.tensors import Arrays
from service.errors import LoadError, ModelFailed
from service.repository.layouts import LayoutChoice, choose_layout
from service.repository.measuring import Run, made_up_items, measure_cost
from service.repository.plan import ModelPlan
from service.repository.row_check import RowCheck, check_rows
from service.runtime.cost import CostCurve
from service.runtime.session import RunStop, Session, SessionOptions, load_error
from service.serving.tasks.task import TextTask

OpenSession = Callable[[Path, SessionOptions], Session]
TRIED_TOKENS = 8  # of a row that a graph is tried with
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenedGraph:
    """The graph that is served, its plan, and what its runs cost."""

    plan: ModelPlan
    session: Session
    run_lengths: Run | None  # a batch of sample texts; None: it reads none
    cost: CostCurve | None = None  # None: not measured


def open_graph(plan: ModelPlan, open_session: OpenSession) -> OpenedGraph:
    """The graph of a plan, or of its alternative if that is faster here.

    Raises `LoadError` where none can be opened, or computes.
    """
    opened: dict[str, OpenedGraph] = {}
    errors: list[LoadError] = []
    for each in filter(None, (plan, plan.alternative)):
        try:
            session = open_session(each.graph, each.options)
            completed = each.completed(session.signature, _rows_obstacle(each, session))
            graph = OpenedGraph(completed, session, _lengths_runner(each, session))
            _try_graph(graph)
            opened[each.layout] = graph
        except LoadError as error:
            errors.append(error)
    if not opened:
        raise errors[0]
    chosen, reason = next(iter(opened.values())), ""
    if errors:
        logger.warning("'%s' has one graph less to choose from: %s", plan.name, errors[0])
        reason = "the other graph cannot be opened"
    elif plan.alternative is not None:
        layout = _faster(plan, opened)
        chosen, reason = opened[layout.name], layout.reason
    plan = replace(chosen.plan, layout_reason=reason, alternative=None)
    cost = None
    if chosen.run_lengths is not None and plan.manifest is not None and plan.can_measure_cost:
        most = plan.manifest.max_tokens
        cost = measure_cost(chosen.run_lengths, most, plan.settings.measure_cost_s)
    return replace(chosen, plan=plan, cost=cost)


def _faster(plan: ModelPlan, opened: Mapping[str, OpenedGraph]) -> LayoutChoice:
    """The faster of two graphs by their layouts. Raises `LoadError`."""
    assert plan.manifest is not None, "only a graph of a manifest has an alternative"
    runs = {name: each.run_lengths for name, each in opened.items() if each.run_lengths}
    max_s, max_rows = plan.settings.measure_cost_s, plan.limits.max_rows
    try:
        layout = choose_layout(runs, plan.manifest.max_tokens, max_rows, max_s)
    except ModelFailed as error:
        raise load_error(plan.graph, str(error), plan.options) from error
    if layout.failure is not None:
        logger.warning("'%s': %s: %s", plan.name, layout.reason, layout.failure)
    return layout


def _rows_obstacle(plan: ModelPlan, session: Session) -> str:
    """Why requests cannot share runs of a graph without a manifest; empty where they may.

    It is logged where the configuration leaves open whether they do.
    """
    config, graph = plan.config, session.signature
    is_open = leaves_batching_open(config)
    max_rows = plan.settings.default_max_batch_size if is_open else config.max_batch_size
    if plan.manifest is not None or not max_rows:
        return ""
    if not graph.can_batch:
        fixed = next(spec for spec in (*graph.inputs, *graph.outputs) if spec.dims[:1] != (-1,))
        check = RowCheck(f"the first axis of '{fixed.name}' is not free: {list(fixed.dims)}")
    else:
        stated = {
            tensor.name: tuple(tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims)
            for tensor in config.input
        }
        check = check_rows(session, stated, max_rows)
    if check.effect and not is_open:
        logger.warning(
            "'%s' version %d shares runs, as config.pbtxt has max_batch_size %d, but %s",
            *(plan.name, plan.number, max_rows, check.obstacle),
        )
        return ""
    if check.obstacle and is_open:
        logger.info(
            "'%s' version %d gets max_batch_size 0, a run for each request: %s",
            *(plan.name, plan.number, check.obstacle),
        )
    return check.obstacle


def _try_graph(graph: OpenedGraph) -> None:
    """Run a graph on a GPU once, or raise `LoadError`.

    A library, kernels for this GPU or memory may be missing there, which no session knows before
    it runs. Models without texts and images are tried by their `model_warmup`.
    """
    plan, session = graph.plan, graph.session
    if plan.options.device != "cuda" or plan.manifest is None:
        return
    try:
        if graph.run_lengths is not None:
            graph.run_lengths((min(TRIED_TOKENS, plan.manifest.max_tokens),), RunStop())
        elif plan.manifest.image is not None:
            image = {
                spec.name: np.zeros((1, *spec.dims[1:]), spec.datatype.dtype)
                for spec in session.signature.inputs
            }
            session.run(image, [spec.name for spec in session.signature.outputs])
    except ModelFailed as error:
        raise load_error(plan.graph, str(error), plan.options) from error


def _lengths_runner(plan: ModelPlan, session: Session) -> Run | None:
    """Runner of a batch of sample rows of given lengths; None for a model that reads no texts."""
    if plan.manifest is None or plan.task is None:
        return None
    return partial(_run_lengths, session, plan.manifest, plan.task)


def padding(session: Session, manifest: Manifest) -> Callable[[Sequence[Item]], Arrays]:
    """Function that makes the batch of a text model from its items."""
    return pad_rows(manifest.pad_token_id, [spec.name for spec in session.signature.inputs])


def _run_lengths(
    session: Session,
    manifest: Manifest,
    task: TextTask,
    lengths: Sequence[int],
    stopping: RunStop,
) -> None:
    """One batch of rows of these lengths."""
    batch = padding(session, manifest)(made_up_items(lengths))
    session.run(batch, [task.outputs_of(manifest)[0].name], stopping)
