// The live strip: a server's numbers each second, the last minute of each, in room that does not grow.

import { ApiError, json } from "../api/client.js";
import { models } from "../api/models.js";
import { count, duration } from "../maths/numbers.js";
import { History, rates } from "../maths/rates.js";
import { fill, h } from "./h.js";
import { palette } from "./palette.js";

const EVERY_MS = 1000, SECONDS = 60, WINDOW = 10; // rates are over ten seconds, so that one request can be seen
const answers = new History(WINDOW + 1), gauges = [];
let timer = null, isPaused = false, pause, text;

/** A number and its last minute. `read` gives the text, the value of this second, and what is drawn in place of the minute. */
function gauge(label, title, read) {
	const value = h("b", "–"), canvas = h("canvas", { width: 120, height: 40, "aria-hidden": "true" });
	gauges.push({ read, value, canvas, history: new History(SECONDS) });
	return h("a.gauge", { href: "#/models", title }, label, value, canvas);
}

function draw(canvas, values, places, colours) {
	const pen = canvas.getContext("2d"), { width, height } = canvas, most = Math.max(1e-9, ...values.filter(Number.isFinite)), step = width / places;
	pen.clearRect(0, 0, width, height);
	pen.fillStyle = colours.line;
	pen.fillRect(0, height - 1, width, 1);
	pen.fillStyle = colours.accent;
	values.forEach((value, index) => {
		const tall = Number.isFinite(value) ? (value / most) * (height - 2) : 0;
		pen.fillRect(width - (values.length - index) * step, height - tall, Math.max(step - 0.5, 1), tall);
	});
}

/** Runs by their rows: 1, 2, up to 4, up to 8 and so on. */
function bySize(batches) {
	const counts = Array(7).fill(0);
	for (const { rows, count: runs } of batches) counts[Math.min(Math.ceil(Math.log2(rows)), 6)] += runs;
	return counts;
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
	answers.push(now);
	const since = rates(answers.first, now), colours = palette();
	for (const each of gauges) {
		const [shown, value, parts] = each.read(since, now);
		each.history.push(value);
		if (each.value.textContent !== shown) each.value.textContent = shown;
		draw(each.canvas, parts ?? each.history.values, parts?.length ?? SECONDS, colours);
	}
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
		gauge("HTTP/s", "Calls over HTTP each second", ({ calls }) => [count(calls.http ?? 0), calls.http ?? 0]),
		gauge("gRPC/s", "Calls over gRPC each second", ({ calls }) => [count(calls.grpc), calls.grpc]),
		gauge("p50", "Half of the requests took less", ({ p50 }) => [duration(p50), p50]),
		gauge("p95", "95 % of the requests took less", ({ p95 }) => [duration(p95), p95]),
		gauge("Waiting", "Requests in queues", (_, { requests }) => [count(requests.waiting), requests.waiting]),
		gauge("Batch", "Rows of a run, on average; the bars are runs of 1, 2, up to 4, 8, 16, 32 and more rows", ({ rows, batches }) => [count(rows), rows, bySize(batches)]),
		gauge("Tokens/s", "Tokens generated each second", ({ tokens }) => [count(tokens), tokens]),
		gauge("Cache", "Slots or blocks of KV caches in use", (_, { generation: { slots, slots_used: used } }) => [slots ? `${used}/${slots}` : "–", slots ? used / slots : NaN]),
		gauge("Errors", "Failed and refused requests of the last ten seconds", ({ errors }) => [count(errors), errors]));
	text = h("span.soft");
	pause = h("button", { type: "button", class: "plain", onclick: () => {
		isPaused = !isPaused;
		pause.textContent = isPaused ? "Resume" : "Pause";
		schedule();
	} }, "Pause");
	const hide = h("button", { type: "button", class: "plain", "aria-expanded": "true", onclick: () => {
		inner.hidden = !inner.hidden;
		[hide.ariaExpanded, hide.textContent] = inner.hidden ? ["false", "Show numbers"] : ["true", "Hide"];
	} }, "Hide");
	fill(strip, inner, h("span.grow"), text, pause, hide);
	document.addEventListener("visibilitychange", schedule);
	poll().then(schedule);
}
