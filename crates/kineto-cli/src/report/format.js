"use strict";
// Elements, numbers and texts. Texts of a trace become text nodes only, never markup.

const SVG = "http://www.w3.org/2000/svg";

// Returns an element with attributes and children; a child that is no node becomes text.
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  return fill(element, attributes, children);
}

function draw(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "width%") element.style.width = `${value}%`;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined) continue;
    element.append(child instanceof Node ? child : clean(child));
  }
  return element;
}

// Shows control characters and marks of direction, which could hide or reorder a text.
function clean(text) {
  return String(text)
    .replace(/[\u0000-\u001f]/g, (c) => (c === "\n" || c === "\t" ? " " : String.fromCharCode(0x2400 + c.charCodeAt(0))))
    .replace(/[\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g, "\u00b7");
}

// Formats microseconds with a unit that keeps four digits.
function time(us) {
  if (us === null || us === undefined) return "–";
  const size = Math.abs(us);
  if (size >= 1e6) return `${digits(us / 1e6)} s`;
  if (size >= 1e3) return `${digits(us / 1e3)} ms`;
  if (size >= 1 || size === 0) return `${digits(us)} µs`;
  return `${Math.round(us * 1e3)} ns`;
}

// Formats nanoseconds, all digits of them, in microseconds.
function exact(ns) {
  return `${(Math.round(ns) / 1e3).toLocaleString("en-US", { minimumFractionDigits: 3 })} µs`;
}

function digits(value) {
  const size = Math.abs(value);
  return value.toLocaleString("en-US", { maximumFractionDigits: size >= 100 ? 1 : size >= 10 ? 2 : 3 });
}

function count(value) {
  return Number(value ?? 0).toLocaleString("en-US");
}

function plural(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

function percent(part, whole) {
  return whole > 0 ? percentText((part * 100) / whole) : "–";
}

// Formats a percentage; little is not shown as nothing.
function percentText(value) {
  if (value === null || value === undefined) return "–";
  return value > 0 && value < 0.05 ? "< 0.1 %" : `${value.toFixed(1)} %`;
}

function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = Math.abs(value);
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${value < 0 ? "−" : ""}${digits(size)} ${units[unit]}`;
}

function number(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) >= 1e9 ? value.toExponential(3) : digits(value);
}

// Lets the keyboard reach what is cut: parts that are wider than the page scroll, and rows with long names open.
const watcher = new ResizeObserver((entries) => entries.forEach((entry) => tend(entry.target)));

function tend(part) {
  const isWide = part.scrollWidth > part.clientWidth + 1 || part.scrollHeight > part.clientHeight + 1;
  for (const [key, value] of [["tabindex", 0], ["role", "region"], ["aria-label", part.dataset.label]]) isWide ? part.setAttribute(key, value) : part.removeAttribute(key);
  // The name under the pointer is open; it is cut again as soon as the pointer or the keyboard leaves it.
  part.classList.add("measured");
  for (const name of part.querySelectorAll(".name code")) {
    if (name.scrollHeight > name.clientHeight + 1) name.setAttribute("tabindex", 0);
    else name.removeAttribute("tabindex");
  }
  part.classList.remove("measured");
}

// Returns a part of the page that scrolls sideways if the page is too narrow for it.
function scrolling(kind, label, ...children) {
  const part = make("div", { class: kind, "data-label": label }, children);
  watcher.observe(part);
  return part;
}

// Returns a table. Columns: { title, value(row), show(row) or value, numeric, name, bar, action }. The first column heads its row.
// `options.sorted` is the title of the column by which it is sorted first.
function table(caption, columns, rows, options = {}) {
  const body = make("tbody");
  const element = make("table", { class: options.class }, make("caption", null, make("span", null, caption)));
  const head = make("tr");
  const cell = (column, row, index) => {
    const shown = column.show ? column.show(row) : column.value(row);
    const kind = [column.numeric ? "n" : "", column.name ? "name" : "", column.action ? "action" : "", column.bar ? "bar" : ""].join(" ").trim();
    const content = column.name && !(shown instanceof Node) ? make("code", null, shown) : shown;
    return index === 0 ? make("th", { scope: "row", class: kind || null }, content) : make("td", { class: kind || null }, content);
  };
  const fillBody = (list) => {
    body.replaceChildren(...list.map((row) => make("tr", { class: options.mark?.(row) ? "slow" : null }, columns.map((column, index) => cell(column, row, index)))));
  };
  const sortBy = (column, header) => {
    const isDown = header.getAttribute("aria-sort") !== "descending" ? column.numeric || header.getAttribute("aria-sort") === "ascending" : false;
    for (const other of head.children) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", isDown ? "descending" : "ascending");
    const order = (a, b) => (column.numeric ? column.value(a) - column.value(b) || 0 : String(column.value(a)).localeCompare(String(column.value(b)), "en", { numeric: true }));
    // Unknown numbers follow the known ones in both directions.
    const isUnknown = (row) => column.numeric && Number.isNaN(column.value(row));
    fillBody([...rows].sort((a, b) => isUnknown(a) - isUnknown(b) || (isDown ? -order(a, b) : order(a, b))));
    tend(part);
  };
  columns.forEach((column) => {
    const header = make("th", { scope: "col", class: column.numeric ? "n" : null });
    const isShownOnly = column.bar || column.action;
    if (options.sortable && !isShownOnly) header.append(make("button", { type: "button", onclick: () => sortBy(column, header) }, column.title));
    else header.append(isShownOnly ? make("span", { class: "sr" }, column.title) : column.title);
    head.append(header);
  });
  fillBody(rows);
  element.append(make("thead", null, head), body);
  const part = scrolling(rows.length > 14 ? "scroll tall" : "scroll", caption, element);
  const sorted = columns.findIndex((column) => column.title === options.sorted);
  if (sorted >= 0) sortBy(columns[sorted], head.children[sorted]);
  const parts = [part];
  if (options.csv) parts.push(make("div", { class: "bar-of-tools" }, csvButton(options.csv, caption, columns, rows)));
  return make("div", null, parts);
}

function csvButton(name, caption, columns, rows) {
  const quote = (value) => {
    const text = String(value ?? "");
    // A sheet would run a cell that begins like a formula.
    const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
  };
  const shown = columns.filter((column) => !column.bar && !column.action);
  const lines = () => [shown.map((column) => quote(column.csv ?? column.title)), ...rows.map((row) => shown.map((column) => quote(column.value(row))))];
  const status = make("span", { role: "status", class: "hint" });
  const copy = async () => {
    const text = lines().map((line) => line.join(",")).join("\n");
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Pages from files may lack the clipboard's interface.
      const area = make("textarea", { class: "sr" });
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    status.textContent = `${plural(rows.length, "row")} copied`;
  };
  return [make("button", { type: "button", onclick: copy, "aria-label": `Copy as CSV: ${caption}`, "data-csv": name }, "Copy as CSV"), status];
}

function meter(part, whole, kind) {
  const share = whole > 0 ? Math.min(100, Math.max(0, (part * 100) / whole)) : 0;
  return make("span", { class: "meter", "aria-hidden": "true" }, make("i", { class: kind, "width%": share }));
}

// Returns a card with a heading.
function card(id, title, lead, ...children) {
  return make("section", { class: "card", id, "aria-labelledby": `${id}-title` }, make("h2", { id: `${id}-title` }, title), lead ? make("p", { class: "lead" }, lead) : null, children);
}
