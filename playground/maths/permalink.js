// The state of a screen in the address: `#/fill-mask?model=bert&text=...`. Short, readable, and never a token.

const MOST_CHARACTERS = 4096; // of one value; a longer text is left out, and saved as a file instead

export function parse(hash) {
	const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
	return { id: path, values: Object.fromEntries(new URLSearchParams(query)) };
}

const textOf = (value) => (typeof value === "string" ? value : JSON.stringify(value));

/** Whether an address leaves the value out. */
export const isTooLong = (value) => textOf(value)?.length > MOST_CHARACTERS;

export function write(id, values) {
	const query = new URLSearchParams();
	for (const [name, value] of Object.entries(values)) {
		const text = textOf(value);
		if (text !== undefined && !isTooLong(value)) query.set(name, text);
	}
	return `#/${id}${query.size ? `?${query}` : ""}`;
}
