"""The largest logits of a row, found without sorting a vocabulary.

Cheap bounds leave few candidates that are proven to be enough. Knows arrays only; pure.
"""
# ruff: noqa: N803 - suffixes are array layouts: V vocabulary

import numpy as np

GROUP = 64  # entries of which one maximum is looked at when the best of a row are searched
LOWEST = np.finfo(np.float32).min  # what is below is banned: -inf


def best_ids(logits_V: np.ndarray, count: int) -> np.ndarray:
    """Ids of the `count` largest logits, ascending, and of fewer where others are -inf."""
    ids: np.ndarray = np.flatnonzero(logits_V >= max(floor_of_best(logits_V, count), LOWEST))
    if ids.size > count:
        logits = logits_V[ids]
        ids = ids[largest(logits, nth_largest(logits, count), count)]
    return ids


def floor_of_best(logits_V: np.ndarray, count: int) -> float:
    """A number that at least `count` logits reach, and not many more.

    The largest of disjoint groups are logits too, so if `count` of them reach a number,
    at least as many logits do. Groups are made of every `num_groups`-th entry, since
    neighbours in a vocabulary are alike.
    """
    num_groups = logits_V.size // GROUP
    if count > num_groups:
        return nth_largest(logits_V, count)
    groups = logits_V[: num_groups * GROUP].reshape(GROUP, num_groups)
    return nth_largest(groups.max(axis=0), count)


def nth_largest(values: np.ndarray, count: int) -> float:
    place = values.size - count
    return float(np.partition(values, place)[place])


def largest(values: np.ndarray, smallest: float, count: int) -> np.ndarray:
    """Places of the `count` largest values, `smallest` being the least; first ones at a tie."""
    places: np.ndarray = np.flatnonzero(values >= smallest)
    num_surplus = places.size - count
    if num_surplus:
        ties = np.flatnonzero(values[places] == smallest)
        places = np.delete(places, ties[-num_surplus:])
    return places
