"""`attendant.v1.VisionService`: the typed API for image classifiers."""

import numpy as np
from attendant.v1 import text_pb2, vision_pb2_grpc
from attendant.v1 import vision_pb2 as pb

from service.errors import InvalidArgument, WrongTask
from service.image_model import ImageModel
from service.models import softmax
from service.repository import ModelRepository
from service.rpc.admission import Admission
from service.rpc.status import ATTENDANT_CODES, Context, answers_errors, caller_of
from service.rpc.text import label_count
from service.rpc.text_calls import timings_message
from service.tasks import VERBS


class VisionService(vision_pb2_grpc.VisionServiceServicer):
    """Answers for the image classifiers of the repository."""

    def __init__(self, repository: ModelRepository, admission: Admission, max_images: int) -> None:
        self._repository = repository
        self._admission = admission
        self._max_images = max_images

    @answers_errors(ATTENDANT_CODES)
    async def ClassifyImage(
        self, request: pb.ClassifyImageRequest, context: Context
    ) -> pb.ClassifyImageResponse:
        caller = caller_of(context)
        model = self._repository.find(request.model, request.version)
        if not isinstance(model, ImageModel):
            raise WrongTask(f"model '{model.name}' cannot {VERBS['image-classification']}")
        if not 1 <= len(request.images) <= self._max_images:
            raise InvalidArgument(
                f"images has {len(request.images)} elements, expected 1 to {self._max_images}"
            )
        labels = model.manifest.labels
        count = label_count(request, len(labels))
        self._admission.admit(len(request.images) * model.decoded_bytes)
        with model.users:
            reply = await model.classify(request.images, caller)
        scores = softmax(reply.logits)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
        results = [
            pb.ImageClassification(
                labels=[
                    text_pb2.LabelScore(label=labels[index], score=image_scores[index])
                    for index in best
                ],
                width=width,
                height=height,
            )
            for (width, height), image_scores, best in zip(reply.sizes, scores, order, strict=True)
        ]
        return pb.ClassifyImageResponse(
            model=model.name,
            version=str(model.version),
            timings=timings_message(reply.timings),
            results=results,
        )
