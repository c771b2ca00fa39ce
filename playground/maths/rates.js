// Rates between two answers of /api/live. Pure.

const added = (before, after, key) => {
	const known = new Map(before.map((part) => [part[key], part.count]));
	return after.map((part) => ({ ...part, count: part.count - (known.get(part[key]) ?? 0) })).filter((part) => part.count > 0);
};

/** The value below which a share of the counted ones is, evenly spread between two bounds; NaN of none, the last bound of those above all. */
export function quantile(counts, bounds, share) {
	const total = counts.reduce((sum, part) => sum + part.count, 0);
	let left = share * total;
	for (const { below_seconds: bound, count } of counts) {
		if (left > count) left -= count;
		else if (bound === null) return bounds.at(-1);
		else {
			const from = bounds[bounds.indexOf(bound) - 1] ?? 0;
			return from + (bound - from) * (left / count);
		}
	}
	return NaN;
}

/** What happened from one answer to another, per second. */
export function rates(before, after) {
	const seconds = Math.max(after.time_seconds - before.time_seconds, 1e-3), per = (now, then) => Math.max(0, now - then) / seconds;
	const bounds = after.latency.map((part) => part.below_seconds).filter((bound) => bound !== null), latency = added(before.latency, after.latency, "below_seconds");
	const batches = added(before.batches, after.batches, "rows"), runs = batches.reduce((sum, part) => sum + part.count, 0);
	return {
		calls: Object.fromEntries(Object.entries(after.calls).map(([protocol, count]) => [protocol, per(count, before.calls[protocol] ?? 0)])),
		p50: quantile(latency, bounds, 0.5), p95: quantile(latency, bounds, 0.95),
		rows: runs ? batches.reduce((sum, part) => sum + part.rows * part.count, 0) / runs : NaN,
		tokens: per(after.generation.tokens, before.generation.tokens),
		errors: Math.max(0, after.requests.failed + after.calls_refused - before.requests.failed - before.calls_refused),
	};
}
