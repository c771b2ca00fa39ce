// Sequence to sequence: the output, where the model looked for each token, and a beam search.

import { attentionOf } from "../api/attention.js";
import { json } from "../api/client.js";
import { models } from "../api/models.js";
import { partnerOf } from "../api/partners.js";
import { matricesOf, mean } from "../maths/attention.js";
import { isoDate } from "../maths/dates.js";
import { changed, cropped } from "../maths/differences.js";
import { fixed, times, visible } from "../maths/numbers.js";
import { fill, h, table, tabs, tokenRow } from "../parts/page.js";
import { heatMap } from "../parts/heat_map.js";

const FLASH_MS = 900; // of cells that changed
const isCalm = matchMedia("(prefers-reduced-motion: reduce)");
const READERS = { tasks: ["attention"], fits: (model) => model.has_source };

const heads = (count) => [["", "Mean of all"], ...Array.from({ length: count }, (_, head) => [head, head])];

export default function build(screen) {
	let attention = null, before = null, figure = null, matrix = null, sources = null, output = "", isOpen = false;
	const { soon } = screen, again = { onchange: soon }, view = { onchange: () => update() };
	const source = screen.text("source", { label: "Source", rows: 2, isMain: true, param: "text", ...again });
	screen.action(run);
	const readers = models.of(READERS), by = screen.choice("by", { label: "Attention by", isMenu: true, options: readers.length ? readers.map((model) => model.name) : [["", "no attention model of an encoder-decoder is served"]], ...again });
	const box = h("div.fields");
	screen.input.append(box);
	const layer = screen.number("layer", { label: "Layer", min: 0, max: 1, value: 0, isIndex: true, into: box, ...view }), head = screen.choice("head", { label: "Head", isMenu: true, options: heads(Math.max(1, ...readers.map((model) => model.num_heads))), into: box, ...view });
	const beams = screen.number("beams", { label: "Beams", min: 1, max: 16, value: 4, into: box, ...again });

	const written = h("output.written", { htmlFor: source.input.id }), verdict = h("p.row", { hidden: true }), rows = h("div.stack.apart"), grid = h("div"), outputs = h("div");
	const strip = tabs([{ label: "Attention", panel: h("div.stack", rows, grid) }, { label: "Beam search", panel: outputs }], { label: "Result" });
	fill(screen.result, h("div.panel", h("h2", "Output"), written, verdict), strip);

	screen.onmodel = (model) => {
		const own = partnerOf(model, readers);
		if (own) by.value = by.initial = own.name;
		beams.element.hidden = strip.querySelectorAll("[role=tab]")[1].hidden = model.symbols.length > 0;
		[attention, before] = [null, null];
		if (isOpen || !screen.given.run) soon();
		isOpen = true;
	};

	async function run({ model, stream, call, signal }) {
		output = "";
		verdict.hidden = true;
		fill(outputs);
		written.textContent = "";
		const reader = readers.find((each) => each.name === by.value), sent = source.value, follow = reader && follower({ model: reader.name, text: sent }, signal);
		let timings = null;
		for await (const chunk of stream("api/Generate", { model: model.name, text: sent, sampling_params: { temperature: 0 } })) {
			output += chunk.text ?? "";
			timings = chunk.timings ?? timings;
			written.textContent = visible(output);
			if (output) follow?.(output);
		}
		judge(model, sent);
		if (reader && output) await follow(output, true);
		else fill(grid, h("p.placeholder", reader ? "The output is empty." : "Export the model with --task attention under another name, and serve it too, to see where it looks."));
		if (beams.value > 1 && !model.symbols.length) await search(model, sent, call);
		return timings && times(timings);
	}

	/** Asks for the attention of the output so far; while one answer is awaited, only the latest output waits behind it. */
	function follower(of, signal) {
		let waiting = null, busy = null;
		const call = (path, body) => json(path, { body, signal });
		const work = async () => {
			while (waiting) {
				const { target, isWhole } = waiting;
				waiting = null;
				await attentionOf({ ...of, target }, { call, signal, layer: layer.value, onpage: (part) => {
					attention = part;
					update(isWhole);
				} });
			}
			busy = null;
		};
		return (target, isWhole = false) => {
			waiting = { target, isWhole };
			busy ??= work();
			busy.catch(() => {}); // the last one is awaited, and says what is wrong
			return busy;
		};
	}

	/** The matrix, and the tokens beside it. `isWhole` marks what another source changed. */
	function update(isWhole) {
		if (!attention) return;
		const { weights, queries, keys, loaded } = attention;
		layer.bound(weights.layers - 1);
		[layer.element.hidden, head.element.hidden] = [weights.layers < 2, weights.heads < 2];
		const shown = layer.value, chosen = head.value;
		if (head.input.options.length !== weights.heads + 1) {
			head.setOptions(heads(weights.heads));
			head.value = +chosen < weights.heads ? chosen : "";
		}
		if (!loaded[shown]) return;
		matrix = mean(matricesOf(weights, shown, head.value === "" ? undefined : [+head.value]));
		const names = (tokens) => tokens.map((token) => token.name), given = { values: matrix, rows: names(queries), columns: names(keys) };
		if (!figure || !grid.contains(figure)) fill(grid, figure = heatMap({ label: "Attention to the source", most: 1, summary: "Rows are tokens of the output, columns those of the source.", cell: 32, onhover: point, ...given }));
		const size = before && [Math.min(before.rows, weights.rows), Math.min(before.columns, weights.columns)];
		const moved = isWhole && before && !isCalm.matches ? changed(cropped(before.matrix, before.columns, ...size), cropped(matrix, weights.columns, ...size)) : [];
		figure.update({ ...given, marked: moved.map((cell) => Math.floor(cell / size[1]) * weights.columns + (cell % size[1])) });
		if (moved.length) setTimeout(() => figure.update(given), FLASH_MS);
		if (isWhole) before = { matrix, rows: weights.rows, columns: weights.columns };
		const row = (tokens, options) => tokenRow(names(tokens).map((text) => ({ text })), options);
		sources = row(keys, { label: "Source" });
		fill(rows, h("div", h("h2", "Source"), sources), h("div", h("h2", "Output, token by token"), row(queries, { label: "Output", onfocus: point })));
	}

	/** Shades the source by a row of the matrix. */
	function point(row) {
		[...sources.children].forEach((token, column) => {
			const weight = row === null ? 0 : matrix[row * attention.keys.length + column];
			token.style.setProperty("--shade", weight);
			token.title = row === null ? "" : fixed(weight, 3);
		});
	}

	/** Of a model of dates: whether it wrote the date. */
	function judge(model, sent) {
		const expected = isoDate(sent);
		verdict.hidden = !expected || !(/^\d{4}-\d\d-\d\d$/.test(output) || isoDate(model.example));
		fill(verdict, h("span", { class: `chip ${expected === output ? "right" : "wrong"}` }, expected === output ? "right" : "wrong"), h("span.soft", `The date is ${expected}.`));
	}

	async function search(model, sent, call) {
		const { results } = await call("api/GenerateUnary", { model: model.name, text: sent, sampling_params: { temperature: 0, beam_width: beams.value, n: beams.value } }), expected = isoDate(sent);
		const shown = (text) => h("span", visible(text), text === expected && [" ", h("span.chip.right", "right")]);
		fill(outputs, table(["Output", "Log probability", "Tokens", "Per token"], results.map((each) => [shown(each.text), fixed(each.score, 3), each.token_ids.length, fixed(each.score / each.token_ids.length, 3)]), { caption: "Outputs of the beam search" }));
	}
}
