"""The edge: protobuf messages in and out. The only place that serves grpc."""
