// The live strip: a server's numbers each second.

import { ApiError, json } from "../api/client.js";
import { models } from "../api/models.js";
import { count, duration } from "../maths/numbers.js";
import { rates } from "../maths/rates.js";
import { fill, h } from "./h.js";

const EVERY_MS = 1000, WINDOW = 10; // rates are over ten seconds, so that one request can be seen
const answers = [], gauges = [];
let timer = null, isPaused = false, pause, text;

/** A number; `read` gives its text. */
function gauge(label, title, read) {
	const value = h("b", "–");
	gauges.push({ read, value });
	return h("a.gauge", { href: "#/models", title }, label, value);
}

/** Asks once, and shows what came. */
export async function poll() {
	let now;
	try {
		now = await json("api/live", { asks: false });
	} catch (error) {
		text.textContent = error instanceof ApiError && error.status === 401 ? "A token is needed" : error.status === 403 || error.status === 404 ? "Numbers are not offered" : "No answer";
		return;
	}
	answers.splice(0, answers.push(now) - WINDOW - 1);
	const since = rates(answers[0], now);
	for (const { read, value } of gauges) {
		const shown = read(since, now);
		if (value.textContent !== shown) value.textContent = shown;
	}
	models.build(now.builds ?? []);
	text.textContent = `${now.is_ready ? "Ready" : "Not ready"} · ${now.version}`;
	if (JSON.stringify(models.list.map(({ name, version }) => `${name}/${version}`).sort()) !== JSON.stringify(now.models)) models.refresh({ asks: false }).catch(() => {});
}

/** Polls while the tab is seen and the strip neither paused nor hidden. */
function schedule() {
	clearTimeout(timer);
	if (!isPaused && !document.hidden) timer = setTimeout(async () => {
		await poll();
		schedule();
	}, EVERY_MS);
}

export function startLive(strip) {
	const inner = h("div.gauges",
		gauge("HTTP/s", "Calls over HTTP each second", ({ calls }) => count(calls.http ?? 0)),
		gauge("gRPC/s", "Calls over gRPC each second", ({ calls }) => count(calls.grpc)),
		gauge("p50", "Half of the requests took less", ({ p50 }) => duration(p50)),
		gauge("p95", "95 % of the requests took less", ({ p95 }) => duration(p95)),
		gauge("Waiting", "Requests in queues", (_, { requests }) => count(requests.waiting)),
		gauge("Batch", "Rows of a run, on average", ({ rows }) => count(rows)),
		gauge("Tokens/s", "Tokens generated each second", ({ tokens }) => count(tokens)),
		gauge("Cache", "Slots or blocks of KV caches in use", (_, { generation: { slots, slots_used: used } }) => (slots ? `${used}/${slots}` : "–")),
		gauge("Errors", "Failed and refused requests of the last ten seconds", ({ errors }) => count(errors)));
	text = h("span.soft");
	pause = h("button.plain", { onclick: () => {
		isPaused = !isPaused;
		pause.textContent = isPaused ? "Resume" : "Pause";
		schedule();
	} }, "Pause");
	const hide = h("button.plain", { "aria-expanded": "true", onclick: () => {
		inner.hidden = !inner.hidden;
		[hide.ariaExpanded, hide.textContent] = inner.hidden ? ["false", "Show numbers"] : ["true", "Hide"];
	} }, "Hide");
	fill(strip, inner, h("span.grow"), text, pause, hide);
	document.addEventListener("visibilitychange", schedule);
	poll().then(schedule);
}
