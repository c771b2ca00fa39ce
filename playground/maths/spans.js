// Spans that may lie inside of one another, as a tree over a text.

/** Pieces `{text}`, or `{span, inner: pieces}`; offsets are code points. A span that crosses another's border is left out. */
export function nested(text, spans) {
	const points = [...text], ordered = spans.filter((span) => span.start < span.end).sort((a, b) => a.start - b.start || b.end - a.end);
	let next = 0;
	const within = (from, to) => {
		const found = [];
		let at = from;
		const upTo = (end) => { if (end > at) found.push({ text: points.slice(at, end).join("") }); };
		while (next < ordered.length && ordered[next].start < to) {
			const span = ordered[next++];
			if (span.start < at || span.end > to) continue;
			upTo(span.start);
			found.push({ span, inner: within(span.start, span.end) });
			at = span.end;
		}
		upTo(to);
		return found;
	};
	return within(0, points.length);
}
