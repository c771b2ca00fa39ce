"""The first run of a graph on a GPU, which finds what its session could not know."""

from pathlib import Path

import numpy as np
import pytest

from service.contract.files import ModelSource
from service.contract.tensors import Arrays
from service.errors import LoadError
from service.repository.loading import Openers, load_model
from service.runtime.device_errors import failure_of_run
from service.settings import Settings
from tests.fakes.every_task import every_session, write_every_model
from tests.fakes.sessions import FakeSessions, classifier_manifest, text_session, write_model

TRIED = {
    *(
        "asks",
        "crossed",
        "deep",
        "fills",
        "light",
        "looks",
        "match",
        "mini",
        "seen",
        "spam",
        "tags",
    ),
    "words",
}
NO_CUDNN = (
    "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Non-zero status code returned while running "
    "ReduceMax node. Name:'/pool' Status Message: cuDNN is unavailable for CUDA Execution "
    "Provider: dlopen failed for libcudnn.so: libcudnn.so: cannot open shared object "
    "file: No such file or directory"
)
NO_CODE = (
    "CUDA failure 209: no kernel image is available for execution on the device ; GPU=0 ; "
    "hostname=vm ; file=softmax_impl.cu ; line=1 ; expr=cudaGetLastError(); "
)
NO_MEMORY = "Failed to allocate memory for requested buffer of size 2830172160"


@pytest.mark.parametrize(("device", "tried"), [("cuda", TRIED), ("cpu", set())])
def test_each_model_of_texts_or_images_is_run_once_on_a_gpu(
    device: str, tried: set[str], tmp_path: Path
) -> None:
    """Tensors and symbols have shapes that nothing states: `model_warmup` tries those."""
    write_every_model(tmp_path)
    sessions = every_session()
    openers = Openers(sessions, choose_device=lambda _: device)
    settings = Settings(measure_cost_s=0.0)
    names = {folder.name for folder in tmp_path.iterdir()} - {"tale"}
    assert names > TRIED
    for name in names:
        load_model(ModelSource.of(tmp_path, name), settings, openers)
        assert len(sessions[name].calls) == (name in tried), name


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (NO_CUDNN, "an operator of the model needs cuDNN, install attendant[gpu,cudnn]: "),
        (
            NO_CODE,
            "CUDA cannot be used: this build of ONNX Runtime has no code for this GPU: "
            "onnxruntime-gpu 1.31.1 has it for compute capability 7.5, 8.0, 8.6, 8.9, 9.0 and 12.0",
        ),
        (NO_MEMORY, "too little memory on cuda: the files of the graph have 0 bytes, and 2,699.1 "),
        (
            "CUDA failure 700: an illegal memory access was encountered ; GPU=0",
            "the device is lost until this process ends, restart the server: CUDA failure 700",
        ),
        ("Got invalid dimensions", "Got invalid dimensions"),
    ],
)
def test_a_first_run_that_fails_is_a_load_error_with_a_way_out(
    text: str, reason: str, tmp_path: Path
) -> None:
    write_model(tmp_path, "spam", classifier_manifest())
    session = text_session("logits", 3)

    def fail(_: Arrays) -> dict[str, np.ndarray]:
        raise failure_of_run(text, "cuda")

    session.compute = fail
    openers = Openers(FakeSessions(spam=lambda: session), choose_device=lambda _: "cuda")
    with pytest.raises(LoadError) as error:
        load_model(ModelSource.of(tmp_path, "spam"), Settings(), openers)
    assert str(error.value).startswith(f"model.onnx: {reason}")
    assert len(str(error.value)) < 600
