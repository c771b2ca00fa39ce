"""The gRPC front."""
