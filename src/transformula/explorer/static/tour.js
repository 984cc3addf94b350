// The tour: seven steps from the statement to an exact polynomial, each a sentence and something to do.

import { atMost } from "/static/charts.js";
import { asked, difference } from "/static/fields.js";
import { $, session } from "/static/session.js";
import { blank, toHash } from "/static/state.js";

const SINE = { formula: "sin(x)", box: "x=0..2*pi", dtype: "float64", seconds: null };
const CELLS = { ...SINE, eps: 0.1, construction: "partition" };
const FINE = { ...CELLS, eps: 0.01 };
const SOLVED = { ...FINE, construction: "lookup" };
const CIRCUIT = { formula: "m1*m2/((x2-x1)**2 + (y2-y1)**2 + 1)", box: "m1..m2=1..2, x1..x2=0..1, y1..y2=0..1", eps: 0.001, construction: "circuit", dtype: "float64", seconds: null };
const CUBIC = { formula: "x**3 - 3*x*y**2", box: "x=-1..1, y=-1..1", eps: null, construction: "polynomial", dtype: "float64", seconds: null };

const tokens = ({ memory_tokens: count }) => `${count.toLocaleString("en")} memory tokens`;

// `look` is the card to look at; `start` what is compiled on the way in; `act` what the step's button does.
export const STEPS = [
  {
    title: "The statement", look: "claim", start: CELLS,
    text: "For every continuous function on a box and every ε > 0 there is a Transformer with one attention layer that stays within ε of it at every point. Here the function is sin(x) on 0..2π and ε = 0.1: the bound on this page is proven on the whole interval, not measured.",
    act: { label: "Compile it with ε = 0.2", state: { ...CELLS, eps: 0.2 }, after: (facts) => `Proven again, with ${tokens(facts)}: a larger ε takes fewer tokens.` },
  },
  {
    title: "One cell, one token", look: "picture", start: CELLS,
    text: "The proof cuts the interval into cells. Each cell has a memory token that holds the function's value there, and attention picks the token of the cell that x lies in. Click the picture or move the slider x: the steps are the values.",
    act: { label: "Move the point", move: 0.17, after: () => "The dotted line is the point. Another cell, another token, another value." },
  },
  {
    title: "Weights × values = answer", look: "sum-card", start: CELLS,
    text: "At the point, softmax shares an attention of 1 among the tokens. Weight times value is a bar, and the bars add up to the answer. Inside a cell one token takes it all; on a border two tokens share it.",
    act: { label: "Move to a border", border: true, after: () => "Half of the attention each: the answer is the mean of two values. The values themselves are constants of the model." },
  },
  {
    title: "Shrink ε", look: "claim", start: CELLS,
    text: "A tenth of the tolerance needs cells of a tenth of the width: the number of tokens grows like 1/ε.",
    act: { label: "Set ε = 0.01", state: FINE, after: (facts) => `${tokens(facts)} now, and a bound of ${atMost(facts.bound)}.` },
  },
  {
    title: "From 201 tokens to 3", look: "sum-card", start: FINE,
    text: "The same layer and the same tolerance, but the scores and values are solved for, not sampled. The cells overlap, every token takes part everywhere, and a straight line in x is added.",
    act: { label: "Solve for the values", state: SOLVED, after: (facts) => `${tokens(facts)}, proven within ${atMost(facts.bound)}.` },
  },
  {
    title: "A circuit for many variables", look: "circuit", start: SOLVED,
    text: "Cells multiply with the dimension: ten for each of six variables would be a million tokens. A formula does not need that many: each of its nonlinear parts becomes a small table of one argument, layer after layer.",
    act: { label: "Compile m1·m2 / (distance² + 1)", state: CIRCUIT, after: (facts) => `${tokens(facts)} in ${facts.layers} layers. Click a box to read what it stands for.` },
  },
  {
    title: "A polynomial, exactly", look: "sum-card", start: CIRCUIT,
    text: "With hardmax, attention multiplies. Each token carries a linear form t of the inputs, each block multiplies by t once more, and the readout adds the powers up: there is no approximation error, only rounding.",
    act: { label: "Compile x³ − 3xy²", state: CUBIC, after: (facts) => `Approximation ${atMost(facts.approximation)}, rounding below ${atMost(facts.rounding)}.` },
  },
];

let load = () => {};
let move = () => {};
let toBorder = () => {};
let waitingFor = null; // the step whose button was pressed

export const onTour = () => session.state.tour > 0;

// `loads` compiles a state, `moves` shifts the point by a share of each interval, `borders` puts it between two cells.
export function prepareTour(loads, moves, borders) {
  load = loads;
  move = moves;
  toBorder = borders;
  $("tour-start").addEventListener("click", () => show(1));
  $("tour-next").addEventListener("click", () => (session.state.tour === STEPS.length ? end() : show(session.state.tour + 1)));
  $("tour-back").addEventListener("click", () => show(session.state.tour - 1));
  $("tour-end").addEventListener("click", end);
  $("tour-act").addEventListener("click", act);
  document.addEventListener("compiled", ({ detail }) => {
    if (waitingFor === session.state.tour && onTour()) said(STEPS[waitingFor - 1].act.after(detail));
    if (onTour()) look();
  });
}

// Draw the step of the state, without compiling anything: an address brings its own state.
export function showTour() {
  const { tour } = session.state;
  $("tour").hidden = !onTour();
  $("tour-start").hidden = onTour();
  waitingFor = null;
  mark();
  if (!onTour()) return;
  const step = STEPS[tour - 1];
  $("tour-count").textContent = `Step ${tour} of ${STEPS.length}`;
  $("tour-title").textContent = step.title;
  $("tour-text").textContent = step.text;
  $("tour-act").textContent = step.act.label;
  $("tour-back").disabled = tour === 1;
  $("tour-next").textContent = tour === STEPS.length ? "Finish" : "Next";
  $("tour-end").hidden = tour === STEPS.length;
  said("");
}

function show(number) {
  session.state.tour = number;
  const { start } = STEPS[number - 1];
  if (difference(asked(), start)) load({ ...blank(), ...start, tour: number });
  else history.replaceState(null, "", toHash(session.state));
  showTour();
  $("tour-title").focus({ preventScroll: true });
  $("tour").scrollIntoView({ block: "nearest" });
  look();
}

// On a narrow screen the step stays at its lower end, and the card that it speaks of scrolls above it.
function look() {
  mark();
  if (matchMedia("(max-width: 860px)").matches) document.querySelector(".looked-at")?.scrollIntoView({ block: "start" });
}

function act() {
  const { act: wanted } = STEPS[session.state.tour - 1];
  if (wanted.state) {
    load({ ...blank(), ...wanted.state, tour: session.state.tour });
    waitingFor = session.state.tour; // loading draws the step afresh
  } else {
    if (wanted.border) toBorder();
    else move(wanted.move);
    said(wanted.after());
    look();
  }
}

function end() {
  session.state.tour = 0;
  history.replaceState(null, "", toHash(session.state));
  showTour();
  $("tour-start").focus();
}

const said = (text) => { $("tour-after").textContent = text; };

function mark() {
  const look = onTour() ? STEPS[session.state.tour - 1].look : "";
  for (const card of document.querySelectorAll("main > .card, .two > .card")) card.classList.toggle("looked-at", card.id === look);
}
