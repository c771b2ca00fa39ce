// The API: every operation of /openapi.json, with the fields of its body and answer, and a form to try it.

import { json } from "../api/client.js";
import { models } from "../api/models.js";
import { debounced, fill, h, table } from "../parts/page.js";

let description;
const PREFIXED = /^\/(openai\/v1|models\/\{model\}|v2\/models\/\{model\}\/versions)\//; // the same as without

export default async function build(screen) {
	description ??= await json("openapi.json");
	const all = Object.entries(description.paths).flatMap(([path, item]) => Object.entries(item).map(([method, operation]) => ({ method: method.toUpperCase(), path, operation, key: `${method.toUpperCase()} ${path}` })));
	const find = screen.text("find", { label: "Find", rows: 1, placeholder: "infer, tokenize, /v1 ..." }), others = screen.toggle("others", { label: "With paths that repeat others below a prefix" });
	const chosen = screen.add({ name: "operation", initial: "POST /api/Classify", value: screen.given.operation ?? "POST /api/Classify" }), list = h("nav.scroll.operations", { label: "Operations" });
	screen.input.append(list);

	function fillList() {
		const words = find.value.toLowerCase().split(/\s+/), shown = all.filter(({ key, path, operation }) => (others.value || !PREFIXED.test(path)) && words.every((word) => `${key} ${operation["x-operation"] ?? ""}`.toLowerCase().includes(word)));
		fill(list, shown.length ? h("ul", shown.map((each) => h("li", h("button", { type: "button", class: "plain mono", "aria-pressed": String(each.key === chosen.value), onclick: () => {
			chosen.value = each.key;
			screen.changed();
			show();
		} }, each.key)))) : h("p.soft", "No operation has these words."));
	}

	function show() {
		const { method, path, operation } = all.find((each) => each.key === chosen.value) ?? all[0];
		for (const button of list.querySelectorAll("button")) button.ariaPressed = String(button.textContent === chosen.value);
		const body = operation.requestBody?.content["application/json"]?.schema, answer = Object.values(operation.responses["200"]?.content ?? {})[0]?.schema, line = h("div.stack"), out = h("div");
		const model = models.list[0]?.name ?? "", names = (operation.parameters ?? []).map(({ name }) => name), target = h("input", { id: "target", value: path.replace(/\{(\w+)\}/g, (whole, name) => (name === "model" ? model : whole)), spellcheck: false });
		const sent = body && h("textarea", { id: "sent", rows: 6, class: "mono", spellcheck: false, value: JSON.stringify(sample(body, model), null, 2) });
		fill(screen.result, h("h2.mono", `${method} ${path}`),
			h("p.soft", operation["x-operation"] ? `The same as ${operation["x-operation"].slice(1)} over gRPC, with the same access.` : operation.security?.length === 1 ? "Open, as probes are." : "Of HTTP alone."),
			...section("Body", body), ...section("Answer", answer), h("h2", "Try it"),
			h("div.field", h("label", { htmlFor: "target" }, `Path${names.length ? `, with ${names.join(" and ")} filled in` : ""}`), target), sent && h("div.field", h("label", { htmlFor: "sent" }, "Body"), sent), line, out);
		screen.action(async ({ call, signal }) => {
			const raw = Object.keys(operation.responses["200"]?.content ?? {})[0] !== "application/json";
			const options = { method, signal, ...(raw && { read: "text" }) }, answered = await call(target.value.replace(/^\//, ""), sent ? JSON.parse(sent.value) : undefined, options);
			fill(out, h("pre.code", { tabIndex: 0, label: "Answer of the server" }, typeof answered === "string" ? answered : JSON.stringify(answered, null, 2)));
		}, { label: "Send", into: line });
		screen.runButton.type = "button";
		screen.runButton.addEventListener("click", () => screen.run());
	}

	find.onchange = debounced(fillList, 100);
	others.onchange = fillList;
	screen.onstart = () => {
		fillList();
		show();
	};
}

const resolve = (schema) => (schema?.$ref ? description.components.schemas[schema.$ref.split("/").at(-1)] : schema ?? {});

/** The fields of a schema as rows of a table. */
function section(title, schema) {
	const all = [schema, ...(schema?.anyOf ?? []), ...(schema?.oneOf ?? [])].map(resolve).filter((each) => each.properties);
	return all.flatMap((each) => [h("h2", all.length > 1 ? `${title}: ${each.title}` : title), table(["Field", "Type", "Bounds"], Object.entries(each.properties).map(([name, field]) =>
		[each.required?.includes(name) ? `${name} (required)` : name, kind(field), bounds(field)]), { caption: `${title} ${each.title ?? ""}` })]);
}

/** Bounds that say more than the type does. */
const bounds = ({ minimum = "", maximum = "" }) => (maximum >= 4294967295 ? "" : minimum === "" && maximum === "" ? "" : maximum === "" ? `at least ${minimum}` : `${minimum} to ${maximum}`);

function kind(schema) {
	if (schema.$ref) return schema.$ref.split("/").at(-1);
	if (schema.anyOf) return [...new Set(schema.anyOf.map(kind))].join(" or ");
	return schema.type === "array" ? `list of ${kind(schema.items ?? {})}` : schema.enum?.join(" or ") ?? [].concat(schema.type ?? "any value").join(" or ");
}

/** A body to begin with: what is required, the model, and one text for texts. */
function sample(schema, model) {
	const { properties = {}, required = [] } = [schema, ...(schema.anyOf ?? [])].map(resolve).find((each) => each.properties) ?? {};
	const wanted = Object.entries(properties).filter(([name]) => required.includes(name) || ["model", "text", "texts", "text_pairs", "question", "context", "prompt"].includes(name));
	return Object.fromEntries(wanted.map(([name, field]) => [name, name === "model" ? model : kind(field).startsWith("list") ? ["text"] : ["integer", "number"].includes(field.type) ? 1 : "text"]));
}
