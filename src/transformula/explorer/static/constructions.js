// One formula by every construction, as a table; rows appear as they come.

import { atMost, constructionColour } from "/static/charts.js";
import { streamedJob } from "/static/job.js";
import { $, session } from "/static/session.js";

const job = streamedJob("constructions", "Try all");

export const stopTrying = job.stop;

// Try all for what the fields ask; `begun` is told once the table is of that.
export async function tryAll(asked, begun) {
  if (job.running()) {
    job.stop();
    return;
  }
  const { formula, box, eps, dtype } = asked;
  session.tried = asked;
  begun();
  const body = $("constructions-table").tBodies[0];
  body.replaceChildren();
  $("constructions-scrolling").hidden = false;
  job.say("Compiling …");
  await job.run("/api/constructions", { formula, box, eps, dtype }, "The connection was lost.", (event) => {
    if (event.event === "entry") body.append(row(event));
    return event.event === "done" ? "Done." : null;
  });
}

function row(entry) {
  const made = document.createElement("tr");
  const add = (text) => Object.assign(made.insertCell(), { textContent: text });
  const name = add("");
  const swatch = Object.assign(document.createElement("span"), { className: "swatch" });
  swatch.style.background = constructionColour(entry.name);
  name.append(swatch, entry.name);
  name.title = entry.title;
  if (entry.refusal) {
    Object.assign(add(entry.refusal), { colSpan: 5, className: "refusal" });
  } else {
    for (const size of [entry.layers, entry.heads, entry.memory_tokens, entry.parameters]) add(String(size));
    add(atMost(entry.bound) + (entry.norm === "mean" ? " (mean)" : ""));
  }
  add(entry.seconds.toFixed(2));
  return made;
}
