"""The Open Inference Protocol over HTTP, with Triton's extensions."""
