"""`attendant.v1.FeatureService`: the typed API for what models make of texts on the way."""

from attendant.v1 import features_pb2_grpc

from service.rpc.text_calls import TextCalls


class FeatureService(TextCalls, features_pb2_grpc.FeatureServiceServicer):
    """Answers for the text models of the repository."""
