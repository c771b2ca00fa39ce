"""Opens the graph of a version, or the faster one of two, and tries whether it runs here.

Runs on the thread that loads. Knows neither engines nor requests. Unverified on CUDA:
docs/how-to/cuda.md.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from service.batching.collate import pad_rows
from service.batching.request import Item
from service.contract.config_completion import leaves_batching_open
from service.contract.manifest import Manifest
from service.contract.tensors import Arrays
from service.errors import LoadError, ModelFailed
from service.repository.layouts import choose_layout
from service.repository.measuring import Run, made_up_items
from service.repository.plan import ModelPlan
from service.repository.row_check import RowCheck, check_rows
from service.runtime.session import RunStop, Session, SessionOptions, load_error
from service.serving.tasks.task import TextTask

OpenSession = Callable[[Path, SessionOptions], Session]
TRIED_TOKENS = 8  # of a row that a graph is tried with
logger = logging.getLogger(__name__)


def open_graph(plan: ModelPlan, open_session: OpenSession) -> tuple[ModelPlan, Session]:
    """The graph of a plan, or of its alternative if that is faster here, and the plan with it.

    Raises `LoadError` where none can be opened.
    """
    opened: dict[str, tuple[ModelPlan, Session]] = {}
    errors: list[LoadError] = []
    for each in filter(None, (plan, plan.alternative)):
        try:
            session = open_session(each.graph, each.options)
            obstacle = rows_obstacle(each, session)
            opened[each.layout] = each.completed(session.signature, obstacle), session
        except LoadError as error:
            errors.append(error)
    if not opened:
        raise errors[0]
    if plan.alternative is None:
        return opened[plan.layout]
    if errors:
        logger.warning("'%s' has one graph less to choose from: %s", plan.name, errors[0])
        ((chosen, session),) = opened.values()
        return replace(chosen, layout_reason="the other graph cannot be opened"), session
    runs = {name: lengths_runner(*each) for name, each in opened.items()}
    manifest, limits = plan.alternative.manifest, plan.limits
    assert manifest is not None, "only a graph of a manifest has an alternative"
    max_s = plan.settings.measure_cost_s
    try:
        layout = choose_layout(runs, manifest.max_tokens, limits.max_rows, max_s)
    except ModelFailed as error:
        raise load_error(plan.graph, str(error), plan.options) from error
    if layout.failure is not None:
        logger.warning("'%s': %s: %s", plan.name, layout.reason, layout.failure)
    chosen, session = opened[layout.name]
    return replace(chosen, layout_reason=layout.reason, alternative=None), session


def rows_obstacle(plan: ModelPlan, session: Session) -> str:
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


def try_graph(plan: ModelPlan, session: Session) -> None:
    """Run a graph once, or raise `LoadError`.

    On a GPU a library, kernels for this GPU or memory may be missing, which no session knows before
    it runs. Models without texts and images are tried by their `model_warmup`.
    """
    assert plan.manifest is not None, "others have inputs of unknown shapes"
    try:
        if plan.task is not None:
            num_tokens = min(TRIED_TOKENS, plan.manifest.max_tokens)
            lengths_runner(plan, session)((num_tokens,), RunStop())
        elif plan.manifest.image is not None:
            image = {
                spec.name: np.zeros((1, *spec.dims[1:]), spec.datatype.dtype)
                for spec in session.signature.inputs
            }
            session.run(image, [spec.name for spec in session.signature.outputs])
    except ModelFailed as error:
        raise load_error(plan.graph, str(error), plan.options) from error


def lengths_runner(plan: ModelPlan, session: Session) -> Run:
    """Runner of a batch of sample rows of given lengths."""
    assert plan.manifest is not None, "texts are read by graphs with a manifest"
    assert plan.task is not None, "the same"
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
