// Two matrices beside each other.

/** The first rows and columns of a matrix that has `stride` columns. */
export const cropped = (matrix, stride, rows, columns) => Float32Array.from({ length: rows * columns }, (_, at) => matrix[Math.floor(at / columns) * stride + (at % columns)]);

/** The cells that differ by more than a margin. */
export const changed = (before, after, margin = 0.02) => Array.from(after, (value, at) => (Math.abs(value - before[at]) > margin ? at : -1)).filter((at) => at >= 0);
