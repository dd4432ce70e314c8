// A range of the timeline: what ran in it.

const KINDS = [["compute", "compute"], ["comm", "communication"], ["memory", "copies and fills"], ["unknown", "calls"], ["unknown", "annotations, and waits of devices"], ["unknown", "operations and other slices"]];

// Returns what ran between two times (nanoseconds): figures of each kind and name, and the number of merged slices there.
function sumsOf(timeline, start, end) {
  const kinds = KINDS.map(([color, title]) => ({ color, title, count: 0, sum: 0, parts: [] }));
  const names = new Map();
  timeline.start.forEach((from, slice) => {
    const to = from + timeline.dur[slice];
    const [first, last] = [Math.max(from, start), Math.min(to, end)];
    if (last < first || (last === first && (to > from || from === end))) return;
    const name = timeline.text[slice];
    if (!names.has(name)) names.set(name, { name: timeline.names[name], count: 0, sum: 0 });
    for (const row of [kinds[timeline.kind[slice]], names.get(name)]) {
      row.count += 1;
      row.sum += last - first;
    }
    kinds[timeline.kind[slice]].parts.push([first, last]);
  });
  for (const kind of kinds) kind.any = lengthOf(kind.parts);
  const isThere = ({ cell }) => cell * timeline.cell < end && (cell + 1) * timeline.cell > start;
  const merged = timeline.rows.flatMap((row) => row.cells.filter(isThere)).reduce((sum, cell) => sum + cell.count, 0);
  return { kinds: kinds.filter((kind) => kind.count > 0), names: [...names.values()].sort((a, b) => b.sum - a.sum), merged };
}

// Returns the length of the times that at least one part covers.
function lengthOf(parts) {
  let [total, covered] = [0, -Infinity];
  for (const [first, last] of parts.sort((a, b) => a[0] - b[0])) {
    total += Math.max(0, last - Math.max(first, covered));
    covered = Math.max(covered, last);
  }
  return total;
}

// Returns the elements that describe a range.
function rangeFacts(timeline, [start, end]) {
  const most = 20;
  const { kinds, names, merged } = sumsOf(timeline, start, end);
  const us = (title, key) => ({ title, csv: `${key}_us`, numeric: true, value: (row) => row[key] / 1e3, show: (row) => time(row[key] / 1e3) });
  const slices = { title: "slices", numeric: true, value: (row) => row.count, show: (row) => count(row.count) };
  const kind = { title: "kind", value: (row) => row.title, show: (row) => make("span", null, make("span", { class: `chip ${row.color}`, "aria-hidden": "true" }), row.title) };
  const share = { title: "share of the range", csv: "share_pct", numeric: true, value: (row) => (row.any * 100) / (end - start), show: (row) => percent(row.any, end - start) };
  return [
    make("p", { class: "title" }, `Range of ${time((end - start) / 1e3)}, from ${exact(start)} to ${exact(end)}`),
    merged ? make("p", null, `Up to ${plural(merged, "merged slice")} more: only listed slices are added up.`) : null,
    kinds.length ? table("By kind; durations are cut to the range, and slices inside others are added too", [kind, slices, us("sum", "sum"), us("at least one ran", "any"), share], kinds, { csv: "range" }) : make("p", null, "No listed slice ran there."),
    names.length ? make("details", null, make("summary", null, "By name"), table(names.length > most ? `${count(most)} of ${plural(names.length, "name")}: those with the longest sum` : plural(names.length, "name"), [{ title: "name", name: true, value: (row) => row.name }, slices, us("sum", "sum")], names.slice(0, most), { sortable: true, csv: "range-names" })) : null,
  ].filter(Boolean);
}
