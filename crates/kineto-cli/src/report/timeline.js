// The timeline: tracks of slices on a canvas, with zoom, pan, search, selection and links from launches to kernels.

// The width of the labels of tracks, and the most of the whole that they take.
const GUTTER = 190;
const GUTTER_SHARE = 0.3;
const AXIS = 24;
const LEVEL = 17;
const DENSITY = 9;
const LIGHT = {
  host: ["#c3d7f3", "#cbe5d8", "#f4e0b9", "#e4d0ea", "#d3dbe2", "#f4d0c5"],
  compute: "#1b4f9c", comm: "#e08a1e", memory: "#6fb7a5", call: "#c9b8e8", mark: "#dfe4ec",
  inkOn: { compute: "#ffffff", other: "#1a1f29" },
};
const DARK = {
  host: ["#2b4468", "#2c5244", "#5d4a22", "#523a5b", "#3c4755", "#62402f"],
  compute: "#6ea8ff", comm: "#f6c177", memory: "#2f7f6e", call: "#4a3f78", mark: "#2e3745",
  inkOn: { compute: "#0d1626", other: "#e8ecf3", comm: "#241803" },
};

class Timeline {
  // `id` is unique in the page.
  constructor(data, args, id) {
    this.id = id;
    this.names = data.names;
    this.cats = data.cats;
    this.args = args;
    this.span = Math.max(1, data.span_ns);
    this.cell = data.cell_ns;
    // Numbers of a long span are coarse; a view of too few of them would have the width 0.
    this.shortest = Math.max(20, this.span * 2 ** -46);
    this.decode(data.rows);
    this.view = [0, this.span];
    this.selected = -1;
    // Two times, of a range whose slices are added up.
    this.range = null;
    this.matches = null;
    this.found = "";
    this.build();
  }

  // Turns columns with differences into arrays over all rows.
  decode(rows) {
    const total = rows.reduce((sum, row) => sum + row.start.length, 0);
    this.start = new Float64Array(total);
    this.dur = new Float64Array(total);
    this.text = new Int32Array(total);
    this.cat = new Int32Array(total);
    // By slice: its color, see slice_kind in data.rs.
    this.kind = new Int32Array(total);
    this.level = new Int32Array(total);
    this.parent = new Int32Array(total);
    this.launch = new Int32Array(total).fill(-1);
    this.row = new Int32Array(total);
    this.launched = new Map();
    let at = 0;
    let top = 0;
    this.rows = rows.map((row, index) => {
      const first = at;
      let start = 0;
      row.start.forEach((step, place) => {
        start += step;
        this.start[at] = start;
        this.dur[at] = row.dur[place];
        this.text[at] = row.text[place];
        this.cat[at] = row.cat[place];
        this.kind[at] = row.kind[place];
        this.level[at] = row.level[place];
        this.parent[at] = row.parent[place];
        this.row[at] = index;
        const launch = row.launch[place] ?? -1;
        this.launch[at] = launch;
        if (launch >= 0) {
          if (!this.launched.has(launch)) this.launched.set(launch, []);
          this.launched.get(launch).push(at);
        }
        at += 1;
      });
      const cells = row.cells.map(([cell, count, busy]) => ({ cell, count, busy }));
      const height = Math.max(row.levels * LEVEL + (cells.length ? DENSITY : 0), 2 * LEVEL - 4) + 8;
      const found = { ...row, first, end: at, cells, top, height, merged: cells.reduce((sum, cell) => sum + cell.count, 0) };
      top += height;
      return found;
    });
    this.height = top;
  }

  build() {
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.axis = make("canvas", { "aria-hidden": "true" });
    this.tip = make("div", { class: "tip", hidden: true, "aria-hidden": "true" });
    this.spacer = make("div");
    this.scroller = make("div", {
      class: "rows", tabindex: 0, role: "application", "aria-label": "Timeline of tracks and slices",
      "aria-describedby": `${this.id}-keys`,
    }, this.canvas, this.spacer);
    this.facts = make("div", { class: "facts", "aria-live": "polite" });
    this.status = make("span", { role: "status", class: "hint" });
    const tool = (label, text, action) => make("button", { type: "button", "aria-label": label, title: label, onclick: action }, text);
    const search = make("input", { type: "search", placeholder: "Find slices by name", "aria-label": "Find slices by name", oninput: () => this.find(search.value), onkeydown: (event) => event.key === "Enter" && this.next(1, true) });
    this.element = make("div", null,
      make("div", { class: "bar-of-tools timeline-tools" },
        tool("Zoom in", "+", () => this.zoom(0.5)), tool("Zoom out", "−", () => this.zoom(2)),
        tool("Earlier", "←", () => this.pan(-0.3)), tool("Later", "→", () => this.pan(0.3)),
        tool("Show the whole trace", "Whole trace", () => this.show(0, this.span)), tool("Add up what is in view", "Sum", () => this.selectRange(...this.view)), search, this.status),
      make("p", { class: "hint", id: `${this.id}-keys` },
        "Drag to pan; drag on the time axis, or Ctrl + wheel, to zoom; double-click a slice to fit it; Shift + drag adds up what ran in a range. Keys: ",
        this.keys([["+", "−", "zoom"], ["←", "→", "pan"], ["↑", "↓", "scroll"], ["n", "p", "next, previous slice"], ["u", "outer slice"], ["l", "launch or kernel"], ["f", "fit the slice"], ["r", "sum of the view"], ["0", "whole trace"]])),
      make("div", { class: "timeline" }, this.axis, this.scroller, this.tip, this.facts));
    this.setHeight();
    this.describe();
    this.listen();
  }

  keys(groups) {
    return groups.map((group, index) => [index ? ", " : "", group.slice(0, -1).flatMap((key) => [make("kbd", null, key), " "]), group[group.length - 1]]).flat(2);
  }

  listen() {
    const at = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    this.scroller.addEventListener("keydown", (event) => this.key(event));
    this.scroller.addEventListener("scroll", () => this.draw());
    const wheel = (event) => {
      const sideways = event.shiftKey ? event.deltaY : event.deltaX;
      if (event.ctrlKey || event.metaKey) this.zoom(2 ** (Math.max(-60, Math.min(60, event.deltaY)) / 60), this.timeAt(at(event)[0]));
      else if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) this.pan(sideways / this.width);
      else return;
      event.preventDefault();
    };
    for (const canvas of [this.canvas, this.axis]) canvas.addEventListener("wheel", wheel, { passive: false });
    let drag = null;
    this.canvas.addEventListener("pointerdown", (event) => {
      drag = { x: event.clientX, y: event.clientY, view: this.view, scroll: this.scroller.scrollTop, isMoved: false, from: event.shiftKey ? this.timeAt(at(event)[0]) : null };
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!drag) return this.hover(...at(event));
      const moved = event.clientX - drag.x;
      drag.isMoved ||= Math.abs(moved) + Math.abs(event.clientY - drag.y) > 4;
      if (!drag.isMoved) return;
      if (drag.from !== null) {
        this.range = this.rangeOf(drag.from, this.timeAt(at(event)[0]));
        this.draw();
        return;
      }
      const shift = (moved * (drag.view[1] - drag.view[0])) / this.width;
      this.show(drag.view[0] - shift, drag.view[1] - shift);
      this.scroller.scrollTop = drag.scroll - (event.clientY - drag.y);
    });
    this.canvas.addEventListener("pointerup", (event) => {
      if (drag && !drag.isMoved) this.select(this.sliceAt(...at(event)));
      else if (drag && drag.from !== null) this.selectRange(drag.from, this.timeAt(at(event)[0]));
      drag = null;
    });
    this.canvas.addEventListener("pointercancel", () => {
      if (drag && drag.from !== null) this.select(-1);
      drag = null;
    });
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("dblclick", (event) => {
      this.select(this.sliceAt(...at(event)));
      this.fit();
    });
    let from = null;
    this.axis.addEventListener("pointerdown", (event) => {
      from = at(event)[0];
      this.axis.setPointerCapture(event.pointerId);
    });
    this.axis.addEventListener("pointerup", (event) => {
      const to = at(event)[0];
      const times = [this.timeAt(Math.min(from, to)), this.timeAt(Math.max(from, to))];
      if (from !== null && Math.abs(to - from) > 4) event.shiftKey ? this.selectRange(...times) : this.show(...times);
      from = null;
    });
    new ResizeObserver(() => this.draw()).observe(this.element);
    // Pages of many traces open faster if only what is near the window is painted.
    const near = (entries) => {
      this.isNear = entries[entries.length - 1].isIntersecting;
      this.draw();
    };
    new IntersectionObserver(near, { rootMargin: "500px" }).observe(this.element);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = {
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), w: () => this.zoom(0.5), "-": () => this.zoom(2), s: () => this.zoom(2),
      ArrowLeft: () => this.pan(-0.2), a: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2), d: () => this.pan(0.2),
      ArrowUp: () => { this.scroller.scrollTop -= 40; }, ArrowDown: () => { this.scroller.scrollTop += 40; },
      n: () => this.next(1), p: () => this.next(-1), f: () => this.fit(), u: () => this.select(this.parent[this.selected] ?? -1, true),
      l: () => this.follow(), r: () => this.selectRange(...this.view), 0: () => this.show(0, this.span), Home: () => this.show(0, this.span), Escape: () => this.select(-1),
    };
    const action = actions[event.key];
    if (!action) return;
    action();
    event.preventDefault();
  }

  // The width of the rows when they were last painted: reading it for each slice would take long.
  get total() {
    return this.painted ?? this.scroller.clientWidth;
  }

  get gutter() {
    return Math.min(GUTTER, Math.round(this.total * GUTTER_SHARE));
  }

  get width() {
    return Math.max(10, this.total - this.gutter);
  }

  timeAt(x) {
    return this.view[0] + ((x - this.gutter) * (this.view[1] - this.view[0])) / this.width;
  }

  xOf(time) {
    return this.gutter + ((time - this.view[0]) * this.width) / (this.view[1] - this.view[0]);
  }

  show(start, end) {
    const length = Math.min(this.span, Math.max(this.shortest, end - start));
    const first = Math.min(Math.max(0, start), this.span - length);
    this.view = [first, first + length];
    this.draw();
    this.report();
  }

  // Says what is in view, and what was found.
  report() {
    const length = this.view[1] - this.view[0];
    const shown = length < this.span ? `${time(length / 1e3)}, from ${exact(this.view[0])}` : "";
    this.status.textContent = [this.found, shown].filter(Boolean).join(" · ");
  }

  zoom(factor, around = (this.view[0] + this.view[1]) / 2) {
    const [start, end] = this.view;
    this.show(around - (around - start) * factor, around + (end - around) * factor);
  }

  pan(part) {
    const shift = (this.view[1] - this.view[0]) * part;
    this.show(this.view[0] + shift, this.view[1] + shift);
  }

  fit() {
    if (this.selected < 0) return;
    const margin = Math.max(10, this.dur[this.selected] * 0.15);
    this.show(this.start[this.selected] - margin, this.start[this.selected] + this.dur[this.selected] + margin);
  }

  find(text) {
    const wanted = text.trim().toLowerCase();
    this.matches = wanted ? this.names.map((name) => name.toLowerCase().includes(wanted)) : null;
    const found = this.matches ? this.text.reduce((sum, name) => sum + (this.matches[name] ? 1 : 0), 0) : 0;
    const merged = this.rows.reduce((sum, row) => sum + row.merged, 0);
    const rest = merged ? `; ${plural(merged, "merged slice")} not searched` : "";
    this.found = !this.matches ? "" : (found ? `${plural(found, "listed slice")} found; Enter shows the next` : "No listed slice found") + rest;
    this.draw();
    this.report();
  }

  // Selects the next slice of the selected one's track in this direction; with a search, the next match in the whole trace.
  next(step, isSearch = false) {
    const isWhole = isSearch || this.matches || this.selected < 0;
    const { first, end } = isWhole ? { first: 0, end: this.start.length } : this.rows[this.row[this.selected]];
    const total = end - first;
    let at = this.selected < 0 ? (step > 0 ? -1 : total) : this.selected - first;
    for (let tries = 0; tries < total; tries += 1) {
      at = (at + step + total) % total;
      const isMatch = this.matches ? this.matches[this.text[first + at]] : !isSearch;
      if (!isMatch) continue;
      this.select(first + at, true);
      if (isSearch) this.enlarge(first + at);
      return;
    }
  }

  // Zooms so far that a slice can be seen; what is around it stays in view.
  enlarge(slice) {
    const least = 24;
    const [start, end] = this.view;
    const length = (Math.max(this.dur[slice], 1) * this.width) / least;
    const middle = this.start[slice] + this.dur[slice] / 2;
    if (length < end - start) this.show(middle - length / 2, middle + length / 2);
  }

  // Selects the launch of the selected work, or the work of the selected launch.
  follow() {
    if (this.selected < 0) return;
    const other = this.launch[this.selected] >= 0 ? this.launch[this.selected] : (this.launched.get(this.selected) ?? [-1])[0];
    if (other >= 0) this.select(other, true);
  }

  // Returns the range between two times, in the trace.
  rangeOf(one, other) {
    return [one, other].map((at) => Math.min(Math.max(at, 0), this.span)).sort((a, b) => a - b);
  }

  // Adds up what ran between two times.
  selectRange(one, other) {
    const range = this.rangeOf(one, other);
    this.select(-1);
    this.range = range[1] > range[0] ? range : null;
    this.describe();
    this.draw();
  }

  // Selects a slice, and shows it if `isShown`.
  select(slice, isShown = false) {
    this.selected = slice >= 0 ? slice : -1;
    this.range = null;
    if (slice >= 0 && isShown) {
      const [start, end] = this.view;
      const middle = this.start[slice] + this.dur[slice] / 2;
      if (middle < start || middle > end) this.show(middle - (end - start) / 2, middle + (end - start) / 2);
      const row = this.rows[this.row[slice]];
      const top = row.top + this.level[slice] * LEVEL;
      if (top < this.scroller.scrollTop || top + LEVEL > this.scroller.scrollTop + this.scroller.clientHeight) this.scroller.scrollTop = Math.max(0, top - 20);
    }
    this.describe();
    this.draw();
  }

  name(slice) {
    return this.names[this.text[slice]];
  }

  track(slice) {
    const row = this.rows[this.row[slice]];
    return [row.process, row.name].filter(Boolean).join(" · ");
  }

  describe() {
    const slice = this.selected;
    if (this.range) {
      this.facts.replaceChildren(...rangeFacts(this, this.range));
      return;
    }
    if (slice < 0) {
      this.facts.replaceChildren(make("p", null, "Select a slice to see its times, its arguments, and what launched it."));
      return;
    }
    // The button is replaced, so the keyboard continues in the rows.
    const goTo = (other) => {
      this.select(other, true);
      this.scroller.focus({ preventScroll: true });
    };
    const go = (other) => make("button", { type: "button", onclick: () => goTo(other) }, `${this.name(other)} (${time(this.dur[other] / 1e3)})`);
    const rows = [["track", this.track(slice)], ["category", this.cats[this.cat[slice]]], ["start", exact(this.start[slice])], ["duration", exact(this.dur[slice])]];
    if (this.parent[slice] >= 0) rows.push(["inside", go(this.parent[slice])]);
    if (this.launch[slice] >= 0) {
      const launch = this.launch[slice];
      rows.push(["launched by", go(launch)], ["after its launch", exact(this.start[slice] - this.start[launch])]);
    }
    const launched = this.launched.get(slice) ?? [];
    launched.slice(0, 4).forEach((work) => rows.push(["launched", go(work)]));
    if (launched.length > 4) rows.push(["", `and ${plural(launched.length - 4, "more slice")}`]);
    for (const [key, value] of Object.entries(this.args[slice] ?? {})) rows.push([key, typeof value === "string" ? value : JSON.stringify(value)]);
    this.facts.replaceChildren(make("p", { class: "title" }, this.name(slice)), make("dl", null, rows.flatMap(([key, value]) => [make("dt", null, key), make("dd", null, value)])));
  }

  sliceAt(x, y) {
    const top = y + this.scroller.scrollTop;
    const row = this.rows.find((row) => top >= row.top && top < row.top + row.height);
    if (!row || x < this.gutter) return -1;
    const level = Math.floor((top - row.top - 4) / LEVEL);
    let [found, nearest] = [-1, 5];
    for (let slice = row.first; slice < row.end; slice += 1) {
      if (this.level[slice] !== level) continue;
      const left = this.xOf(this.start[slice]);
      const right = Math.max(left + 2, this.xOf(this.start[slice] + this.dur[slice]));
      const distance = x < left ? left - x : x > right ? x - right : 0;
      if (distance < nearest) [found, nearest] = [slice, distance];
    }
    return found;
  }

  hover(x, y) {
    const slice = this.sliceAt(x, y);
    let text = slice >= 0 ? `${this.name(slice)} · ${time(this.dur[slice] / 1e3)}` : "";
    if (slice < 0) {
      const top = y + this.scroller.scrollTop;
      const row = this.rows.find((row) => top >= row.top && top < row.top + row.height);
      const cell = row && x >= this.gutter ? row.cells.find((cell) => cell.cell === Math.floor(this.timeAt(x) / this.cell)) : null;
      if (cell) text = `${plural(cell.count, "merged slice")} in ${time(this.cell / 1e3)}, busy ${percent(cell.busy, this.cell)}`;
      else if (row && x < this.gutter) text = [row.process, row.name].filter(Boolean).join(" · ");
    }
    this.tip.hidden = !text;
    if (!text) return;
    this.tip.replaceChildren(clean(text.length > 260 ? `${text.slice(0, 260)}…` : text));
    const left = Math.min(x + 14, this.element.clientWidth - this.tip.offsetWidth - 8);
    this.tip.style.left = `${Math.max(4, left)}px`;
    this.tip.style.top = `${AXIS + y + 18}px`;
  }

  draw() {
    if (this.isPending) return;
    this.isPending = true;
    requestAnimationFrame(() => {
      this.isPending = false;
      this.paint();
    });
  }

  // Sets the height also before the first painting, so that a selection from elsewhere on the page can scroll the rows.
  setHeight() {
    const height = Math.max(60, Math.min(this.height, this.isPrinting ? 1600 : 520));
    this.canvas.style.height = `${height}px`;
    this.spacer.style.height = `${Math.max(0, this.height - height)}px`;
    return height;
  }

  paint() {
    this.painted = undefined;
    if (!this.isNear && !this.isPrinting) return;
    // Without the scroll bar, which the axis lacks.
    const width = this.scroller.clientWidth;
    if (width <= 0) return;
    this.painted = width;
    const height = this.setHeight();
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(`--${name}`).trim();
    this.paintAxis(width, color);
    const pen = this.pen(this.canvas, width, height);
    // The canvas stays in view while its rows scroll.
    this.canvas.style.position = "sticky";
    this.canvas.style.top = "0";
    const scroll = this.scroller.scrollTop;
    const palette = document.documentElement.dataset.theme === "dark" ? DARK : LIGHT;
    for (const row of this.rows) {
      if (row.top + row.height < scroll || row.top > scroll + height) continue;
      this.paintRow(pen, row, row.top - scroll, width, palette, color);
    }
    this.paintLinks(pen, scroll, color);
    this.paintRange(pen, width, height, color);
  }

  paintRange(pen, width, height, color) {
    if (!this.range) return;
    const [left, right] = this.range.map((at) => Math.min(Math.max(this.xOf(at), this.gutter), width));
    pen.fillStyle = color("selected");
    pen.globalAlpha = 0.14;
    pen.fillRect(left, 0, right - left, height);
    pen.globalAlpha = 1;
    for (const x of [left, right - 1]) pen.fillRect(x, 0, 1, height);
  }

  pen(canvas, width, height) {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "11.5px system-ui, sans-serif";
    pen.textBaseline = "middle";
    return pen;
  }

  paintAxis(width, color) {
    const pen = this.pen(this.axis, width, AXIS);
    pen.fillStyle = color("faint");
    pen.fillRect(0, 0, width, AXIS);
    const [start, end] = this.view;
    const rough = ((end - start) * 110) / this.width;
    const power = 10 ** Math.floor(Math.log10(rough));
    this.tick = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough) ?? rough;
    pen.fillStyle = color("soft");
    if (this.gutter >= 130) pen.fillText("time since the start", 8, AXIS / 2);
    for (const at of this.ticks()) {
      const x = this.xOf(at);
      pen.fillRect(x, AXIS - 6, 1, 6);
      if (x < width - 60) pen.fillText(this.tickText(at), x + 4, AXIS / 2);
    }
  }

  // Returns the times of the ticks in view. Their count is known before: adding a tick to a large time may not change it.
  ticks() {
    const first = Math.ceil(this.view[0] / this.tick);
    const number = Math.max(0, Math.floor((this.view[1] - this.view[0]) / this.tick) + 1);
    return Array.from({ length: number }, (_, index) => (first + index) * this.tick).filter((at) => at <= this.view[1]);
  }

  // Formats a time of the axis with the digits in which its ticks differ.
  tickText(at) {
    if (at === 0) return "0";
    const [unit, name] = at >= 1e9 ? [1e9, "s"] : at >= 1e6 ? [1e6, "ms"] : at >= 1e3 ? [1e3, "µs"] : [1, "ns"];
    const decimals = Math.max(0, Math.ceil(-Math.log10(this.tick / unit) - 1e-9));
    return `${(at / unit).toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals })} ${name}`;
  }

  paintRow(pen, row, top, width, palette, color) {
    pen.fillStyle = color("line");
    pen.fillRect(0, top + row.height - 1, width, 1);
    pen.save();
    pen.beginPath();
    pen.rect(this.gutter, top, width - this.gutter, row.height);
    pen.clip();
    pen.fillStyle = color("faint");
    for (const at of this.ticks()) pen.fillRect(this.xOf(at), top, 1, row.height);
    pen.fillStyle = color("soft");
    const base = top + row.height - DENSITY - 3;
    for (const { cell, busy } of row.cells) {
      const left = this.xOf(cell * this.cell);
      const right = this.xOf((cell + 1) * this.cell);
      if (right < this.gutter || left > width) continue;
      pen.globalAlpha = 0.2 + 0.8 * Math.min(1, busy / this.cell);
      pen.fillRect(left, base, Math.max(1, right - left), DENSITY - 1);
    }
    pen.globalAlpha = 1;
    const paint = (isMeant) => {
      const drawn = new Map();
      for (let slice = row.first; slice < row.end; slice += 1) if (isMeant(slice)) this.paintSlice(pen, slice, top, width, palette, color, drawn);
    };
    // Matches and the selected slice are over the others, which may share their pixels.
    const isMatch = (slice) => this.matches?.[this.text[slice]];
    paint((slice) => !isMatch(slice));
    if (this.matches) paint(isMatch);
    if (this.selected >= row.first && this.selected < row.end) this.paintSlice(pen, this.selected, top, width, palette, color, new Map());
    pen.restore();
    this.paintLabel(pen, row, top, color);
  }

  paintLabel(pen, row, top, color) {
    const fit = (text) => {
      const shown = clean(text);
      if (pen.measureText(shown).width <= this.gutter - 18) return shown;
      let kept = Math.floor((shown.length * (this.gutter - 24)) / pen.measureText(shown).width);
      while (kept > 1 && pen.measureText(`${shown.slice(0, kept)}…`).width > this.gutter - 18) kept -= 1;
      return `${shown.slice(0, kept)}…`;
    };
    pen.fillStyle = color("ink");
    pen.fillText(fit(row.name), 8, top + 12);
    pen.fillStyle = color("soft");
    const note = row.merged ? `${count(row.merged)} slices merged` : "";
    if (row.height > 32) pen.fillText(fit(row.process), 8, top + 26);
    if (note && row.height > 48) pen.fillText(fit(note), 8, top + 40);
  }

  paintSlice(pen, slice, top, width, palette, color, drawn) {
    const left = Math.round(this.xOf(this.start[slice]));
    const exact = Math.round(this.xOf(this.start[slice] + this.dur[slice]));
    const end = Math.max(exact, left + 1);
    if (end <= this.gutter || left > width) return;
    const level = this.level[slice];
    const isChosen = slice === this.selected;
    // Slices whose pixels those before them have are already visible.
    if (end <= (drawn.get(level) ?? -1)) return;
    drawn.set(level, end);
    const right = exact - left > 4 ? exact - 0.5 : end;
    const y = top + 4 + level * LEVEL;
    const kind = this.kind[slice];
    const text = this.text[slice];
    pen.globalAlpha = this.matches && !this.matches[text] ? 0.2 : 1;
    pen.fillStyle = [palette.compute, palette.comm, palette.memory, palette.call, palette.mark, palette.host[text % palette.host.length]][kind];
    pen.fillRect(left, y, right - left, LEVEL - 2);
    const shownLeft = Math.max(left, this.gutter);
    const shownWidth = Math.min(right, width) - shownLeft;
    if (isChosen || this.matches?.[text]) {
      pen.strokeStyle = color("selected");
      pen.lineWidth = isChosen ? 2.5 : 1.5;
      pen.strokeRect(left, y, right - left, LEVEL - 2);
    }
    if (shownWidth > 26) {
      const fits = Math.floor((shownWidth - 8) / 6.2);
      const name = this.names[text];
      pen.fillStyle = kind === 0 ? palette.inkOn.compute : kind === 1 ? palette.inkOn.comm ?? palette.inkOn.other : palette.inkOn.other;
      pen.fillText(clean(name.length > fits ? `${name.slice(0, Math.max(1, fits - 1))}…` : name), shownLeft + 4, y + LEVEL / 2 - 0.5, shownWidth - 6);
    }
    pen.globalAlpha = 1;
  }

  paintLinks(pen, scroll, color) {
    if (this.selected < 0) return;
    const pairs = this.launch[this.selected] >= 0 ? [[this.launch[this.selected], this.selected]] : (this.launched.get(this.selected) ?? []).slice(0, 50).map((work) => [this.selected, work]);
    const place = (slice, isEnd) => [
      this.xOf(this.start[slice] + (isEnd ? this.dur[slice] : 0)),
      this.rows[this.row[slice]].top - scroll + 4 + this.level[slice] * LEVEL + LEVEL / 2,
    ];
    pen.strokeStyle = color("selected");
    pen.fillStyle = color("selected");
    pen.lineWidth = 1.5;
    for (const [from, to] of pairs) {
      const [x1, y1] = place(from, false);
      const [x2, y2] = place(to, false);
      pen.beginPath();
      pen.moveTo(x1, y1);
      pen.bezierCurveTo(x1 + 30, y1, x2 - 40, y2, x2 - 5, y2);
      pen.stroke();
      pen.beginPath();
      pen.moveTo(x2, y2);
      pen.lineTo(x2 - 7, y2 - 4);
      pen.lineTo(x2 - 7, y2 + 4);
      pen.fill();
    }
  }
}
