// What an embedder has a choice of: prompts in front of texts, the number of values, the kind of its answer.

import { dense, late } from "../maths/embeddings.js";
import { fixed, plural, visible } from "../maths/numbers.js";
import { h } from "./h.js";
import { bars } from "./shapes.js";

const NONE = "(none)", SAME = "";
const KINDS = { dense: "One vector of a text", sparse: "Weights of tokens", token_vectors: "A vector of each token" };
const MOST_WEIGHTS = 50; // of one text, shown

/** Controls of them: `follow(model)` shows those that a model has, and `isLate` says that each text has several vectors. */
export function embeddingOptions(screen, into) {
	const box = h("div.fields"), before = h("p.small.soft");
	into.append(box, before);
	const menu = (name, label, param) => screen.choice(name, { label, options: [], isMenu: true, value: "", param, into: box });
	const kind = menu("embedding_kind", "Kind of answer", "kinds"), prompt = menu("prompt_name", "Prompt in front of texts", "prompt_name"), other = menu("row_prompt", "Prompt of the rows, as queries", ""), width = menu("dimensions", "Values of a vector", "dimensions");
	let model = null;

	const set = (control, options, isShown) => {
		const chosen = control.value;
		control.setOptions(options);
		control.value = options.some(([value]) => value === chosen) ? chosen : options[0][0];
		[control.initial, control.element.hidden] = [options[0][0], !isShown];
	};
	const named = (control) => control.value === NONE ? { prompt: "" } : control.value ? { prompt_name: control.value } : {};
	const textOf = ({ prompt: none, prompt_name: name = none === "" ? "" : model.default_prompt }) => model.prompts.find((each) => each.name === name)?.text ?? "";
	return {
		update() {
			if (!model) return;
			const own = textOf(named(prompt)), rows = other.value === SAME ? own : textOf(named(other));
			width.element.hidden = !model.dimensions.length || kind.value !== "dense";
			before.hidden = !own && !rows;
			before.textContent = `In front of each text stands “${visible(own)}”${rows === own ? "" : `, and of a row's “${visible(rows)}”`}.`;
		},
		follow(given) {
			model = given;
			const all = model.prompts.filter(({ name }) => name !== model.default_prompt).map(({ name }) => [name, name]), first = model.default_prompt ? [["", `${model.default_prompt}, the default`], [NONE, "None"]] : [["", "None"]];
			const kinds = model.embedding_kinds.length ? model.embedding_kinds : ["dense"];
			set(kind, kinds.map((each) => [each, KINDS[each] ?? each]), kinds.length > 1);
			set(prompt, [...first, ...all], model.prompts.length);
			set(other, [[SAME, "The same"], [NONE, "None"], ...model.prompts.map(({ name }) => [name, name])], model.prompts.length);
			set(width, [["", `${model.embedding_size}, all`], ...model.dimensions.map((each) => [String(each), String(each)])], true);
			this.update();
		},
		get isLate() { return kind.value === "token_vectors"; },
		/** The texts as `columns`, and as `rows` where these have another prompt: vectors, or lists of them that `alike` compares. `detail` shows a text's own. */
		async run(embed) {
			const isDense = kind.value === "dense", fields = { ...(width.value && isDense && { dimensions: +width.value }), ...(kind.value !== kind.initial && { kinds: [`EMBEDDING_KIND_${kind.value.toUpperCase()}`] }), ...(kind.value === "sparse" && { with_pieces: true }) };
			const texts = await embed({ ...named(prompt), ...fields }), queries = other.value === SAME || other.value === prompt.value ? texts : await embed({ ...named(other), ...fields });
			const both = [...texts, ...queries], all = isDense ? both.map(({ values }) => values) : this.isLate ? both.map(({ token_vectors: each }) => each.map(({ values }) => values)) : dense(both.map(({ sparse }) => sparse));
			return { columns: all.slice(0, texts.length), rows: all.slice(texts.length), ...(this.isLate && { alike: late }), ...(kind.value === "sparse" && { detail: (index) => weights(texts[index].sparse) }) };
		},
	};
}

/** The heaviest tokens of a text. */
function weights({ token_ids: ids = [], weights: all = [], pieces = [] }) {
	const rows = all.map((value, index) => ({ label: pieces[index], value, text: fixed(value), title: `id ${ids[index]}` })).sort((a, b) => b.value - a.value);
	return [bars(rows.slice(0, MOST_WEIGHTS), { label: "Weights of tokens", isToken: true }), h("p.small.soft", `${plural(rows.length, "token")} with a weight${rows.length > MOST_WEIGHTS ? `, of which the heaviest ${MOST_WEIGHTS} are shown` : ""}.`)];
}
