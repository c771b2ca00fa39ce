// The models that are served now, which every screen chooses from.

import { json } from "./client.js";

class Models extends EventTarget {
	list = [];
	/** Whether the server has given its list; until then an empty one says nothing. */
	isKnown = false;
	/** Texts that one request may have. */
	mostTexts = 1;

	/** Models that are built beside the server now: `{name, models, share, left_seconds}`. */
	builds = [];
	build(builds) {
		if (JSON.stringify(builds) === JSON.stringify(this.builds)) return;
		this.builds = builds;
		this.dispatchEvent(new Event("builds"));
	}

	/** Asks anew; an event "change" follows where another model is served than before. */
	async refresh(options) {
		const { models, max_texts: most } = await json("api/ListModels", { body: {}, ...options }), before = JSON.stringify(this.isKnown && this.list);
		[this.list, this.mostTexts, this.isKnown] = [models, most, true];
		if (before !== JSON.stringify(models)) this.dispatchEvent(new Event("change"));
	}

	/** The highest version of each model that a screen can use, in the order of its tasks and by name. */
	of({ tasks, fits = () => true }) {
		const best = new Map();
		for (const model of this.list) if (tasks.includes(model.task) && fits(model) && !(+best.get(model.name)?.version > +model.version)) best.set(model.name, model);
		return [...best.values()].sort((a, b) => tasks.indexOf(a.task) - tasks.indexOf(b.task) || a.name.localeCompare(b.name));
	}
}

export const models = new Models();

/** The results of as many calls as the lists need. */
export async function inParts(lists, call) {
	const all = [], most = models.mostTexts;
	do all.push(...(await call(Object.fromEntries(Object.entries(lists).map(([name, values]) => [name, values.slice(all.length, all.length + most)])))).results);
	while (all.length < Object.values(lists)[0].length);
	return all;
}
