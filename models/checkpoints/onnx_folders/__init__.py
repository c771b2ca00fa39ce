"""Folders of graphs in ONNX: which graph is served, and what the files beside it say of it."""
