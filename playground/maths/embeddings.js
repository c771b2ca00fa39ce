// Embeddings that are no single vectors: weights of tokens, and a vector for each token.

import { dot } from "./vectors.js";

/** Weights of tokens as vectors of one length, over the tokens that any of them has. */
export function dense(all) {
	const places = new Map([...new Set(all.flatMap(({ token_ids: ids = [] }) => ids))].map((id, place) => [id, place]));
	return all.map(({ token_ids: ids = [], weights = [] }) => {
		const values = new Array(places.size).fill(0);
		ids.forEach((id, index) => { values[places.get(id)] = weights[index]; });
		return values;
	});
}

/** Late interaction (ColBERT): the largest product of each of a query's vectors with a document's, on average. */
export const late = (query, document) => (query.length && document.length ? query.reduce((sum, each) => sum + Math.max(...document.map((other) => dot(each, other))), 0) / query.length : 0);
