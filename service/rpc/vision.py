"""`attendant.v1.VisionService`: the typed API for image classifiers."""

from attendant.v1 import vision_pb2_grpc

from service.repository import ModelRepository
from service.rpc.admission import Admission


class VisionService(vision_pb2_grpc.VisionServiceServicer):
    """Answers for the image classifiers of the repository."""

    def __init__(self, repository: ModelRepository, admission: Admission, max_images: int) -> None:
        self._repository = repository
        self._admission = admission
        self._max_images = max_images
