// Models: the repository, with states, tensors, configuration, statistics, loading, and a console.

import { json } from "../api/client.js";
import { models } from "../api/models.js";
import { count, duration } from "../maths/numbers.js";
import { fill, h, table, tabs } from "../parts/page.js";
import { tensorConsole } from "./tensor_console.js";

const WORDS = { READY: "ready", UNAVAILABLE: "not loaded", LOADING: "loading", UNLOADING: "unloading" };
const code = (value, label) => h("pre.code", { tabIndex: 0, label }, JSON.stringify(value, null, 2));
const facts = (pairs) => h("dl.facts", pairs.filter(([, value]) => value).map(([name, value]) => [h("dt", name), h("dd", String(value))]));

export default async function build(screen) {
	screen.wide();
	const list = h("div"), detail = h("section.stack", { label: "Chosen model" }), chosen = screen.add({ name: "name", initial: "", value: screen.given.name ?? "" });
	screen.input.append(screen.notice, list);
	screen.result.append(detail);

	let timer;
	/** Shows the list, and again for as long as a model is being loaded or unloaded. */
	async function refresh() {
		try {
			const index = await json("v2/repository/index", { body: {} });
			clearTimeout(timer);
			if (index.some(({ state }) => /LOADING$/.test(state))) timer = setTimeout(() => screen.element.isConnected && refresh(), 500);
			const rows = index.map(({ name, version, state, reason }) => {
				const model = models.list.find((each) => each.name === name && each.version === version), isReady = state === "READY", verb = isReady ? "Unload" : "Load";
				const id = index.filter((each) => each.name === name && each.version).length > 1 ? `${name}/${version}` : name;
				return [h("button.plain", { "aria-pressed": String(id === chosen.value), data: { id }, onclick: () => choose(id) }, name), version, [WORDS[state || "UNAVAILABLE"] ?? state.toLowerCase(), reason].filter(Boolean).join(": "), model?.task ?? "", model?.precision ?? "", model ? model.graph_device || "any" : "",
					h("button.plain", { label: `${verb} ${name}`, onclick: () => change(name, verb.toLowerCase()) }, verb)];
			});
			fill(list, rows.length ? table(["Model", "Version", "State", "Task", "Precision", "Device", ""], rows, { caption: "Models of the repository" }) : h("p.placeholder", "The repository has no models. attendant demo gpt --keep trains one and puts it there."));
			chosen.value ||= (index.find(({ state }) => state === "READY") ?? index[0])?.name ?? "";
		} catch (error) { screen.wrong(error); }
	}

	async function change(name, verb) {
		screen.wrong(null);
		try {
			await json(`v2/repository/models/${encodeURIComponent(name)}/${verb}`, { body: {} });
		} catch (error) { screen.wrong(error); }
		await Promise.all([refresh(), models.refresh()]);
		await show();
	}

	/** @param id the model's name, and behind a slash the version where there are several */
	async function choose(id) {
		chosen.value = id;
		screen.changed();
		for (const button of list.querySelectorAll("[aria-pressed]")) button.ariaPressed = String(button.dataset.id === id);
		await show();
	}

	async function show() {
		const id = chosen.value, [name, version] = id.split("/"), path = `v2/models/${encodeURIComponent(name)}${version ? `/versions/${version}` : ""}`;
		if (!name) return;
		const parts = await Promise.all([path, `${path}/config`, `${path}/stats`].map((each) => json(each).catch(() => null)));
		if (id !== chosen.value) return;
		const [metadata, config, stats] = parts, model = models.list.find((each) => each.name === name && (!version || each.version === version)), title = h("h2", version ? `${name}, version ${version}` : name);
		if (!metadata) return fill(detail, title, h("p.soft", "Not served now."));
		const tensors = [...metadata.inputs.map((each) => ["input", each]), ...metadata.outputs.map((each) => ["output", each])].map(([kind, { name: tensor, datatype, shape }]) => [kind, tensor, datatype, `[${shape.join(", ")}]`]);
		fill(detail, title, tabs([
			{ label: "Overview", panel: h("div.stack", model && facts([["Task", model.task], ["Origin", model.origin], ["Tokens at most", model.max_tokens], ["Vocabulary", model.vocabulary_size], ["Layers", model.num_layers], ["Heads", model.num_heads], ["Rows of a batch", model.max_batch_size],
				["Embedding", model.embedding_size && `${model.embedding_size} values, ${model.pooling}`], ["Layout", [model.layout, model.layout_reason].filter(Boolean).join(", ")], ["Labels", model.labels?.join(", ")]]), table(["", "Tensor", "Type", "Shape"], tensors, { caption: "Tensors" })) },
			{ label: "Console", panel: tensorConsole(screen, `${path}/infer`, metadata, config, model) },
			{ label: "Statistics", panel: statistics(stats?.model_stats?.[0]) },
			{ label: "Configuration", panel: code(config, "Configuration") },
		], { label: name }));
	}

	screen.onstart = async () => {
		await refresh();
		await choose(chosen.value);
	};
	models.addEventListener("change", refresh);
	screen.onclose = () => models.removeEventListener("change", refresh);
}

function statistics(stats) {
	if (!stats) return h("p.soft", "Statistics are not offered.");
	const mean = ({ count: times, ns }) => [count(times), times ? duration(ns / times / 1e9) : "–"], names = { success: "Answered", fail: "Failed", queue: "In the queue", compute_input: "Input", compute_infer: "Computing", compute_output: "Output", cache_hit: "Cache hits", cache_miss: "Cache misses" };
	return h("div.stack", table(["", "Count", "Mean"], Object.entries(names).map(([key, words]) => [words, ...mean(stats.inference_stats[key])]), { caption: "Requests" }),
		stats.batch_stats.length ? table(["Rows", "Runs", "Mean"], stats.batch_stats.map((each) => [each.batch_size, ...mean(each.compute_infer)]), { caption: "Runs by batch size" }) : null);
}
