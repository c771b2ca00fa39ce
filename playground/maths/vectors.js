// Vectors: how alike they are, an order in which like ones are neighbours, and two directions to draw them in.

const sum = (values) => values.reduce((all, value) => all + value, 0);

export const dot = (a, b) => a.reduce((all, value, index) => all + value * b[index], 0);

export const norm = (vector) => Math.sqrt(dot(vector, vector));

export const cosine = (a, b) => dot(a, b) / (norm(a) * norm(b) || Infinity);

export const mean = (vectors) => vectors[0].map((_, index) => sum(vectors.map((vector) => vector[index])) / vectors.length);

/** Each vector with each, or with each of others. */
export const matrix = (vectors, measure = cosine, others = vectors) => vectors.map((a) => others.map((b) => measure(a, b)));

/** An order in which like rows are neighbours: the two groups that are most alike on average become one, turned so that their likest ends meet. */
export function clustered(alike) {
	const of = (a, b) => alike[a][b] + alike[b][a], ends = (a, b) => of(a.at(-1), b[0]), turned = (group) => [...group].reverse();
	let groups = alike.map((_, index) => [index]), likeness = alike.map((_, a) => alike.map((_, b) => of(a, b)));
	while (groups.length > 1) {
		let [one, other] = [0, 1];
		for (let a = 0; a < groups.length; a++) for (let b = a + 1; b < groups.length; b++) if (likeness[a][b] > likeness[one][other]) [one, other] = [a, b];
		const [first, second] = [groups[one], groups[other]], isKept = (_, index) => index !== one && index !== other;
		const [a, b] = [[first, second], [turned(first), second], [first, turned(second)], [second, first]].sort((x, y) => ends(...y) - ends(...x))[0], joined = [...a, ...b];
		groups = groups.filter(isKept);
		const means = groups.map((group) => sum(group.map((row) => sum(joined.map((each) => of(row, each))))) / group.length / joined.length);
		likeness = [...likeness.filter(isKept).map((row, index) => [...row.filter(isKept), means[index]]), [...means, 0]];
		groups.push(joined);
	}
	return groups[0] ?? [];
}

/** Numbers from 0 to 1 that a seed decides (mulberry32). */
export function random(seed) {
	return () => {
		seed = (seed + 0x6d2b79f5) | 0;
		let mixed = Math.imul(seed ^ (seed >>> 15), seed | 1);
		mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
		return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
	};
}

/** The first two principal components, by power iteration from a seed; the largest coordinate of each is positive. */
export function components(vectors, seed = 1, steps = 200) {
	const centre = mean(vectors), draw = random(seed), points = vectors.map(() => []), shares = [];
	let left = vectors.map((vector) => vector.map((value, index) => value - centre[index]));
	const total = sum(left.map((row) => dot(row, row)));
	for (let component = 0; component < 2; component++) {
		let axis = centre.map(() => draw() - 0.5), along;
		for (let step = 0; step <= steps; step++) {
			const size = norm(axis) || 1;
			axis = axis.map((value) => value / size);
			along = left.map((row) => dot(row, axis));
			if (step < steps) axis = centre.map((_, index) => sum(left.map((row, at) => row[index] * along[at])));
		}
		const sign = Math.max(...along) < -Math.min(...along) ? -1 : 1;
		shares.push(total ? dot(along, along) / total : 0);
		along.forEach((value, at) => points[at].push(sign * value));
		left = left.map((row, at) => row.map((value, index) => value - along[at] * axis[index]));
	}
	return { points, shares };
}
