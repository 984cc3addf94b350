// The views of a model: tools, sliders, picture, error, attention, circuit.

import { post, Refused } from "/static/api.js";
import * as charts from "/static/charts.js";
import { $, aborted, later, options, session, waiting } from "/static/session.js";
import { named, toHash } from "/static/state.js";
import { showSum } from "/static/sums.js";

const HEADS_SHOWN = 3;
const { atMost, pretty } = charts;
const drawn = { picture: null, line: null, attention: null };
let gone = () => {}; // what to do where the server no longer has the model

const keepInAddress = () => history.replaceState(null, "", toHash(session.state));

// Show a model that has just been compiled; `whenGone` makes it again.
export function showModel(whenGone) {
  gone = whenGone;
  fitView();
  showTools();
  showSliders();
  showCircuit();
  for (const name of ["picture", "error-card", "attention"]) $(name).hidden = false;
  drawAll();
}

// Keep the chosen output, variables and point where they still make sense.
function fitView() {
  const { variables, ranges, outputs } = session.model.facts;
  if (!outputs[session.state.output]) session.state.output = 0;
  if (!variables.includes(session.state.x)) session.state.x = variables[0];
  if (session.state.y !== "-" && (!variables.includes(session.state.y) || session.state.y === session.state.x)) {
    session.state.y = variables.find((name) => name !== session.state.x) ?? "-";
  }
  const at = named();
  variables.forEach((name, k) => {
    const [low, high] = ranges[k];
    at[name] = Math.min(Math.max(session.state.at[name] ?? low + 0.4 * (high - low), low), high);
  });
  session.state.at = at;
  keepInAddress();
}

function showTools() {
  const { variables, outputs } = session.model.facts;
  const short = (text) => (text.length > 28 ? `${text.slice(0, 26)}…` : text);
  options($("output"), outputs.map((text, k) => [String(k), short(text)]), session.state.output);
  $("output-label").hidden = outputs.length < 2;
  options($("x-variable"), variables.map((name) => [name, name]), session.state.x);
  const others = variables.filter((name) => name !== session.state.x).map((name) => [name, name]);
  options($("y-variable"), [...others, ["-", "(curve)"]], session.state.y);
  $("y-variable").parentElement.hidden = variables.length < 2;
  const plane = session.state.y !== "-";
  $("view").parentElement.hidden = !plane || !charts.hasWebGL();
  if ($("view").parentElement.hidden) session.state.view = "map";
  $("view").value = session.state.view;
}

function showSliders() {
  const { variables, ranges } = session.model.facts;
  $("sliders").replaceChildren(...variables.map((name, k) => {
    const [label, text, slider, value] = ["label", "span", "input", "output"].map((tag) => document.createElement(tag));
    const [low, high] = ranges[k];
    Object.assign(slider, { type: "range", min: 0, max: 1000, step: 1, id: `at-${name}` });
    slider.value = String(Math.round((1000 * (session.state.at[name] - low)) / (high - low)));
    value.id = `at-${name}-value`;
    value.textContent = pretty(session.state.at[name]);
    slider.setAttribute("aria-valuetext", String(session.state.at[name]));
    slider.addEventListener("input", () => movePoint({ [name]: low + ((high - low) * Number(slider.value)) / 1000 }));
    text.textContent = name;
    label.append(text, slider, value);
    return label;
  }));
}

function showCircuit() {
  const drawing = session.model.facts.circuit;
  $("circuit").hidden = !drawing;
  const parsed = drawing ? new DOMParser().parseFromString(drawing, "text/html").querySelector("svg") : null;
  const frame = document.createElement("pan-zoom");
  if (parsed) frame.append(document.adoptNode(parsed)); // written by our own server, every text escaped
  $("circuit-drawing").replaceChildren(frame);
}

async function view(name, path, body, show) {
  waiting[name]?.abort();
  const mine = new AbortController();
  waiting[name] = mine;
  const id = session.model.id;
  try {
    const answer = await post(`/api/models/${id}/${path}`, body, mine.signal);
    if (waiting[name] === mine && session.model.id === id) show(answer);
  } catch (error) {
    if (aborted(error) || session.model.id !== id) return;
    if (error instanceof Refused && error.status === 404) gone(); // it had to make room: make it again
    else $(`${name}-note`).textContent = error.message;
  }
}

function drawAll() {
  drawPicture();
  drawLine();
  drawAttention();
}

const plane = () => session.state.y !== "-";

function drawPicture() {
  if (!session.state.x) return; // another model is on its way, whose variables are not known yet
  const variables = plane() ? [session.state.x, session.state.y] : [session.state.x];
  view("picture", "slice", { output: session.state.output, variables, at: session.state.at }, (cut) => {
    drawn.picture = cut;
    paintPicture();
  });
}

// a bound of the mean has one at every point outside the seams beside it
const proven = ({ seams }) => (seams ? "proven outside seams" : "proven");

function held(cut) {
  const all = Object.entries(cut.held).map(([name, value]) => `${name} = ${pretty(value)}`);
  return all.length > 6 ? `${all.slice(0, 5).join(", ")} and ${all.length - 5} more` : all.join(", ");
}

function paintPicture() {
  const cut = drawn.picture;
  if (!cut) return;
  const others = held(cut);
  const notes = [`largest error drawn ${pretty(cut.worst)}, ${proven(cut)} ≤ ${atMost(cut.bound)}`];
  if (session.state.show === "error" && plane()) notes.unshift("red: the Transformer is above the formula, blue: below");
  if (others) notes.push(`held at ${others}`);
  if (cut.cells?.total > cut.cells?.lines.length) notes.push(`${cut.cells.total} cell borders: too many to draw`);
  $("cells").parentElement.hidden = !cut.cells?.total || (plane() && session.state.view === "surface");
  $("picture-note").textContent = notes.join(" · ");
  const names = { model: "Transformer", formula: "Formula", error: "Transformer − formula" };
  $("picture-title").textContent = names[session.state.show];
  charts.picture("picture-chart", cut, session.state);
  const chart = $("picture-chart");
  chart.dataset.drawn = `${session.model.id} ${session.state.show} ${session.state.view} ${cut.variables.join(",")}`;
  chart.setAttribute("aria-label", `${names[session.state.show]} over ${cut.variables.join(" and ")}`);
  chart.removeAllListeners?.("plotly_click");
  chart.on?.("plotly_click", ({ points: [point] }) => {
    const place = named({ [cut.variables[0]]: point.x });
    if (cut.variables.length > 1) place[cut.variables[1]] = point.y;
    movePoint(place);
    showSliders();
  });
}

function drawLine() {
  if (!session.state.x) return;
  view("error", "slice", { output: session.state.output, variables: [session.state.x], at: session.state.at }, (cut) => {
    drawn.line = cut;
    paintLine();
  });
}

function paintLine() {
  const cut = drawn.line;
  if (!cut) return;
  charts.errorLine("error-chart", cut, session.state);
  const others = held(cut);
  const rounding = cut.accurate ? "" : " · the formula is evaluated in plain floats here";
  $("error-note").textContent = `along ${cut.variables[0]}${others ? `, at ${others}` : ""}${rounding}`;
}

function drawAttention() {
  view("attention", "attention", { point: session.state.at, output: session.state.output }, (answer) => {
    drawn.attention = answer;
    showSum(answer);
    $("attention").hidden = answer.heads.length === 0;
    const groups = [];
    for (let k = 0; k < answer.heads.length; k += HEADS_SHOWN) {
      const [from, to] = [answer.heads[k], answer.heads[Math.min(k + HEADS_SHOWN, answer.heads.length) - 1]];
      const end = from === to ? "" : from.block === to.block ? `–${to.head}` : ` to ${to.block}: ${to.head}`;
      groups.push([String(k), `block ${from.block}: ${from.head}${end}`]);
    }
    const chosen = groups.some(([value]) => value === $("heads").value) ? $("heads").value : "0";
    options($("heads"), groups, chosen);
    $("heads-label").hidden = groups.length < 2;
    paintAttention();
  });
}

export function paintAttention() {
  const answer = drawn.attention;
  if (!answer?.heads.length) return;
  const first = Number($("heads").value) || 0;
  const heads = answer.heads.slice(first, first + HEADS_SHOWN);
  const gap = answer.formula === null ? null : Math.abs(answer.model - answer.formula);
  $("answer").textContent =
    `Transformer ${pretty(answer.model, 6)}, formula ${pretty(answer.formula, 6)}: ${pretty(gap)} apart, ${proven(answer)} ≤ ${atMost(answer.bound)}`;
  charts.attention("attention-chart", heads);
  const cut = heads.filter((head) => head.total > head.tokens.length);
  const hardmax = heads[0].kind === "hardmax";
  const notes = [
    hardmax
      ? `height: the largest score, which hardmax keeps unchanged, asked by ${heads[0].query}`
      : `height: the token's weight; colour${heads.some((head) => head.total <= charts.FEW_TOKENS) ? " and number" : ""}: its value, red above 0 and blue below`,
  ];
  if (cut.length) notes.push(`the ${cut[0].tokens.length} largest weights of ${cut[0].total} are drawn`);
  if (answer.total_heads > answer.heads.length) notes.push(`the first ${answer.heads.length} of ${answer.total_heads} heads`);
  $("attention-note").textContent = notes.join(" · ");
}

function movePoint(place) {
  Object.assign(session.state.at, place);
  for (const [name, value] of Object.entries(place)) {
    const output = $(`at-${name}-value`);
    if (output) output.textContent = pretty(value);
    $(`at-${name}`)?.setAttribute("aria-valuetext", pretty(value));
  }
  const shown = plane() ? [session.state.x, session.state.y] : [session.state.x];
  const moved = Object.keys(place);
  paintPicture();
  later("point", 120, () => {
    keepInAddress();
    if (moved.some((name) => !shown.includes(name))) drawPicture();
    if (moved.some((name) => name !== session.state.x)) drawLine();
    else paintLine();
    drawAttention();
  });
}

// Move the point by a share of each drawn interval, and back from its end to its beginning.
export function shiftPoint(share) {
  const { variables, ranges } = session.model.facts;
  const place = named();
  variables.forEach((name, k) => {
    const [low, high] = ranges[k];
    place[name] = low + ((session.state.at[name] - low + share * (high - low)) % (high - low));
  });
  movePoint(place);
  showSliders();
}

// Move the point of a curve to the next border of its cells.
export function toBorder() {
  const name = session.state.x;
  const borders = (drawn.picture?.cells?.lines ?? []).map(([x]) => x).sort((a, b) => a - b);
  if (!borders.length) return;
  movePoint(named({ [name]: borders.find((x) => x > session.state.at[name] + 1e-9) ?? borders[0] }));
  showSliders();
}

export function changeView() {
  session.state.output = Number($("output").value) || 0;
  const [x, y] = [$("x-variable").value, $("y-variable").value];
  if (x === session.state.y) session.state.y = session.state.x; // they swap
  else session.state.y = y;
  session.state.x = x;
  fitView();
  showTools();
  drawAll();
}

export function changeLook() {
  session.state.show = $("show").value;
  session.state.view = $("view").value;
  session.state.cells = $("cells").checked;
  keepInAddress();
  paintPicture();
}

export function repaint() {
  paintPicture();
  paintLine();
  paintAttention();
  if (drawn.attention) showSum(drawn.attention);
}
