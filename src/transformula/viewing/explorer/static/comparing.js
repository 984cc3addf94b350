// Partition, lookup and training on one chart; points appear as they come.

import { stream } from "/static/api.js";
import { comparison } from "/static/charts.js";
import { $, session } from "/static/session.js";

const STEPS = { lookup: "solving tables", partition: "cutting cells", trained: "training" };
let job = null;

export const stopComparing = () => job?.abort();

// Compare for what the fields ask; `begun` is told once the chart is of that.
export async function compare(asked, begun) {
  if (job) {
    stopComparing();
    return;
  }
  const mine = new AbortController();
  job = mine;
  const points = [];
  const { formula, box, dtype } = asked;
  session.compared = asked;
  begun();
  const note = (text) => {
    const item = document.createElement("li");
    item.textContent = text;
    $("compare-notes").append(item);
  };
  $("compare").textContent = "Stop";
  $("compare-notes").replaceChildren();
  $("compare-status").textContent = "Starting …";
  $("compare-chart").hidden = false;
  $("compare-chart").dataset.points = "0";
  const paint = () => {
    const { facts, asked: of } = session.model ?? {};
    const same = of && of.formula === formula && of.box === box && of.dtype === dtype;
    const star = same && ["lookup", "partition"].includes(facts.construction) && facts.memory_tokens > 0;
    comparison("compare-chart", points, star ? { tokens: facts.memory_tokens, error: facts.bound } : null);
    $("compare-chart").dataset.points = String(points.length);
  };
  paint();
  let end = "Done.";
  try {
    await stream("/api/compare", { formula, box, dtype }, mine.signal, (event) => {
      if (event.event === "point") { points.push(event); paint(); }
      if (event.event === "note") note(`${event.series}: ${event.message}`);
      if (event.event === "step") {
        $("compare-status").textContent = `${event.done} of ${event.done + event.left} sizes: ${STEPS[event.series]} …`;
      }
      if (event.event === "queued") $("compare-status").textContent = "Waiting for a free worker …";
      if (event.event === "refused") end = event.problem.message;
    });
  } catch (error) {
    end = error.name === "AbortError" ? "Stopped." : error.message;
  }
  if (job === mine) job = null;
  $("compare").textContent = "Compare";
  $("compare-status").textContent = end;
}
