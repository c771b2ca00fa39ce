"""The stations of a request, and the durations between them."""

import numpy as np

from service.batching.request import Item, Request
from service.records import MAX_BATCHES, ObservedCall, RanBatch, Timings


def test_a_request_without_a_batch_neither_waits_nor_computes() -> None:
    """It took from its arrival to its answer, 1.5 s."""
    timings = Timings.without_batch(10.0, 11.5)
    assert (timings.queued_s, timings.started_s, timings.finished_s) == (11.5, 11.5, 11.5)
    assert timings.queue_s == timings.compute_s == 0
    assert timings.total_s == 1.5


def test_durations_of_all_batches_of_a_request_add_up() -> None:
    timings = Timings(10.0, queued_s=11.0, started_s=13.0, finished_s=17.0)
    batch = RanBatch((), collate_s=0.25, run_s=0.5, split_s=0.125)
    timings.add(batch)
    timings.add(batch)
    assert (timings.collate_s, timings.run_s, timings.split_s) == (0.5, 1.0, 0.25)
    assert timings.compute_s == 1.75
    assert timings.queue_s == 2
    assert timings.total_s == 7


def test_a_batch_counts_rows_tokens_and_what_is_padded() -> None:
    """Two rows of 3 tokens and one of 5: 11 of them, and 15 positions."""
    request = Request(Timings(0.0))
    items = [Item(request, {}, 2, 3), Item(request, {}, 1, 5)]
    batch = RanBatch(items, 0.0, 0.0, 0.0)
    assert (batch.num_rows, batch.num_tokens, batch.num_padded_tokens) == (3, 11, 15)
    request.items = tuple(items)
    assert (request.num_rows, request.num_tokens) == (3, 11)


def test_a_request_that_is_done_lets_go_of_its_arrays() -> None:
    """And still says how many rows it has, none."""
    request = Request(Timings(0.0))
    item = Item(request, {"x": np.zeros(3)})
    request.items, request.results = (item,), {item: [np.zeros(3)]}
    request.is_done = True
    request.forget()
    assert not request.items
    assert not request.results
    assert request.num_rows == 0


def test_a_call_remembers_its_first_batches() -> None:
    """However many there are, in their order."""
    call = ObservedCall("service", "Method", 0.0)
    for number in range(MAX_BATCHES + 2):
        call.ran_in(number)
    assert call.batches == list(range(MAX_BATCHES))
