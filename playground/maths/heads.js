// Names for what a head does, by the share of its attention that goes to certain places.

/** Names by key, in the order in which they are shown. `mixed` is a head without a clear habit. */
export const LABELS = { previous: "previous token", next: "next token", self: "same position", first: "first or separator", same: "same token", broad: "broad", mixed: "mixed" };
const ENOUGH = 0.5; // of a row's attention, on average
const BROAD = 0.8; // of the entropy of a row that looks at all its keys alike

/** The score of each label, 0 to 1, as the rows' mean weight on its places; `broad` is their mean entropy as a share of the largest. Where queries are another text than keys (`isCross`), positions mean nothing. */
export function scores(matrix, { queries, keys, isCross = false }) {
	const columns = keys.length, sums = { previous: 0, next: 0, self: 0, first: 0, same: 0, broad: 0 }, counts = { ...sums };
	const add = (name, value) => { sums[name] += value; counts[name]++; };
	const places = new Map();
	keys.forEach(({ id, isSpecial }, column) => isSpecial || places.set(id, [...(places.get(id) ?? []), column]));
	const special = keys.flatMap((key, column) => (key.isSpecial || (!isCross && column === 0) ? [column] : []));
	queries.forEach((query, row) => {
		const start = row * columns;
		if (!isCross) {
			if (row > 0) add("previous", matrix[start + row - 1]);
			if (row + 1 < columns) add("next", matrix[start + row + 1]);
			add("self", matrix[start + row]);
		}
		// The first token of a causal head has nothing else to look at.
		if (special.length && (isCross || row > 0)) add("first", special.reduce((sum, column) => sum + matrix[start + column], 0));
		const others = (places.get(query.id) ?? []).filter((column) => isCross || column !== row);
		if (others.length) add("same", others.reduce((sum, column) => sum + matrix[start + column], 0));
		const evenness = entropyShare(matrix, start, columns);
		if (evenness !== null) add("broad", evenness);
	});
	return Object.fromEntries(Object.keys(sums).map((name) => [name, counts[name] ? Math.min(1, sums[name] / counts[name]) : 0]));
}

/** Entropy of a row as a share of that of equal weights on its keys; null where it has one key. */
function entropyShare(matrix, start, columns) {
	let entropy = 0, reachable = 0;
	for (let i = start; i < start + columns; i++) {
		if (matrix[i] > 0) {
			entropy -= matrix[i] * Math.log(matrix[i]);
			reachable++;
		}
	}
	return reachable > 1 ? entropy / Math.log(reachable) : null;
}

/** The label that fits best, and its score. */
export function labelOf(of) {
	const [label, score] = Object.entries(of).filter(([name]) => name !== "broad").sort((a, b) => b[1] - a[1])[0];
	if (score >= ENOUGH) return { label, score };
	return of.broad >= BROAD ? { label: "broad", score: of.broad } : { label: "mixed", score: 1 - Math.max(score, of.broad) };
}
