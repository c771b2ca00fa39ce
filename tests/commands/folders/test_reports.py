"""Lines about folders that are made ready."""

from commands.folders.reports import cost_of_rounding


def test_what_rounding_changes_is_one_line() -> None:
    """Of texts their answers, of decoders their tokens; nothing of graphs in floating point."""
    texts = {"texts_compared": 64, "same_labels": 0.96875, "min_cosine": 0.9992}
    assert cost_of_rounding("int8", texts) == (
        "int8 beside float32: other labels for 2 of 64 texts; outputs by cosine 0.9992 at least"
    )
    assert cost_of_rounding("int8", {"network_changed_tokens": 0.021}) == (
        "int8 beside float32: other tokens at 2.1% of places"
    )
    assert cost_of_rounding("fp32", texts) == ""
