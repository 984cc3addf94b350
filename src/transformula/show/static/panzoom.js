"use strict";
// <pan-zoom> around a drawing: it fits; buttons, keys, Ctrl + wheel and two fingers zoom; dragging pans; a click on a
// box tells what its tooltip says. Without scripts the drawing just stands there.
{
  const MOST = 12; // times larger than what fits
  const STEP = 1.4;

  class PanZoom extends HTMLElement {
    connectedCallback() {
      this.svg = this.querySelector("svg");
      if (!this.svg || this.dataset.ready) return;
      this.dataset.ready = "yes";
      const { x, y, width, height } = this.svg.viewBox.baseVal;
      this.whole = { x, y, width, height };
      this.view = this.whole;
      this.fingers = new Map();
      this.svg.setAttribute("tabindex", "0");
      this.tools();
      this.told = Object.assign(document.createElement("p"), { className: "told" });
      this.told.setAttribute("role", "status");
      this.append(this.told);
      this.listen();
      new ResizeObserver(() => this.show(this.view)).observe(this.svg);
    }

    tools() {
      const bar = Object.assign(document.createElement("div"), { className: "zoom" });
      const buttons = [["+", "Zoom in", () => this.zoom(STEP)], ["−", "Zoom out", () => this.zoom(1 / STEP)], ["Fit", "Fit", () => this.fit()]];
      for (const [text, label, action] of buttons) {
        const button = Object.assign(document.createElement("button"), { type: "button", textContent: text });
        button.setAttribute("aria-label", label);
        button.addEventListener("click", action);
        bar.append(button);
      }
      bar.append(Object.assign(document.createElement("span"), { textContent: "drag to move, click a box to read it in full" }));
      this.prepend(bar);
    }

    fit() {
      this.show(this.whole);
    }

    // Fit the view to the shape of its window, and keep it on the drawing.
    show(view) {
      const { whole } = this;
      const { clientWidth, clientHeight } = this.svg;
      if (!clientWidth || !clientHeight) return; // hidden for now
      const shape = clientHeight / clientWidth;
      const widest = Math.max(whole.width, whole.height / shape);
      const width = view === whole ? widest : Math.min(Math.max(view.width, whole.width / MOST), widest);
      const height = width * shape;
      const inside = (value, low, size, all) => (size >= all ? low + (all - size) / 2 : Math.min(Math.max(value, low), low + all - size));
      const x = inside(view.x, whole.x, width, whole.width);
      const y = inside(view.y, whole.y, height, whole.height);
      this.view = width < widest ? { x, y, width, height } : whole;
      this.svg.setAttribute("viewBox", `${x} ${y} ${width} ${height}`);
      this.toggleAttribute("data-zoomed", width < widest);
    }

    // A place on the screen in the drawing's own units.
    place(clientX, clientY) {
      return new DOMPoint(clientX, clientY).matrixTransform(this.svg.getScreenCTM().inverse());
    }

    zoom(factor, at = { x: this.view.x + this.view.width / 2, y: this.view.y + this.view.height / 2 }) {
      const { x, y, width, height } = this.view;
      const share = Math.max(width / factor, this.whole.width / MOST) / width;
      this.show({ x: at.x - (at.x - x) * share, y: at.y - (at.y - y) * share, width: width * share, height: height * share });
    }

    pan(right, down) {
      const { x, y } = this.view;
      this.show({ ...this.view, x: x + right, y: y + down });
    }

    listen() {
      const { svg } = this;
      svg.addEventListener("wheel", (event) => {
        if (!event.ctrlKey && !event.metaKey) return; // a plain wheel scrolls the page
        event.preventDefault();
        this.zoom(STEP ** (-event.deltaY / 100), this.place(event.clientX, event.clientY));
      }, { passive: false });
      svg.addEventListener("pointerdown", (event) => {
        this.fingers.set(event.pointerId, event);
        this.from = { x: event.clientX, y: event.clientY };
      });
      svg.addEventListener("pointermove", (event) => this.move(event));
      for (const name of ["pointerup", "pointercancel"]) {
        svg.addEventListener(name, (event) => {
          this.fingers.delete(event.pointerId);
          this.removeAttribute("data-held");
        });
      }
      svg.addEventListener("click", (event) => this.tell(event));
      svg.addEventListener("keydown", (event) => this.key(event));
    }

    move(event) {
      const before = this.fingers.get(event.pointerId);
      if (!before) return;
      const others = [...this.fingers.values()].filter((finger) => finger.pointerId !== event.pointerId);
      if (others.length) {
        const apart = (a, b) => Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY) || 1;
        this.zoom(apart(event, others[0]) / apart(before, others[0]), this.place(event.clientX, event.clientY));
      } else if (this.hasAttribute("data-zoomed")) {
        const [start, end] = [this.place(before.clientX, before.clientY), this.place(event.clientX, event.clientY)];
        this.svg.setPointerCapture(event.pointerId);
        this.setAttribute("data-held", "");
        this.pan(start.x - end.x, start.y - end.y);
      }
      this.fingers.set(event.pointerId, event);
    }

    tell(event) {
      if (Math.hypot(event.clientX - this.from?.x, event.clientY - this.from?.y) > 4) return; // it was dragged
      const box = document.elementFromPoint(event.clientX, event.clientY)?.closest("g");
      this.svg.querySelector(".chosen")?.classList.remove("chosen");
      box?.classList.add("chosen");
      this.told.textContent = box?.querySelector("title")?.textContent ?? "";
    }

    key(event) {
      const { width, height } = this.view;
      const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      if (event.key === "+" || event.key === "=") this.zoom(STEP);
      else if (event.key === "-") this.zoom(1 / STEP);
      else if (event.key === "0") this.fit();
      else if (moves[event.key] && this.hasAttribute("data-zoomed")) {
        this.pan((moves[event.key][0] * width) / 8, (moves[event.key][1] * height) / 8);
      } else return;
      event.preventDefault();
    }
  }
  customElements.define("pan-zoom", PanZoom);
}
