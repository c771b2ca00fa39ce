"""The services of the typed API, as their protobuf files describe them, and reflection's."""

from attendant.v1 import (
    features_pb2,
    generation_pb2,
    reading_pb2,
    text_pb2,
    vision_pb2,
)

REFLECT = "ServerReflectionInfo"
REFLECTION_SERVICES: tuple[str, ...] = (
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
)


OWN_DESCRIPTORS = tuple(
    service
    for file in (text_pb2, generation_pb2, reading_pb2, features_pb2, vision_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
)
OWN_SERVICES: tuple[str, ...] = tuple(service.full_name for service in OWN_DESCRIPTORS)
OWN_METHODS: tuple[str, ...] = tuple(
    f"/{service.full_name}/{method.name}"
    for service in OWN_DESCRIPTORS
    for method in service.methods
)
