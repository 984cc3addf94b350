"use strict";
// Sliders over attention that was computed when the page was written. The static figures say the same.
document.documentElement.classList.add("scripted");
const heads = JSON.parse(document.getElementById("attention").textContent);
for (const widget of document.querySelectorAll("[data-head]")) {
  const head = heads[Number(widget.dataset.head)];
  const range = widget.querySelector("input");
  const readout = widget.querySelector("output");
  const bars = widget.querySelector(".bars");
  const drawn = head.tokens.map((label) => {
    const bar = document.createElement("i");
    bar.title = label;
    bars.append(bar);
    return bar;
  });
  const show = () => {
    const at = Number(range.value);
    const weights = head.weights[at];
    const best = weights.indexOf(Math.max(...weights));
    drawn.forEach((bar, k) => {
      bar.style.height = `${100 * Math.min(1, Math.max(0, weights[k]))}%`;
      bar.title = `${head.tokens[k]}: ${weights[k]}`;
    });
    readout.textContent = `${head.variable} = ${head.axis[at]}`;
    bars.setAttribute("aria-label", `most attention, ${weights[best]}, on ${head.tokens[best]}`);
  };
  range.addEventListener("input", show);
  show();
}
