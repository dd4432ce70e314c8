// The sections of one trace. Each returns an element, or null if the trace has nothing to show there.

const CLASSES = { comm: "communication", compute: "compute", memory: "copy or fill", wait: "wait" };

function tilesOf(trace) {
  const { summary } = trace;
  const temporal = summary.temporal;
  const tiles = [["Time span", time(summary.load.span), `${plural(summary.load.slices, "slice")}`]];
  if (temporal) {
    tiles.push([summary.load.devices === 1 ? "Device busy" : `${count(summary.load.devices)} devices busy`, percent(temporal.busy, temporal.window), `${time(temporal.busy)} of ${time(temporal.window)}`]);
    tiles.push(["Compute", percent(temporal.compute, temporal.window), `${plural(summary.load.device_events, "piece")} of device work`]);
    if (temporal.comm > 0) tiles.push(["Exposed communication", percent(temporal.exposed_comm, temporal.window), `${time(temporal.exposed_comm)} without compute`]);
  }
  if (summary.steps.length) {
    // The summary may list only some steps.
    const { steps } = trace.rest;
    tiles.push([`Median of ${plural(steps.count, "step")}`, time(steps.median), `${time(steps.min)} to ${time(steps.max)}`]);
  }
  if (!temporal) tiles.push(["Operations", count(summary.ops_total.rows), `self time ${time(summary.ops_total.self_cpu_sum)}`]);
  return make("dl", { class: "tiles", "aria-label": "Key figures" }, tiles.map(([title, value, more]) => make("div", null, make("dt", null, title), make("dd", null, value, make("small", null, more)))));
}

// Tells why a running program was dumped.
function dumpOf(trace) {
  const reason = trace.summary.load.dump_reason;
  return reason ? make("p", { class: "about" }, make("span", null, `Dumped because of: ${reason}`)) : null;
}

function lossesOf(trace) {
  const lost = Object.entries(trace.summary.load.losses).map(([cause, number]) => `${cause} (${count(number)})`);
  const notes = trace.rest.notes.filter((note) => note[2]).map(([text, number]) => `${text} (${count(number)})`);
  const all = [...lost, ...notes];
  return all.length ? make("p", { class: "notice", role: "note" }, `Incomplete trace: ${all.join("; ")}. The figures lack what was lost.`) : null;
}

function findingsOf(trace, id) {
  const { findings } = trace.rest;
  if (!trace.summary.load.slices) return card(`${id}-findings`, "What to do next", null, make("p", null, trace.rest.part ? `No slice matches the selection: ${trace.rest.part}. Make a page with another one.` : "The trace has no slice. Record spans or device work."));
  const reason = trace.summary.load.dump_reason;
  if (!findings.length) return card(`${id}-findings`, "What to do next", null, make("p", null, reason ? `Find out what led to the dump: ${reason}` : "No problem was found."));
  const gain = (finding) => (finding.gain > 0 ? make("span", { class: "gain" }, `worth up to ${time(finding.gain)}`) : make("span"));
  const items = findings.map((finding) => make("li", null, make("div", null, make("strong", null, quoted(finding.title)), make("p", null, quoted(finding.evidence))), gain(finding)));
  return card(`${id}-findings`, "What to do next", "The largest problems first, each with the most that a fix can gain.", make("ol", { class: "findings" }, items));
}

// Sets names between backticks as code.
function quoted(text) {
  return text.split("`").map((part, index) => (index % 2 ? make("code", null, part) : part));
}

// Returns a stacked bar and its table. Parts: [class, title, microseconds, explanation].
function stackOf(caption, parts, whole) {
  const shown = parts.filter((part) => part[2] > 0);
  const bar = make("div", { class: "stack", "aria-hidden": "true" }, shown.map(([kind, , us]) => make("i", { class: kind, "width%": (us * 100) / Math.max(whole, 1e-9) })));
  const columns = [
    { title: "part", value: (row) => row[1], show: (row) => make("span", null, make("span", { class: `chip ${row[0]}`, "aria-hidden": "true" }), row[1]) },
    { title: "time", numeric: true, value: (row) => row[2], show: (row) => time(row[2]) },
    { title: "share", numeric: true, value: (row) => row[2], show: (row) => percent(row[2], whole) },
  ];
  return make("div", null, bar, table(caption, columns, parts.filter((part) => part[2] > 0 || part[3])));
}

function breakdownOf(trace, id) {
  const { temporal, idle } = trace.summary;
  if (!temporal) return hostTimeOf(trace, id);
  const alone = temporal.exclusive;
  const parts = [
    ["compute", "compute (alone or with other work)", temporal.compute, true],
    ["comm", "communication without compute", temporal.exposed_comm, false],
    ["memory", "copies and fills alone", alone.memory_only, true],
    ["idle", "idle", temporal.idle, true],
  ];
  const causes = [
    ["host-late", "before the launch: nothing was queued", idle.split_before_launch, true],
    ["queued", "after the launch: queued, started late", idle.split_after_launch, true],
    ["unknown", "before work whose launch is unknown", idle.split_unlinked, false],
  ];
  const total = causes.reduce((sum, cause) => sum + cause[2], 0);
  const devices = trace.summary.load.devices === 1 ? "the device" : "all devices combined";
  return make("div", { class: "pair" },
    card(`${id}-time`, "Where the time went", null, stackOf(`Time of ${devices}, from the first work to the last: ${time(temporal.window)}`, parts, temporal.window)),
    total > 0 ? card(`${id}-idle`, "Why streams were idle", null, stackOf(`Gaps between the work of each stream: ${time(total)} in all streams`, causes, total)) : null);
}

function hostTimeOf(trace, id) {
  const rows = trace.summary.ops_top20.filter((row) => row.self_cpu > 0).slice(0, 8);
  if (!rows.length) return null;
  const columns = [
    { title: "operation", name: true, value: (row) => row.name },
    { title: "bar", bar: true, value: () => "", show: (row) => meter(row.self_cpu, rows[0].self_cpu) },
    { title: "self time", numeric: true, value: (row) => row.self_cpu, show: (row) => time(row.self_cpu) },
    { title: "share", numeric: true, value: (row) => row.self_cpu_pct ?? 0, show: (row) => percentText(row.self_cpu_pct) },
  ];
  return card(`${id}-time`, "Where the time went", "The trace has no device work. These operations took most of the threads' time.", table("Operations by self time", columns, rows));
}

function stepsOf(trace, id, timeline) {
  const { steps } = trace.summary;
  if (!steps.length) return null;
  const slowest = steps.reduce((worst, step) => (step.dur > worst.dur ? step : worst));
  const has = trace.summary.temporal !== null;
  const columns = [
    { title: "step", value: (row) => row.n, show: (row) => make("span", null, `#${row.n}`, row === slowest && steps.length > 1 ? make("span", { class: "tag" }, "slowest") : null) },
    { title: "bar", bar: true, value: () => "", show: (row) => meter(row.dur, slowest.dur) },
    { title: "duration", csv: "duration_us", numeric: true, value: (row) => row.dur, show: (row) => time(row.dur) },
    has && { title: "device busy", csv: "device_busy_us", numeric: true, value: (row) => row.device_busy_in_window, show: (row) => percent(row.device_busy_in_window, row.dur) },
    has && { title: "device work", csv: "device_events", numeric: true, value: (row) => row.device_events, show: (row) => count(row.device_events) },
    has && { title: "with its device work", csv: "with_device_us", numeric: true, value: (row) => row.end_with_device, show: (row) => time(row.end_with_device) },
    { title: "timeline", action: true, value: () => "", show: (row) => jump(timeline, row.start, row.dur, `step ${row.n}`) },
  ].filter(Boolean);
  const listed = make("div", null, table("Steps", columns, steps, { sortable: true, csv: "steps", mark: (row) => row === slowest && steps.length > 1 }));
  const many = steps.length > 12;
  const total = trace.rest.steps.count;
  const part = total > steps.length ? ` The first ${count(steps.length)} of ${count(total)} steps are listed, with the slowest among them.` : "";
  const title = part ? `${count(steps.length)} of ${count(total)} steps as a table` : `All ${count(total)} steps as a table`;
  return card(`${id}-steps`, "Steps", steps.length > 1 ? `Step ${slowest.n} is the slowest: ${time(slowest.dur)}.${part}` : null, many ? stepChart(steps, slowest) : null, many ? make("details", null, make("summary", null, title), listed) : listed);
}

function stepChart(steps, slowest) {
  const [width, height, left] = [1000, 120, 60];
  const each = (width - left) / steps.length;
  const tall = (step) => (step.dur * (height - 18)) / Math.max(slowest.dur, 1e-9);
  const bars = steps.map((step, index) => draw("rect", {
    class: step === slowest ? "f-mark" : "f-compute", x: left + index * each, width: Math.max(0.5, each - (each > 3 ? 1 : 0)),
    y: height - tall(step), height: tall(step),
  }, draw("title", null, `step ${step.n}: ${time(step.dur)}`)));
  const at = left + steps.indexOf(slowest) * each;
  return chart({ viewBox: `0 0 ${width} ${height + 18}`, role: "img", "aria-label": `Durations of ${plural(steps.length, "step")}; the slowest is step ${slowest.n} with ${time(slowest.dur)}` },
    draw("text", { x: 0, y: 18 }, time(slowest.dur)), draw("text", { x: 0, y: height }, "0"), draw("line", { class: "grid", x1: left, x2: width, y1: height, y2: height }), bars,
    draw("text", { x: Math.min(at, width - 130), y: 12 }, `#${slowest.n} slowest`), draw("text", { x: left, y: height + 14 }, `#${steps[0].n}`),
    draw("text", { x: width - 50, y: height + 14 }, `#${steps[steps.length - 1].n}`));
}

// Returns a picture as wide as the page, but not narrower than its texts need.
function chart(attributes, ...children) {
  return scrolling("chart", attributes["aria-label"], draw("svg", attributes, children));
}

// Returns a button that shows a period (microseconds since the start) in the timeline.
function jump(timeline, start, duration, what) {
  const show = () => {
    const margin = duration * 0.1;
    timeline.show((start - margin) * 1e3, (start + duration + margin) * 1e3);
    timeline.element.scrollIntoView({ block: "start" });
    timeline.scroller.focus({ preventScroll: true });
  };
  return make("button", { type: "button", "aria-label": `Show ${what} in the timeline`, onclick: show }, "Show");
}

function utilizationOf(trace, id) {
  const all = trace.rest.utilization;
  if (!all.length) return null;
  const rows = all.length === 2 ? all.slice(0, 1) : all;
  const title = (row) => (row.device === null ? (all.length === 2 ? `Device ${all[1].device}` : "All devices") : `Device ${row.device}`);
  const legend = [["compute", "compute"], ["comm", "communication without compute"], ["memory", "copies and fills alone"]];
  const parts = rows.map((row) => [make("h3", null, title(row)), utilizationChart(row, title(row), trace)]);
  return card(`${id}-utilization`, "Device utilization over time", "The share of each interval in which the device worked. The parts do not overlap.",
    make("ul", { class: "legend" }, legend.map(([kind, text]) => make("li", null, make("span", { class: `chip ${kind}`, "aria-hidden": "true" }), text))), parts,
    make("details", null, make("summary", null, "Utilization as a table"), rows.map((row) => utilizationTable(row, title(row)))));
}

function utilizationChart(row, title, trace) {
  const [width, height, left] = [1000, 96, 40];
  const each = (width - left) / row.compute.length;
  const bars = [];
  row.compute.forEach((compute, index) => {
    let y = height;
    for (const [kind, ns] of [["compute", compute], ["comm", row.comm[index]], ["memory", row.memory[index]]]) {
      if (ns === 0) continue;
      const tall = Math.max(1, (ns * (height - 8)) / row.bucket_ns);
      y -= tall;
      bars.push(draw("rect", { class: `f-${kind}`, x: (left + index * each).toFixed(2), width: (each + 0.3).toFixed(2), y: y.toFixed(2), height: tall.toFixed(2) }));
    }
  });
  const lines = [[8, "100 %"], [(height + 8) / 2, "50 %"], [height, "0 %"]].map(([y, text]) => [draw("line", { class: "grid", x1: left, x2: width, y1: y, y2: y }), draw("text", { x: 0, y: y + 4 }, text)]);
  const busy = ["compute", "comm", "memory"].flatMap((kind) => row[kind]).reduce((sum, ns) => sum + ns, 0);
  const ends = [draw("text", { x: left, y: height + 15 }, "0"), draw("text", { x: width, y: height + 15, "text-anchor": "end" }, time(trace.summary.load.span))];
  return chart({ viewBox: `0 0 ${width} ${height + 20}`, role: "img", "aria-label": `${title}: busy ${time(busy / 1e3)} of ${time(trace.summary.load.span)}` }, lines.flat(), bars, ends);
}

// Returns at most 24 rows: neighboring intervals are added up.
function utilizationTable(row, title) {
  const step = Math.ceil(row.compute.length / 24);
  const rows = [];
  for (let first = 0; first < row.compute.length; first += step) {
    const sum = (kind) => row[kind].slice(first, first + step).reduce((total, ns) => total + ns, 0) / 1e3;
    const length = (Math.min(step, row.compute.length - first) * row.bucket_ns) / 1e3;
    rows.push({ start: (first * row.bucket_ns) / 1e3, length, compute: sum("compute"), comm: sum("comm"), memory: sum("memory") });
  }
  const part = (kind, text) => ({ title: text, numeric: true, csv: `${kind}_us`, value: (one) => one[kind], show: (one) => percent(one[kind], one.length) });
  const columns = [
    { title: "from", numeric: true, csv: "from_us", value: (one) => one.start, show: (one) => time(one.start) },
    part("compute", "compute"), part("comm", "communication"), part("memory", "copies"),
    { title: "busy", numeric: true, csv: "busy_us", value: (one) => one.compute + one.comm + one.memory, show: (one) => percent(one.compute + one.comm + one.memory, one.length) },
  ];
  return table(`${title}, in intervals of ${time((step * row.bucket_ns) / 1e3)}`, columns, rows, { csv: "utilization" });
}

function timelineOf(trace, id, timeline) {
  const { rows } = timeline;
  if (!rows.length) return null;
  const listed = timeline.start.length;
  const merged = rows.reduce((sum, row) => sum + row.merged, 0);
  const lead = merged ? `${plural(listed, "slice")} of ${count(listed + merged)} are listed, the longest of each track. The strip at the foot of a track shows how dense the ${count(merged)} others are.` : `All ${plural(listed, "slice")}.`;
  // Numbers of the page have 53 bits: 104 days of nanoseconds.
  const rounded = timeline.span > Number.MAX_SAFE_INTEGER ? ` In a trace of more than 104 days, starts are rounded to ${2 ** (Math.floor(Math.log2(timeline.span)) - 52)} ns.` : "";
  const columns = [
    { title: "track", name: true, value: (row) => row.name },
    { title: "process or device", value: (row) => row.process },
    { title: "listed slices", numeric: true, value: (row) => row.start.length, show: (row) => count(row.start.length) },
    { title: "merged slices", numeric: true, value: (row) => row.merged, show: (row) => count(row.merged) },
  ];
  return card(`${id}-timeline`, "Timeline", lead + rounded, timeline.element, make("details", null, make("summary", null, "Tracks as a table"), table("Tracks of the timeline", columns, rows, { sortable: true })),
    make("details", null, make("summary", null, "Longest slices as a table"), longestSlices(timeline)));
}

function longestSlices(timeline) {
  const order = Array.from(timeline.dur.keys()).sort((a, b) => timeline.dur[b] - timeline.dur[a]).slice(0, 50);
  const columns = [
    { title: "slice", name: true, value: (slice) => timeline.name(slice) },
    { title: "track", value: (slice) => timeline.track(slice) },
    { title: "start", csv: "start_us", numeric: true, value: (slice) => timeline.start[slice] / 1e3, show: (slice) => time(timeline.start[slice] / 1e3) },
    { title: "duration", csv: "duration_us", numeric: true, value: (slice) => timeline.dur[slice] / 1e3, show: (slice) => time(timeline.dur[slice] / 1e3) },
    { title: "launched by", value: (slice) => (timeline.launch[slice] >= 0 ? timeline.name(timeline.launch[slice]) : "") },
  ];
  return table(`The ${count(order.length)} longest slices`, columns, order, { sortable: true, csv: "slices" });
}

function operationsOf(trace, id) {
  const has = trace.summary.temporal !== null;
  const seen = new Set();
  const rows = [...(has ? trace.summary.ops_device_top20 : []), ...trace.summary.ops_top20].filter((row) => !seen.has(row.name + row.annotation) && seen.add(row.name + row.annotation));
  if (!rows.length) return null;
  const us = (title, key, csv) => ({ title, csv: `${csv ?? key}_us`, numeric: true, value: (row) => row[key], show: (row) => time(row[key]) });
  const columns = [
    { title: "operation", name: true, value: (row) => row.name },
    us("self CPU", "self_cpu"), us("total CPU", "cpu_total"),
    ...(has ? [us("self device", "self_device"), us("total device", "device_total")] : []),
    { title: "calls", numeric: true, value: (row) => row.count, show: (row) => count(row.count) },
  ];
  const total = trace.summary.ops_total.rows;
  const caption = total > rows.length ? `${count(rows.length)} of ${count(total)} operations: those with the most ${has ? "device time, then CPU time" : "CPU time"}` : plural(total, "operation");
  return card(`${id}-operations`, "Top operators", null, table(caption, columns, rows, { sortable: true, csv: "operators" }));
}

function kernelsOf(trace, id) {
  const { kernels, kernels_total: total } = trace.summary;
  if (!kernels.length) return null;
  const us = (key) => ({ title: key, csv: `${key}_us`, numeric: true, value: (row) => row[key], show: (row) => time(row[key]) });
  const columns = [
    { title: "name", name: true, value: (row) => row.name },
    { title: "class", value: (row) => CLASSES[row.class] ?? row.class, show: (row) => make("span", null, make("span", { class: `chip ${row.class}`, "aria-hidden": "true" }), CLASSES[row.class] ?? row.class) },
    { ...us("sum"), title: "total" },
    { title: "share", csv: "share_pct", numeric: true, value: (row) => (total.sum ? (row.sum * 100) / total.sum : 0), show: (row) => percent(row.sum, total.sum) },
    { title: "calls", numeric: true, value: (row) => row.count, show: (row) => count(row.count) },
    us("mean"), us("min"), us("max"),
  ];
  const caption = `${total.names > kernels.length ? `${count(kernels.length)} of ${count(total.names)} names` : plural(total.names, "name")}, ${plural(total.count, "call")}, ${time(total.sum)} in total`;
  return card(`${id}-kernels`, "Top kernels, copies and fills", null, table(caption, columns, kernels, { sortable: true, csv: "kernels" }));
}

function gapsOf(trace, id, timeline) {
  const { gaps_top5: gaps, idle, load } = trace.summary;
  if (!gaps.length) return null;
  const columns = [
    { title: "length", csv: "length_us", numeric: true, value: (row) => row.dur, show: (row) => time(row.dur) },
    { title: "start", csv: "start_us", numeric: true, value: (row) => row.start, show: (row) => time(row.start) },
    { title: "after", name: true, value: (row) => row.before },
    { title: "before", name: true, value: (row) => row.after },
    { title: "the host was in", name: true, value: (row) => row.host?.name ?? "unknown", show: (row) => (row.host ? `${row.host.name} (${time(row.host.self_in_gap)})` : "unknown") },
    { title: "next launch", csv: "launch_us", numeric: true, value: (row) => row.launch_start ?? NaN, show: (row) => (row.launch_start === null ? "unknown" : `${time(row.launch_start - row.start)} into the gap`) },
    { title: "timeline", action: true, value: () => "", show: (row) => jump(timeline, row.start, row.dur, `the gap of ${time(row.dur)}`) },
  ];
  const cause = (key, title) => ({ title, csv: `${key}_us`, numeric: true, value: (row) => row[key], show: (row) => time(row[key]) });
  const streams = [
    { title: "device", value: (row) => row.device }, { title: "stream", value: (row) => row.stream },
    cause("host_wait", "waits for the host"), cause("kernel_wait", "short gaps (< 30 µs)"), cause("other", "other"),
    { title: "gaps", numeric: true, value: (row) => row.gaps.host_wait + row.gaps.kernel_wait + row.gaps.other, show: (row) => count(row.gaps.host_wait + row.gaps.kernel_wait + row.gaps.other) },
  ];
  return card(`${id}-gaps`, "Idle gaps and their causes", null, table("The longest gaps in which no device worked", columns, gaps, { csv: "gaps" }),
    make("details", null, make("summary", null, `Idle time of ${plural(load.streams, "stream")}`), table("Idle time by stream and cause", streams, idle.streams, { sortable: true, csv: "idle" })));
}

function pathOf(trace, id) {
  const path = trace.summary.critical_path;
  if (!path || !trace.summary.temporal) return null;
  const us = { title: "time", csv: "time_us", numeric: true, value: (row) => row.sum, show: (row) => time(row.sum) };
  const share = { title: "share", csv: "share_pct", numeric: true, value: (row) => row.pct ?? 0, show: (row) => percentText(row.pct) };
  const pieces = { title: "pieces", numeric: true, value: (row) => row.pieces, show: (row) => count(row.pieces) };
  const kinds = [{ title: "kind", value: (row) => row.kind.replaceAll("_", " ") }, { title: "bar", bar: true, value: () => "", show: (row) => meter(row.sum, path.window) }, us, share, pieces];
  const names = [{ title: "name", name: true, value: (row) => row.name }, { title: "kind", value: (row) => row.kind.replaceAll("_", " ") }, us, share, pieces];
  return card(`${id}-path`, "Critical path", `What the end of the trace waited for, back to its start: host ${percent(path.host, path.window)}, device ${percent(path.device, path.window)}, waits ${percent(path.wait, path.window)}. Speeding up anything else gains nothing.`,
    table(`Critical path of ${time(path.window)} by kind`, kinds, path.kinds), make("details", null, make("summary", null, "Names on the critical path"), table("Critical path by name", names, path.names, { sortable: true, csv: "path" })));
}

function launchesOf(trace, id) {
  const { launch, queue, comm_kinds: comm, memory_bw: copies } = trace.summary;
  const rows = [["launches linked to device work", count(launch.count)], ["device work without a known launch", count(launch.unlinked)]];
  if (launch.count) {
    rows.push(["delay from call to work: median", time(launch.p50_delay)], ["delay: 95th percentile", time(launch.p95_delay)], ["delay: longest", time(launch.max_delay)], ["mean duration of a call", time(launch.mean_cpu_dur)],
      ["kernels shorter than their call", count(launch.short_kernels)], ["calls over 50 µs", count(launch.runtime_outliers)], ["longest queue", count(queue.max)]);
  }
  const pair = [{ title: "figure", value: (row) => row[0] }, { title: "value", numeric: true, value: (row) => row[1] }];
  const us = (key, title) => ({ title: title ?? key, csv: `${key}_us`, numeric: true, value: (row) => row[key], show: (row) => time(row[key]) });
  const calls = { title: "calls", numeric: true, value: (row) => row.count, show: (row) => count(row.count) };
  const rate = (key, title) => ({ title, csv: key, numeric: true, value: (row) => row[key] ?? 0, show: (row) => (row[key] === null ? "–" : `${digits(row[key])} GB/s`) });
  const moved = Object.entries(copies).map(([name, row]) => ({ name, ...row }));
  if (!trace.summary.load.device_events) return null;
  return card(`${id}-launches`, "Launches, communication and copies", null, make("div", { class: "columns" }, table("Launches", pair, rows)),
    comm.length ? [make("h3", null, "Collectives"), table(`Communication by kind; ${trace.summary.overlap_pct === null ? "0" : trace.summary.overlap_pct} % of it overlaps with compute`, [{ title: "kind", value: (row) => row.kind }, us("sum", "total"), us("union", "at least one ran"), us("mean"), us("max"), calls], comm, { csv: "collectives" })] : null,
    moved.length ? [make("h3", null, "Copies and fills"), table("Copies and fills by direction", [{ title: "direction", value: (row) => row.name }, us("sum", "total"), { title: "bytes", numeric: true, value: (row) => row.bytes, show: (row) => (row.with_bytes ? bytes(row.bytes) : "–") }, rate("gb_per_s", "mean rate"), rate("max_gb_per_s", "best rate"), calls], moved, { csv: "copies" })] : null);
}

function annotationsOf(trace, id) {
  const { host, gpu } = trace.summary.annotations;
  if (!host.length && !gpu.length) return null;
  const us = (key, title) => ({ title: title ?? key, csv: `${key}_us`, numeric: true, value: (row) => row[key], show: (row) => time(row[key]) });
  const columns = [{ title: "annotation", name: true, value: (row) => row.name }, us("sum", "total"), us("mean"), us("min"), us("max"), { title: "calls", numeric: true, value: (row) => row.count, show: (row) => count(row.count) }];
  const part = (rows, caption, csv) => (rows.length ? table(caption, columns, rows, { sortable: true, csv }) : null);
  return card(`${id}-annotations`, "Annotations", null, part(host, "On the host", "annotations"), gpu.length && host.length ? make("h3", null, "On devices") : null, part(gpu, "On devices, from first to last work", "device-annotations"));
}

// Returns a small chart of a series, with the range of values in each interval.
function spark(series, span, title) {
  const { points } = series ?? { points: [] };
  if (points.length < 2) return null;
  const [width, height] = [176, 26];
  const low = Math.min(...points.map((point) => point[1]), 0);
  const high = Math.max(...points.map((point) => point[2]));
  const x = (at) => ((Math.min(Math.max(at, 0), span) * width) / span).toFixed(1);
  const y = (value) => (high > low ? height - 1 - ((value - low) * (height - 2)) / (high - low) : height - 1).toFixed(1);
  const upper = points.map((point) => `${x(point[0])},${y(point[2])}`);
  const lower = [...points].reverse().map((point) => `${x(point[0])},${y(point[1])}`);
  return draw("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: from ${number(points[0][3])} to ${number(points[points.length - 1][3])}` },
    draw("polygon", { class: "band", points: [...upper, ...lower].join(" ") }), draw("polyline", { class: "line", points: points.map((point) => `${x(point[0])},${y(point[3])}`).join(" ") }));
}

function memoryOf(trace, id) {
  const { memory, load } = trace.summary;
  if (!memory.length) return null;
  const rows = memory.map((row, index) => ({ ...row, series: trace.rest.memory[index] }));
  const size = (key, title) => ({ title, csv: key, numeric: true, value: (row) => row[key] ?? 0, show: (row) => bytes(row[key]) });
  const columns = [
    { title: "memory", value: (row) => row.series?.name ?? `${row.device_type} ${row.device}` },
    { title: "over time", bar: true, value: () => "", show: (row) => spark(row.series, load.span * 1e3, `Allocated bytes of ${row.series?.name}`) },
    size("peak_allocated", "peak"), size("peak_reserved", "peak reserved"), size("growth", "growth"), size("allocated_bytes", "allocated"),
    { title: "allocations", numeric: true, value: (row) => row.allocations, show: (row) => count(row.allocations) },
    { title: "frees", numeric: true, value: (row) => row.frees, show: (row) => count(row.frees) },
  ];
  return card(`${id}-memory`, "Memory", null, table("Memory of the host and of devices", columns, rows, { csv: "memory" }));
}

function countersOf(trace, id) {
  const { counters, load } = trace.summary;
  if (!counters.length) return null;
  const rows = counters.map((row, index) => ({ ...row, points: trace.rest.counters[index] }));
  const value = (key) => ({ title: key, numeric: true, value: (row) => row[key], show: (row) => number(row[key]) });
  const title = (row) => [row.name, row.series].filter((text, index, all) => text && text !== all[index - 1]).join(" · ");
  const columns = [
    { title: "counter", name: true, value: title }, { title: "process or device", value: (row) => row.track },
    { title: "over time", bar: true, value: () => "", show: (row) => spark(row.points, load.span * 1e3, title(row)) },
    value("min"), value("mean"), value("max"), value("last"),
    { title: "values", numeric: true, value: (row) => row.count, show: (row) => count(row.count) },
  ];
  return card(`${id}-counters`, "Counters", "Values that the program, the devices' telemetry or hardware counters reported.", table(plural(rows.length, "series").replace("seriess", "series"), columns, rows, { sortable: true, csv: "counters" }));
}

function contentOf(trace, id) {
  const { load } = trace.summary;
  const losses = Object.entries(load.losses).map(([cause, number]) => [`lost by the writer: ${cause}`, number]);
  const note = ([text, number]) => [`while reading: ${text}`, number];
  losses.push(...trace.rest.notes.filter((row) => row[2]).map(note));
  const notes = trace.rest.notes.filter((row) => !row[2]).map(note);
  const pair = [{ title: "cause", value: (row) => row[0] }, { title: "count", numeric: true, value: (row) => row[1], show: (row) => count(row[1]) }];
  const categories = Object.entries(load.cats).sort((a, b) => b[1] - a[1]);
  return card(`${id}-content`, "Losses, notes and content", null,
    losses.length ? table("Losses", pair, losses) : make("p", { class: "lead" }, "The writer reported no loss, and no event was lost while reading."),
    notes.length ? make("details", null, make("summary", null, "Notes of the reader"), table("Notes of the reader", pair, notes)) : null,
    trace.cut ? make("p", { class: "lead" }, "Long lists and names are cut to keep this page small.") : null,
    make("details", null, make("summary", null, "Slices by category"), table("Slices by category", [{ title: "category", value: (row) => row[0] }, pair[1]], categories)));
}
