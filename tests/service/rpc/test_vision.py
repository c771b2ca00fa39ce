"""`attendant.v1.VisionService` over the wire: answers, and every way to be refused."""

import asyncio
import threading
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import pytest_asyncio
from attendant.v1 import text_pb2, vision_pb2_grpc
from attendant.v1 import vision_pb2 as pb

from service.errors import NotFound
from service.runtime.images import decode_images
from service.serving import image_model
from service.serving.tasks.task import softmax
from tests.fakes.serving import Served, eventually, refusal, serving, within_patience
from tests.fakes.sessions import FakeSessions, write_model
from tests.fakes.tasks import GREY, IMAGE_MANIFEST, WHITE, file_of, image_session

pytestmark = pytest.mark.asyncio(loop_scope="module")
LIMITS = {"max_image_bytes": 4_096, "max_image_pixels": 10_000, "max_texts": 5}


def write_models(repository: Path) -> None:
    for name in ("light", "tall"):
        write_model(repository, name, IMAGE_MANIFEST)
        (repository / name / "1" / "tokenizer.json").unlink()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """One request may wait."""
    repository = tmp_path_factory.mktemp("model_repository")
    write_models(repository)
    sessions = FakeSessions(light=image_session, tall=lambda: image_session(9))
    async with serving(repository, sessions, max_queue_requests=1, **LIMITS) as running:
        yield running


def classify(served: Served, *images: bytes, timeout: float = 30.0, **fields: Any) -> Any:
    stub = vision_pb2_grpc.VisionServiceStub(served.channel)
    fields = {"model": "light", "images": images, **fields}
    return stub.ClassifyImage(pb.ClassifyImageRequest(**fields), timeout=timeout)


async def hold(served: Served) -> "asyncio.Task[Any]":
    """Keep the model's only session busy with one image, until `release`."""
    session = served.sessions["light"]
    session.hold()
    call = asyncio.create_task(_answer(classify(served, WHITE)))
    await asyncio.to_thread(session.wait_for_runs, len(session.batches) + 1)
    return call


async def _answer(call: Any) -> Any:
    return await call


NOISE = np.random.default_rng(0).integers(0, 256, (40, 40)).astype(np.uint8)
WHOLE = file_of(NOISE)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "empty": ({"images": [file_of(GREY), b""]}, "image 1 has 0 bytes, the server takes 1 to 4096"),
    "too large": ({"images": [bytes(5_000)]}, "image 0 has 5000 bytes, the server takes 1 to"),
    "not an image": ({"images": [b"a text"]}, "image 0 is not an image in a format that is read"),
    "another format": ({"images": [file_of(GREY, "GIF")]}, "that is read: PNG or JPEG"),
    "a header alone": ({"images": [b"\x89PNG\r\n\x1a\n"]}, "image 0 is not an image"),
    "cut off": ({"images": [WHOLE[:-200]]}, "image 0 is broken or cut off"),
    "a JPEG cut off": ({"images": [file_of(NOISE, "JPEG")[:-300]]}, "image 0 is broken or cut off"),
    "flipped bytes": ({"images": [WHOLE[:900] + b"????" + WHOLE[904:]]}, "image 0 is broken"),
    "too many pixels": (
        {"images": [file_of(np.zeros((101, 100), np.uint8))]},
        "image 0 has 100 x 101 pixels, the server takes 1 to 10000 in all",
    ),
    "too many pixels together": (
        {"images": [file_of(np.zeros((100, 100), np.uint8))] * 5},
        "the images have 50000 pixels in all, the server takes at most 40000",
    ),
    "two counts": (
        {"images": [file_of(GREY)], "top_k": 1, "all_scores": True},
        "top_k is 1 and all_scores is set",
    ),
    "more labels than there are": (
        {"images": [file_of(GREY)], "top_k": 4},
        "top_k is 4, the model has 3 labels",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_no_image_within_bounds_is_refused_by_name(served: Served, case: str) -> None:
    fields, message = REFUSED[case]
    call = classify(served, **fields)
    code, details = await refusal(call)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert message in details


async def test_a_bomb_is_refused_before_it_is_decoded(served: Served) -> None:
    """A header that promises 65,535 x 65,535 pixels in a file of some hundred bytes."""
    small = bytearray(file_of(GREY))
    small[16:24] = (65_535).to_bytes(4, "big") * 2
    small[29:33] = zlib.crc32(bytes(small[12:29])).to_bytes(4, "big")
    code, details = await refusal(classify(served, bytes(small)))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "pixels" in details
    assert not served.sessions["light"].batches


async def test_other_calls_and_unknown_models_are_told_so(served: Served) -> None:
    unknown = await refusal(classify(served, WHITE, model="x"))
    assert unknown[0] == grpc.StatusCode.NOT_FOUND
    texts = served.text.Classify(text_pb2.ClassifyRequest(model="light", texts=["7"]))
    assert (await refusal(texts))[
        1
    ] == "model 'light' does image-classification, it cannot classify"


async def test_a_graph_that_takes_other_images_than_its_manifest_says_is_not_served(
    served: Served,
) -> None:
    """9 pixels high where 8 are promised."""
    with pytest.raises(NotFound):
        served.app.repository.find("tall")


async def test_each_image_is_an_item_and_answered_in_its_place(served: Served) -> None:
    response = await classify(served, WHITE, file_of(GREY), WHITE, all_scores=True)
    assert (response.model, response.version) == ("light", "1")
    best = [result.labels[0].label for result in response.results]
    assert best == ["bright", "dark", "bright"]
    scores = [label.score for label in response.results[1].labels]
    assert scores == pytest.approx(sorted(softmax(np.array([1.0, 0.0, 0.0])), reverse=True))
    assert sum(len(batch["pixel_values"]) for batch in served.sessions["light"].batches) == 3
    one = (await classify(served, WHITE)).results[0]
    assert [label.label for label in one.labels] == ["bright"]


async def test_files_are_decoded_on_a_worker_thread(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def noting(*arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return decode_images(*arguments)

    monkeypatch.setattr(image_model, "decode_images", noting)
    await classify(served, WHITE)
    assert threads != [threading.main_thread()]
    assert len(threads) == 1


async def test_a_full_queue_refuses_before_anything_is_decoded(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await hold(served)
    waiting = asyncio.create_task(_answer(classify(served, WHITE)))
    await eventually(lambda: served.num_waiting("light") == 1)
    monkeypatch.setattr(image_model, "decode_images", None)
    code, _ = await refusal(classify(served, WHITE))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
    served.release("light")
    await within_patience(asyncio.gather(running, waiting))


async def test_images_count_as_what_they_are_decoded_to(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five files of some 70 bytes, for a network that takes 256 bytes of each."""
    admission = served.app._admission
    await eventually(lambda: not admission.num_bytes)  # what other tests have asked is over
    monkeypatch.setattr(admission, "_max_bytes", 1_200)
    await classify(served, WHITE, WHITE)
    code, message = await refusal(classify(served, *[WHITE] * 5))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "the server takes at most" in message
    assert "in flight" in message
    await eventually(lambda: not admission.num_bytes)
