"""What the layers of a network know of words, asked of by a linear classifier."""
