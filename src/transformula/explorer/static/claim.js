// What is claimed, of which formula, and what was refused.

import { atMost, pretty } from "/static/charts.js";
import { asked, complain, difference, pointAt } from "/static/fields.js";
import { termButton } from "/static/terms.js";
import { $, isMean, session, stated } from "/static/session.js";

const PROVEN = "Proven on the whole box, rounding included";
const PROVEN_MEAN = "Proven on average over the box, not at every point, rounding included";
const ANY = { eps: null, construction: "auto" }; // a comparison tries several of these
const TITLES = { "not proven": "Not proven", time: "Out of time", memory: "Out of memory", busy: "Busy", stopped: "Stopped" };

export function setState(name, text) {
  const working = name === "working";
  markStale();
  document.body.dataset.state = name;
  $("cancel").disabled = !working;
  $("results").setAttribute("aria-busy", String(working));
  $("progress").hidden = !working;
  $("status").textContent = text;
}

// A model that was compiled from something else than the fields ask for is dimmed, and each card says so.
export function markStale() {
  const { model } = session;
  const changed = model ? difference(asked(), model.asked) : "";
  $("results").classList.toggle("stale", changed !== "");
  const facts = session.model?.facts;
  const proven = facts && isMean(facts) ? PROVEN_MEAN : PROVEN;
  $("claim-title").textContent = changed ? `Proven for the earlier ${changed}` : proven;
  for (const title of $("results").querySelectorAll(".of-model h2:not(#claim-title)")) label(title, changed);
  const other = session.compared ? difference({ ...asked(), ...ANY }, { ...session.compared, ...ANY }) : "";
  $("compare-card").classList.toggle("stale", other !== "");
  label($("compare-title"), other);
  const any = { construction: ANY.construction };
  const tried = session.tried ? difference({ ...asked(), ...any }, { ...session.tried, ...any }) : "";
  $("constructions-card").classList.toggle("stale", tried !== "");
  label($("constructions-title"), tried);
}

function label(title, changed) {
  if (changed) title.dataset.earlier = `earlier ${changed}`;
  else delete title.dataset.earlier;
}

// Fields that advice may change, by the name it has as an argument of `compile`, and how a button says it.
const OFFERS = {
  eps: ["eps", (value) => `Try ε = ${value}`],
  dtype: ["dtype", (value) => `Try ${value}`],
  construction: ["construction", (value) => `Try ${value}`],
  time_limit: ["seconds", (value) => `Allow ${value} s`],
  on: ["box", (value) => `Try the box ${value}`],
  formula: ["formula", (value) => `Try ${[].concat(value).join("; ")}`],
};

// What would be accepted, as lists of fields with their values and the button's words.
function offers(problem) {
  const found = (problem.advice ?? []).map(Object.entries).filter((one) => one.every(([name]) => name in OFFERS));
  const bound = problem.closest;
  // what was reached need not be proven yet: the next power of ten leaves some room
  if (!found.length && bound > 0 && bound < 1e6) found.push([["eps", Number(`1e${Math.ceil(Math.log10(1.5 * bound))}`)]]);
  return found;
}

// A button for each: it fills in the fields and compiles again.
function showOffers(where, problem, retry) {
  for (const one of offers(problem)) {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "offer" });
    button.textContent = one.map(([name, value]) => OFFERS[name][1](value)).join(", ");
    button.onclick = () => {
      for (const [name, value] of one) $(OFFERS[name][0]).value = [].concat(value).join("; ");
      retry();
    };
    where.append(button);
  }
}

// `retry` compiles again with what was advised; while somebody types, the cursor stays where it is.
export function refused(problem, retry, typing) {
  const atField = complain(problem);
  setState("refused", atField ? "Please look at the marked field." : "");
  $("refusal-help").replaceChildren();
  if (atField) {
    showOffers($(`${problem.field}-error`), problem, retry);
    if (!typing) pointAt(problem);
    $("refusal").hidden = true;
    return;
  }
  $("refusal").hidden = false;
  $("refusal-title").textContent = TITLES[problem.kind] ?? "Something went wrong";
  $("refusal-message").textContent = problem.message;
  const parts = [];
  if (problem.closest) parts.push(`The best that was reached is ${atMost(problem.closest)}.`);
  if (problem.place) parts.push(`The proof stopped at ${problem.place}.`);
  if (session.model) parts.push("Below is the model that was compiled earlier.");
  $("refusal-place").textContent = parts.join(" ");
  showOffers($("refusal-help"), problem, retry);
  setState("refused", `${$("refusal-title").textContent}: ${problem.message}`);
}

export function showClaim() {
  const { id, facts } = session.model;
  $("claim").hidden = false;
  $("mean").hidden = !isMean(facts);
  $("bound").textContent = atMost(stated(facts, "bound"));
  $("claimed").textContent = `${facts.outputs.join("; ")} on ${facts.box}, ε = ${pretty(stated(facts, "eps"))}`;
  const rows = {
    construction: facts.construction, layers: facts.layers, heads: facts.heads, tokens: facts.tokens,
    "memory tokens": facts.memory_tokens, parameters: facts.parameters, approximation: atMost(stated(facts, "approximation")),
    rounding: atMost(stated(facts, "rounding")), floats: facts.dtype, time: `${pretty(facts.seconds)} s`,
  };
  if (isMean(facts)) Object.assign(rows, { seams: atMost(facts.seams), "outside seams": atMost(facts.outside_seams) });
  $("facts").replaceChildren(...Object.entries(rows).map(([name, value]) => {
    const [group, term, data] = ["div", "dt", "dd"].map((tag) => document.createElement(tag));
    term.append(termButton(name));
    data.textContent = typeof value === "number" ? value.toLocaleString("en") : value;
    data.dataset.fact = name;
    group.append(term, data);
    return group;
  }));
  $("download-zip").href = `/api/models/${id}/model.zip`;
  $("download-onnx").href = `/api/models/${id}/model.onnx`;
  $("download-theorem").href = `/api/models/${id}/theorem.zip`;
}
