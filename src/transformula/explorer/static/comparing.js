// Partition, lookup and training on one chart; points appear as they come.

import { comparison } from "/static/charts.js";
import { streamedJob } from "/static/job.js";
import { $, session } from "/static/session.js";

const STEPS = { lookup: "solving tables", partition: "cutting cells", trained: "training" };
const job = streamedJob("compare", "Compare");

export const stopComparing = job.stop;

// Compare for what the fields ask; `begun` is told once the chart is of that.
export async function compare(asked, begun) {
  if (job.running()) {
    job.stop();
    return;
  }
  const points = [];
  const { formula, box, dtype } = asked;
  session.compared = asked;
  begun();
  const note = (text) => {
    const item = document.createElement("li");
    item.textContent = text;
    $("compare-notes").append(item);
  };
  $("compare-notes").replaceChildren();
  job.say("Starting …");
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
  await job.run("/api/compare", { formula, box, dtype }, "Done.", (event) => {
    if (event.event === "point") { points.push(event); paint(); }
    if (event.event === "note") note(`${event.series}: ${event.message}`);
    if (event.event === "step") job.say(`${event.done} of ${event.done + event.left} sizes: ${STEPS[event.series]} …`);
  });
}
