"""The certificate of a case: each row of the table that is for it, compared."""

from dataclasses import replace

import torch

from export.certificates.case import Case, NotComparedError, check_there, title_of
from export.certificates.certificate import Certificate, Pair, Row
from export.certificates.items import Item
from export.certificates.layers import first_different_layer
from export.certificates.rows import ROWS, Comparison
from models.checkpoints.traced import quiet
from models.errors import reason


def certify(case: Case) -> Certificate:
    """The comparison of a checkpoint with the folder that it was read from."""
    network = case.network_name
    if case.why_not:
        return Certificate.not_compared(case.why_not, network)
    assert case.model is not None, "it is made here, as no module is within inference mode"
    rows: list[Row] = []
    done: set[str] = set()
    with quiet():
        for comparison in ROWS:
            if comparison.group in done or not comparison.is_for(case):
                continue
            row = _row_of(comparison, case)
            rows.append(row)
            if row.by:
                done.add(comparison.group)
    if not any(row.what not in ("tokens", "conversations", "labels") for row in rows):
        rows.append(Row("outputs", why_not=f"no row is for {case.checkpoint.task}"))
    return Certificate(tuple(rows), network)


def _row_of(comparison: Comparison, case: Case) -> Row:
    """The row of one comparison; what the other side cannot do is not compared."""
    pairs: list[Pair] = []
    note = comparison.note
    try:
        check_there(comparison.library)
        if comparison.class_name:
            _, of_network = case.network(comparison.class_name)
            note = "; ".join(filter(None, (note, of_network)))
        items = comparison.items(case)
        with torch.inference_mode():
            for item in items:
                theirs = _theirs(comparison, case, item)
                if theirs is not None:
                    pairs.append(Pair(item.name, comparison.ours(case, item.value), theirs))
    except NotComparedError as error:
        return Row(comparison.what, why_not=str(error))
    by, allowed = title_of(comparison.library), comparison.allowed_of_gguf
    allowed = 0 if case.gguf is None else allowed
    row = Row.of(comparison.what, by, pairs, case.limit, note, allowed)
    if row.is_equal or not comparison.class_name:
        return row
    place = _first_layer(comparison, case, items[0], row.limit)
    return replace(row, first="; ".join(filter(None, (row.first, place))))


def _first_layer(comparison: Comparison, case: Case, item: Item, limit: float) -> str:
    theirs, _ = case.network(comparison.class_name)
    with torch.inference_mode():
        return first_different_layer(
            case.model,
            theirs,
            lambda: comparison.ours(case, item.value),
            lambda: comparison.theirs(case, item.value),
            limit,
        )


def _theirs(comparison: Comparison, case: Case, item: Item) -> object:
    try:
        return comparison.theirs(case, item.value)
    except NotComparedError:
        raise
    except Exception as error:  # whatever a library raises for a folder
        raise NotComparedError(f"{title_of(comparison.library)} failed: {reason(error)}") from error
