// Every chart, drawn by plotly in the page's own colours.

const CONFIG = { displayModeBar: false };
const MANY = 60; // cells: beyond that they are drawn faintly
export const FEW_TOKENS = 6; // tokens of a head: their values stand on the bars
const SERIES = {
  lookup: { name: "lookup, proven", symbol: "circle", dash: "solid" },
  partition: { name: "partition, proven", symbol: "square", dash: "solid" },
  trained: { name: "trained, measured", symbol: "diamond-open", dash: "dash" },
};

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const dark = () => matchMedia("(prefers-color-scheme: dark)").matches;
// Series that are neither the formula nor the Transformer.
const palette = () => (dark() ? ["#8ea6ff", "#f0a95c", "#62c794", "#e58fb8"] : ["#3553c4", "#c8630f", "#1d7a4c", "#a8326f"]);

const SUPERSCRIPTS = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
export function pretty(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "—";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e5) return String(Number(value.toPrecision(digits + 1))).replace("-", "−");
  const [front, power] = value.toExponential(digits - 1).split("e");
  const exponent = [...String(Number(power))].map((c) => SUPERSCRIPTS[c]).join("");
  return `${front.replace("-", "−")}·10${exponent}`;
}

// A bound, rounded up: what is shown holds too.
export function atMost(bound, digits = 3) {
  if (!(bound > 0)) return pretty(bound, digits);
  const kept = bound >= 1e-3 && bound < 1e5 ? digits + 1 : digits;
  const near = Number(bound.toPrecision(kept));
  return pretty(near >= bound ? near : near + 10 ** (Math.floor(Math.log10(bound)) - kept + 1), digits);
}

export function hasWebGL() {
  try {
    const canvas = document.createElement("canvas");
    return Boolean(canvas.getContext("webgl2") || canvas.getContext("webgl"));
  } catch {
    return false;
  }
}

function axis(title, more = {}) {
  return {
    title: { text: title, standoff: 8 }, gridcolor: css("--grid"), linecolor: css("--line"), zeroline: false,
    automargin: true, exponentformat: "power", ...more,
  };
}

function layout(more = {}) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", colorway: palette(),
    font: { family: "system-ui, sans-serif", size: 12, color: css("--ink") },
    margin: { l: 50, r: 12, t: 12, b: 44 }, hovermode: "closest", dragmode: false,
    hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { color: css("--ink") } },
    legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom" },
    ...more,
    ...(more.showlegend ? { margin: { l: 50, r: 12, t: 34, b: 44 } } : {}),
  };
}

// A card's width changes with its neighbours, not only with the window.
const resized = new ResizeObserver((entries) => {
  for (const { target } of entries) if (target.clientWidth && target.data) window.Plotly.Plots.resize(target);
});

function draw(id, traces, more) {
  const div = document.getElementById(id);
  const drawn = window.Plotly.react(div, traces, layout(more), CONFIG);
  resized.observe(div);
  return drawn;
}

// Signed values, everywhere: blue below zero, red above.
const SIGNS = ["--negative", "--neutral", "--positive"];
const signed = () => SIGNS.map((name, k) => [k / 2, css(name)]);
const TITLES = { model: "Transformer", formula: "formula", error: "Transformer − formula" };

const transposed = (rows) => rows[0].map((_, k) => rows.map((row) => row[k]));

function cellLines(cut, axes) {
  const x = [];
  const y = [];
  for (const [a, b, c, d] of cut.cells.lines) {
    x.push(a, c, null);
    y.push(axes === 1 ? 0 : b, axes === 1 ? 1 : d, null);
  }
  return {
    x, y, mode: "lines", name: "cell borders", hoverinfo: "skip", showlegend: true,
    line: { width: cut.cells.lines.length > MANY ? 0.4 : 1, color: dark() ? "rgba(255,255,255,.30)" : "rgba(20,25,50,.28)" },
  };
}

function centres(cut) {
  const curve = cut.variables.length === 1;
  return {
    x: cut.cells.centres.map((c) => c[0]), y: cut.cells.centres.map((c) => c[1]), mode: "markers",
    name: curve ? "token values" : "cell centres", showlegend: true, hoverinfo: curve ? "x+y" : "skip",
    marker: { size: !curve ? 3.5 : cut.cells.centres.length > MANY ? 3.5 : 6, color: curve ? css("--good") : dark() ? "rgba(255,255,255,.75)" : "rgba(20,25,50,.65)" },
  };
}

// The picture: a curve, a map or a surface of the Transformer, the formula or their difference.
export function picture(id, cut, state) {
  return cut.variables.length === 1 ? curve(id, cut, state) : plane(id, cut, state);
}

function curve(id, cut, state) {
  const [x] = cut.axes;
  const traces = [];
  const shown = state.cells && cut.cells;
  if (state.show === "error") {
    traces.push({ x, y: cut.error, mode: "lines", name: TITLES.error, line: { color: css("--model") } });
  } else {
    if (shown && cut.cells.centres) traces.push(centres(cut));
    traces.push({ x, y: cut.formula, mode: "lines", name: "formula", line: { color: css("--formula"), width: 4 }, opacity: 0.55 });
    if (state.show === "model") {
      traces.push({ x, y: cut.model, mode: "lines", name: "Transformer", line: { color: css("--model"), width: 1.8 } });
    }
  }
  if (shown && cut.cells.lines.length) traces.push({ ...cellLines(cut, 1), yaxis: "y2" });
  const name = cut.variables[0];
  traces.push(crossLegend());
  return draw(id, traces, {
    xaxis: axis(name, { range: [x[0], x[x.length - 1]] }), yaxis: axis(state.show === "error" ? TITLES.error : "value"),
    yaxis2: { range: [0, 1], visible: false, overlaying: "y" }, shapes: cross(state.at[name]), showlegend: true,
  });
}

function cross(x, y) {
  const shapes = [];
  for (const line of [{ color: css("--paper"), width: 3 }, crossLine()]) { // seen on any colour
    if (x !== undefined) shapes.push({ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line });
    if (y !== undefined) shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line });
  }
  return shapes;
}

const crossLine = () => ({ color: css("--ink"), width: 1.5, dash: "dot" });
const crossLegend = () => ({ x: [null], y: [null], mode: "lines", name: "chosen point", hoverinfo: "skip", line: crossLine() });

function plane(id, cut, state) {
  const [x, y] = cut.axes;
  const [across, up] = cut.variables;
  const z = transposed(cut[state.show]);
  const colour = state.show === "error"
    ? { colorscale: signed(), zmid: 0 }
    : { colorscale: "Viridis" };
  const bar = { title: { text: TITLES[state.show], side: "right" }, thickness: 12, outlinewidth: 0, exponentformat: "power", len: 0.95 };
  if (state.view === "surface") {
    const scene = (title) => ({ title: { text: title }, gridcolor: css("--grid"), color: css("--ink"), exponentformat: "power" });
    const { zmid, ...scale } = colour;
    return draw(id, [{
      type: "surface", x, y, z, ...scale, ...(zmid === undefined ? {} : { cmid: 0 }), colorbar: bar,
      contours: { z: { show: true, usecolormap: true, width: 1 } },
    }], {
      scene: { xaxis: scene(across), yaxis: scene(up), zaxis: scene("value"), aspectmode: "cube", camera: { eye: { x: 1.45, y: -1.45, z: 0.9 } } },
      margin: { l: 0, r: 0, t: 0, b: 0 }, dragmode: "turntable", uirevision: "scene",
    });
  }
  const traces = [{
    type: "heatmap", x, y, z, ...colour, zsmooth: "fast", colorbar: bar, name: "",
    hovertemplate: `${across} = %{x:.4g}<br>${up} = %{y:.4g}<br>%{z:.6g}`,
  }];
  if (state.cells && cut.cells) {
    if (cut.cells.lines.length) traces.push(cellLines(cut, 2));
    if (cut.cells.centres) traces.push(centres(cut));
  }
  traces.push(crossLegend());
  const range = (values) => [values[0], values[values.length - 1]];
  return draw(id, traces, {
    xaxis: axis(across, { range: range(x), showgrid: false }), yaxis: axis(up, { range: range(y), showgrid: false }),
    shapes: cross(state.at[across], state.at[up]), showlegend: true,
  });
}

export function errorLine(id, cut, state) {
  const [x] = cut.axes;
  const ends = [x[0], x[x.length - 1]];
  const bound = (sign, legend) => ({
    x: ends, y: [sign * cut.bound, sign * cut.bound], mode: "lines", name: cut.seams ? "± proven outside seams" : "± proven bound", showlegend: legend,
    legendgroup: "bound", line: { color: css("--bound"), dash: "dash", width: 1.5 }, hoverinfo: "y",
  });
  return draw(id, [
    bound(1, true), bound(-1, false),
    { x, y: cut.error, mode: "lines", name: "error", line: { color: css("--model"), width: 1.6 } },
    crossLegend(),
  ], { xaxis: axis(cut.variables[0]), yaxis: axis(TITLES.error), shapes: cross(state.at[cut.variables[0]]), showlegend: true });
}

// The signed scale from −1 to 1, steeper near 0. Plotly's own scale of a bar logs a warning for each number (4.1).
function tint(share) {
  const rgb = (name) => [1, 3, 5].map((k) => Number.parseInt(css(name).slice(k, k + 2), 16));
  const [low, middle, high] = SIGNS.map(rgb);
  const end = share < 0 ? low : high;
  return `rgb(${middle.map((m, k) => Math.round(m + (end[k] - m) * Math.abs(share) ** 0.3)).join(",")})`;
}

// A row of bars for each head: height is the weight, colour the value the token offers.
export function attention(id, heads) {
  const rows = heads.length;
  const div = document.getElementById(id);
  const height = Math.max(240, 60 + 150 * rows);
  div.style.height = `${height}px`;
  const gap = rows > 1 ? 70 / (150 * rows) : 0;
  const each = (1 - gap * (rows - 1)) / rows;
  const traces = [];
  const more = { height, showlegend: false, annotations: [], margin: { l: 50, r: 12, t: 26, b: 40 } };
  heads.forEach((head, k) => {
    const suffix = k ? String(k + 1) : "";
    const top = 1 - k * (each + gap);
    const domain = [Math.max(0, top - each), top];
    const largest = Math.max(...head.values.map((v) => Math.abs(v ?? 0)), 1e-300);
    traces.push({
      type: "bar", textposition: head.total <= FEW_TOKENS ? "outside" : "none", cliponaxis: false, text: (head.kind === "hardmax" ? head.weights : head.values).map((value) => pretty(value)), textfont: { size: 11, color: css("--ink") }, x: head.places, y: head.weights, width: Math.max(0.85, head.total / 150), xaxis: `x${suffix}`, yaxis: `y${suffix}`,
      customdata: head.tokens.map((name, j) => [name, pretty(head.values[j])]),
      hovertemplate: "%{customdata[0]}<br>weight %{y:.4g}<br>value %{customdata[1]}<extra></extra>",
      marker: { color: head.values.map((v) => tint((v ?? 0) / largest)), line: { color: css("--soft"), width: 0.6 } },
    });
    more[`xaxis${suffix}`] = axis(k === rows - 1 ? "token" : "", { anchor: `y${suffix}`, showgrid: false, showline: true, ticks: "outside", linecolor: css("--edge"), automargin: false, range: [-0.6, head.total - 0.4], ...(head.total <= 16 ? { dtick: 1 } : {}) });
    more[`yaxis${suffix}`] = axis(head.kind === "hardmax" ? "score" : "weight", { anchor: `x${suffix}`, showline: true, ticks: "outside", linecolor: css("--edge"), domain, nticks: 4, ...(head.kind === "hardmax" ? { rangemode: "tozero" } : { range: [0, 1.25 * Math.max(...head.weights)] }) });
    const meaning = head.name || (head.writes ? `writes ${head.writes}` : "");
    const where = `block ${head.block}, head ${head.head}`;
    const text = `${where}${meaning ? `: ${meaning.length > 30 ? `${meaning.slice(0, 28)}…` : meaning}` : ""}`;
    more.annotations.push({
      text, x: 0, xref: "paper", xanchor: "left",
      y: domain[1], yref: "paper", yanchor: "bottom", showarrow: false, font: { size: 12, color: css("--soft") },
    });
  });
  return draw(id, traces, more);
}

// Bars that add up from the first to the answer; the formula's value is a line.
export function waterfall(id, terms, answer, formula) {
  const div = document.getElementById(id);
  const height = 90 + 26 * (terms.length + 1);
  div.style.height = `${height}px`;
  let reached = 0;
  const base = terms.map(({ value }) => { reached += value; return reached - value; });
  const largest = Math.max(...terms.map(({ value }) => Math.abs(value)), 1e-300);
  const ends = [0, answer, reached, ...base, ...(formula === null ? [] : [formula])];
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  // pixels that the number at the end of a bar takes
  const values = [...terms.map(({ value }) => value), answer];
  const [left, right] = [values.some((value) => value < 0), values.some((value) => value >= 0)];
  const width = 80;
  const room = ((high - low || 1) * width) / Math.max(60, div.clientWidth - 140 - width * (left + right));
  const labels = [...terms.map((term, k) => `${term.label}${"\u200b".repeat(k)}`), "answer"];
  const texts = [...terms.map((term) => `${term.value > 0 ? "+" : ""}${pretty(term.value)}`), pretty(answer, 6)];
  const annotations = texts.map((text, k) => ({
    text, x: (base[k] ?? 0) + values[k], y: labels[k], showarrow: false, bgcolor: css("--card"), borderpad: 0,
    ...(values[k] < 0 ? { xanchor: "right", xshift: -3 } : { xanchor: "left", xshift: 3 }),
  }));
  return draw(id, [{
    type: "bar", orientation: "h", y: labels, x: [...terms.map((term) => term.value), answer], base: [...base, 0],
    customdata: [...terms.map((term) => term.note), ""], hovertemplate: "%{customdata}<extra></extra>",
    marker: { color: [...terms.map((term) => tint(term.value / largest)), css("--model")], line: { color: css("--soft"), width: 0.6 } },
  }], {
    xaxis: axis("added up so far", { zeroline: true, zerolinecolor: css("--edge"), range: [low - left * room, high + right * room] }),
    height, annotations, yaxis: axis("", { autorange: "reversed", type: "category", ticksuffix: " ", showgrid: false }),
    margin: { l: 60, r: 12, t: 12, b: 40 }, showlegend: false,
    shapes: formula === null ? [] : [{ type: "line", x0: formula, x1: formula, yref: "paper", y0: 0, y1: 1, line: { color: css("--formula"), width: 1.5, dash: "dash" } }],
  });
}

// One colour for a construction, in the comparison and in the table of all.
export function constructionColour(name) {
  const names = ["lookup", "partition", "trained", "polynomial", "circuit", "corollary", "attention-only", "local-polynomials", "yun"];
  const found = names.findIndex((known) => name.startsWith(known));
  const colours = [...palette(), ...(dark() ? ["#7fd0d8", "#c9b458", "#b79bf0", "#e0846f", "#a5adb8"] : ["#0f7d88", "#8a7410", "#6d45b8", "#b0452c", "#5d6876"])];
  return colours[found < 0 ? colours.length - 1 : found];
}

export function comparison(id, points, current) {
  const traces = Object.entries(SERIES).map(([key, look]) => {
    const mine = points.filter((p) => p.series === key).sort((a, b) => a.tokens - b.tokens);
    const seen = mine.find((p) => p.points);
    return {
      x: mine.map((p) => p.tokens), y: mine.map((p) => p.error), mode: "lines+markers",
      name: look.name + (seen ? ` on ${seen.points.toLocaleString("en")} points` : ""),
      marker: { symbol: look.symbol, size: 8 }, line: { dash: look.dash, color: constructionColour(key) },
      hovertemplate: `%{x} tokens<br>error ${key === "trained" ? "seen" : "≤"} %{y:.3g}<extra>${key}</extra>`,
    };
  });
  if (current) {
    traces.push({
      x: [current.tokens], y: [current.error], mode: "markers", name: "your model, proven",
      marker: { symbol: "star", size: 14, color: css("--ink") },
    });
  }
  const log = { type: "log", dtick: 1 };
  return draw(id, traces, { xaxis: axis("memory tokens", log), yaxis: axis("error", { type: "log", nticks: 8 }), showlegend: true });
}
