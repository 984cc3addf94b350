// The fields: what is asked for, what is wrong with it, and how the formula reads.

import { post } from "/static/api.js";
import { $, session } from "/static/session.js";

const FIELDS = ["formula", "box", "eps", "construction", "seconds"];
const SECONDS = { field: "seconds", message: "a time limit is a number of seconds above 0" };
const EPS = { field: "eps", message: "a tolerance is a number above 0, such as 1e-6" };

export function showFields() {
  $("formula").value = session.state.formula;
  $("box").value = session.state.box;
  $("eps").value = session.state.eps === null ? "" : String(session.state.eps);
  $("seconds").value = session.state.seconds === null ? "" : String(session.state.seconds);
  showSlider();
  for (const name of ["construction", "dtype", "show", "view"]) $(name).value = session.state[name];
  $("cells").checked = session.state.cells;
  for (const button of $("gallery").querySelectorAll("button")) {
    const chosen = button.example.formula === session.state.formula && button.example.box === session.state.box;
    button.setAttribute("aria-pressed", String(chosen && button.example.construction === session.state.construction));
  }
}

export function showSlider() {
  const eps = session.state.eps ?? 1e-6;
  $("eps-slider").value = String(Math.log10(eps));
  $("eps-slider").setAttribute("aria-valuetext", `ε = ${session.state.eps ?? "as exact as can be proven"}`);
}

// A field's number, null where it is empty, NaN where it is none above 0.
function readNumber(name) {
  const text = $(name).value.trim();
  if (text === "") return null;
  return Number.isFinite(Number(text)) && Number(text) > 0 ? Number(text) : NaN;
}

// What the fields ask for now.
export function asked() {
  return {
    formula: $("formula").value, box: $("box").value, eps: readNumber("eps"),
    construction: $("construction").value, dtype: $("dtype").value, seconds: readNumber("seconds"),
  };
}

// Which of two requests' parts differ, as a word; "" where they ask for the same.
export function difference(one, other) {
  const numeric = ["eps", "seconds"];
  const differ = (name) => (numeric.includes(name) ? !Object.is(one[name] ?? null, other[name] ?? null) : one[name].trim() !== other[name].trim());
  if (differ("formula")) return "formula";
  if (differ("box")) return "box";
  return ["eps", "construction", "dtype", "seconds"].some(differ) ? "settings" : "";
}

// Take the fields over into the state; false, and a complaint, where they cannot be.
export function readFields() {
  const now = asked();
  for (const problem of wrongNumbers(now)) {
    complain(problem);
    return false;
  }
  Object.assign(session.state, now);
  return true;
}

const wrongNumbers = (now) => [EPS, SECONDS].filter(({ field }) => Number.isNaN(now[field]));

export function complain(problem) {
  const field = FIELDS.includes(problem.field) ? problem.field : "";
  if (!field) return false;
  $(`${field}-error`).textContent = problem.message;
  $(field).setAttribute("aria-invalid", "true");
  return true;
}

// Put the cursor where the formula cannot be read.
export function pointAt(problem) {
  const elsewhere = !["formula", "compile", ""].includes(document.activeElement?.id ?? "");
  if (problem.field !== "formula" || problem.position === undefined || elsewhere) return;
  const place = Math.min(problem.position, $("formula").value.length);
  $("formula").focus({ preventScroll: true });
  $("formula").setSelectionRange(place, Math.min(place + 1, $("formula").value.length));
}

export function clearComplaints() {
  for (const name of FIELDS) {
    $(`${name}-error`).textContent = "";
    $(name).removeAttribute("aria-invalid");
  }
}

// Is it a formula on a box, and how does it read? True, or what is wrong with it.
export async function check(signal) {
  const answer = await post("/api/check", { formula: $("formula").value, box: $("box").value }, signal);
  clearComplaints();
  typeset(answer.mathml);
  if (answer.event !== "done") complain(answer.problem);
  const wrong = wrongNumbers(asked());
  wrong.forEach(complain);
  return answer.event === "done" && !wrong.length ? true : answer.problem ?? wrong[0];
}

function typeset(mathml) {
  // MathML written by our own server from the parsed formula; names in it are letters, digits and _
  $("typeset").innerHTML = (mathml ?? []).join("<br>");
}
