// Terms of the page, explained where they stand: a button with a dotted line opens a sentence, Esc closes it.

const TERMS = {
  formula: "The function to compute, as text: + − * / **, sin, exp, log, sqrt, abs, min and about a hundred others.",
  box: "An interval for each variable. The proof is about every real point in it, and about nothing outside.",
  tolerance: "ε: how far the computed answer may be from the formula, anywhere in the box.",
  construction: "How the weights are made: a theorem turned into code. “auto” takes the smallest that can be proven.",
  floats: "The number format of the weights and of the arithmetic that the rounding bound is about.",
  "time limit": "Seconds after which the search ends and gives the best bound so far; the page has a limit of its own.",
  bound: "approximation + rounding, rounded up: the computed answer is never further from the formula than this.",
  layers: "Transformer blocks, one after the other.",
  heads: "Attention heads of all layers together.",
  tokens: "Tokens of the sequence: the data token with the inputs, and the memory tokens.",
  "memory tokens": "Constant tokens, each with a key and a value; attention looks up values by comparing x with keys.",
  parameters: "Numbers in the model that depend on the formula, those of memory tokens included.",
  approximation: "How far the function of the weights, in exact real arithmetic, can be from the formula.",
  rounding: "How far the computed answer can be from that exact function of the weights.",
  time: "Seconds for compiling and proving.",
  seams: "The share of the box between cells, where the error may be large; the bound is about the mean error.",
  "outside seams": "The largest error at points outside the seams.",
  cells: "Regions in which one token gets most of the attention.",
  attention: "Softmax of the scores: how much each token counts at the point. The weights of a head add up to 1.",
  sum: "The answer at the point, taken apart into what each token, wire or power adds.",
  circuit: "A formula as wires: inputs, tables of one function each, ReLUs, and sums between them.",
  trained: "Weights found by gradient descent: nothing is proven about them, the largest error seen is drawn.",
};

let tip = null;

export function termButton(name, text = name) {
  const button = document.createElement("button");
  Object.assign(button, { type: "button", className: "term", textContent: text, title: TERMS[name] ?? "" });
  if (!TERMS[name]) return document.createTextNode(text);
  button.setAttribute("aria-label", text === "?" ? `What is ${name}?` : `${text}: what is that?`);
  button.addEventListener("click", () => tell(button, TERMS[name]));
  return button;
}

function tell(button, text) {
  tip.textContent = text;
  tip.showPopover();
  const at = button.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(at.left, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${at.bottom + tip.offsetHeight + 8 < innerHeight ? at.bottom + 6 : Math.max(8, at.top - tip.offsetHeight - 6)}px`;
}

// A button with a question mark after every element that names its term.
export function explainTerms() {
  tip = document.getElementById("tip");
  for (const element of document.querySelectorAll("[data-term]")) {
    const button = termButton(element.dataset.term, "?");
    button.classList.add("asked");
    if (element.tagName === "H2") element.append(button);
    else element.after(button); // a label's own button would be clicked with its field
  }
}
