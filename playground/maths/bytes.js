// Bytes of tokens, and ids of tokens in a text.

/** The bytes of a token: the tokenizer's own, or those of the text that it stands for. */
export const bytesOf = (base64, text) => (base64 ? Uint8Array.from(atob(base64), (each) => each.charCodeAt(0)) : new TextEncoder().encode(text));

export const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).toUpperCase().padStart(2, "0")).join(" ");

/** The text of whole characters; null of a part of one. */
export function textOf(bytes) {
	try { return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes); } catch { return null; }
}

/** Whole numbers, whatever stands between them; null where something else is there. */
export function idsOf(text) {
	const parts = text.split(/[\s,;[\]]+/).filter(Boolean);
	return parts.every((part) => /^\d{1,9}$/.test(part)) ? parts.map(Number) : null;
}
