// The attention of a text: its tokens by the typed API, its weights as binary tensors, some layers at a time.

import { pages } from "../maths/attention.js";
import { slice } from "../maths/offsets.js";
import { visible } from "../maths/visible.js";
import { request } from "./client.js";
import { models } from "./models.js";

const MOST_VALUES = 2 ** 21; // of one answer, as the typed API bounds its own

/** The attention of `{model, text, target}`: `queries` and `keys` (tokens), `weights`, and whether each layer is `loaded`. `onpage` is called whenever some layers have come, first with those that include `layer`. */
export async function attentionOf(of, { call, signal, layer = 0, head = 0, onpage }) {
	const { num_layers: layers, num_heads: heads } = models.list.find((model) => model.name === of.model), first = Math.min(layer, layers - 1);
	const answer = await call("api/Attend", { ...of, layers: [first], heads: [Math.min(head, heads - 1)] });
	const queries = named(answer.queries, of.target || of.text), keys = named(answer.keys, of.text);
	const [rows, columns] = [queries.length, keys.length], size = heads * rows * columns;
	const attention = { queries, keys, isCross: !!of.target, loaded: Array(layers).fill(false), weights: { layers, heads, rows, columns, values: new Float32Array(layers * size) } };
	for (const page of pages(layers, size, MOST_VALUES, first)) {
		attention.weights.values.set(await tensor(of, page, signal), page[0] * size);
		for (const each of page) attention.loaded[each] = true;
		onpage?.(attention);
	}
	return attention;
}

/** Tokens with a `name`: as they stand in the text, but continued words and special tokens as the vocabulary spells them. */
const named = (tokens, text) => tokens.map((token) => {
	const isSpecial = token.is_special || token.start === token.end;
	return { ...token, isSpecial, name: visible(isSpecial || token.piece.startsWith("##") ? token.piece : slice(text, token.start, token.end), true) };
});

async function tensor({ model, text, target }, layers, signal) {
	const input = (name, value) => ({ name, datatype: "BYTES", shape: [1, 1], data: [value] });
	const body = { inputs: [input("text", text), ...(target ? [input("target", target)] : [])], parameters: { binary_data_output: true, layers: layers.join() } };
	const response = await request(`v2/models/${encodeURIComponent(model)}/infer`, { body, signal });
	// The one output's bytes are all that is behind the header.
	return new Float32Array((await response.arrayBuffer()).slice(Number(response.headers.get("inference-header-content-length"))));
}
