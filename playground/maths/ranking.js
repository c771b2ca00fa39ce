// Scores in order: of several answers one, and the bounds of bars that begin at 0.

/** One ranking of what parts of a list were answered, best first; equals stay in the list's order. */
export function merged(parts, size, most = 0) {
	const all = parts.flatMap((results, part) => results.map((each) => ({ ...each, index: part * size + (each.index ?? 0) })));
	// The server has the order of a part, where scores are rounded to equal ones.
	if (parts.length > 1) all.sort((a, b) => b.score - a.score || a.index - b.index);
	return most ? all.slice(0, most) : all;
}

/** The values of the left and the right end of bars: 0 to 1 of probabilities, else what the values need with 0 among them. */
export const ends = (values, isNumber) => (isNumber ? { least: Math.min(0, ...values), most: Math.max(0, ...values) } : { least: 0, most: 1 });
