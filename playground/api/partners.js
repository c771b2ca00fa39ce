// Models with the same weights: a generator, and its export that shows its attention.

import { models } from "./models.js";

/** The model among others that has the same weights: of one origin and, among those, with a name that begins like its own. */
export function partnerOf(model, others) {
	const isAlike = (each) => each.name.startsWith(model.name) || model.name.startsWith(each.name);
	const same = others.filter((each) => each.origin && each.origin === model.origin);
	return same.find(isAlike) ?? others.find(isAlike) ?? same[0] ?? others[0];
}

/** What the generator with the same weights writes for a source; "" where none is served. */
export async function outputOf(model, text, call) {
	const writer = partnerOf(model, models.of({ tasks: ["text-generation"], fits: (each) => each.has_source }));
	return writer ? (await call("api/GenerateUnary", { model: writer.name, text, sampling_params: { temperature: 0 } })).results[0].text : "";
}
