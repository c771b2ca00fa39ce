"""A request whose body is the bytes of one input, without any JSON.

Pure, for any thread.
"""

import math

from tritonclient.grpc import service_pb2 as pb

from service.api.long_message import Content, LongInferRequest
from service.api.tensors import in_request
from service.contract.interface import ModelInterface
from service.contract.tensors import BYTES
from service.http.kserve.request import Delivery, InferCall, aligned
from service.http.wire.compression import Buffer


def raw_infer(
    body: Buffer,
    version: str,
    interface: ModelInterface,
) -> InferCall:
    """The request of a body that is the bytes of the only input that the model requires, one row.

    Its shape is found from the number of bytes. Raises `InvalidArgument`.
    """
    view = memoryview(body).toreadonly()
    model, signature = interface.name, interface.signature
    message = pb.ModelInferRequest(model_name=model, model_version=version)
    # Triton takes no model with optional inputs either; here they are left out.
    required = [spec for spec in signature.inputs if not spec.is_optional]
    if len(required) != 1:
        raise in_request(
            message,
            "Raw request must only have 1 input (found 1) to be deduced but got "
            f"{len(signature.inputs)} inputs in '{model}' model configuration",
        )
    (spec,) = required
    name, datatype = spec.name, spec.datatype
    dims, num_fixed = list(spec.dims), math.prod(dim for dim in spec.dims if dim != -1)
    contents: list[Content] = [aligned(view, datatype.name)]
    if datatype.name == BYTES:
        if dims.count(-1) or num_fixed != 1:
            raise in_request(
                message,
                f"For BYTE datatype raw input '{name}', the model must have input shape [1]",
            )
        contents = [[bytes(view)]]
    elif dims.count(-1) > 1:
        raise in_request(
            message,
            f"The shape of the raw input '{name}' can not be deduced because there are more than "
            "one variable-sized dimension",
        )
    elif -1 in dims:
        dims[dims.index(-1)] = len(view) // max(1, num_fixed * datatype.dtype.itemsize)
    shape = [1, *dims] if interface.has_rows else dims
    message.inputs.add(name=name, datatype=datatype.name, shape=shape)
    return InferCall(LongInferRequest(message, contents), Delivery(is_binary=True))
