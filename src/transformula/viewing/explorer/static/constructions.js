// One formula by every construction, as a table; rows appear as they come.

import { stream } from "/static/api.js";
import { $, session } from "/static/session.js";

let job = null;

export const stopTrying = () => job?.abort();

// Try all for what the fields ask; `begun` is told once the table is of that.
export async function tryAll(asked, begun) {
  if (job) {
    stopTrying();
    return;
  }
  const mine = new AbortController();
  job = mine;
  const { formula, box, eps, dtype } = asked;
  session.tried = asked;
  begun();
  const body = $("constructions-table").tBodies[0];
  body.replaceChildren();
  $("constructions").textContent = "Stop";
  $("constructions-scrolling").hidden = false;
  const status = $("constructions-status");
  status.textContent = "Compiling …";
  let end = "The connection was lost.";
  try {
    await stream("/api/constructions", { formula, box, eps, dtype }, mine.signal, (event) => {
      if (event.event === "entry") body.append(row(event));
      if (event.event === "queued") status.textContent = "Waiting for a free worker …";
      if (event.event === "done") end = "Done.";
      if (event.event === "refused") end = event.problem.message;
    });
  } catch (error) {
    end = error.name === "AbortError" ? "Stopped." : error.message;
  }
  if (job === mine) job = null;
  $("constructions").textContent = "Try all";
  status.textContent = end;
}

function row(entry) {
  const made = document.createElement("tr");
  const add = (text) => Object.assign(made.insertCell(), { textContent: text });
  add(entry.name).title = entry.title;
  if (entry.refusal) {
    Object.assign(add(entry.refusal), { colSpan: 5, className: "refusal" });
  } else {
    for (const size of [entry.layers, entry.heads, entry.memory_tokens, entry.parameters]) add(String(size));
    add(entry.bound.toPrecision(3));
  }
  add(entry.seconds.toFixed(2));
  return made;
}
