// What the modules of the page share: the state, the model on show, timers.

import { blank } from "/static/state.js";

export const $ = (id) => document.getElementById(id);
export const session = {
  state: blank(),
  model: null, // { id, facts, asked } of what is drawn; asked is what it was compiled from
};
export const waiting = {}; // AbortControllers of the requests under way, by name
const timers = {};

export function later(name, wait, action) {
  clearTimeout(timers[name]);
  timers[name] = setTimeout(action, wait);
}

export const notLater = (...names) => names.forEach((name) => clearTimeout(timers[name]));

export const aborted = (error) => error?.name === "AbortError";

export function options(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, text]) => new Option(text, value, false, value === String(chosen))));
}
