// Tokenizer: the tokens of a text as they are typed, of one model or two, and texts of token ids.

import { models } from "../api/models.js";
import { bytesOf, hex, idsOf, textOf } from "../maths/bytes.js";
import { fixed, plural, visible } from "../maths/numbers.js";
import { fill, h, table, tableButtons, tip, tokenRow } from "../parts/page.js";

const MOST_SHOWN = 2000; // tokens in the row
const PRESETS = ["The unbelievable tokenization of untranslatable words", "😀 Ünïcödé — naïve café, 北京, שלום", "def area(radius):\n    return 3.14159 * radius ** 2", "1234567890 12,345.67 0x1F"];

export default function build(screen) {
	const text = screen.text("text", { label: "Text", rows: 5, isMain: true, param: "texts[0]" }), specials = screen.toggle("specials", { label: "Special tokens", value: true });
	const names = () => [["", "None"], ...models.of(screen.entry).map(({ name }) => [name, name])];
	const other = screen.choice("other", { label: "Beside it", options: names(), isMenu: true });
	const ids = screen.text("ids", { label: "Token ids to text", rows: 2, isCode: true, param: "token_ids", placeholder: "101, 2023, 102" });
	text.isFree = true;
	screen.presets = [];
	screen.onmodel = (model) => {
		screen.presets = [...PRESETS, ...model.examples.map((each) => each.text)];
		const chosen = other.value;
		other.setOptions(names());
		other.value = chosen;
	};

	screen.action(async ({ model, call }) => {
		const given = idsOf(ids.value), shown = [model, ...models.of(screen.entry).filter(({ name }) => name === other.value && name !== model.name)];
		const read = async (each) => {
			const ask = (omits) => call("api/Tokenize", { model: each.name, texts: [text.value], omit_special_tokens: omits }), decoded = async (token_ids) => (await call("api/Detokenize", { model: each.name, token_ids })).text;
			const plain = await ask(true), own = plain.results[0].tokens.map(({ id }) => id);
			// An id that one vocabulary lacks is said beside the tokens, which the other may have.
			const ofIds = async () => ({ text: await decoded(given) }), refused = (error) => { if (error.status !== 400) throw error; return { why: error.message }; };
			return { model: each, again: own.length ? await decoded(own) : "", decoded: given?.length ? await ofIds().catch(refused) : null, result: specials.value ? (await ask(false)).results[0] : plain.results[0] };
		};
		const all = [];
		for (const each of shown) all.push(await read(each));
		ids.error(given ? "" : "Whole numbers, with spaces or commas between them.");
		fill(screen.result, h("div", { class: all.length > 1 ? "pair" : null }, all.map((each) => tokenized(text.value, each))));
		return all.map(({ model: { name }, result }) => `${name}: ${plural(result.num_tokens, "token")}`).join(", ");
	}, { auto: 200, label: "Tokenize" });
}

/** The tokens of one model's tokenizer. */
function tokenized(text, { model, result: { tokens, num_tokens: count, is_too_long: isLong }, again, decoded }) {
	const points = [...text], slice = (start, end) => points.slice(start, end).join("");
	const rows = tokens.map((token) => {
		const isAdded = token.is_special && !token.is_unknown, part = isAdded ? "" : slice(token.start, token.end), bytes = bytesOf(token.token_bytes, part), whole = token.token_bytes ? textOf(bytes) : part;
		return { ...token, isAdded, hex: hex(bytes), shown: isAdded || whole === "" ? token.piece : whole ?? `\\x${hex(bytes).replaceAll(" ", "\\x")}` };
	});
	const unknown = rows.filter((token) => token.is_unknown).length, share = model.max_tokens ? count / model.max_tokens : 0, { length } = points;
	const drawn = rows.slice(0, MOST_SHOWN), about = ({ id, piece, hex: bytes, start, end, isAdded, is_unknown: isUnknown }) => (
		[`id ${id}`, visible(piece, true), isUnknown && "unknown", isAdded ? "special token" : `characters ${start} to ${end}`, bytes && `bytes ${bytes}`].filter(Boolean).join("\n"));
	const row = tokenRow(drawn.map((token, index) => ({ text: token.shown, shade: token.isAdded ? 0 : index % 2 ? 0.55 : 0.22, isWarm: token.is_unknown, isOn: token.is_unknown, title: token.is_unknown ? "unknown" : undefined })), { label: `Tokens of ${model.name}`, isMarked: true, onfocus: (index, element) => (index === null ? tip(null) : tip(element, about(drawn[index]))) });
	let end = 0;
	[...row.children].forEach((element, index) => {
		const token = drawn[index];
		if (token.isAdded) element.classList.add("chip");
		else {
			if (token.start > end) element.before(slice(end, token.start).replace(/[^\s]/g, "·"));
			end = Math.max(end, token.end);
		}
	});
	const head = ["", "Id", "Piece", "Text", "Bytes", "Start", "End"], cells = () => rows.map(({ id, piece, shown, hex: bytes, start, end: last }, index) => [index, id, visible(piece, true), visible(shown, true), bytes, start, last]);
	const isSame = again === text, details = h("details", { ontoggle: () => details.open && !details.children[1] && details.append(table(head, cells(), { caption: `Tokens of ${model.name}` }), tableButtons("tokens", () => [head, ...cells()])) }, h("summary", "All tokens"));
	return h("section.stack", { label: model.name }, h("h2", model.name),
		h("p", h("b", plural(count, "token")), ` of at most ${model.max_tokens}, `, plural(length, "character"), count && length ? h("span.soft", `, ${fixed(length / count, 1)} a token`) : ""),
		h("div.meter", { role: "meter", label: "Of the longest text", "aria-valuenow": Math.min(count, model.max_tokens), "aria-valuemin": 0, "aria-valuemax": model.max_tokens, style: { "--share": Math.min(share, 1) } }),
		isLong && h("p.notice", "The text has more tokens than the model takes."), unknown > 0 && h("p.notice", `${plural(unknown, "token")} stand${unknown === 1 ? "s" : ""} for words that the vocabulary lacks (underlined).`),
		h("div.panel", row.children.length ? row : h("span.soft", "No tokens")), drawn.length < rows.length && h("p.soft", `The first ${MOST_SHOWN} of ${rows.length}.`), details,
		h("p", isSame ? "✓ The tokens give the same text again." : ["✗ The tokens give another text: ", h("span.mono", visible(again))]), decoded && h("p", h("span.soft", "Text of the ids: "), decoded.why ?? h("span.mono", visible(decoded.text))));
}
