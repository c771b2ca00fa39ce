// The last call of a screen, for other programs, and its answer as it came.

import { addressOf, session } from "../api/client.js";
import { copyButton, h } from "./h.js";
import { tabs } from "./shapes.js";

const MOST_CHARACTERS = 200_000; // of an answer; more is left out of the page, not of the file

export function requestDrawer(last) {
	const base = addressOf("").replace(/\/$/, "");
	const answer = (value) => (value === undefined ? "There is no answer yet." : JSON.stringify(value, null, 2));
	let snippets = null; // loaded when the drawer is opened for the first time
	const by = (name) => ({ call }) => snippets[name](call, base, !!session.token);
	const forms = { curl: by("curl"), Python: by("inPython"), JavaScript: by("inJavaScript"), gRPC: by("inGrpc"),
		Request: ({ call }) => JSON.stringify(call.body ?? null, null, 2), Answer: (each) => answer(each.answer) };
	const all = Object.entries(forms).map(([label, form]) => {
		const code = h("pre.code", { tabIndex: 0, label });
		const text = () => (last() ? form(last()) : "There was no call yet.");
		const show = () => {
			const whole = text();
			code.textContent = whole.length > MOST_CHARACTERS ? `${whole.slice(0, MOST_CHARACTERS)}\n… ${whole.length - MOST_CHARACTERS} more characters; Copy has all of them.` : whole;
		};
		return { label, panel: h("div.stack", code, h("div", copyButton(text))), onshow: () => snippets && show(), show };
	});
	let drawer = null;
	const strip = tabs(all, { label: "Forms of the request" });
	drawer = h("details.request", { ontoggle: () => drawer.update() }, h("summary", "Request"), strip);
	drawer.update = async () => {
		if (!drawer.open) return;
		snippets ??= await import("../api/snippets.js");
		all[strip.chosen].show();
	};
	return drawer;
}
