// Builds the page of its data.

// The timelines of all traces.
const charts = [];

const SECTIONS = [["findings", "What to do"], ["time", "Time"], ["steps", "Steps"], ["utilization", "Utilization"], ["timeline", "Timeline"], ["operations", "Operators"], ["kernels", "Kernels"], ["gaps", "Gaps"], ["path", "Critical path"], ["launches", "Launches"], ["memory", "Memory"], ["counters", "Counters"], ["content", "Content"]];

function about(trace) {
  const { load, temporal } = trace.summary;
  const facts = [load.rank === null ? null : `rank ${load.rank}`, load.devices ? plural(load.devices, "device") : "no device work", load.streams ? plural(load.streams, "stream") : null, `${bytes(load.json_bytes)} of trace`, trace.rest.part ? `part: ${trace.rest.part}` : null];
  const answer = temporal ? `${load.devices === 1 ? "The device was" : "The devices were"} busy ${percent(temporal.busy, temporal.window)} of ${time(temporal.window)}.` : `The trace covers ${time(load.span)} of host time.`;
  return make("p", { class: "about" }, make("span", null, answer), facts.filter(Boolean).map((fact) => make("span", null, fact)));
}

function sectionOf(trace, index, heading) {
  const id = `t${index}`;
  const timeline = new Timeline(trace.timeline, trace.args, id);
  charts.push(timeline);
  const title = make(heading, { class: "name", id: `${id}-top` }, trace.rest.side ? `${trace.rest.side}: ${trace.rest.file}` : trace.rest.file);
  return make("article", { class: "trace", "aria-labelledby": `${id}-top` }, title, dumpOf(trace), about(trace), lossesOf(trace), tilesOf(trace), findingsOf(trace, id), breakdownOf(trace, id), stepsOf(trace, id, timeline), utilizationOf(trace, id), timelineOf(trace, id, timeline),
    operationsOf(trace, id), kernelsOf(trace, id), gapsOf(trace, id, timeline), pathOf(trace, id), launchesOf(trace, id), annotationsOf(trace, id), memoryOf(trace, id), countersOf(trace, id), contentOf(trace, id));
}

// `leftOut` is the number of traces that are not listed.
function ranksOf(traces, leftOut) {
  const brief = traces.filter((trace) => trace.brief).length;
  const longest = traces.reduce((worst, trace) => (trace.summary.load.span > worst.summary.load.span ? trace : worst));
  const nameOf = (trace) => (trace.rest.side ? `${trace.rest.side}: ${trace.rest.file}` : trace.rest.file);
  const lead = [traces.length > 1 ? `The longest is ${nameOf(longest)}: ${time(longest.summary.load.span)}.` : "", brief ? `The details of ${plural(brief, "trace")} are left out to keep this page small; a page of fewer traces has them.` : "", leftOut ? `${plural(leftOut, "more trace")} did not fit.` : ""].join(" ").trim();
  const share = (title, key) => ({ title, csv: `${key}_us`, numeric: true, value: (row) => row.summary.temporal?.[key] ?? NaN, show: (row) => (row.summary.temporal ? percent(row.summary.temporal[key], row.summary.temporal.window) : "–") });
  const columns = [
    { title: "trace", name: true, value: (row) => row.rest.file, show: (row) => make("span", null, row.rest.side ? `${row.rest.side}: ` : null, row.brief ? row.rest.file : make("a", { href: `#t${row.index}-top` }, row.rest.file), row === longest ? make("span", { class: "tag" }, "longest") : null) },
    { title: "rank", numeric: true, value: (row) => row.summary.load.rank ?? NaN, show: (row) => row.summary.load.rank ?? "–" },
    { title: "bar", bar: true, value: () => "", show: (row) => meter(row.summary.load.span, longest.summary.load.span) },
    { title: "span", csv: "span_us", numeric: true, value: (row) => row.summary.load.span, show: (row) => time(row.summary.load.span) },
    share("busy", "busy"), share("compute", "compute"), share("exposed communication", "exposed_comm"), share("idle", "idle"),
  ];
  return card("ranks", "Traces", lead || null, table(`${plural(traces.length, "trace")} side by side`, columns, traces, { sortable: true, sorted: "span", csv: "traces", mark: (row) => row === longest }));
}

// Returns the links at the top of the page: to the sections of a single trace, else to traces and their comparison.
function linksOf(traces) {
  const most = 6;
  const shortName = ({ rest }) => {
    const stem = rest.file.replace(/(\.pt)?(\.trace)?\.(json|pftrace|perfetto-trace)(\.gz)?$/, "");
    return (rest.side ? `${rest.side}: ` : "") + (stem.length > 24 ? `${stem.slice(0, 23)}…` : stem);
  };
  if (traces.length === 1) return SECTIONS.map(([id, text]) => [`t0-${id}`, text]);
  const detailed = traces.filter((trace) => !trace.brief).sort((a, b) => b.summary.load.span - a.summary.load.span).slice(0, most);
  const links = detailed.sort((a, b) => a.index - b.index).map((trace) => [`t${trace.index}-top`, shortName(trace)]);
  return [["diff-parts", "Where it changed"], ["diff-changes", "What changed"], ["ranks", "Traces"], ...links];
}

// Names the traces that the page lacks.
function unreadOf({ names, more }) {
  return names.length ? make("p", { class: "notice", role: "note" }, `Not read, so not on this page: ${names.join(", ")}${more ? ` and ${count(more)} more` : ""}.`) : null;
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const button = document.getElementById("theme");
  button.textContent = theme === "dark" ? "Light" : "Dark";
  button.setAttribute("aria-label", `Switch to ${theme === "dark" ? "light" : "dark"} colors`);
  charts.forEach((chart) => chart.paint());
}

// Prints in light colors, with the timeline in full height.
function preparePrinting() {
  let theme = null;
  window.addEventListener("beforeprint", () => {
    theme = document.documentElement.dataset.theme;
    charts.forEach((chart) => { chart.isPrinting = true; });
    setTheme("light");
  });
  window.addEventListener("afterprint", () => {
    charts.forEach((chart) => { chart.isPrinting = false; });
    setTheme(theme ?? "light");
  });
}

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { traces } = data;
  traces.forEach((trace, index) => { trace.index = index; });
  const content = document.getElementById("content");
  const total = traces.length + data.left_out;
  const unread = unreadOf(data.unread);
  if (unread) content.append(unread);
  if (data.diff) {
    const [a, b] = data.diff.sides;
    content.append(make("h1", { class: "name" }, `${a} and ${b}`), diffOf(data.diff, { a, b }));
  } else if (total > 1 || traces[0].brief) content.append(make("h1", null, plural(total, "trace")));
  if (total > 1 || traces[0].brief) content.append(ranksOf(traces, data.left_out));
  traces.forEach((trace, index) => trace.brief || content.append(sectionOf(trace, index, "h1")));
  const links = linksOf(traces).filter(([id]) => document.getElementById(id));
  document.getElementById("sections").append(...links.map(([id, text]) => make("a", { href: `#${id}` }, text)));
  document.getElementById("footer").append(make("p", null, `Made by kineto ${data.version}. Times are measured, to the nanosecond. This page is one file and loads nothing from a network.`));
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  setTheme(dark.matches ? "dark" : "light");
  // The reader's choice outlives changes of the system.
  let isChosen = false;
  dark.addEventListener("change", () => isChosen || setTheme(dark.matches ? "dark" : "light"));
  document.getElementById("theme").addEventListener("click", () => {
    isChosen = true;
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  });
  preparePrinting();
}

start();
