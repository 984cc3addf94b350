// The page: fields in, a compilation out, and the views that follow from it.

import { get, Refused, stream } from "/static/api.js";
import { atMost, pretty } from "/static/charts.js";
import { markStale, refused, setState, showClaim } from "/static/claim.js";
import { compare, stopComparing } from "/static/comparing.js";
import { stopTrying, tryAll } from "/static/constructions.js";
import { asked, check, clearComplaints, difference, readFields, showFields, showSlider } from "/static/fields.js";
import { $, aborted, isMean, later, notLater, session, stated, waiting } from "/static/session.js";
import { blank, fromHash, named, toHash } from "/static/state.js";
import { explainTerms } from "/static/terms.js";
import { prepareTour, showTour } from "/static/tour.js";
import { changeLook, changeView, paintAttention, repaint, shiftPoint, showModel, toBorder } from "/static/views.js";

const CHECK_AFTER = 300; // milliseconds without a key
const COMPILE_AFTER = 400; // and as many more
let job = null; // the compilation under way: an AbortController, and what it was asked for

// --- compiling ----------------------------------------------------------------------------------------

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

async function compile({ typing = false } = {}) {
  notLater("compile", "check");
  waiting.check?.abort();
  job?.control.abort();
  job = null;
  clearComplaints();
  if (!readFields()) {
    setState("refused", "Please look at the marked field.");
    return;
  }
  showFields();
  history.replaceState(null, "", toHash(session.state));
  const mine = { control: new AbortController(), asked: asked() };
  const { signal } = mine.control;
  job = mine;
  $("progress").removeAttribute("value");
  setState("working", "Compiling …");
  const refuse = (problem) => refused(problem, compile, typing);
  let ended = false;
  try {
    const problem = await check(signal);
    if (job !== mine) return;
    if (problem !== true) {
      refuse(problem);
      return;
    }
    await stream("/api/compile", mine.asked, signal, (event) => {
      if (job !== mine) return;
      if (event.event === "done") finished(event, mine.asked);
      else if (event.event === "refused") refuse(event.problem);
      else progress(event);
      ended ||= event.event === "done" || event.event === "refused";
    });
    if (!ended && job === mine) refuse({ message: "the connection to the server was lost", kind: "fault" });
  } catch (error) {
    if (job !== mine) return;
    if (aborted(error)) setState(session.model ? "done" : "idle", "Cancelled.");
    else if (error instanceof Refused) refuse(error.problem);
    else {
      refuse({ message: "something went wrong in this page; this is a bug in transformula", kind: "fault" });
      throw error; // the browser's console has the details
    }
  } finally {
    if (job === mine) job = null;
  }
}

function cancel() {
  const pending = notLater("compile", "check");
  waiting.check?.abort();
  if (job) job.control.abort();
  else if (pending) $("status").textContent = "Cancelled.";
  stopComparing();
  stopTrying();
}

function finished({ model: id, facts }, of) {
  const { state, model } = session;
  // another problem is looked at afresh, unless an address said from where
  if (model && ["formula", "box"].includes(difference(of, model.asked)) && !state.given) {
    Object.assign(state, { output: 0, x: "", y: "", at: named() });
  }
  state.given = false;
  session.model = { id, facts, asked: of };
  $("refusal").hidden = true;
  const tokens = facts.tokens === 1 ? "1 token" : `${facts.tokens.toLocaleString("en")} tokens`;
  setState("done", `Done in ${pretty(facts.seconds)} s: ${tokens}, ${isMean(facts) ? "mean error" : "error"} ≤ ${atMost(stated(facts, "bound"))}.`);
  document.body.dataset.model = id;
  showClaim();
  showModel(compile);
  document.dispatchEvent(new CustomEvent("compiled", { detail: facts }));
}

// --- while somebody types -----------------------------------------------------------------------------

// Every key: what is on show belongs to something else now, and so does the compilation under way.
function typed() {
  notLater("compile");
  if (job && difference(asked(), job.asked)) {
    const { control } = job;
    job = null;
    control.abort();
    setState(session.model ? "done" : "idle", "");
  }
  markStale();
  $("status").textContent = isNew() ? "Compiles when you stop typing." : "";
  later("check", CHECK_AFTER, checkWhileTyping);
}

async function checkWhileTyping() {
  waiting.check?.abort();
  const mine = new AbortController();
  waiting.check = mine;
  try {
    const fine = (await check(mine.signal)) === true;
    if (mine.signal.aborted || job) return;
    if (!fine) $("status").textContent = "Please look at the marked field.";
    else if (isNew()) later("compile", COMPILE_AFTER, () => compile({ typing: true }));
  } catch { /* busy, or typed on: the next check will tell */ }
}

const isNew = () => !session.model || difference(asked(), session.model.asked) !== "";

// --- events -------------------------------------------------------------------------------------------

async function share() {
  history.replaceState(null, "", toHash(session.state));
  try {
    await navigator.clipboard.writeText(location.href);
    $("status").textContent = "Link copied: it opens this state on any machine where the explorer runs.";
  } catch {
    $("status").textContent = "The link is in the address bar.";
  }
}

function load(given) {
  Object.assign(session.state, blank(), given, { at: named(given.at), given: true });
  $("cells").checked = session.state.cells;
  showFields();
  showTour();
  clearComplaints();
  compile();
}

function listen() {
  $("problem").addEventListener("submit", (event) => { event.preventDefault(); compile(); });
  $("formula").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); compile(); }
  });
  for (const name of ["formula", "box", "eps", "seconds"]) $(name).addEventListener("input", typed);
  $("eps-slider").addEventListener("input", () => {
    session.state.eps = Number((10 ** Number($("eps-slider").value)).toPrecision(2));
    $("eps").value = String(session.state.eps);
    showSlider();
    markStale();
    later("compile", 350, compile);
  });
  $("eps").addEventListener("change", () => { if (isNew()) later("compile", 0, compile); });
  for (const name of ["construction", "dtype"]) $(name).addEventListener("change", () => compile());
  for (const name of ["output", "x-variable", "y-variable"]) $(name).addEventListener("change", changeView);
  for (const name of ["show", "view", "cells"]) $(name).addEventListener("change", changeLook);
  $("heads").addEventListener("change", paintAttention);
  $("cancel").addEventListener("click", cancel);
  $("share").addEventListener("click", share);
  $("compare").addEventListener("click", () => {
    if (readFields()) compare(asked(), markStale);
  });
  $("constructions").addEventListener("click", () => {
    if (readFields()) tryAll(asked(), markStale);
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") cancel(); });
  window.addEventListener("hashchange", () => {
    const given = fromHash(location.hash);
    if (given && toHash(given) !== toHash(session.state)) load(given);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
}

async function begin() {
  listen();
  explainTerms();
  prepareTour(load, shiftPoint, toBorder);
  const [start, examples] = await Promise.all(["/api/start", "/static/examples.json"].map(get));
  $("gallery").replaceChildren(...examples.map((example) => {
    const [item, button] = ["li", "button"].map((tag) => document.createElement(tag));
    Object.assign(button, { type: "button", textContent: example.name, title: example.about, example });
    button.addEventListener("click", () => {
      const { formula, box, eps, construction } = example;
      load({ formula, box, eps, construction });
    });
    item.append(button);
    return item;
  }));
  $("download-onnx").hidden = !start.onnx;
  load(fromHash(location.hash) ?? examples[0]);
}

begin().catch(() => setState("refused", "The server does not answer."));
