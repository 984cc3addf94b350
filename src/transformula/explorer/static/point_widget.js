// The point view of a notebook: sliders write `point`, Python answers with `bars`, `answer` and `target`.

const pretty = (value, digits = 6) => (value === null ? "not finite" : String(Number(value.toPrecision(digits))));

function element(tag, className, ...children) {
  const made = document.createElement(tag);
  made.className = className;
  made.append(...children);
  return made;
}

// Each bar begins where the one before it ends; the last is the answer, the thin line the formula's value.
function drawBars(place, bars, answer, target) {
  let reached = 0;
  const rows = bars.map(({ label, note, value }) => { reached += value; return { label, note, from: reached - value, value, colour: value < 0 ? "#2166ac" : "#b2182b" }; });
  rows.push({ label: "answer", note: "", from: 0, value: answer, colour: "var(--model)" });
  const ends = [0, target ?? 0, ...rows.flatMap(({ from, value }) => [from, from + value])];
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const percent = (value) => `${(100 * (value - low)) / (high - low || 1)}%`;
  const mark = (className, left, more = {}) => {
    const made = element("span", className);
    Object.assign(made.style, { left: percent(left), ...more });
    return made;
  };
  place.replaceChildren(...rows.map(({ label, note, from, value, colour }) => {
    const width = `${(100 * Math.abs(value)) / (high - low || 1)}%`;
    const track = element("span", "track", mark("", Math.min(from, from + value), { width, background: colour }), mark("zero", 0));
    if (target !== null) track.append(mark("target", target));
    const row = element("div", "bar", element("span", "", label), track, element("span", "", pretty(value)));
    Object.assign(row, { title: note, role: "listitem", ariaLabel: `${label}: ${pretty(value)}` });
    return row;
  }));
}

function render({ model, el }) {
  const [title, sliders, said, bars] = [element("div", "formula"), element("div", "sliders"), element("div", "said"), element("div", "bars")];
  title.innerHTML = model.get("title"); // markup that Python has escaped
  said.setAttribute("aria-live", "polite");
  bars.setAttribute("role", "list");
  const fields = model.get("ends").map(([name, low, high]) => {
    const input = Object.assign(document.createElement("input"), { type: "range", min: low, max: high, step: "any" });
    const shown = element("output", "");
    input.addEventListener("input", () => {
      model.set("point", { ...model.get("point"), [name]: Math.min(high, Math.max(low, input.valueAsNumber)) });
      model.save_changes();
    });
    sliders.append(element("label", "", element("span", "", name), input, shown));
    return { name, input, shown };
  });
  const update = () => {
    for (const { name, input, shown } of fields) {
      input.value = model.get("point")[name];
      shown.textContent = pretty(model.get("point")[name]);
    }
    const [answer, target, parts] = ["answer", "target", "bars"].map((key) => model.get(key));
    said.textContent = `answer ${pretty(answer, 9)}, formula ${pretty(target, 9)}; ${model.get("claim")}`;
    if (parts.length > 0 && answer !== null) drawBars(bars, parts, answer, target);
    else bars.replaceChildren();
  };
  for (const key of ["point", "answer", "target", "bars"]) model.on(`change:${key}`, update);
  update();
  el.append(element("div", "transformula-point", title, sliders, said, bars));
}

export default { render };
