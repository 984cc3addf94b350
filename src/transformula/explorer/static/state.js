// What the page shows, and how that travels in an address.

export const CONSTRUCTIONS = [
  "auto", "polynomial", "corollary", "lookup", "partition", "circuit", "attention-only", "local-polynomials", "yun",
];
const TOUR_STEPS = 7;
const SHOWN = ["model", "formula", "error"];
const VIEWS = ["map", "surface"];

// A table from names to anything: no name a variable may have, __proto__ or constructor, means something else in it.
export const named = (...tables) => Object.assign(Object.create(null), ...tables);

export function blank() {
  return {
    formula: "", box: "", eps: null, construction: "auto", dtype: "float64",
    seconds: null, tour: 0, output: 0, x: "", y: "", at: named(), show: "model", view: "map", cells: true,
  };
}

export function toHash(state) {
  const query = new URLSearchParams();
  query.set("formula", state.formula);
  query.set("on", state.box);
  if (state.eps !== null) query.set("eps", String(state.eps));
  if (state.construction !== "auto") query.set("construction", state.construction);
  if (state.dtype !== "float64") query.set("dtype", state.dtype);
  if (state.seconds !== null) query.set("seconds", String(state.seconds));
  if (state.tour) query.set("tour", String(state.tour));
  if (state.output) query.set("output", String(state.output));
  if (state.x) query.set("x", state.x);
  if (state.y) query.set("y", state.y);
  if (state.show !== "model") query.set("show", state.show);
  if (state.view !== "map") query.set("view", state.view);
  if (!state.cells) query.set("cells", "0");
  const at = Object.entries(state.at).map(([name, value]) => `${name}:${Number(value.toPrecision(6))}`);
  if (at.length && at.length <= 40) query.set("at", at.join(","));
  return `#${query}`;
}

// Nothing in an address is trusted: unknown words and broken numbers fall back to what is usual.
export function fromHash(hash) {
  const query = new URLSearchParams(hash.replace(/^#/, ""));
  if (!query.get("formula")) return null;
  const state = blank();
  const among = (name, allowed, usual) => (allowed.includes(query.get(name)) ? query.get(name) : usual);
  state.formula = query.get("formula");
  state.box = query.get("on") || "";
  const eps = Number(query.get("eps"));
  state.eps = query.get("eps") && Number.isFinite(eps) && eps > 0 ? eps : null;
  state.construction = among("construction", CONSTRUCTIONS, "auto");
  state.dtype = among("dtype", ["float64", "float32"], "float64");
  const seconds = Number(query.get("seconds"));
  state.seconds = query.get("seconds") && seconds > 0 && Number.isFinite(seconds) ? seconds : null;
  state.tour = Math.min(Math.max(0, Number.parseInt(query.get("tour") || "0", 10) || 0), TOUR_STEPS);
  state.output = Math.max(0, Number.parseInt(query.get("output") || "0", 10) || 0);
  state.x = query.get("x") || "";
  state.y = query.get("y") || "";
  state.show = among("show", SHOWN, "model");
  state.view = among("view", VIEWS, "map");
  state.cells = query.get("cells") !== "0";
  for (const part of (query.get("at") || "").split(",")) {
    const [name, value] = part.split(":");
    if (name && value && Number.isFinite(Number(value))) state.at[name] = Number(value);
  }
  return state;
}
