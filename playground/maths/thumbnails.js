// Small pictures of matrices: the largest weight below each pixel, so that a thin line stays one.

/** The first cell, and the one after the last, below each of a number of pixels. */
const spans = (cells, pixels) => Array.from({ length: pixels }, (_, at) => {
	const start = Math.floor((at * cells) / pixels);
	return [start, Math.max(start + 1, Math.floor(((at + 1) * cells) / pixels))];
});

/** 256 colours as pixels (alpha, blue, green and red from the high byte) of a scale. */
export function shades(colour, from = 0) {
	return Uint32Array.from({ length: 256 }, (_, at) => {
		const [red, green, blue] = colour(from + ((1 - from) * at) / 255);
		return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
	});
}

/** Paints a matrix into a box of `pixels`, whose lines have `stride` of them, by 256 colours of which the last is for `most`. Of signed values the one farthest from 0 counts. */
export function paint(pixels, stride, { left, top, width, height }, matrix, columns, colours, most, isSigned = false) {
	const across = spans(columns, width), down = spans(matrix.length / columns, height), factor = (isSigned ? 127.5 : 255) / most, middle = isSigned ? 127.5 : 0;
	for (let y = 0; y < height; y++) {
		const [firstRow, endRow] = down[y];
		for (let x = 0; x < width; x++) {
			const [firstColumn, endColumn] = across[x];
			let value = 0;
			for (let row = firstRow; row < endRow; row++) {
				for (let i = row * columns + firstColumn, end = row * columns + endColumn; i < end; i++) if (isSigned ? Math.abs(matrix[i]) > Math.abs(value) : matrix[i] > value) value = matrix[i];
			}
			pixels[(top + y) * stride + left + x] = colours[Math.max(0, Math.min(255, Math.round(middle + value * factor)))];
		}
	}
}
