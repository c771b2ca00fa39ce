// Batches: files of requests that the server answers in the background, their progress, results and errors.

import { json, request } from "../api/client.js";
import { count, plural, visible } from "../maths/numbers.js";
import { download, fill, h, table } from "../parts/page.js";

const ENDED = new Set(["completed", "failed", "expired", "cancelled"]), USUAL = "/v1/chat/completions";
const PERIOD_MS = 1000, MOST = 100; // batches that a list of the API has

export default function build(screen) {
	screen.wide();
	const list = h("div"), upload = h("div.row");
	const file = h("input", { type: "file", accept: ".jsonl", hidden: true, label: "File of requests", onchange: () => attempt(begin) });
	upload.append(h("button.primary", { onclick: () => file.click() }, "Upload a file"), file, h("p.soft", "A file of requests in OpenAI's form, one in a line of JSON. They are answered behind all others."));
	screen.input.append(upload, screen.notice, list);
	let timer, shown = "";

	/** Does something, and shows the list as it is then. */
	async function attempt(what) {
		screen.wrong(null);
		try { await what(); } catch (error) { screen.wrong(error); }
		await refresh();
	}

	async function begin() {
		const [chosen] = file.files, form = new FormData();
		if (!chosen) return;
		const endpoint = await endpointOf(chosen);
		form.append("purpose", "batch");
		form.append("file", chosen);
		file.value = "";
		const { id } = await json("v1/files", { body: form });
		await json("v1/batches", { body: { input_file_id: id, endpoint, completion_window: "24h" } });
	}

	/** Shows the batches, and again for as long as one of them runs. */
	async function refresh() {
		clearTimeout(timer);
		try {
			const { data: batches } = await json(`v1/batches?limit=${MOST}`), { data: files } = await json("v1/files?purpose=batch");
			if (batches.some(({ status }) => !ENDED.has(status))) timer = setTimeout(() => screen.element.isConnected && refresh(), PERIOD_MS);
			if (shown !== (shown = JSON.stringify([batches, files]))) show(batches, new Map(files.map(({ id, filename }) => [id, filename])));
		} catch (error) {
			upload.hidden = error.status === 501;
			if (upload.hidden) fill(list, h("p.placeholder", "This server keeps no batches. Start it with --batch-folder FOLDER, where files and results are kept."));
			else screen.wrong(error);
		}
	}

	function show(batches, names) {
		const focused = document.activeElement?.dataset.key;
		fill(list, batches.length ? table(["File", "Progress", "State", "", "Requests", "Begun"], batches.map((batch) => row(batch, names.get(batch.input_file_id) ?? batch.input_file_id)), { caption: "Batches" }) : h("p.placeholder", "No batch has been begun."));
		if (focused) list.querySelector(`[data-key="${focused}"]`)?.focus();
	}

	function row({ id, endpoint, status, created_at, errors, output_file_id, error_file_id, request_counts: { total, completed, failed } }, name) {
		const action = (words, onclick) => h("button.plain", { label: `${words} of ${name}`, data: { key: `${id}-${words}` }, onclick: () => attempt(onclick) }, words);
		const save = (of, kind) => async () => download(`${id}-${kind}.jsonl`, await (await request(`v1/files/${of}/content`)).blob());
		const progress = h("div", h("progress", { max: total || 1, value: completed + failed, label: `Progress of ${name}` }), h("div.small.soft", `${count(completed + failed)} of ${plural(total, "request")}${failed ? `, ${count(failed)} failed` : ""}`));
		return [name, progress, h("span", status.replace("_", " "), errors && h("div.small.soft", visible(errors.data[0].message))), h("span.row",
			["validating", "in_progress"].includes(status) && action("Cancel", () => json(`v1/batches/${id}/cancel`, { method: "POST" })), output_file_id && action("Results", save(output_file_id, "results")), error_file_id && action("Errors", save(error_file_id, "errors"))), endpoint, new Date(created_at * 1000).toLocaleString()];
	}

	screen.onstart = refresh;
	screen.onclose = () => clearTimeout(timer);
}

/** The path that the first line of a file names; where it names none the batch says what is wrong. */
async function endpointOf(file) {
	const [line] = (await file.slice(0, 2 ** 20).text()).trimStart().split("\n");
	try { return JSON.parse(line).url || USUAL; } catch { return USUAL; }
}
