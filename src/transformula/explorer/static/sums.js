// The answer at the point as a sum: bars that add up, and the same in a table.

import { pretty, waterfall } from "/static/charts.js";
import { $ } from "/static/session.js";

const WORDS = {
  tables: ["Σ weight · value = answer", "Each token adds its weight times its value. The dashed line is the formula."],
  circuit: ["Σ coefficient · wire = answer", "The readout adds the wires, each times a fixed coefficient. The dashed line is the formula."],
  ridge: ["Σ powers of the tokens = answer", "Each token carries a linear form t of the inputs; the blocks raise it to its powers, and the readout adds them with fixed coefficients, exactly. The dashed line is the formula."],
};

export function showSum({ sum, model, formula }) {
  const known = sum && WORDS[sum.kind] && sum.terms.length > 0;
  $("sum-card").hidden = !known;
  if (!known) return;
  const [title, words] = WORDS[sum.kind];
  $("sum-title").firstChild.textContent = title;
  $("sum-words").textContent = words;
  $("sum-chart").setAttribute("aria-label", `${title}: ${sum.terms.map((term) => `${term.label} adds ${pretty(term.value)}`).join(", ")}; together ${pretty(model, 6)}`);
  waterfall("sum-chart", sum.terms, model, formula);
  $("sum-table").tBodies[0].replaceChildren(...[...sum.terms, { label: "answer", note: "", value: model }].map((term) => {
    const row = document.createElement("tr");
    for (const text of [term.label, term.note, pretty(term.value, 6)]) row.insertCell().textContent = text;
    return row;
  }));
}
