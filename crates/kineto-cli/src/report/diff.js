// The sections of a comparison of two sides.

const VERDICTS = { slower: "slower", faster: "faster", new: "only in B", gone: "only in A", moved: "moved", drift: "like all others", noise: "within the spread", too_few: "too few values", same: "same" };
const CHANGES = ["slower", "faster", "new", "gone", "moved"];

function signedTime(us) {
  return us > 0 ? `+${time(us)}` : time(us).replace("-", "−");
}

function signedPercent(value) {
  return value === null ? "–" : `${value > 0 ? "+" : value < 0 ? "−" : ""}${Math.abs(value).toFixed(1)} %`;
}

function verdictOf(row) {
  return make("span", { class: row.verdict === "slower" ? "tag" : null }, verdictText(row));
}

// A question mark: a few runs cannot distinguish the change from the machine's load.
function verdictText(row) {
  return `${VERDICTS[row.verdict] ?? row.verdict}${row.needs_runs ? "?" : ""}`;
}

const LEFT_OUT = { rank_of_one_side: "ranks that the other side lacks", incomplete_run: "runs without all ranks", few_steps: "runs with fewer than four steps" };

// Names the traces that take no part, by reason.
function leftOutText(side) {
  const reasons = Object.keys(LEFT_OUT).map((reason) => [reason, side.left_out.filter((row) => row.reason === reason).length]).filter(([, count]) => count > 0);
  return reasons.map(([reason, count]) => `; ${plural(count, "trace")} left out: ${LEFT_OUT[reason]}`).join("");
}

function diffOf({ figures: diff, cut }, names) {
  const { total } = diff;
  const what = diff.per === "step" ? "mean step" : "mean trace";
  const sides = ["a", "b"].map((side) => `${side.toUpperCase()}: ${names[side]} (${plural(diff[side].traces, "trace")}${diff[side].steps ? `, ${plural(diff[side].steps, "step")}` : ""}${leftOutText(diff[side])})`);
  const tiles = [["A", time(total.a), what], ["B", time(total.b), what], ["Change", signedPercent(total.change_pct), signedTime(total.change)], ["Verdict", VERDICTS[total.verdict] ?? total.verdict, `from ${diff.threshold_pct} % on, and more than the spread`]];
  return make("div", null,
    make("p", { class: "about" }, sides.map((side) => make("span", null, side))),
    make("dl", { class: "tiles", "aria-label": "Key figures of the comparison" }, tiles.map(([title, value, more]) => make("div", null, make("dt", null, title), make("dd", null, value, make("small", null, more))))),
    partsOf(total, what), cut ? make("p", { class: "lead" }, "Long lists and names of the comparison are cut to keep this page small; kineto diff prints all.") : null, changesOf(diff));
}

// What the change of the total consists of: the parts add up to it.
function partsOf(total, what) {
  const parts = total.parts.filter((part) => part.change !== 0);
  const largest = Math.max(...parts.map((part) => Math.abs(part.change)), 1e-9);
  const columns = [
    { title: "part of the critical path", name: true, value: (row) => row.name ?? row.kind.replaceAll("_", " ") },
    { title: "kind", value: (row) => row.kind.replaceAll("_", " ") },
    { title: "bar", bar: true, value: () => "", show: (row) => make("span", { class: row.change > 0 ? "slow" : null }, meter(Math.abs(row.change), largest, row.change > 0 ? null : "memory")) },
    { title: "change", csv: "change_us", numeric: true, value: (row) => row.change, show: (row) => signedTime(row.change) },
    { title: "A", csv: "a_us", numeric: true, value: (row) => row.a, show: (row) => time(row.a) },
    { title: "B", csv: "b_us", numeric: true, value: (row) => row.b, show: (row) => time(row.b) },
  ];
  return parts.length ? card("diff-parts", "Where the change comes from", `The parts add up to the change of the ${what}: ${signedTime(total.change)}. Red bars are longer in B, blue ones shorter.`, table("Changes of the critical path", columns, parts, { sortable: true, csv: "parts" })) : null;
}

function changesOf(diff) {
  const mean = (side) => ({ title: side.toUpperCase(), csv: `${side}_us`, numeric: true, value: (row) => row[side]?.mean ?? 0, show: (row) => (row[side] ? time(row[side].mean) : "–") });
  const calls = (side) => ({ title: `calls in ${side.toUpperCase()}`, numeric: true, value: (row) => row[side]?.mean_count ?? 0, show: (row) => (row[side] ? number(row[side].mean_count) : "–") });
  const columns = [
    { title: "name", name: true, value: (row) => row.name },
    { title: "kind", value: (row) => row.class ?? row.kind.replaceAll("_", " ") },
    { title: "verdict", value: verdictText, show: verdictOf },
    { title: "change", csv: "change_us", numeric: true, value: (row) => row.change, show: (row) => signedTime(row.change) },
    { title: "change [%]", csv: "change_pct", numeric: true, value: (row) => row.change_pct ?? NaN, show: (row) => signedPercent(row.change_pct) },
    mean("a"), mean("b"), calls("a"), calls("b"),
  ];
  const changed = diff.classes.filter((row) => CHANGES.includes(row.verdict));
  const lead = changed.length ? `Operations, calls and device work, by the time of the ${diff.per === "step" ? "mean step" : "mean trace"}.` : "Nothing changed by more than the threshold and the spread.";
  return card("diff-changes", "What changed", lead, changed.length ? table(plural(changed.length, "change"), columns, changed, { sortable: true, csv: "changes" }) : null,
    make("details", null, make("summary", null, `All ${plural(diff.classes.length, "class")}`.replace(/classs$/, "classes")), table("All operations, calls and device work", columns, diff.classes, { sortable: true, csv: "classes" })));
}
