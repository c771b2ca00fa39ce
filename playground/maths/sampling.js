// What sampling parameters make of the likeliest tokens of a step, as the server would compute it: biases, penalties,
// temperature, min-p, top-k, top-p. Of tokens beyond those given only the summed probability is known.

/** Candidates are `{id, logit, logprob}`, best first, with the logits of the model. */

const GREEDY_BELOW = 1e-5;

/** The logit of a token after bias and penalties. */
export function edited({ id, logit }, settings, seen, counts) {
	const { logit_bias = {}, repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0 } = settings;
	const biased = logit + (logit_bias[id] ?? 0), times = counts.get(id) ?? 0;
	const penalized = !seen.has(id) ? biased : biased > 0 ? biased / repetition_penalty : biased * repetition_penalty;
	return penalized - frequency_penalty * times - (times ? presence_penalty : 0);
}

/** The candidates by their new probabilities, and what is known of the others. `beyond` is the share of all other tokens, `certainty` whether it is known, and `cut` the setting that keeps the fewest. */
export function shaped(candidates, settings, prompt = [], output = [], size = 0) {
	const { temperature = 1, top_k = 0, top_p = 1, min_p = 0 } = settings, counts = new Map();
	for (const id of output) counts.set(id, (counts.get(id) ?? 0) + 1);
	const seen = new Set([...prompt, ...output]), isGreedy = temperature < GREEDY_BELOW, power = isGreedy ? 1 : 1 / temperature;
	const rows = candidates.map((each) => ({ ...each, edited: edited(each, settings, seen, counts) })).sort((a, b) => b.edited - a.edited || a.id - b.id);
	const highest = rows[0]?.edited ?? 0, weights = rows.map((row) => Math.exp((row.edited - highest) * power));
	const state = { kept: rows.length, cut: "", ...others(candidates, highest, power, size) };
	const sum = () => weights.slice(0, state.kept).reduce((total, each) => total + each, 0);
	const keep = (count, cut) => { if (count < state.kept || state.beyond) Object.assign(state, { kept: Math.min(count, state.kept), cut, beyond: 0, certainty: "exact" }); };
	const guess = () => { if (state.beyond) Object.assign(state, { beyond: state.beyond / 2, certainty: "estimate" }); };
	if (isGreedy) keep(1, "temperature 0");
	if (min_p > 0 && weights.at(-1) < min_p) keep(weights.filter((weight) => weight >= min_p).length, "min-p");
	else if (min_p > 0) guess();
	if (top_k > 0 && top_k <= state.kept) keep(top_k, "top-k");
	else if (top_k > 0) guess();
	if (top_p < 1) {
		const { certainty } = state, enough = top_p * (sum() + state.beyond);
		let total = 0;
		const place = weights.findIndex((weight, index) => index < state.kept && (total += weight) >= enough * (1 - 1e-12));
		if (place >= 0) keep(place + 1, "top-p");
		state.certainty = certainty; // of where it cuts
	}
	const whole = sum() + state.beyond;
	let cumulated = 0;
	return { ...state, beyond: whole ? state.beyond / whole : 0, rows: rows.map((row, index) => {
		const isKept = index < state.kept, probability = isKept ? weights[index] / whole : 0;
		return { ...row, isKept, probability, cumulated: (cumulated += probability) };
	}) };
}

/** The summed weight of other tokens; of a power, between those of equal tokens and of tokens like the last candidate. */
function others(candidates, highest, power, size) {
	const last = candidates.at(-1), share = Math.max(0, 1 - candidates.reduce((sum, each) => sum + Math.exp(each.logprob), 0)), count = Math.max(1, size - candidates.length);
	if (share < 1e-5) return { beyond: 0, certainty: "exact" };
	const sum = (share * Math.exp(last.logprob * (power - 1)) + share ** power * count ** (1 - power)) / 2;
	return { beyond: sum * Math.exp((last.logit - last.logprob - highest) * power), certainty: power === 1 ? "exact" : "estimate" };
}
