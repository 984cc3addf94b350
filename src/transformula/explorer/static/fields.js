// The fields: what is asked for, what is wrong with it, and how the formula reads.

import { post } from "/static/api.js";
import { $, session } from "/static/session.js";

const FIELDS = ["formula", "box", "eps", "construction"];
const EPS = { field: "eps", message: "a tolerance is a number above 0, such as 1e-6" };

export function showFields() {
  $("formula").value = session.state.formula;
  $("box").value = session.state.box;
  $("eps").value = session.state.eps === null ? "" : String(session.state.eps);
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

// The tolerance as a number, null where the field is empty, NaN where it is none.
function readEps() {
  const text = $("eps").value.trim();
  if (text === "") return null;
  return Number.isFinite(Number(text)) && Number(text) > 0 ? Number(text) : NaN;
}

// What the fields ask for now.
export function asked() {
  return {
    formula: $("formula").value, box: $("box").value, eps: readEps(),
    construction: $("construction").value, dtype: $("dtype").value,
  };
}

// Which of two requests' parts differ, as a word; "" where they ask for the same.
export function difference(one, other) {
  const differ = (name) => (name === "eps" ? !Object.is(one.eps, other.eps) : one[name].trim() !== other[name].trim());
  if (differ("formula")) return "formula";
  if (differ("box")) return "box";
  return ["eps", "construction", "dtype"].some(differ) ? "settings" : "";
}

// Take the fields over into the state; false, and a complaint, where they cannot be.
export function readFields() {
  const now = asked();
  if (Number.isNaN(now.eps)) {
    complain(EPS);
    return false;
  }
  Object.assign(session.state, now);
  return true;
}

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
  if (answer.event === "done" && !Number.isNaN(readEps())) return true;
  if (Number.isNaN(readEps())) complain(EPS);
  return answer.problem ?? EPS;
}

function typeset(mathml) {
  // MathML written by our own server from the parsed formula; names in it are letters, digits and _
  $("typeset").innerHTML = (mathml ?? []).join("<br>");
}
