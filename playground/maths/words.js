// The words of a text, and the texts that lack one of them.

/** Words as [start, end) in UTF-16, in at most `most` groups of neighbours. */
export function words(text, most = 63) {
	const all = [...text.matchAll(/\S+/g)].map((match) => ({ start: match.index, end: match.index + match[0].length }));
	return batches(all, Math.ceil(all.length / most) || 1).map((group) => ({ start: group[0].start, end: group.at(-1).end }));
}

/** The text without each of these words. */
export const without = (text, spans) => spans.map(({ start, end }) => [text.slice(0, start).trimEnd(), text.slice(end).trimStart()].filter((part) => part.trim()).join(" "));

/** Lists of at most `size`. */
export const batches = (all, size) => Array.from({ length: Math.ceil(all.length / size) }, (_, index) => all.slice(index * size, (index + 1) * size));
