// The shell: navigation, the screen of the address, the token, light and dark, the live strip.

import { session } from "./api/client.js";
import { models } from "./api/models.js";
import { parse, write } from "./maths/permalink.js";
import { visible } from "./maths/visible.js";
import { announce, fill, h } from "./parts/h.js";
import { startLive } from "./parts/live_strip.js";
import { Screen } from "./parts/screen.js";
import { CATALOGUE } from "./screens/catalogue.js";

const main = document.getElementById("main"), rail = document.getElementById("rail");
let screen = null;

/** Opens the screen of the address. */
async function open() {
	const { id, values } = parse(location.hash), named = CATALOGUE.find((each) => each.id === id), isUnknown = id && !named;
	const entry = named ?? CATALOGUE[0];
	if (isUnknown) history.replaceState(null, "", write(entry.id, {}));
	screen?.close();
	const opened = screen = new Screen(entry, named ? values : {}, main);
	if (isUnknown) screen.head.after(h("p.notice", { role: "alert" }, `The page has no screen ${visible(id)}, which the address named. This is another one.`));
	screen.onreplaced = (fresh) => { screen = fresh; };
	if (sessionStorage.getItem("course")) import("./parts/course.js").then(({ question }) => screen === opened && opened.head.after(question(entry.id) ?? ""));
	document.title = `${entry.title} · Attendant`;
	mark(entry.id);
	shut();
	try {
		const { default: build } = await import(`./screens/${entry.id.replaceAll("-", "_")}.js`);
		if (screen === opened) await opened.start(build);
	} catch (error) {
		console.error(error);
		fill(opened.body, h("p.notice", { role: "alert" }, "This screen could not be opened. ", h("button", { onclick: () => location.reload() }, "Reload the page")));
	}
}

/** Closes the menu of narrow pages. */
function shut() {
	rail.classList.remove("open");
	rail.querySelector(".menu").ariaExpanded = "false";
}

function navigation() {
	const groups = [...new Set(CATALOGUE.map((entry) => entry.group))];
	const links = (group) => CATALOGUE.filter((entry) => entry.group === group).map((entry) => h("li", h("a", { href: `#/${entry.id}`, data: { id: entry.id } }, entry.title)));
	const menu = h("button.menu", { "aria-expanded": "false", "aria-controls": "navigation", onclick: () => { menu.ariaExpanded = String(rail.classList.toggle("open")); } }, "Menu");
	const themes = h("select", { label: "Theme", onchange: () => theme(themes.value) }, [["", "System theme"], ["light", "Light"], ["dark", "Dark"]].map(([value, words]) => h("option", { value }, words)));
	themes.value = localStorage.getItem("attendant-theme") ?? "";
	fill(rail, h("a.name", { href: "#/" }, h("img", { src: new URL("icon.svg", import.meta.url).href, alt: "" }), "Attendant"), menu,
		h("nav", { id: "navigation", label: "Screens", onclick: (event) => event.target.closest("a") && shut() }, groups.map((group) => h("section", h("h2", group), h("ul", links(group))))), h("div.foot", themes));
	theme(themes.value);
}

/** Marks the screen that is shown, and those without a model. */
function mark(id) {
	const shown = id ?? rail.querySelector("[aria-current]")?.dataset.id;
	for (const link of rail.querySelectorAll("nav a")) {
		const entry = CATALOGUE.find((each) => each.id === link.dataset.id), isEmpty = entry.tasks.length > 0 && !models.of(entry).length;
		link.ariaCurrent = link.dataset.id === shown ? "page" : null;
		link.classList.toggle("empty", isEmpty);
		link.title = isEmpty && models.isKnown ? "No model for it is served" : "";
	}
}

function theme(name) {
	name ? localStorage.setItem("attendant-theme", name) : localStorage.removeItem("attendant-theme");
	document.documentElement.dataset.theme = name;
	dispatchEvent(new Event("theme"));
}

let asking = null;
/** One dialog for all calls that wait for a token, or for the key of a header. */
session.ask = (text, header) => (asking ??= new Promise((resolve) => {
	const before = header ? session.keys[header] : session.token, input = h("input", { type: "password", id: "token", autocomplete: "off", required: true, pattern: " *[!-~]+ *", title: "Visible characters without spaces between them" });
	const end = (isGiven) => {
		if (isGiven && header) session.keys = { ...session.keys, [header]: input.value.trim() };
		else if (isGiven) session.token = input.value.trim();
		asking = null;
		dialog.remove();
		resolve(isGiven);
	};
	const dialog = h("dialog", { "aria-labelledby": "token-title", oncancel: () => end(false) }, h("form.stack", { onsubmit: (event) => { event.preventDefault(); end(true); } },
		h("h2", { id: "token-title" }, header ? "This call needs a key" : "This server asks for a token"), h("p.soft", before ? (header ? "The server does not take the key that was given." : `The server says: ${text}.`) : "It is kept for this tab only, until the tab is closed."),
		h("div.field", h("label", { htmlFor: "token" }, header ? `Key for the header ${header}` : "Bearer token"), input), h("div.row", h("button", { type: "submit", class: "primary" }, header ? "Use key" : "Use token"), h("button", { onclick: () => end(false) }, "Cancel"))));
	document.body.append(dialog);
	dialog.showModal();
}));

addEventListener("hashchange", open);
addEventListener("keydown", (event) => {
	if (event.key !== "Escape" || !rail.matches(".open")) return screen?.key(event);
	shut();
	rail.querySelector(".menu").focus();
});
addEventListener("open-state", ({ detail }) => {
	history.replaceState(null, "", write(detail.id, detail.values));
	open();
});
models.addEventListener("change", () => mark());
navigation();
try {
	await models.refresh();
} catch (error) {
	announce(error.message);
}
await open();
startLive(document.getElementById("live"));
