// The page: fields in, a compilation out, and the views that follow from it.

import { get, post, Refused, stream } from "/static/api.js";
import * as charts from "/static/charts.js";
import { compare, stopComparing } from "/static/comparing.js";
import { blank, fromHash, toHash } from "/static/state.js";

const $ = (id) => document.getElementById(id);
const FIELDS = ["formula", "box", "eps", "construction"];
const HEADS_SHOWN = 3;
const { pretty } = charts;

let state = blank();
let model = null; // { id, facts } of what is drawn
let drawn = { picture: null, line: null, attention: null };
let job = null; // AbortController of the compilation under way
const views = {}; // AbortControllers of the requests for pictures, by name
const timers = {};

function later(name, wait, action) {
  clearTimeout(timers[name]);
  timers[name] = setTimeout(action, wait);
}

const aborted = (error) => error?.name === "AbortError";

// --- the fields ---------------------------------------------------------------------------------------

function showFields() {
  $("formula").value = state.formula;
  $("box").value = state.box;
  $("eps").value = state.eps === null ? "" : String(state.eps);
  showSlider();
  for (const name of ["construction", "dtype", "show", "view"]) $(name).value = state[name];
  $("cells").checked = state.cells;
  for (const button of $("gallery").querySelectorAll("button")) {
    const chosen = button.example.formula === state.formula && button.example.box === state.box;
    button.setAttribute("aria-pressed", String(chosen && button.example.construction === state.construction));
  }
}

function showSlider() {
  const eps = state.eps ?? 1e-6;
  $("eps-slider").value = String(Math.log10(eps));
  $("eps-slider").setAttribute("aria-valuetext", `ε = ${state.eps ?? "as exact as can be proven"}`);
}

function readFields() {
  const eps = $("eps").value.trim();
  const changed = $("formula").value !== state.formula || $("box").value !== state.box;
  state.formula = $("formula").value;
  state.box = $("box").value;
  state.construction = $("construction").value;
  state.dtype = $("dtype").value;
  if (changed) Object.assign(state, { output: 0, x: "", y: "", at: {} });
  state.eps = eps === "" ? null : Number(eps);
  if (eps !== "" && !(Number.isFinite(state.eps) && state.eps > 0)) {
    state.eps = null;
    complain({ field: "eps", message: "a tolerance is a number above 0, such as 1e-6" });
    return false;
  }
  return true;
}

function complain(problem) {
  const field = FIELDS.includes(problem.field) ? problem.field : "";
  if (!field) return false;
  $(`${field}-error`).textContent = problem.message;
  $(field).setAttribute("aria-invalid", "true");
  return true;
}

// Put the cursor where the formula cannot be read.
function pointAt(problem) {
  const elsewhere = !["formula", "compile", ""].includes(document.activeElement?.id ?? "");
  if (problem.field !== "formula" || problem.position === undefined || elsewhere) return;
  const place = Math.min(problem.position, $("formula").value.length);
  $("formula").focus({ preventScroll: true });
  $("formula").setSelectionRange(place, Math.min(place + 1, $("formula").value.length));
}

function clearComplaints() {
  for (const name of FIELDS) {
    $(`${name}-error`).textContent = "";
    $(name).removeAttribute("aria-invalid");
  }
}

// Is it a formula on a box, and how does it read? True, or what is wrong with it.
async function check(signal) {
  const answer = await post("/api/check", { formula: $("formula").value, box: $("box").value }, signal);
  clearComplaints();
  typeset(answer.mathml);
  if (answer.event === "done") return true;
  complain(answer.problem);
  return answer.problem;
}

async function checkWhileTyping() {
  views.check?.abort();
  views.check = new AbortController();
  try {
    await check(views.check.signal);
  } catch { /* busy, or typed on: the next check will tell */ }
}

function typeset(mathml) {
  // MathML written by our own server from the parsed formula; names in it are letters, digits and _
  $("typeset").innerHTML = (mathml ?? []).join("<br>");
}

// --- compiling ----------------------------------------------------------------------------------------

function setState(name, text) {
  const working = name === "working";
  $("results").classList.toggle("stale", name === "refused");
  document.body.dataset.state = name;
  $("cancel").disabled = !working;
  $("results").setAttribute("aria-busy", String(working));
  $("progress").hidden = !working;
  $("status").textContent = text;
}

function progress(event) {
  const bar = $("progress");
  if (event.event === "queued") setState("working", "Waiting for a free worker …");
  if (event.event === "started") setState("working", "Compiling …");
  if (event.event !== "progress") return;
  const known = Number.isFinite(event.left);
  if (known) bar.value = event.done / Math.max(event.done + event.left, 1);
  else bar.removeAttribute("value");
  const unit = event.stage === "proving" ? "boxes" : "tables";
  const left = known && event.left > 0 ? `: ${event.left} ${unit} left` : "";
  $("status").textContent = `${event.stage[0].toUpperCase()}${event.stage.slice(1)}${left} …`;
}

async function compile() {
  clearTimeout(timers.compile);
  clearTimeout(timers.check);
  views.check?.abort();
  job?.abort();
  job = null;
  clearComplaints();
  if (!readFields()) {
    setState("refused", "Please look at the marked field.");
    return;
  }
  showFields();
  history.replaceState(null, "", toHash(state));
  const mine = new AbortController();
  job = mine;
  $("progress").removeAttribute("value");
  setState("working", "Compiling …");
  const { formula, box, eps, construction, dtype } = state;
  let ended = false;
  try {
    const problem = await check(mine.signal);
    if (job !== mine) return;
    if (problem !== true) {
      refused(problem);
      return;
    }
    await stream("/api/compile", { formula, box, eps, construction, dtype }, mine.signal, (event) => {
      if (job !== mine) return;
      if (event.event === "done") finished(event);
      else if (event.event === "refused") refused(event.problem);
      else progress(event);
      ended ||= event.event === "done" || event.event === "refused";
    });
    if (!ended && job === mine) refused({ message: "the connection to the server was lost", kind: "fault" });
  } catch (error) {
    if (job !== mine) return;
    if (aborted(error)) setState(model ? "done" : "idle", "Cancelled.");
    else if (error instanceof Refused) refused(error.problem);
    else refused({ message: "the server does not answer: is transformula explore still running?", kind: "fault" });
  } finally {
    if (job === mine) job = null;
  }
}

function cancel() {
  clearTimeout(timers.compile);
  job?.abort();
  stopComparing();
}

function finished({ model: id, facts }) {
  model = { id, facts };
  $("refusal").hidden = true;
  const tokens = facts.tokens === 1 ? "1 token" : `${facts.tokens.toLocaleString("en")} tokens`;
  setState("done", `Done in ${pretty(facts.seconds)} s: ${tokens}, error ≤ ${pretty(facts.bound)}.`);
  document.body.dataset.model = id;
  fitView();
  showClaim();
  showTools();
  showSliders();
  showCircuit();
  for (const name of ["picture", "error-card", "attention"]) $(name).hidden = false;
  drawAll();
}

function refused(problem) {
  const titles = { "not proven": "Not proven", time: "Out of time", memory: "Out of memory", busy: "Busy" };
  const atField = complain(problem);
  setState("refused", atField ? "Please look at the marked field." : "");
  if (atField) {
    pointAt(problem);
    $("refusal").hidden = true;
    return;
  }
  $("refusal").hidden = false;
  $("refusal-title").textContent = titles[problem.kind] ?? "Something went wrong";
  $("refusal-message").textContent = problem.message;
  const parts = [];
  if (problem.closest) parts.push(`The best that was reached is ${pretty(problem.closest)}.`);
  if (problem.place) parts.push(`The proof stopped at ${problem.place}.`);
  if (model) parts.push("Below stands the model compiled before.");
  $("refusal-place").textContent = parts.join(" ");
  const bound = problem.closest;
  // what was reached need not be proven yet: the next power of ten leaves some room
  const help = bound > 0 && bound < 1e6 ? Number(`1e${Math.ceil(Math.log10(1.5 * bound))}`) : 0;
  $("refusal-help").hidden = !help;
  $("refusal-help").textContent = `Try ε = ${help}`;
  $("refusal-help").onclick = () => { $("eps").value = String(help); compile(); };
  setState("refused", `${$("refusal-title").textContent}: ${problem.message}`);
}

// --- what the model is --------------------------------------------------------------------------------

// Keep the chosen output, variables and point where they still make sense.
function fitView() {
  const { variables, ranges, outputs } = model.facts;
  if (!outputs[state.output]) state.output = 0;
  if (!variables.includes(state.x)) state.x = variables[0];
  if (state.y !== "-" && (!variables.includes(state.y) || state.y === state.x)) {
    state.y = variables.find((name) => name !== state.x) ?? "-";
  }
  const at = {};
  variables.forEach((name, k) => {
    const [low, high] = ranges[k];
    at[name] = Math.min(Math.max(state.at[name] ?? low + 0.4 * (high - low), low), high);
  });
  state.at = at;
  history.replaceState(null, "", toHash(state));
}

function showClaim() {
  const { facts } = model;
  $("claim").hidden = false;
  $("bound").textContent = pretty(facts.bound);
  $("claimed").textContent = `${facts.outputs.join("; ")} on ${facts.box}, ε = ${pretty(facts.eps)}`;
  const rows = {
    construction: facts.construction, layers: facts.layers, heads: facts.heads, tokens: facts.tokens,
    "memory tokens": facts.memory_tokens, parameters: facts.parameters, approximation: pretty(facts.approximation),
    rounding: pretty(facts.rounding), floats: facts.dtype, time: `${pretty(facts.seconds)} s`,
  };
  $("facts").replaceChildren(...Object.entries(rows).map(([name, value]) => {
    const [group, term, data] = ["div", "dt", "dd"].map((tag) => document.createElement(tag));
    term.textContent = name;
    data.textContent = typeof value === "number" ? value.toLocaleString("en") : value;
    data.dataset.fact = name;
    group.append(term, data);
    return group;
  }));
  $("download-zip").href = `/api/models/${model.id}/model.zip`;
  $("download-onnx").href = `/api/models/${model.id}/model.onnx`;
}

function options(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, text]) => new Option(text, value, false, value === String(chosen))));
}

function showTools() {
  const { variables, outputs } = model.facts;
  const short = (text) => (text.length > 28 ? `${text.slice(0, 26)}…` : text);
  options($("output"), outputs.map((text, k) => [String(k), short(text)]), state.output);
  $("output-label").hidden = outputs.length < 2;
  options($("x-variable"), variables.map((name) => [name, name]), state.x);
  const others = variables.filter((name) => name !== state.x).map((name) => [name, name]);
  options($("y-variable"), [...others, ["-", "(curve)"]], state.y);
  $("y-variable").parentElement.hidden = variables.length < 2;
  const plane = state.y !== "-";
  $("view").parentElement.hidden = !plane || !charts.hasWebGL();
  if ($("view").parentElement.hidden) state.view = "map";
  $("view").value = state.view;
}

function showSliders() {
  const { variables, ranges } = model.facts;
  $("sliders").replaceChildren(...variables.map((name, k) => {
    const [label, text, slider, value] = ["label", "span", "input", "output"].map((tag) => document.createElement(tag));
    const [low, high] = ranges[k];
    Object.assign(slider, { type: "range", min: 0, max: 1000, step: 1, id: `at-${name}` });
    slider.value = String(Math.round((1000 * (state.at[name] - low)) / (high - low)));
    value.id = `at-${name}-value`;
    value.textContent = pretty(state.at[name]);
    slider.setAttribute("aria-valuetext", String(state.at[name]));
    slider.addEventListener("input", () => movePoint({ [name]: low + ((high - low) * Number(slider.value)) / 1000 }));
    text.textContent = name;
    label.append(text, slider, value);
    return label;
  }));
}

function showCircuit() {
  const drawing = model.facts.circuit;
  $("circuit").hidden = !drawing;
  if (drawing) $("circuit-image").src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(drawing)}`;
}

// --- pictures -----------------------------------------------------------------------------------------

async function view(name, path, body, show) {
  views[name]?.abort();
  const mine = new AbortController();
  views[name] = mine;
  const id = model.id;
  try {
    const answer = await post(`/api/models/${id}/${path}`, body, mine.signal);
    if (views[name] === mine && model.id === id) show(answer);
  } catch (error) {
    if (aborted(error) || model.id !== id) return;
    if (error instanceof Refused && error.status === 404) compile(); // it had to make room: make it again
    else $(`${name}-note`).textContent = error.message;
  }
}

function drawAll() {
  drawPicture();
  drawLine();
  drawAttention();
}

const plane = () => state.y !== "-";

function drawPicture() {
  const variables = plane() ? [state.x, state.y] : [state.x];
  view("picture", "slice", { output: state.output, variables, at: state.at }, (cut) => {
    drawn.picture = cut;
    paintPicture();
  });
}

function held(cut) {
  const all = Object.entries(cut.held).map(([name, value]) => `${name} = ${pretty(value)}`);
  return all.length > 6 ? `${all.slice(0, 5).join(", ")} and ${all.length - 5} more` : all.join(", ");
}

function paintPicture() {
  const cut = drawn.picture;
  if (!cut) return;
  const others = held(cut);
  const notes = [`largest error drawn ${pretty(cut.worst)}, proven ≤ ${pretty(cut.bound)}`];
  if (others) notes.push(`held at ${others}`);
  if (cut.cells?.total > cut.cells?.lines.length) notes.push(`${cut.cells.total} cell borders: too many to draw`);
  $("cells").parentElement.hidden = !cut.cells?.total || (plane() && state.view === "surface");
  $("picture-note").textContent = notes.join(" · ");
  const names = { model: "Transformer", formula: "Formula", error: "Transformer − formula" };
  $("picture-title").textContent = names[state.show];
  charts.picture("picture-chart", cut, state);
  const chart = $("picture-chart");
  chart.dataset.drawn = `${model.id} ${state.show} ${state.view} ${cut.variables.join(",")}`;
  chart.setAttribute("aria-label", `${names[state.show]} over ${cut.variables.join(" and ")}`);
  chart.removeAllListeners?.("plotly_click");
  chart.on?.("plotly_click", ({ points: [point] }) => {
    const place = { [cut.variables[0]]: point.x };
    if (cut.variables.length > 1) place[cut.variables[1]] = point.y;
    movePoint(place);
    showSliders();
  });
}

function drawLine() {
  view("error", "slice", { output: state.output, variables: [state.x], at: state.at }, (cut) => {
    drawn.line = cut;
    paintLine();
  });
}

function paintLine() {
  const cut = drawn.line;
  if (!cut) return;
  charts.errorLine("error-chart", cut, state);
  const others = held(cut);
  const rounding = cut.accurate ? "" : " · the formula is evaluated in plain floats here";
  $("error-note").textContent = `along ${cut.variables[0]}${others ? `, at ${others}` : ""}${rounding}`;
}

function drawAttention() {
  view("attention", "attention", { point: state.at, output: state.output }, (answer) => {
    drawn.attention = answer;
    $("attention").hidden = answer.heads.length === 0;
    const groups = [];
    for (let k = 0; k < answer.heads.length; k += HEADS_SHOWN) {
      const last = Math.min(k + HEADS_SHOWN, answer.heads.length);
      groups.push([String(k), last === k + 1 ? `${last}` : `${k + 1}–${last}`]);
    }
    const chosen = groups.some(([value]) => value === $("heads").value) ? $("heads").value : "0";
    options($("heads"), groups, chosen);
    $("heads-label").hidden = groups.length < 2;
    paintAttention();
  });
}

function paintAttention() {
  const answer = drawn.attention;
  if (!answer?.heads.length) return;
  const first = Number($("heads").value) || 0;
  const heads = answer.heads.slice(first, first + HEADS_SHOWN);
  const gap = answer.formula === null ? null : Math.abs(answer.model - answer.formula);
  $("answer").textContent =
    `Transformer ${pretty(answer.model, 6)}, formula ${pretty(answer.formula, 6)}: ${pretty(gap)} apart, proven ≤ ${pretty(answer.bound)}`;
  charts.attention("attention-chart", heads);
  const cut = heads.filter((head) => head.total > head.tokens.length);
  const notes = ["colour: the value a token offers, blue below and orange above 0"];
  if (cut.length) notes.push(`the ${cut[0].tokens.length} largest weights of ${cut[0].total} are drawn`);
  if (answer.total_heads > answer.heads.length) notes.push(`the first ${answer.heads.length} of ${answer.total_heads} heads`);
  if (heads[0].kind === "hardmax") notes.push(`asked by ${heads[0].query}; hardmax keeps the largest score as it is`);
  $("attention-note").textContent = notes.join(" · ");
}

function movePoint(place) {
  Object.assign(state.at, place);
  for (const [name, value] of Object.entries(place)) {
    const output = $(`at-${name}-value`);
    if (output) output.textContent = pretty(value);
    $(`at-${name}`)?.setAttribute("aria-valuetext", pretty(value));
  }
  const shown = plane() ? [state.x, state.y] : [state.x];
  const moved = Object.keys(place);
  paintPicture();
  later("point", 120, () => {
    history.replaceState(null, "", toHash(state));
    if (moved.some((name) => !shown.includes(name))) drawPicture();
    if (moved.some((name) => name !== state.x)) drawLine();
    else paintLine();
    drawAttention();
  });
}

// --- events -------------------------------------------------------------------------------------------

function changeView() {
  state.output = Number($("output").value) || 0;
  const [x, y] = [$("x-variable").value, $("y-variable").value];
  if (x === state.y) state.y = state.x; // they swap
  else state.y = y;
  state.x = x;
  fitView();
  showTools();
  drawAll();
}

function changeLook() {
  state.show = $("show").value;
  state.view = $("view").value;
  state.cells = $("cells").checked;
  history.replaceState(null, "", toHash(state));
  paintPicture();
}

async function share() {
  history.replaceState(null, "", toHash(state));
  try {
    await navigator.clipboard.writeText(location.href);
    $("status").textContent = "Link copied: it opens this state on any machine where the explorer runs.";
  } catch {
    $("status").textContent = "The link is in the address bar.";
  }
}

function load(given) {
  Object.assign(state, blank(), given, { at: { ...(given.at ?? {}) } });
  $("cells").checked = state.cells;
  showFields();
  clearComplaints();
  compile();
}

function listen() {
  $("problem").addEventListener("submit", (event) => { event.preventDefault(); compile(); });
  $("formula").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); compile(); }
  });
  for (const name of ["formula", "box"]) $(name).addEventListener("input", () => later("check", 300, checkWhileTyping));
  $("eps-slider").addEventListener("input", () => {
    state.eps = Number((10 ** Number($("eps-slider").value)).toPrecision(2));
    $("eps").value = String(state.eps);
    later("compile", 350, compile);
  });
  $("eps").addEventListener("change", () => later("compile", 0, compile));
  for (const name of ["construction", "dtype"]) $(name).addEventListener("change", compile);
  for (const name of ["output", "x-variable", "y-variable"]) $(name).addEventListener("change", changeView);
  for (const name of ["show", "view", "cells"]) $(name).addEventListener("change", changeLook);
  $("heads").addEventListener("change", paintAttention);
  $("cancel").addEventListener("click", () => job?.abort());
  $("share").addEventListener("click", share);
  $("compare").addEventListener("click", () => {
    if (readFields()) compare(state, () => model?.facts);
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") cancel(); });
  window.addEventListener("hashchange", () => {
    const given = fromHash(location.hash);
    if (given && toHash(given) !== toHash(state)) load(given);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    paintPicture();
    paintLine();
    paintAttention();
  });
}

async function begin() {
  listen();
  const start = await get("/api/start");
  $("gallery").replaceChildren(...start.gallery.map((example) => {
    const [item, button] = ["li", "button"].map((tag) => document.createElement(tag));
    Object.assign(button, { type: "button", textContent: example.name, title: example.about, example });
    button.addEventListener("click", () => {
      const { formula, box, eps, construction, dtype } = example;
      load({ formula, box, eps, construction, dtype });
    });
    item.append(button);
    return item;
  }));
  $("download-onnx").hidden = !start.onnx;
  load(fromHash(location.hash) ?? start.gallery[0]);
}

begin().catch(() => setState("refused", "The server does not answer."));
