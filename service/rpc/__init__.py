"""The gRPC front: operations bound to methods, messages, statuses, health, reflection."""
