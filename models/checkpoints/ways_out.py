"""What somebody can do with what an import refuses. Knows nothing about folders."""

ELSEWHERE = (
    "export it to ONNX with another tool, for example optimum, and put the graph into the model "
    "repository"
)
