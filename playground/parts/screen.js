// What all screens have: model, examples, controls, run and stop, times, errors, permalink, request.

import { ApiError, events, json, request } from "../api/client.js";
import { models } from "../api/models.js";
import { duration, times, visible } from "../maths/numbers.js";
import { isTooLong, write } from "../maths/permalink.js";
import { builds } from "./builds.js";
import * as controls from "./controls.js";
import { announce, copyButton, debounced, download, fill, h } from "./h.js";
import { requestDrawer } from "./request_drawer.js";
import { tip } from "./shapes.js";

/** One screen in the page; `build(screen)` of its file declares what is in it. */
export class Screen {
	#controls = new Map();
	#action = null;
	#running = null;
	#hasRun = false;
	#isSet = false; // the controls have their first values
	#last = null;
	#saveSoon = debounced(() => this.#save(), 300);
	#runSoon = null;

	constructor(entry, given, main) {
		Object.assign(this, { entry, given });
		/** Where controls go, and results. */
		this.input = h("form.stack", { autocomplete: "off", onsubmit: (event) => { event.preventDefault(); this.run(); } });
		this.result = h("section.stack", { label: "Result", tabIndex: -1 });
		this.head = h("div.head", h("h1", entry.title));
		this.notice = h("p.notice", { role: "alert", hidden: true });
		this.gone = h("p.notice", { role: "alert", hidden: true }, "The model is not served any more. What is shown of it stays.");
		this.body = h("div.split", this.input, this.result);
		this.drawer = requestDrawer(() => this.#last);
		this.element = h("article.screen", this.head, this.gone, this.body, h("div.row.spread", this.drawer));
		this.element.addEventListener("change", () => this.#save()); // a field that is left, before another screen opens
		fill(main, this.element);
	}

	/** The chosen model. */
	get model() { return this.models.find((model) => model.name === this.selector?.value) ?? this.models[0]; }

	/** Controls over the whole width, above the result. */
	wide() { this.element.classList.add("wide"); }

	/** Controls: see parts/controls.js; beside their options `into` (an element), `isMain` (examples go there). */
	text(name, options) { return this.add(controls.text(name, options), options); }
	number(name, options) { return this.add(controls.number(name, options), options); }
	choice(name, options) { return this.add(controls.choice(name, options), options); }
	toggle(name, options) { return this.add(controls.toggle(name, options), options); }

	/** A control of the screen's own: anything with `name`, `value`, `initial`, and an `element` where it is not placed already. */
	add(made, { into = this.input, isMain } = {}) {
		this.#controls.set(made.name, made);
		if (isMain) this.main = made;
		const before = made.onchange;
		made.onchange = (value) => {
			before?.(value);
			this.changed();
		};
		if (made.element && into) into.append(made.element);
		return made;
	}

	/** To be called when a value changed that is not a control's. */
	changed() {
		this.#saveSoon();
		this.#runSoon?.();
		this.onchanged?.();
	}

	/** What Run does. `auto`: it runs by itself this number of milliseconds after a change, the latest wins. `run` gets `{model, signal, call, stream}`, and may return the words of the status. */
	action(run, { label = "Run", auto, into = this.input } = {}) {
		this.#action = run;
		this.runButton = h("button", { type: "submit", class: "primary", title: "Ctrl Enter", disabled: !this.#isSet }, label);
		this.stopButton = h("button", { title: "Esc", hidden: true, onclick: () => this.stop() }, "Stop");
		this.status = h("span.status");
		if (auto) this.#runSoon = debounced(() => this.element.isConnected && this.run(), auto);
		into.append(h("div.run", this.runButton, this.stopButton, this.status), this.notice.isConnected ? "" : this.notice);
	}

	/** Whether it runs many times a second, of which only results are to be seen. */
	isLive = false;

	/** Runs the action; one that is running is stopped first. */
	async run() {
		if (!this.#isSet) return void (this.given = { ...this.given, run: "1" }); // as soon as it can
		if (!this.#action || (this.entry.tasks.length && !this.model)) return; // `gone` says so
		this.stop();
		if (!this.main?.isFree && this.main?.input?.checkVisibility() && !this.main.value.trim()) {
			this.wrong(new ApiError(400, "There is no text: type one, or choose an example.", this.main.param));
			return this.#outdate();
		}
		const running = this.#running = new AbortController(), { signal } = running, started = performance.now();
		this.#hasRun = true;
		this.wrong(null);
		if (!this.isLive) {
			this.#save();
			[this.stopButton.hidden, this.status.textContent] = [false, "Running"];
		}
		this.result.ariaBusy = "true";
		try {
			const said = await this.#action({ model: this.model, signal, call: this.#call(signal), stream: this.#stream(signal) });
			if (running !== this.#running) return;
			this.result.classList.remove("stale");
			this.status.textContent = said ?? this.#times((performance.now() - started) / 1e3);
			if (!this.isLive) announce(`Done. ${this.status.textContent}`);
		} catch (error) {
			if (running !== this.#running && error.name === "AbortError") return;
			if (error.name === "AbortError") this.status.textContent = "Stopped";
			else {
				this.wrong(error);
				this.#outdate();
			}
		} finally {
			if (running === this.#running) {
				[this.#running, this.stopButton.hidden, this.result.ariaBusy] = [null, true, "false"];
				this.drawer.update();
			}
		}
	}

	/** Frames a result that is not of what the controls say; not one that has controls of its own. */
	#outdate() {
		const isResult = !this.element.matches(".flipped") && !this.result.contains(this.runButton) && !this.result.querySelector(":scope > .placeholder:not([hidden])");
		this.result.classList.toggle("stale", isResult);
	}

	/** Runs after a pause; the latest call wins. */
	soon = debounced(() => this.element.isConnected && this.run(), 400);

	get isRunning() { return this.#running !== null; }

	stop() { this.#running?.abort(); }

	/** Shows an error where it is about, or takes it away. */
	wrong(error) {
		for (const each of this.#controls.values()) each.error?.("");
		this.notice.hidden = true;
		this.cut?.remove();
		if (!error) return;
		if (this.status) this.status.textContent = "";
		if (!(error instanceof ApiError)) console.error(error);
		const all = [...this.#controls.values()].filter((each) => each.error && each.param && each.element.checkVisibility()), param = error.param;
		const named = (each) => new RegExp(`(^|\\W)${each.param.replace(/[[\]]/g, "\\$&")}($|\\W)`).test(error.message);
		const about = all.find((each) => each.param === param) ?? all.find((each) => each.param === param?.split(/[.[]/)[0]) ?? all.find(named);
		if (about) {
			about.error(error.message);
			about.focus?.();
			const [, has, most] = error.message.match(/ has (\d+) (?:tokens|characters), .* (\d+)/) ?? [], { value } = about;
			if (about === this.main && most < +has && !/\n/.test(value)) about.element.append(this.cut = h("button", { onclick: () => {
				about.value = value.slice(0, value.length * (most - 2) / has);
				this.run();
			} }, "Cut the text"));
		} else {
			[this.notice.textContent, this.notice.hidden] = [error.message, false];
			this.notice.scrollIntoView({ block: "nearest" });
		}
		if (error.status === 404 || error.status === 503) models.refresh().catch(() => {});
	}

	#call = (signal) => async (path, body, options = {}) => {
		const { read = "json", ...others } = options;
		this.#last = { call: { path, body, method: options.method } };
		return (this.#last.answer = await (read === "json" ? json(path, { body, signal, ...others }) : (await request(path, { body, signal, ...others }))[read]()));
	};

	#stream = (signal) => {
		const screen = this;
		return async function* stream(path, body) {
			const answer = [];
			screen.#last = { call: { path, body, isStream: true }, answer };
			for await (const event of events(path, { body, signal })) {
				answer.push(event);
				yield event;
			}
		};
	};

	/** Seconds of the last answer in words. */
	#times(total) {
		const timings = this.#last?.answer?.timings;
		return timings ? times(timings) : duration(total);
	}

	/** Values that differ from the first ones. */
	#values() {
		const own = [...this.#controls.values()].filter(({ value, initial }) => JSON.stringify(value) !== JSON.stringify(initial)).map(({ name, value }) => [name, value]);
		return { ...(this.model && { model: this.model.name }), ...Object.fromEntries(own), ...(this.#hasRun && { run: "1" }) };
	}

	#save() { if (this.element.isConnected) history.replaceState(null, "", write(this.entry.id, this.#values())); }

	#link() {
		this.#save();
		for (const each of this.#controls.values()) if (isTooLong(each.value)) each.error?.("The link leaves this out, as it is too long for an address. Save state keeps it.");
		return location.href;
	}

	/** Sets controls by name; texts are read as the control's own value is. */
	restore(values) {
		for (const [name, control] of this.#controls) {
			if (!(name in values)) continue;
			try { control.value = typeof values[name] === "string" && typeof control.initial !== "string" && control.initial !== undefined ? JSON.parse(values[name]) : values[name]; } catch { /* a permalink of another version */ }
		}
	}

	/** Puts an example into the controls, and runs it. */
	show(example) {
		this.restore(this.#valuesOf(example));
		this.onexample?.(example);
		this.run();
	}

	/** Values by control of a text, of `{title, values}`, or of an example of ListModels, whose first text is the main one. */
	#valuesOf(example) {
		if (typeof example === "string") return { [this.main?.name]: example };
		if (example.values) return example.values;
		const { text, ...others } = example;
		return { [this.main?.name]: text, ...Object.fromEntries(Object.entries(others).filter(([, value]) => value)) };
	}

	/** Presets in place of the model's examples: texts, or `{title, values}`. */
	presets;

	#examples() {
		const all = this.presets ?? (this.model?.examples?.length ? this.model.examples : this.model?.example ? [this.model.example] : []);
		const words = (each) => (typeof each === "string" ? each : each.title || Object.values(each).filter((value) => value).join(" / "));
		this.exampleMenu.setOptions([["", "Choose"], ...all.map((each, index) => [index, words(each).slice(0, 60)])]);
		this.exampleMenu.element.hidden = !all.length;
		this.exampleMenu.onchange = (index) => {
			this.exampleMenu.value = "";
			if (index !== "") this.show(all[index]);
		};
	}

	/** Called by the shell when all is declared: chooses the model, takes the permalink's values, runs where it had run. */
	async start(build) {
		this.models = models.of(this.entry);
		if (this.entry.tasks.length && !this.models.length) return this.#wait(build);
		if (this.entry.tasks.length) {
			this.selector = controls.choice("model", { label: "Model", options: this.#modelOptions(), isMenu: true });
			this.selector.element.classList.add("model");
			this.exampleMenu = controls.choice("example", { label: "Examples", options: [], isMenu: true });
			this.head.append(this.selector.element, this.exampleMenu.element);
			const isServed = this.models.some((model) => model.name === this.given.model);
			this.selector.value = isServed ? this.given.model : this.models[0].name;
			if (this.given.model && !isServed) this.head.after(h("p.notice", { role: "alert" }, `The model ${visible(this.given.model)} of the address is not served. ${this.models[0].name} stands in for it.`));
		}
		const state = () => JSON.stringify({ screen: this.entry.id, values: this.#values() });
		this.drawer.after(h("span.row", copyButton(() => this.#link(), "Copy link"), h("button.plain", { onclick: () => download(`${this.entry.id}.json`, state()) }, "Save state"), openButton()));
		await build(this);
		if (this.selector) {
			this.selector.onchange = () => this.#choose();
			await this.onmodel?.(this.model);
			this.#examples();
		}
		if (this.main && !this.main.value && !("run" in this.given) && !(this.main.name in this.given)) {
			const first = this.presets?.[0] ?? this.model?.examples?.[0] ?? this.model?.example;
			if (first) this.restore(this.#valuesOf(first));
		}
		this.restore(this.given);
		this.#isSet = true;
		if (this.runButton) this.runButton.disabled = false;
		await this.onstart?.();
		if (this.given.run) await this.run();
		else if (this.#runSoon) this.#runSoon();
		models.addEventListener("change", this.#modelsChanged);
	}

	#modelOptions() { return this.models.map((model) => [model.name, model.precision ? `${model.name} (${model.precision})` : model.name]); }

	async #choose() {
		this.stop();
		this.wrong(null);
		const shown = this.result.firstChild;
		await this.onmodel?.(this.model);
		if (shown && shown === this.result.firstChild && !this.#runSoon) this.#outdate();
		this.#examples();
		this.changed();
	}

	#modelsChanged = () => {
		if (!this.element.isConnected) return models.removeEventListener("change", this.#modelsChanged);
		const chosen = this.model?.name, now = models.of(this.entry);
		this.gone.hidden = !this.selector || now.length > 0;
		if (!this.gone.hidden) return; // what is shown stays, and can be read
		this.models = now;
		this.selector?.setOptions(this.#modelOptions());
		if (this.selector) this.selector.value = this.models.some((model) => model.name === chosen) ? chosen : this.models[0]?.name;
		if (this.selector && this.model && this.model.name !== chosen) this.#choose();
	};

	/** Says what would fill the screen, and starts it once it is there. */
	#wait(build) {
		const { demo, commands: command = `attendant demo ${demo} --keep` } = this.entry;
		this.drawer.hidden = true;
		this.body.className = "empty-state";
		if (!models.isKnown) fill(this.body, h("p", "The server has not given its list of models."), h("div", h("button", { onclick: () => models.refresh().catch((error) => announce(error.message)) }, "Try again")));
		else fill(this.body, h("p", `No model for this screen is served. It needs ${this.entry.needs}.`),
			h("p", demo ? "This command trains a small one and puts it into the repository of this server:" : "These commands put one from a folder of Hugging Face's form, or a hub id, into the repository:"), h("div.row", h("pre.code", command), copyButton(() => command)),
			builds(demo ?? "none"), h("p.soft", "The screen opens when the model is there."));
		const wasKnown = models.isKnown, again = () => {
			if (!this.element.isConnected) return models.removeEventListener("change", again);
			if (!models.of(this.entry).length && wasKnown) return;
			models.removeEventListener("change", again);
			const fresh = new Screen(this.entry, this.given, this.element.parentElement);
			this.onreplaced?.(fresh);
			fresh.start(build);
		};
		models.addEventListener("change", again);
	}

	/** Ctrl Enter runs and Esc stops, wherever the focus is. */
	key(event) {
		if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.run();
		else if (event.key === "Escape" && this.isRunning) this.stop();
		else return;
		event.preventDefault();
	}

	close() {
		this.stop();
		tip(null);
		this.onclose?.();
	}
}

/** Opens a saved state. */
function openButton() {
	const file = h("input", { type: "file", accept: ".json", hidden: true, label: "State to open", onchange: async () => {
		try {
			const { screen, values } = JSON.parse(await file.files[0].text());
			dispatchEvent(new CustomEvent("open-state", { detail: { id: screen, values } }));
		} catch { announce("This file is no saved state."); }
	} });
	return [h("button.plain", { onclick: () => file.click() }, "Open state"), file];
}
