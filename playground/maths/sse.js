// Server-sent events, out of pieces of text that may be cut anywhere.

/** Collects pieces; `push` gives the data of the events that are whole. */
export class EventReader {
	#left = "";

	push(piece) {
		const blocks = (this.#left + piece).replace(/\r\n?(?!$)/g, "\n").split("\n\n");
		this.#left = blocks.pop();
		return blocks.map(dataOf).filter((data) => data !== null);
	}
}

function dataOf(block) {
	const lines = block.split("\n").filter((line) => line.startsWith("data:"));
	return lines.length ? lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n") : null;
}
