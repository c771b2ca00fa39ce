// Text goes on in its place: streamed, coloured, cut at any token and continued from another, side by side.

import * as branches from "../maths/branches.js";
import { duration, fixed, plural } from "../maths/numbers.js";
import { announce, copyButton, fill, h, tokenRow } from "../parts/page.js";
import { outputBox } from "../parts/output_box.js";
import { COLOURS, branchList, generationSettings, tokenItem, tokenPanel } from "./generate_parts.js";

const MOST = 200; // views that Undo goes back through, and branches that are listed
const NO_CHAT = { value: [], isChat: false, before: () => null, fields: () => ({}), update() {} };
const NO_FORM = { fields: () => ({}), free() {}, follow() {}, update() {}, verdict: () => "" };
const NOTHING = Object.freeze({ prompt: "", parent: null, keep: 0, lanes: [] });

/** The screen: what is shown is a view, `{prompt, messages, parent, keep, picked, lanes}`, whose lanes are branches that were generated together. */
class Generation {
	#screen;
	#all = []; // branches of this page
	#history = new branches.History({ ...NOTHING }, MOST);
	#plan = null; // what the next run does in place of what its button says
	#pinned = null;
	#chat = NO_CHAT; // until a model has a chat template
	#form = NO_FORM; // until a model can be held to one
	#above = h("div.stack", { hidden: true });
	#columns = h("div.lanes");
	#crumbs = h("nav", { label: "Branches", class: "small" });
	#legend = h("p.small.soft");
	#verdict = h("div", { role: "status" });
	#text = outputBox({ onchange: () => this.#update() });

	constructor(screen) {
		this.#screen = screen;
		screen.element.classList.add("flipped");
		screen.result.ariaLabel = "Token and settings";
		screen.input.append(this.#above);
		screen.add(this.#text, { isMain: true });
		screen.action((context) => this.#run(context), { label: "Generate" });
		this.#addButtons();
		this.colour = screen.choice("colour", { label: "Colour", options: Object.keys(COLOURS).map((key) => [key, key[0].toUpperCase() + key.slice(1)]), value: "probability", onchange: () => this.#render() });
		screen.input.append(this.#legend, this.#verdict, this.#columns, this.#crumbs);
		this.settings = generationSettings(screen, () => this.#update());
		this.panel = tokenPanel((parent, keep, picked) => this.#start({ parent, keep, picked }));
		this.panel.element.addEventListener("keydown", (event) => event.key === "Escape" && this.#pinned?.element.focus());
		screen.result.append(this.panel.element, this.settings.element);
		screen.onmodel = (model) => this.#choose(model);
		screen.onstart = () => { // what the permalink says
			this.#chat.update();
			this.#form.update();
		};
		this.#render();
	}

	#addButtons() {
		this.undo = button("Undo", () => this.#move(-1));
		this.redo = button("Redo", () => this.#move(1));
		this.again = button("Regenerate", () => this.#start(this.#view));
		this.clear = button("Clear", () => this.#push({ ...NOTHING, prompt: this.#text.value }));
		this.edit = button("Edit all", () => this.#write({ prompt: this.#text.value + this.#output }));
		this.reply = button("Next message", () => this.#write({ messages: [...this.#chat.value, { role: "user", content: this.#text.value }, { role: "assistant", content: this.#output }] }));
		this.#screen.runButton.parentElement.after(h("div.row", this.reply, this.undo, this.redo, this.again, this.edit, this.clear, copyButton(() => this.#text.value + this.#output)));
	}

	async #choose(model) {
		this.settings.onmodel();
		if (model.has_chat_template && this.#chat === NO_CHAT) {
			const { conversation } = await import("../parts/conversation.js");
			this.#chat = this.#screen.add(conversation(this.#screen, this.#above, () => this.#update()));
			this.#above.hidden = false;
		}
		this.#chat.update();
		if (model.grammar_kinds?.length && this.#form === NO_FORM) {
			const { outputForm } = await import("../parts/output_form.js");
			this.#form = outputForm(this.#screen, this.settings.form);
		}
		this.#form.follow(model);
	}

	get #view() { return this.#history.now; }

	/** The branch that is shown, or the first of several. */
	get #current() { return this.#view.lanes[0] ?? null; }

	get #hasOne() { return this.#view.lanes.length === 1; }

	/** The text that was generated, where it is one. */
	get #output() { return this.#hasOne ? answer(this.#current) : ""; }

	get #isStale() { return this.#current !== null && (this.#text.value !== this.#view.prompt || JSON.stringify(this.#chat.before(this.#text.value)) !== JSON.stringify(this.#current.before)); }

	#push(next) {
		this.#screen.stop();
		this.#history.push(next);
		this.#show();
	}

	#write(next) {
		this.#push({ ...NOTHING, ...next });
		this.#text.focus();
	}

	#move(step) {
		this.#screen.stop();
		if (!this.#current) this.#view.prompt = this.#text.value;
		this.#history.move(step);
		this.#show();
	}

	#show() {
		this.#text.value = this.#view.prompt;
		if (this.#view.messages) this.#chat.value = this.#view.messages;
		this.#render();
		this.#screen.changed();
	}

	#start(plan) {
		this.#plan = plan;
		this.#screen.run();
	}

	// Buttons and words by what is shown.
	#update() {
		const isStale = this.#isStale, hasNone = isStale || !this.#current, { isChat } = this.#chat;
		this.#text.isStale = isStale;
		this.#columns.classList.toggle("stale", isStale);
		this.#text.box.classList.toggle("chat", isChat);
		this.#text.call(...(isChat ? ["Message", "Write a message"] : ["Prompt", "Write the beginning of a text"]));
		this.#screen.runButton.textContent = this.#hasOne && !isStale ? "Continue" : "Generate";
		[this.undo.disabled, this.redo.disabled] = [!this.#history.canMove(-1), !this.#history.canMove(1)];
		this.again.disabled = this.clear.disabled = hasNone;
		this.edit.disabled = this.reply.disabled = hasNone || !this.#hasOne;
		[this.reply.hidden, this.edit.hidden] = [!isChat, isChat];
		this.settings.update();
		this.#legend.textContent = COLOURS[this.colour.value];
	}

	async #run({ call, stream }) {
		const { parent, keep, picked } = this.#plan ?? (this.#hasOne && !this.#isStale ? { parent: this.#current, keep: kept(this.#current).length } : NOTHING);
		this.#plan = null;
		const sides = this.settings.requests({ ...this.#form.fields(), ...this.#chat.fields() }), prompt = parent?.prompt ?? this.#text.value, before = parent ? parent.before : this.#chat.before(prompt), messages = this.#chat.value;
		this.#screen.changed(); // the seed
		for (const side of sides) side.lanes = Array.from({ length: side.settings.n }, () => ({ parent, keep, tokens: picked ? [picked] : [], prompt, before, messages, model: side.model, settings: side.settings, text: picked ? branches.spelled(picked.bytes) : "", thoughts: 0, finish: "", decoder: new TextDecoder() }));
		const running = { prompt, messages, parent, keep, picked, lanes: sides.flatMap((side) => side.lanes) };
		this.#begin(running);
		const ended = await Promise.allSettled(sides.map((side) => this.#generate(side, call, stream))), failed = ended.find((each) => each.status === "rejected");
		if (failed && this.#view === running && running.lanes.every((lane) => lane.tokens.length === (picked ? 1 : 0))) {
			this.#all.splice(this.#all.indexOf(running.lanes[0]), running.lanes.length);
			this.#history.drop(); // nothing came: what was there before stays
		}
		if (this.#view === running || failed) this.#render();
		if (failed) throw failed.reason;
		return sides.map(summary).join(" · ");
	}

	#begin(running) {
		if (!this.#current) this.#view.prompt = running.prompt;
		this.#all.push(...running.lanes);
		this.#all.splice(0, this.#all.length - MOST);
		this.#history.push(running);
		this.#render();
		if (running.picked && document.activeElement === document.body) this.#current.row.querySelector(`[data-index="${this.#hasOne ? running.keep - branches.thoughtsOf(this.#current) : 0}"]`).focus();
	}

	async #generate(side, call, stream) {
		const started = performance.now();
		let count = 0, sentence = "";
		for await (const event of stream("api/Generate", await requestOf(side, call, this.#chat, this.#form))) {
			const index = event.sample_index ?? 0, lane = side.lanes[index];
			const tokens = (event.logprobs ?? []).map(branches.tokenOf), items = tokens.map((token) => tokenItem({ ...token, text: lane.decoder.decode(token.bytes, { stream: true }) }, this.colour.value));
			lane.tokens.push(...tokens);
			count += tokens.length;
			this.#add(lane, items, branches.numThoughts(lane, event));
			lane.text += event.text ?? "";
			if (event.finish_reason) Object.assign(lane, { finish: event.finish_reason, reason: event.stop_reason });
			if (event.usage) Object.assign(side, { usage: event.usage, timings: event.timings ?? {} });
			this.#screen.status.textContent = `${plural(count, "token")}, ${fixed((count * 1e3) / (performance.now() - started), 0)} tokens/s`;
			if (index === 0 && /[.!?]\s/.test((sentence += event.text ?? ""))) {
				announce(sentence);
				sentence = "";
			}
		}
	}

	/** Shows new tokens of a lane, of which this number are thoughts now. */
	#add(lane, items, thoughts) {
		const { thoughts: before } = lane;
		lane.thoughts = thoughts;
		if (thoughts === before) for (const each of items) lane.row?.add(each);
		else if (before && thoughts === lane.tokens.length && lane.thinking) {
			for (const each of items) lane.thinking.add(each);
			lane.thinking.update(thoughts);
		} else if (this.#view.lanes.includes(lane)) this.#render(); // thoughts begin or end
	}

	#render() {
		const { lanes, parent, keep } = this.#view, at = document.activeElement?.closest(".output > .tokens > .token")?.dataset.index, before = { ...parent, parent, keep, tokens: [], finish: "" };
		this.#text.show(this.#hasOne ? this.#row(lanes[0], 0, "Output") : parent ? this.#row(before, 0, "Output before the samples") : null);
		fill(this.#columns, this.#hasOne ? null : lanes.map((lane) => this.#column(lane, lanes)));
		this.#columns.hidden = this.#hasOne || !lanes.length;
		fill(this.#verdict, this.#hasOne && this.#verdictOf(lanes[0]));
		const open = (branch) => this.#push({ ...branch, picked: branch.tokens.find((token) => token.isPicked), lanes: [branch] });
		fill(this.#crumbs, this.#all.length > 1 ? branchList(this.#all, this.#current, this.#crumbs.querySelector("details")?.open ?? false, open) : null);
		this.#inspect((this.#pinned = null));
		this.#update();
		if (at) this.#current?.row.children[at]?.focus();
	}

	/** Whether an output that has ended has the form that it was held to. */
	#verdictOf(lane) {
		const words = lane.finish && this.#form.verdict(lane.settings, answer(lane), lane.finish === "FINISH_REASON_LENGTH");
		return words ? h("p.small.soft", words) : null;
	}

	#column(lane, lanes) {
		const name = title(lane, lanes), [first] = lanes, others = this.settings.isCompared && lane !== first ? branches.written(first).slice(Math.max(first.keep, branches.thoughtsOf(first))).map((token) => token.text) : null;
		const head = h("div.row.spread", h("h2", name), button("Keep this", () => this.#push({ ...this.#view, lanes: [lane] })));
		return h("section.panel.stack", { label: name }, head, this.#row(lane, lane.keep, name, others), this.#verdictOf(lane));
	}

	/** A branch's tokens from `start` on, its thoughts folded; what is not in `others` is marked. */
	#row(branch, start, label, others) {
		const end = Math.max(start, branches.thoughtsOf(branch));
		branch.row = this.#tokens(branch, end, Infinity, label, others);
		if (start === end) return branch.row;
		const head = h("summary"), row = this.#tokens(branch, start, end, "Thoughts");
		branch.thinking = { add: row.add, update(count) { head.textContent = `Thoughts, ${plural(count - start, "token")}`; } };
		branch.thinking.update(end);
		return [h("details", { open: branch.isOpen, class: "thoughts", ontoggle: (event) => { branch.isOpen = event.target.open; } }, head, row), branch.row];
	}

	#tokens(branch, start, end, label, others) {
		const tokens = branches.written(branch).slice(start, end), differs = others ? branches.differing(tokens.map((token) => token.text), others) : [], place = (index, element) => ({ branch, place: start + index, element });
		const onpick = (index, element) => {
			this.#inspect((this.#pinned = place(index, element)));
			if (element === document.activeElement) this.panel.element.querySelector("button")?.focus({ preventScroll: true });
		};
		const row = tokenRow(tokens.map((token, index) => tokenItem(token, this.colour.value, differs[index])), { label, onpick, onfocus: (index, element) => this.#inspect(index === null ? this.#pinned : place(index, element)) });
		tokens.forEach((token, index) => {
			row.children[index].classList.toggle("cut", token.isCut);
			row.children[index].classList.toggle("differs", !!differs[index]);
		});
		return row;
	}

	#inspect(where) {
		// Kept as tall as it was: a page that shrinks scrolls, and moves what is under the pointer away.
		this.panel.element.style.minHeight = this.#current ? `${this.panel.element.offsetHeight}px` : "";
		this.panel.show(where, this.#current ? "Point at a token, or go to it by Tab and the arrow keys, to see what could have stood there." : "Generate a text, and choose one of its tokens.");
	}
}

export default (screen) => { new Generation(screen); };

const button = (words, onclick) => h("button", { onclick }, words);

/** Tokens of a branch's text, without those that ended it. */
const kept = (branch) => branches.written(branch).filter((token) => !token.isCut);

/** The text of a branch without its thoughts. */
const answer = (branch) => kept(branch).slice(branches.thoughtsOf(branch)).map((token) => token.text).join("");

/** The call that fills a side's lanes: by token ids where tokens go before, by text where these are another model's. */
async function requestOf({ model, settings, lanes: [first] }, call, chat, form) {
	const { prompt, before } = first, tokens = branches.path(first), body = { model, sampling_params: { ...settings } };
	if (tokens.length) { // forms and budgets would begin anew behind them
		form.free(body.sampling_params);
		delete body.sampling_params.max_reasoning_tokens;
	}
	if (first.parent?.finish === "FINISH_REASON_STOP") body.sampling_params.min_tokens = 1; // else it ends again at once
	if (!tokens.length) return { ...body, ...(before ? { conversation: before } : { text: prompt }) };
	if (!before && branches.lineage(first).some((each) => each.model !== model)) return { ...body, text: prompt + branches.texts(tokens).join("") };
	const ahead = before ? await chat.tokens(call, model, before) : (await call("api/Tokenize", { model, texts: [prompt] })).results[0].tokens;
	return { ...body, token_ids: { ids: [...ahead, ...tokens].map((token) => token.id) } };
}

/** Numbers of a request in words. */
function summary({ usage = {}, timings = {}, lanes }) {
	const tokens = usage.output_tokens ?? 0, [{ finish, reason }] = lanes, end = lanes.length > 1 ? "" : finish === "FINISH_REASON_LENGTH" ? "length limit reached" : reason ? `ended at ${JSON.stringify(reason)}` : "ended by the model";
	return [plural(tokens, "token"), timings.total_seconds && `${fixed(tokens / timings.total_seconds, 0)} tokens/s`, `first token ${duration(timings.time_to_first_token_seconds)}`, `queue ${duration(timings.queue_seconds ?? 0)}`,
		`${usage.reused_tokens ?? 0} of ${plural(usage.prompt_tokens ?? 0, "prompt token")} reused`, end].filter(Boolean).join(", ");
}

/** What tells a lane from those beside it. */
function title(lane, lanes) {
	const names = [...new Set(lanes.flatMap((each) => Object.keys(each.settings)))].filter((name) => name !== "n" && lanes.some((each) => JSON.stringify(each.settings[name]) !== JSON.stringify(lane.settings[name])));
	const same = lanes.filter((each) => each.model === lane.model && each.settings === lane.settings), words = [lanes.some((each) => each.model !== lane.model) && lane.model, ...names.map((name) => `${name.replaceAll("_", " ")} ${lane.settings[name] ?? "off"}`)].filter(Boolean);
	const whole = [...words, ...(same.length > 1 || !words.length ? [`sample ${same.indexOf(lane) + 1}`] : [])].join(", ");
	return whole.startsWith(lane.model) ? whole : whole[0].toUpperCase() + whole.slice(1);
}
