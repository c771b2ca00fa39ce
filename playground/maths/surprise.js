// How open a choice was, and how surprising what was chosen: bits of log probabilities.

/** The entropy of the candidates in bits, the others counted as one token, so that it is the least value. */
export function entropy(logprobs) {
	const shares = logprobs.map(Math.exp), others = 1 - shares.reduce((sum, share) => sum + share, 0);
	return -[...shares, others].reduce((sum, share) => sum + (share > 1e-9 ? share * Math.log2(share) : 0), 0);
}

/** Bits of surprise of the tokens of a text, their sum, and its perplexity; the first token, before which there is none, has none. */
export function surprise(logprobs) {
	const bits = logprobs.map((each) => (each === undefined ? null : Math.max(0, -each / Math.LN2))), known = bits.filter((each) => each !== null);
	const total = known.reduce((sum, each) => sum + each, 0), mean = known.length ? total / known.length : 0;
	return { bits, total, mean, perplexity: 2 ** mean, worst: bits.map((_, index) => index).filter((index) => bits[index] !== null).sort((a, b) => bits[b] - bits[a] || a - b) };
}
