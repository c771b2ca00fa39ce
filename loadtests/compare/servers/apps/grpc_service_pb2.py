"""Where tritonclient's messages say that they are, which Ray believes when it sends one on."""

from tritonclient.grpc.service_pb2 import *  # noqa: F403
