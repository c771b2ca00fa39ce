"""Write handwritten digits as image files, to ask a classifier with.

    python -m models.data.generated.digit_images FOLDER

They are the first of scikit-learn's, one of each: 0.png to 9.png. `examples.txt` names them for an
export.
"""

import sys
from pathlib import Path

import matplotlib.image
import numpy as np
from sklearn.datasets import load_digits

LARGEST = 16  # of a pixel, as scikit-learn has them


def main(arguments: list[str]) -> None:
    if len(arguments) != 1:
        sys.exit("usage: python -m models.data.generated.digit_images FOLDER")
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    for label in range(10):
        image = digits.images[int(np.argmax(digits.target == label))]
        path = folder / f"{label}.png"
        matplotlib.image.imsave(path, image, cmap="gray", vmin=0, vmax=LARGEST)
    lines = (f"A written {label}\t{label}.png\n" for label in range(10))
    (folder / "examples.txt").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
