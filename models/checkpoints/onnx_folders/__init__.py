"""Folders of graphs in ONNX: what the files beside a graph say of it."""
