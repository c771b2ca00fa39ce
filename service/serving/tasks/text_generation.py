"""The tensors of generated text; the typed API has a service of its own for it, with streams."""

from service.contract.tensors import DATATYPES, Signature, TensorSpec
from service.serving.tasks.task import BYTES, Task

BOOL = DATATYPES["BOOL"]
# What Triton's generative backends take and give.
SIGNATURE = Signature(
    (
        TensorSpec("text_input", BYTES, (1,)),
        TensorSpec("stream", BOOL, (1,), is_optional=True),
        TensorSpec("sampling_parameters", BYTES, (1,), is_optional=True),
        TensorSpec("exclude_input_in_output", BOOL, (1,), is_optional=True),
    ),
    (TensorSpec("text_output", BYTES, (-1,)),),
)
TEXT_GENERATION = Task(name="text-generation", verb="generate", signature=lambda _: SIGNATURE)
