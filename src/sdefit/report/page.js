"use strict";
// A click on a column's head sorts its table by that column; a second click turns the order round.
for (const button of document.querySelectorAll("thead button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th"), body = head.closest("table").tBodies[0];
    const place = head.cellIndex, down = head.getAttribute("aria-sort") === "ascending";
    const value = (row) => row.cells[place].dataset.value ?? "";
    const order = (a, b) => {
      const x = Number(value(a)), y = Number(value(b));
      if (Number.isNaN(x) || Number.isNaN(y)) return value(a).localeCompare(value(b));
      return x - y;
    };
    const rows = [...body.rows].sort(order);
    body.append(...(down ? rows.reverse() : rows));
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  });
}

// Charts: the nearest point under the pointer; drag over an area to zoom, double-click to see all again.
const tip = document.createElement("div");
tip.className = "tip";
tip.setAttribute("role", "tooltip");
tip.hidden = true;
document.body.append(tip);

const make = (svg, name, facts) => {
  const element = document.createElementNS(svg.namespaceURI, name);
  for (const [key, value] of Object.entries(facts)) element.setAttribute(key, value);
  return element;
};

function show(value, span, date) {
  if (date) {
    const day = new Date(value * 864e5);
    if (Number.isNaN(day.getTime())) return "";
    return day.toISOString().slice(0, span > 3 ? 10 : 16).replace("T", " ");
  }
  const digits = 3 - Math.floor(Math.log10(span));
  const text = digits < -2 || digits > 9 ? value.toExponential(3) : value.toFixed(Math.max(digits, 0));
  return text.replaceAll("-", "−");
}

function steps(low, high, about) {
  const rough = (high - low) / about, unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 2.5, 5, 10].find((s) => s * unit >= rough), found = [];
  for (let i = Math.ceil(low / step); i * step <= high && found.length < 20; i++) found.push(i * step);
  return found;
}

class Chart {
  constructor(svg) {
    this.svg = svg;
    this.data = svg.dataset;
    this.marks = svg.querySelector(".marks");
    const box = svg.querySelector("clipPath rect");
    const [x, y, w, h] = ["x", "y", "width", "height"].map((name) => Number(box.getAttribute(name)));
    this.box = { l: x, r: x + w, t: y, b: y + h };
    const [x0, x1] = this.data.x.split(" ").map(Number), [y0, y1] = this.data.y.split(" ").map(Number);
    this.x = { toValue: (u) => x0 + (u - x) / w * (x1 - x0), toSheet: (v) => x + (v - x0) / (x1 - x0) * w };
    this.y = { toValue: (u) => y1 - (u - y) / h * (y1 - y0), toSheet: (v) => y + (y1 - v) / (y1 - y0) * h };
    this.names = JSON.parse(this.data.names ?? "null");
    this.rows = JSON.parse(this.data.rows ?? "null");
    this.ring = make(svg, "circle", { r: 5, class: "ring", visibility: "hidden" });
    this.brush = make(svg, "rect", { class: "brush", visibility: "hidden" });
    svg.append(this.ring, this.brush);
    this.reset();
    svg.addEventListener("pointermove", (event) => this.moved(event));
    svg.addEventListener("pointerdown", (event) => this.pressed(event));
    svg.addEventListener("pointerup", (event) => this.released(event));
    svg.addEventListener("pointerleave", () => this.hide());
    svg.addEventListener("pointercancel", () => { this.from = null; this.hide(); });
    svg.addEventListener("dblclick", () => this.reset());
    svg.addEventListener("keydown", (event) => this.key(event));
  }

  // Where the pointer is on the sheet, and where a place of the whole sheet is now.
  place(event) {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.svg.getScreenCTM().inverse());
    return { x: point.x, y: point.y };
  }
  scale() {
    const { l, r, t, b } = this.box, view = this.view;
    return { x: (r - l) / (view.r - view.l), y: (b - t) / (view.b - view.t) };
  }
  now(point) {
    const s = this.scale();
    return { x: this.box.l + (point.x - this.view.l) * s.x, y: this.box.t + (point.y - this.view.t) * s.y };
  }
  before(point) {
    const s = this.scale();
    return { x: this.view.l + (point.x - this.box.l) / s.x, y: this.view.t + (point.y - this.box.t) / s.y };
  }

  points() {
    this.known ??= [...this.marks.querySelectorAll("g[data-label]:not(.band)")].flatMap((mark) => {
      const tips = JSON.parse(mark.dataset.tips ?? "[]"), path = mark.querySelector("path")?.getAttribute("d") ?? "";
      const corners = [...path.matchAll(/[ML]\s*(-?[\d.]+) (-?[\d.]+)/g)];
      return corners.map((at, i) => ({ x: Number(at[1]), y: Number(at[2]), label: mark.dataset.label, tip: tips[i] }));
    });
    return this.known;
  }

  moved(event) {
    const at = this.place(event);
    if (this.from) return this.drag(at);
    const { l, r, t, b } = this.box;
    let best = null, nearest = 40;
    for (const point of this.points()) {
      const here = this.now(point), distance = Math.hypot(here.x - at.x, here.y - at.y);
      const inside = here.x >= l - 1 && here.x <= r + 1 && here.y >= t - 1 && here.y <= b + 1;
      if (inside && distance < nearest) [best, nearest] = [point, distance];
    }
    if (!best) return this.hide();
    const here = this.now(best);
    this.ring.setAttribute("cx", here.x);
    this.ring.setAttribute("cy", here.y);
    this.ring.setAttribute("visibility", "visible");
    tip.textContent = best.tip ?? this.words(best);
    tip.hidden = false;
    const left = Math.min(event.clientX + 14, document.documentElement.clientWidth - tip.offsetWidth - 6);
    tip.style.left = `${Math.max(left, 6) + window.scrollX}px`;
    tip.style.top = `${event.clientY + 16 + window.scrollY}px`;
  }

  words(point) {
    const view = this.view, x = this.x.toValue(point.x), y = this.y.toValue(point.y);
    const wide = this.x.toValue(view.r) - this.x.toValue(view.l);
    const tall = Math.abs(this.y.toValue(view.t) - this.y.toValue(view.b));
    const across = this.names ? this.names[Math.round(x)] ?? "" : show(x, wide, this.data.dates);
    const up = this.data.log ? Number((10 ** y).toPrecision(3)).toString() : show(y, tall, false);
    return `${point.label}: ${up}\n${this.data.across ? `${this.data.across} ` : ""}${across}`;
  }

  hide() {
    tip.hidden = true;
    this.ring.setAttribute("visibility", "hidden");
  }

  pressed(event) {
    if (event.pointerType === "touch" || event.button) return;
    this.from = this.place(event);
    this.svg.setPointerCapture(event.pointerId);
    this.hide();
  }
  area(at) {
    const clamp = (v, low, high) => Math.min(Math.max(v, low), high), { l, r, t, b } = this.box;
    let [x0, x1] = [this.from.x, at.x].map((v) => clamp(v, l, r)).sort((p, q) => p - q);
    let [y0, y1] = [this.from.y, at.y].map((v) => clamp(v, t, b)).sort((p, q) => p - q);
    if (this.names || x1 - x0 < 8) [x0, x1] = [l, r];
    if (this.rows || y1 - y0 < 8) [y0, y1] = [t, b];
    return { x: x0, y: y0, width: x1 - x0, height: y1 - y0 };
  }
  drag(at) {
    for (const [name, value] of Object.entries(this.area(at))) this.brush.setAttribute(name, value);
    this.brush.setAttribute("visibility", "visible");
  }
  released(event) {
    if (!this.from) return;
    const at = this.place(event), far = Math.hypot(at.x - this.from.x, at.y - this.from.y) > 8, area = this.area(at);
    this.from = null;
    this.brush.setAttribute("visibility", "hidden");
    if (!far) return;
    const low = this.before({ x: area.x, y: area.y });
    const high = this.before({ x: area.x + area.width, y: area.y + area.height });
    this.look({ l: low.x, r: high.x, t: low.y, b: high.y });
  }

  key(event) {
    const { l, r, t, b } = this.view, w = r - l, h = b - t, grow = { "+": -0.15, "=": -0.15, "-": 0.2 }[event.key];
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (event.key === "Escape") this.reset();
    else if (grow) this.look({ l: l - grow * w, r: r + grow * w, t: t - grow * h, b: b + grow * h });
    else if (move && this.svg.classList.contains("zoomed")) {
      const [x, y] = [move[0] * w / 5, move[1] * h / 5];
      this.look({ l: l + x, r: r + x, t: t + y, b: b + y });
    } else return;
    event.preventDefault();
  }

  reset() {
    this.look({ ...this.box });
  }

  // Show another part of the sheet: the marks move as one, and the ticks are drawn anew.
  look(view) {
    const whole = this.box;
    if (this.names) view = { ...view, l: whole.l, r: whole.r };
    if (this.rows) view = { ...view, t: whole.t, b: whole.b };
    if ((whole.r - whole.l) / (view.r - view.l) > 1e4 || (whole.b - whole.t) / (view.b - view.t) > 1e4) return;
    this.view = view.r - view.l > 1.02 * (whole.r - whole.l) ? { ...whole } : view;
    const s = this.scale(), zoomed = s.x !== 1 || s.y !== 1 || this.view.l !== whole.l || this.view.t !== whole.t;
    const shift = [whole.l - this.view.l * s.x, whole.t - this.view.t * s.y];
    this.marks.setAttribute("transform", `matrix(${s.x} 0 0 ${s.y} ${shift[0]} ${shift[1]})`);
    this.svg.classList.toggle("zoomed", zoomed);
    for (const old of this.svg.querySelectorAll(".new")) old.remove();
    if (!zoomed) return;
    if (!this.names) this.ticks("x", this.view.l, this.view.r, this.data.dates);
    if (!this.rows) this.ticks("y", this.view.b, this.view.t, false);
  }

  ticks(axis, from, to, date) {
    const model = this.svg.querySelector(`.${axis}tick:not(.new)`), text = model?.querySelector("text");
    if (!text) return;
    const line = model.querySelector("path")?.getAttribute("d").match(/M(-?[\d.]+) (-?[\d.]+)/);
    const home = line ? Number(line[axis === "x" ? 1 : 2]) : Number(text.getAttribute(axis));
    const low = this[axis].toValue(from), high = this[axis].toValue(to);
    const days = [1, 3, 5, 7].map((eighth) => low + (high - low) * eighth / 8);
    for (const value of date ? days : steps(low, high, 5)) {
      const sheet = this[axis].toSheet(value), to = this.now({ x: sheet, y: sheet })[axis] - home;
      const tick = model.cloneNode(true), log = axis === "y" && this.data.log;
      tick.classList.add("new");
      tick.setAttribute("transform", axis === "x" ? `translate(${to} 0)` : `translate(0 ${to})`);
      const number = Number(log ? (10 ** value).toPrecision(2) : value.toPrecision(10));
      tick.querySelector("text").textContent = date ? show(value, high - low, date) : String(number).replace("-", "−");
      this.marks.parentNode.before(tick);
    }
  }
}

for (const svg of document.querySelectorAll("svg.chart")) new Chart(svg);
