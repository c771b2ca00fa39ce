// The models that are served.

import { models } from "../api/models.js";
import { fill } from "../parts/h.js";
import { table } from "../parts/shapes.js";

export default function build(screen) {
  screen.wide();
  fill(screen.result, table(["Name", "Version", "Task"], models.list.map((model) => [model.name, model.version, model.task]), { caption: "Models" }));
}
