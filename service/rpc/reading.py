"""`attendant.v1.ReadingService`: the typed API for models that read texts word by word."""

from attendant.v1 import reading_pb2_grpc

from service.rpc.text_calls import TextCalls


class ReadingService(TextCalls, reading_pb2_grpc.ReadingServiceServicer):
    """Answers for the text models of the repository."""
