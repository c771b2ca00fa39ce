// Places for labels beside points, so that none covers another, or a point; and round numbers for axes.

const GAP = 5;
// Where a label may stand about its point, the best first: its shares to the left and above, and steps away.
const SIDES = [[0, 0.5, 1, 0], [1, 0.5, -1, 0], [0.5, 1, 0, -1], [0.5, 0, 0, 1], [0, 1, 0.7, -0.7], [0, 0, 0.7, 0.7], [1, 1, -0.7, -0.7], [1, 0, -0.7, 0.7]];
const touch = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;

/** The upper left corner of each label, or null where there is no room; earlier labels come first. */
export function placed(labels, area) {
	const points = labels.map(({ x, y }) => ({ x: x - 3, y: y - 3, width: 6, height: 6 })), taken = [];
	return labels.map(({ x, y, width, height }, index) => {
		for (const [left, up, right, down] of SIDES) {
			const box = { x: x - left * width + right * GAP, y: y - up * height + down * GAP, width, height };
			const isInside = box.x >= area.x && box.y >= area.y && box.x + width <= area.x + area.width && box.y + height <= area.y + area.height;
			if (!isInside || taken.some((other) => touch(box, other)) || points.some((other, at) => at !== index && touch(box, other))) continue;
			taken.push(box);
			return box;
		}
		return null;
	});
}

export function ticks(low, high, count = 6) {
	const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999);
	const first = Math.ceil(low / step - 1e-9);
	return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, index) => +((first + index) * step).toPrecision(12));
}
