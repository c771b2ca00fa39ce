"""Quantization: SmoothQuant, GPTQ, blockwise and per-token scales."""
