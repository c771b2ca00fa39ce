// What is being built beside the server, and how long it takes still.

import { models } from "../api/models.js";
import { plural } from "../maths/numbers.js";
import { fill, h } from "./h.js";

/** A line for each build, or for those of one demo; it follows the live numbers. */
export function builds(demo) {
	const list = h("ul.stack", { label: "Being built" });
	const show = () => {
		if (list.isOld && !list.isConnected) return models.removeEventListener("builds", show);
		list.isOld = list.isConnected;
		const lines = models.builds.map(({ name, share, left_seconds: left }, at) => (demo && demo !== name ? null : h("li.row", h("progress", { max: 1, value: share, label: `Training of ${name}` }),
			`${name} is ${at ? "trained next" : `being trained: ${Math.round(100 * share)} %`}, about ${plural(Math.max(1, Math.round(left / 60)), "minute")} left`)));
		fill(list, lines);
		list.hidden = !list.children.length;
	};
	models.addEventListener("builds", show);
	show();
	return list;
}
