// Numbers as a reader sees them: few digits, a unit, an en dash for none.

export { visible } from "./visible.js";

const isNone = (value) => value === undefined || value === null || Number.isNaN(value);

export function percent(value) {
	if (isNone(value)) return "–";
	if (value === 0) return "0 %";
	if (value < 0.0001) return "<0.01 %";
	return `${(100 * value).toFixed(value >= 0.9995 ? 0 : value >= 0.1 ? 1 : 2)} %`;
}

/** A number with this number of significant digits. */
export function fixed(value, digits = 3) {
	if (isNone(value)) return "–";
	if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
	if (value !== 0 && Math.abs(value) < 1e-4) return value.toExponential(1).replace("-", "−");
	return value.toFixed(digits).replace("-", "−");
}

export function duration(value) {
	if (isNone(value)) return "–";
	return value < 0.9995 ? `${(value * 1e3).toFixed(value < 0.00995 ? 1 : 0)} ms` : value < 120 ? `${value.toFixed(value < 10 ? 2 : 1)} s` : `${Math.round(value / 60)} min`;
}

/** The seconds of an answer, by the names of the API. */
export const times = ({ queue_seconds: queue, compute_seconds: compute, time_to_first_token_seconds: first, total_seconds: total }) =>
	[`queue ${duration(queue)}`, ...(compute === undefined ? [`first token ${duration(first)}`, `in all ${duration(total)}`] : [`compute ${duration(compute)}`])].join(", ");

export function count(value) {
	if (isNone(value)) return "–";
	return value < 1e4 ? String(+value.toFixed(value < 10 ? 1 : 0)) : new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value);
}

/** "3 tokens", "1 token". */
export const plural = (value, noun) => `${value} ${noun}${value === 1 ? "" : "s"}`;
