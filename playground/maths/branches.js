// Outputs that go on from a place in another, the text of their tokens, and what two of them have in common.

/** A branch is `{id, parent, keep, tokens, prompt, model, settings, text}`; its `thoughts` are how many of its tokens come before its answer, whose text is `text` */

export const bytesOf = (text) => Uint8Array.from(atob(text ?? ""), (each) => each.charCodeAt(0));

/** A token of the API. */
export const tokenOf = ({ id = 0, token, logprob = 0, logit, top = [] }) => ({ id, bytes: bytesOf(token), logprob, logit, top: top.map(tokenOf) });

/** One token's text; bytes that are no whole character as hexadecimal numbers. */
export function spelled(bytes) {
	try {
		return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
	} catch {
		return `‹${[...bytes].map((each) => each.toString(16).toUpperCase().padStart(2, "0")).join(" ")}›`;
	}
}

/** The texts of tokens in a row: a character whose bytes several have is the last one's. */
export function texts(tokens) {
	const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
	const all = tokens.map((token) => decoder.decode(token.bytes, { stream: true })), left = decoder.decode();
	if (left) all[all.length - 1] += left;
	return all;
}

/** All tokens from the prompt to a branch's end. */
export const path = (branch) => (branch ? [...path(branch.parent).slice(0, branch.keep), ...branch.tokens] : []);

/** The branches from the first to this one. */
export const lineage = (branch) => (branch ? [...lineage(branch.parent), branch] : []);

/** The branch whose own tokens hold a place of the path, and where in them. */
export function owner(branch, place) {
	return place >= branch.keep || !branch.parent ? [branch, place - branch.keep] : owner(branch.parent, place);
}

/** Tokens of a path with their texts; `isCut` are those that end the text and are not in it: the end of text, or what a stop text took away. */
export function written(branch) {
	const { thoughts = 0 } = branch, tokens = path(branch), all = texts(tokens), start = branch.keep + thoughts, whole = all.slice(start).join("");
	const spaces = thoughts ? Math.max(0, whole.indexOf(branch.text)) : 0, isKnown = branch.finish === "FINISH_REASON_STOP" && whole.startsWith(branch.text, spaces);
	let length = -spaces;
	return tokens.map((token, index) => {
		const isCut = isKnown && index >= start && length >= branch.text.length && all[index] !== "";
		if (index >= start) length += all[index].length;
		return { ...token, text: all[index], isCut };
	});
}

/** How many tokens of a branch are thoughts, once those of a piece of its output are added to it, and its text not yet. */
export function numThoughts({ tokens, text: answer, thoughts = 0 }, { reasoning, text }) {
	if (answer) return thoughts;
	if (!text) return reasoning || thoughts ? tokens.length : 0;
	const all = texts(tokens);
	let left = all.join("").lastIndexOf(text);
	if (left <= 0) return left ? thoughts : 0;
	return all.findIndex((each) => (left -= each.length) < 0);
}

/** How many tokens of a path are thoughts; where a branch begins within them, none: it has the rest and its marker in its text. */
export function thoughtsOf(branch) {
	const [{ thoughts = 0, text }, ...later] = lineage(branch);
	return !later.length || (text && later.every(({ keep }) => keep >= thoughts)) ? thoughts : 0;
}

/** The rank of a token among the likeliest, from 1; 0 if it is not among them. */
export const rank = (token) => token.top.findIndex((each) => each.id === token.id) + 1;

/** Which of `mine` are not in the longest common subsequence with `others`. Long texts are compared up to `most` tokens. */
export function differing(mine, others, most = 1024) {
	const [a, b] = [mine.slice(0, most), others.slice(0, most)], width = b.length + 1, lengths = new Uint16Array((a.length + 1) * width);
	for (let i = a.length - 1; i >= 0; i--)
		for (let j = b.length - 1; j >= 0; j--)
			lengths[i * width + j] = a[i] === b[j] ? lengths[(i + 1) * width + j + 1] + 1 : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
	const differs = mine.map(() => true);
	for (let i = 0, j = 0; i < a.length && j < b.length; )
		if (a[i] === b[j]) [differs[i], i, j] = [false, i + 1, j + 1];
		else lengths[(i + 1) * width + j] >= lengths[i * width + j + 1] ? i++ : j++;
	return differs;
}

/** What is shown, and what was before and after it: Undo and Redo. */
export class History {
	#all;
	#at = 0;

	constructor(first, most) { [this.#all, this.most] = [[first], most]; }

	get now() { return this.#all[this.#at]; }

	push(next) {
		this.#all = [...this.#all.slice(0, this.#at + 1), next].slice(-this.most);
		this.#at = this.#all.length - 1;
	}

	/** Takes away what is shown, and what was undone. */
	drop() { this.#all = this.#all.slice(0, this.#at--); }

	canMove(step) { return this.#at + step in this.#all; }

	move(step) { if (this.canMove(step)) this.#at += step; }
}
