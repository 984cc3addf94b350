// What the modules of the page share: the state, the model on show, timers.

import { blank } from "/static/state.js";

export const $ = (id) => document.getElementById(id);
export const session = {
  state: blank(),
  model: null, // { id, facts, asked } of what is drawn; asked is what it was compiled from
  compared: null, // what the comparison on show is of
  tried: null, // what the table of constructions is of
};
export const waiting = {}; // AbortControllers of the requests under way, by name
const timers = new Map();

export function later(name, wait, action) {
  notLater(name);
  timers.set(name, setTimeout(() => { timers.delete(name); action(); }, wait));
}

// Whether anything was about to happen that now will not.
export function notLater(...names) {
  names.forEach((name) => clearTimeout(timers.get(name)));
  return names.filter((name) => timers.delete(name)).length > 0;
}

// A claim is about every point of the box, or about the mean: then its numbers have names of their own.
export const isMean = (facts) => facts.mean_bound !== undefined;
export const stated = (facts, name) => facts[isMean(facts) ? `mean_${name}` : name];

export const aborted = (error) => error?.name === "AbortError";

export function options(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, text]) => new Option(text, value, false, value === String(chosen))));
}
