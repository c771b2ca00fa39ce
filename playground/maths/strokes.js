// A drawing as strokes, and as the few pixels that a model sees: fitted as the images of MNIST are.

export const SIDE = 280; // of the pad that strokes are drawn on
const INK = 24; // a pixel with less is paper

/** A stroke with another point, unless that is near to the last one. */
export function extended(stroke, x, y, nearest = 3) {
	const [fromX, fromY] = stroke.slice(-2);
	return Math.hypot(x - fromX, y - fromY) < nearest ? stroke : [...stroke, Math.round(x), Math.round(y)];
}

/** The middle of what is drawn, by its mass, and its first and last pixel, along an axis. */
function extent(masses) {
	const drawn = [...masses.keys()].filter((at) => masses[at]);
	return { middle: drawn.reduce((sum, at) => sum + masses[at] * (at + 0.5), 0) / drawn.reduce((sum, at) => sum + masses[at], 0), first: drawn[0], end: drawn.at(-1) + 1 };
}

/** The drawing as an image. Fitted, its longer side takes 20 of 28 pixels, as in MNIST, or all of a very small image, and its centre of mass is in the middle as far as it fits. */
export function seen(ink, side, columns, rows, isFitted = true) {
	const image = new Uint8ClampedArray(columns * rows), masses = [new Float64Array(side), new Float64Array(side)];
	ink.forEach((value, at) => {
		if (value < INK) return;
		masses[0][at % side] += value;
		masses[1][Math.floor(at / side)] += value;
	});
	let zooms = [side / columns, side / rows], from = [0, 0];
	if (isFitted) {
		if (!masses[0].some(Boolean)) return image;
		const extents = masses.map(extent), counts = [columns, rows], share = Math.min(columns, rows) < 20 ? 1 : 20 / 28;
		zooms = zooms.fill(Math.max(...extents.map(({ first, end }, axis) => (end - first) / counts[axis])) / share);
		from = extents.map(({ middle, first, end }, axis) => Math.max(Math.min(middle - counts[axis] / 2 * zooms[0], first), end - counts[axis] * zooms[0]));
	}
	return image.map((_, at) => meanOf(ink, side, from[0] + (at % columns) * zooms[0], from[1] + Math.floor(at / columns) * zooms[1], ...zooms));
}

/** The mean over a part of the drawing, beyond which there is paper. */
function meanOf(ink, side, left, top, wide, tall) {
	let sum = 0;
	const share = (at, from, size) => Math.min(at + 1, from + size) - Math.max(at, from);
	for (let y = Math.max(0, Math.floor(top)); y < Math.min(side, top + tall); y++) {
		for (let x = Math.max(0, Math.floor(left)); x < Math.min(side, left + wide); x++) sum += ink[y * side + x] * share(y, top, tall) * share(x, left, wide);
	}
	return sum / (wide * tall);
}
