#!/usr/bin/env python3
"""Opens pages of `kineto report` in chromium and checks them.

  report-check.py KINETO TRACE... [--pictures FOLDER] [--cover PICTURE]

KINETO is the command. Each TRACE gets a page, which must load without errors and without requests, show the figures of `kineto summary
--json`, have headings and tables in its accessibility tree, obey the keyboard, paint what a search finds, and fit a window of 400 pixels.
Small traces made here get pages too: of one trace, of several, of 60 ranks, of 15 and 15 that are compared, of none of its slices, and of 200 days. With --pictures, pictures of each page in light
and dark colors are written; with --cover, a picture of the top of the last page. Prints a line for each trace; the exit status is 1 if a check failed, and 3 without chromium.
"""
import argparse
import base64
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/tools/consumers"))
import check_trace  # noqa: E402

# Installed before the page: collects errors, and what the content security policy refused.
WATCH = """
window.faults = [];
addEventListener('error', event => faults.push(String(event.message)));
addEventListener('unhandledrejection', event => faults.push(String(event.reason)));
addEventListener('securitypolicyviolation', event => faults.push(event.violatedDirective + ' ' + event.blockedURI));
for (const name of ['error', 'warn']) console[name] = (...texts) => faults.push(texts.join(' '));
"""
KEYS = {"+": ("Equal", 187), "0": ("Digit0", 48), "n": ("KeyN", 78), "ArrowRight": ("ArrowRight", 39), "f": ("KeyF", 70), "l": ("KeyL", 76), "r": ("KeyR", 82), "Enter": ("Enter", 13), "Escape": ("Escape", 27)}


class MouseBrowser(check_trace.Browser):
    """A browser of a machine with a mouse: names that are cut open under it."""

    FLAGS = (*check_trace.Browser.FLAGS, "--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4")


class Page:
    """A page in the browser."""

    def __init__(self, browser, path):
        self.browser = browser
        self.failures = []
        browser.call("Page.navigate", url=path.resolve().as_uri())
        end = time.monotonic() + 30
        while not browser.evaluate("document.readyState === 'complete' && !!document.querySelector('footer p')"):
            if time.monotonic() > end:
                raise SystemExit(f"{path}: the page did not load: {browser.evaluate('JSON.stringify(window.faults)')}")
            time.sleep(0.05)

    def wait_for(self, condition):
        """Waits for what the browser does later, such as calling an observer; returns whether it was done."""
        end = time.monotonic() + 30
        while not self.value(condition):
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True

    def check(self, condition, what):
        if not condition:
            self.failures.append(what)

    def value(self, expression):
        return json.loads(self.browser.evaluate(f"JSON.stringify({expression})") or "null")

    def press(self, key):
        code, number = KEYS[key]
        common = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        self.browser.call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}))
        self.browser.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def picture(self, path):
        shot = self.browser.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))


def check_loading(page):
    faults = page.value("window.faults")
    page.check(not faults, f"errors: {faults}")
    requests = page.value("performance.getEntriesByType('resource').map(entry => entry.name)")
    page.check(not [name for name in requests if not name.startswith("data:")], f"requests: {requests}")
    timing = page.value("(({loadEventEnd, responseEnd}) => ({ms: Math.round(loadEventEnd), parse: Math.round(loadEventEnd - responseEnd)}))"
                        "(performance.getEntriesByType('navigation')[0])")
    return timing["ms"]


def check_figures(page, summary):
    """The page's data are the figures of --json, and its tables show them as text."""
    found = page.value("JSON.parse(document.getElementById('data').textContent).traces[0]")
    if not found["cut"]:
        page.check(found["summary"] == summary, "the figures differ from --json")
    text = page.value("document.getElementById('content').textContent")
    shown = lambda us: page.value(f"time({json.dumps(us)})")
    wanted = [shown(summary["load"]["span"])]
    if summary["temporal"]:
        wanted += [page.value(f"percent({summary['temporal']['busy']}, {summary['temporal']['window']})"), shown(summary["temporal"]["busy"]), shown(summary["temporal"]["idle"])]
    wanted += [shown(row["sum"]) for row in summary["kernels"]]
    # A page that is cut lists only some steps, with the slowest among them.
    steps = summary["steps"] if not found["cut"] else sorted(summary["steps"], key=lambda step: step["dur"])[-1:]
    wanted += [shown(step["dur"]) for step in steps]
    wanted += [shown(row["self_cpu"]) for row in summary["ops_top20"]] + [shown(gap["dur"]) for gap in summary["gaps_top5"]]
    missing = [figure for figure in wanted if figure not in text]
    page.check(not missing, f"figures that the page lacks: {missing[:5]}")
    buckets = page.value("JSON.parse(document.getElementById('data').textContent).traces[0].rest.utilization.slice(0, 1)"
                         ".map(row => [row.compute, row.comm, row.memory].flat().reduce((sum, ns) => sum + ns, 0))")
    if buckets:
        page.check(buckets[0] == round(summary["temporal"]["busy"] * 1000), f"utilization: {buckets} ns busy")


def check_slices(page, summary):
    """Each slice of the trace is listed or counted."""
    both = page.value("(rows => [rows.reduce((n, r) => n + r.start.length, 0), rows.reduce((n, r) => n + r.cells.reduce((m, c) => m + c[1], 0), 0)])"
                      "(JSON.parse(document.getElementById('data').textContent).traces[0].timeline.rows)")
    page.check(sum(both) == summary["load"]["slices"], f"slices: {both} of {summary['load']['slices']}")
    return both


def check_accessibility(page, summary):
    nodes = page.browser.call("Accessibility.getFullAXTree")["nodes"]
    kinds = {}
    unnamed = []
    for node in nodes:
        role = node.get("role", {}).get("value")
        if node.get("ignored"):
            continue
        kinds[role] = kinds.get(role, 0) + 1
        if role in ("button", "table", "image", "link", "application", "searchbox", "heading", "region") and not node.get("name", {}).get("value"):
            unnamed.append(role)
    tables, headings = page.value("[document.querySelectorAll('table').length, document.querySelectorAll('h1, h2').length]")
    page.check(kinds.get("heading", 0) >= min(headings, 3), f"headings: {kinds}")
    page.check(kinds.get("table", 0) >= min(1, summary["load"]["slices"]) and tables == page.value("document.querySelectorAll('table > caption').length"), f"tables: {kinds}")
    page.check(kinds.get("application", 0) == page.value("document.querySelectorAll('.timeline').length"), f"timelines: {kinds}")
    page.check(not unnamed, f"without a name: {unnamed}")
    ids = page.value("[...document.querySelectorAll('[id]')].map(it => it.id)")
    page.check(len(ids) == len(set(ids)), "ids that occur twice")
    missing = page.value("[...document.querySelectorAll('[aria-describedby], [aria-labelledby], a[href^=\"#\"]')].map(it => it.getAttribute("
                         "'aria-describedby') ?? it.getAttribute('aria-labelledby') ?? it.getAttribute('href').slice(1)).filter(id => !document.getElementById(id))")
    page.check(not missing, f"references to nothing: {missing}")
    order = page.value("[...document.querySelectorAll('h1,h2,h3')].map(it => Number(it.tagName[1]))")
    page.check(all(after <= before + 1 for before, after in zip(order, order[1:])), f"levels of headings: {order}")
    return ", ".join(f"{kinds.get(role, 0)} {role}" for role in ("heading", "table", "row", "button", "image", "application", "region"))


def check_keyboard(page):
    if not page.value("document.querySelectorAll('.timeline').length"):
        return
    page.browser.evaluate("document.querySelector('.timeline .rows').focus()")
    status = "document.querySelector('.timeline-tools [role=status]').textContent"
    page.press("+")
    zoomed = page.value(status)
    page.press("+")
    page.press("ArrowRight")
    page.check(page.value("charts[0].span") <= 20 or (zoomed and page.value(status) != zoomed), f"keys + and → do nothing: {zoomed!r}")
    page.press("0")
    page.check(page.value(status) == "", "the key 0 does not show the whole trace")
    page.press("n")
    page.check(page.value("document.querySelector('.facts dl')") is not None, "the key n selects no slice")
    page.browser.evaluate("charts[0].select(charts[0].start.length - 1); charts[0].fit(); charts[0].paint()")
    view, ticks = page.value("[charts[0].view, charts[0].ticks().length]")
    page.check(view[1] > view[0] and ticks < 1000, f"the last slice does not fit: {view}, {ticks} ticks")
    page.browser.evaluate("charts[0].select(charts[0].level.indexOf(Math.max(...charts[0].level)), true)")
    depth = page.value("(it => it.rows[it.row[it.selected]].top + it.level[it.selected] * LEVEL - it.scroller.scrollTop)(charts[0])")
    page.check(0 <= depth <= page.value("charts[0].scroller.clientHeight"), f"the deepest slice is at {depth} px of the view")
    sort = "document.querySelector('th button')"
    if page.value(f"{sort} !== null"):
        page.browser.evaluate(f"{sort}.focus(); {sort}.click()")
        page.check(page.value(f"{sort}.parentElement.getAttribute('aria-sort')") in ("ascending", "descending"), "tables are not sorted")


def resize(browser, height=900, width=1280, is_mobile=False):
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=is_mobile)


# Returns captions that are not in view at the left or the right end of their table.
CAPTIONS = """[...document.querySelectorAll('.scroll')].flatMap(part => [0, part.scrollWidth].map(at => {
  part.scrollLeft = at;
  const [caption, view] = [part.querySelector('caption span'), part.getBoundingClientRect()];
  const place = caption.getBoundingClientRect();
  const isCut = part.clientWidth && (place.left < view.left - 1 || place.right > view.left + part.clientWidth + 1 || caption.scrollWidth > caption.clientWidth + 1);
  part.scrollLeft = 0;
  return isCut ? caption.textContent : null;
})).filter(Boolean)"""


def check_narrow(page):
    """In a narrow window, wide parts scroll, and not the page; most of the timeline is time."""
    resize(page.browser, width=400)
    wide, window = page.value("[document.documentElement.scrollWidth, innerWidth]")
    page.check(wide <= window, f"the page is {wide} px wide in a window of {window} px")
    outside = page.value(CAPTIONS)
    page.check(not outside, f"captions of tables are cut: {outside}")
    shares = page.value("charts.filter(it => it.element.isConnected).slice(0, 3).map(it => { it.painted = undefined; return it.gutter / it.scroller.clientWidth })")
    page.check(all(share <= 0.31 for share in shares), f"labels take {shares} of the timeline")
    resize(page.browser)


# Returns how many pixel columns with a match of a name are not outlined, of how many matches.
SEARCH = """(name => {
  const [chart, kind, painted] = [charts[0], CanvasRenderingContext2D.prototype, new Set()];
  const stroke = kind.strokeRect;
  chart.isNear = true;
  chart.find(name);
  kind.strokeRect = function (left, top, width, height) {
    for (let x = left; x < left + width; x += 1) painted.add(top + ':' + Math.round(x));
    return stroke.call(this, left, top, width, height);
  };
  chart.paint();
  kind.strokeRect = stroke;
  let [missing, matches] = [0, 0];
  for (const row of chart.rows.filter(row => row.top + row.height < chart.scroller.clientHeight)) {
    for (let slice = row.first; slice < row.end; slice += 1) {
      if (!chart.matches[chart.text[slice]]) continue;
      matches += 1;
      const [x, y] = [Math.round(chart.xOf(chart.start[slice])), row.top - chart.scroller.scrollTop + 4 + chart.level[slice] * LEVEL];
      if (!painted.has(y + ':' + x)) missing += 1;
    }
  }
  chart.find('');
  return [missing, matches];
})"""


def check_search(page, names):
    for name in names:
        missing, matches = page.value(f"{SEARCH}({json.dumps(name)})")
        page.check(missing == 0, f"search: {missing} of {matches} matches of {name!r} are not painted")
    status = "document.querySelector('.timeline-tools [role=status]').textContent"
    page.browser.evaluate("charts[0].show(0, charts[0].span); charts[0].find('no such name')")
    page.check(page.value(status).startswith("No listed slice") and "Enter" not in page.value(status), f"search: {page.value(status)!r}")
    page.browser.evaluate("charts[0].find('')")


def names_of_slices(page):
    """Returns the names of the most and of the fewest slices."""
    names = page.value("charts.length ? Object.entries(charts[0].names.map((name, text) => [name, charts[0].text.filter(it => it === text).length]))"
                       ".map(it => it[1]).sort((a, b) => a[1] - b[1]).map(it => it[0]) : []")
    return [*names[:2], *names[-2:]]


def made_trace(slices):
    """Returns a trace of slices: category, name, thread, start and duration in microseconds."""
    return json.dumps([{"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": tid, "ts": ts, "dur": dur} for cat, name, tid, ts, dur in slices])


def check_made_trace(browser, kineto, folder):
    """Checks a page of many short slices, of which some share their pixels with those before them."""
    trace = folder / "made.json"
    long_name = "void kernel<" + ", ".join(["float"] * 200) + ">(int)"
    slices = [("cpu_op", "needle" if at % 100 == 1 else f"op{at % 7}", 1, at, 0.5) for at in range(5000)]
    slices += [("cpu_op", "outer", 1, 0, 5000)]
    slices += [("kernel", long_name, 7, at * 100, 40) for at in range(50)]
    trace.write_text(made_trace(slices))
    output = folder / "made.html"
    subprocess.run([kineto, "report", trace, "-o", output], check=True, capture_output=True)
    page = Page(browser, output)
    check_search(page, ["needle", "op3", long_name])
    # Enter in the field of the search shows the next match so large that it can be seen.
    browser.evaluate("document.querySelector('input[type=search]').focus(); charts[0].find('needle')")
    page.press("Enter")
    width = page.value("(it => it.dur[it.selected] * it.width / (it.view[1] - it.view[0]))(charts[0])")
    page.check(width >= 20, f"search: the next match is {width} px wide")
    browser.evaluate("charts[0].find(''); charts[0].show(0, charts[0].span)")
    # A button in the details leads to another slice, and the keys still act on the timeline.
    browser.evaluate("charts[0].select(charts[0].parent.findIndex(it => it >= 0)); document.querySelector('.facts dd button').focus()")
    page.press("Enter")
    page.check(page.value("[document.activeElement.className, charts[0].name(charts[0].selected)]") == ["rows", "outer"], "the focus leaves the timeline")
    check_range(page, slices)
    name = "document.querySelector('#t0-kernels .name code')"
    page.check(page.wait_for(f"{name}.getAttribute('tabindex') === '0'"), "a cut name cannot be focused")
    is_cut = f"{name}.scrollHeight > {name}.clientHeight + 1"
    page.check(page.value(is_cut), "a long name is not cut")
    # A page that opens under the pointer measures its names while one of them is open.
    page.browser.evaluate(f"{name}.scrollIntoView({{block: 'center'}}); {name}.removeAttribute('tabindex')")
    left, top = page.value(f"(it => [it.left + 5, it.top + 5])({name}.getBoundingClientRect())")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=left, y=top)
    page.check(not page.value(is_cut), "the pointer does not open a long name")
    resize(browser, width=1100)
    page.check(page.wait_for(f"{name}.getAttribute('tabindex') === '0'"), "a cut name under the pointer cannot be focused")
    resize(browser)
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=0, y=0)
    browser.evaluate(f"{name}.focus()")
    page.check(not page.value(is_cut), "the focus does not open a long name")
    browser.evaluate("document.activeElement.blur()")
    is_cut = f"getComputedStyle({name}).display !== 'inline' && {is_cut}"
    browser.call("Emulation.setEmulatedMedia", media="print")
    page.check(not page.value(is_cut), "long names are cut on paper")
    browser.call("Emulation.setEmulatedMedia", media="")
    # A telephone's browser has no pointer that opens names.
    resize(browser, is_mobile=True)
    browser.call("Emulation.setTouchEmulationEnabled", enabled=True)
    page.check([page.value("matchMedia('(hover: none)').matches"), page.value(is_cut)] == [True, False], "long names are cut on a touch screen")
    browser.call("Emulation.setTouchEmulationEnabled", enabled=False)
    resize(browser)
    return page


def check_range(page, slices):
    """The key r, and Shift + drag, add up what ran in a range."""
    listed = page.value("charts[0].start.length")
    page.press("r")
    counts = page.value("[...document.querySelectorAll('.facts table')[0].querySelectorAll('tbody tr')].map(row => [row.children[0].textContent, row.children[1].textContent])")
    found = {kind: int(number.replace(",", "")) for kind, number in counts}
    page.check(sum(found.values()) == listed and found.get("compute") == sum(slice[0] == "kernel" for slice in slices), f"sums of the view: {found}")
    page.press("Escape")
    page.check(page.value("charts[0].range === null && !document.querySelector('.facts table')"), "Escape does not clear the range")
    sums = page.value("sumsOf(charts[0], 120000, 560000).kinds.filter(it => it.color === 'compute').map(it => [it.count, it.sum, it.any])")
    page.check(sums == [[5, 180000, 180000]], f"sums of a range: {sums}")
    page.browser.evaluate("document.documentElement.style.scrollBehavior = 'auto'; charts[0].element.scrollIntoView({block: 'center'})")
    left, top = page.value("(it => [it.left + charts[0].gutter + 50, it.top + 15])(charts[0].canvas.getBoundingClientRect())")
    for kind, x, buttons in (("mousePressed", left, 1), ("mouseMoved", left + 60, 1), ("mouseMoved", left + 100, 1), ("mouseReleased", left + 100, 0)):
        page.browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=top, button="left", buttons=buttons, clickCount=1, modifiers=8)
    width = page.value("charts[0].range && (charts[0].range[1] - charts[0].range[0]) * charts[0].width / charts[0].span")
    page.check(width and abs(width - 100) <= 2 and page.value("charts[0].view[1] === charts[0].span"), f"Shift + drag over 100 px selects {width} px")
    page.browser.evaluate("charts[0].select(-1)")


def check_several_traces(browser, kineto, folder):
    """Checks a page of several traces, of which one cannot be read."""
    paths = [folder / f"rank{rank}.json" for rank in (2, 10, 11)]
    for path, length in zip(paths, (30, 90, 50)):
        path.write_text(made_trace([("cpu_op", "step", 1, 0, length)]))
    output = folder / "several.html"
    subprocess.run([kineto, "report", *paths, folder / "missing.json", "-o", output], check=False, capture_output=True)
    page = Page(browser, output)
    page.check("missing.json" in (page.value("document.querySelector('.notice')?.textContent") or ""), "the page does not name a trace that was not read")
    lead = page.value("document.querySelector('#ranks .lead')?.textContent") or ""
    page.check("longest is rank10.json: 90 µs" in lead, f"the longest trace is not named: {lead!r}")
    order = page.value("[...document.querySelectorAll('#ranks tbody th a')].map(it => it.textContent)")
    page.check(order == ["rank10.json", "rank11.json", "rank2.json"], f"traces are not sorted by span: {order}")
    links = page.value("[...document.querySelectorAll('nav a')].map(it => [it.textContent, !!document.querySelector(it.getAttribute('href'))])")
    page.check(links == [["Traces", True], ["rank2", True], ["rank10", True], ["rank11", True]], f"links: {links}")
    check_loading(page)
    check_narrow(page)
    subprocess.run([kineto, "report", "--diff", *paths[:2], "-o", output], check=True, capture_output=True)
    compared = Page(browser, output)
    links = compared.value("[...document.querySelectorAll('nav a')].map(it => it.textContent)")
    compared.check("What changed" in links and "A: rank2" in links, f"links: {links}")
    check_narrow(compared)
    page.failures += compared.failures
    return page


def write_ranks(folder, ranks, length):
    """Writes traces whose figures are longer than their share of a page; returns the folder."""
    folder.mkdir()
    for rank in range(ranks):
        events = [{"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1, "ts": step * 1000, "dur": 900} for step in range(8)]
        for at in range(200):
            start, name = at * 40, f"{at}<{'float, ' * 40}>"
            events += [
                {"ph": "X", "cat": f"kind{at % 50}", "name": f"op{name}", "pid": 1, "tid": 1, "ts": start, "dur": 12},
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": start + 1, "dur": 2, "args": {"correlation": at}},
                {"ph": "X", "cat": "kernel", "name": f"kernel{name}", "pid": 0, "tid": at % 7, "ts": start + 5, "dur": length + rank % 9, "args": {"correlation": at, "device": 0, "stream": at % 7}},
            ]
        trace = {"distributedInfo": {"rank": rank}, "traceEvents": events}
        (folder / f"rank{rank:02}.json").write_text(json.dumps(trace))
    return folder


def check_articles(page, kineto, paths):
    """Each trace has its figures and all sections on the page, although its lists are cut."""
    texts = page.value("[...document.querySelectorAll('article.trace')].map(it => it.textContent)")
    page.check(len(texts) == len(paths), f"{len(texts)} traces have details, not {len(paths)}")
    for path, text in zip(paths, texts):
        summary = json.loads(subprocess.run([kineto, "summary", "--json", path], check=True, capture_output=True, text=True).stdout)
        temporal = summary["temporal"]
        wanted = [path.name, "What to do next", "Where the time went", "Why streams were idle", "Steps", "Device utilization", "Timeline", "Top operators", "Top kernels",
                  "Idle gaps", "Critical path", "Launches", "Annotations", "Losses, notes and content", f"rank {summary['load']['rank']}"]
        wanted += page.value(f"[time({summary['load']['span']}), percent({temporal['busy']}, {temporal['window']}), time({temporal['busy']}), time({temporal['idle']})]")
        missing = [what for what in wanted if what not in text]
        page.check(not missing, f"{path.name} lacks {missing}")
        page.check("NaN" not in text and "undefined" not in text, f"{path.name} shows figures that are missing")
    check_loading(page)


def check_many_ranks(browser, kineto, folder):
    """Checks pages of so many traces that the lists of each are cut."""
    ranks, output = write_ranks(folder / "ranks", 60, 11), folder / "many.html"
    subprocess.run([kineto, "report", ranks, "-o", output], check=True, capture_output=True)
    page = Page(browser, output)
    page.check(output.stat().st_size <= 2_000_000, f"{output.stat().st_size} bytes of 60 ranks")
    check_articles(page, kineto, sorted(ranks.iterdir()))
    rows = page.value("document.querySelectorAll('#ranks tbody tr').length")
    page.check(rows == 60, f"{rows} of 60 ranks are side by side")
    sides = [write_ranks(folder / "before", 15, 11), write_ranks(folder / "after", 15, 18)]
    subprocess.run([kineto, "report", "--diff", *sides, "-o", output], check=True, capture_output=True)
    compared = Page(browser, output)
    check_articles(compared, kineto, [path for side in sides for path in sorted(side.iterdir())])
    text = compared.value("document.getElementById('content').textContent")
    compared.check("Where the change comes from" in text and "A: before (15 traces" in text, f"the comparison of 15 and 15: {text[:300]!r}")
    page.failures += compared.failures
    return page


def check_empty_selection(browser, kineto, folder):
    output = folder / "empty.html"
    subprocess.run([kineto, "report", folder / "made.json", "--name", "nomatch", "-o", output], check=False, capture_output=True)
    page = Page(browser, output)
    text = page.value("document.getElementById('content').textContent")
    page.check('No slice matches the selection: names with "nomatch"' in text and "No problem" not in text, f"a page of no slices: {text[:300]!r}")
    return page


def check_long_trace(browser, kineto, folder):
    """Checks that the page of a trace of 200 days tells how coarse its starts are. A start of 0 would mean that its time is missing."""
    (folder / "long.json").write_text(made_trace([("cpu_op", "first", 1, 1, 1), ("cpu_op", "last", 1, 200 * 86_400e6, 1)]))
    subprocess.run([kineto, "report", folder / "long.json"], check=True, capture_output=True)
    page = Page(browser, folder / "long.html")
    lead = page.value("document.querySelector('[id$=-timeline] .lead').textContent")
    page.check(lead.endswith("starts are rounded to 2 ns."), f"a trace of 200 days: {lead!r}")
    return page


def check_made_pages(browser, kineto, folder):
    failures = []
    for check in (check_made_trace, check_several_traces, check_many_ranks, check_empty_selection, check_long_trace):
        page = check(browser, kineto, folder)
        faults = page.value("window.faults")
        failures += [*page.failures, *(f"errors: {fault}" for fault in faults)]
    print("traces made here: one, several, 60 ranks, 15 and 15 compared, none of its slices, and 200 days")
    for failure in failures:
        print(f"  FAULT: {failure}")
    return not failures


def check_trace_page(browser, kineto, trace, folder, pictures):
    output = folder / f"{trace.name}.html"
    begun = time.monotonic()
    line = subprocess.run([kineto, "report", trace, "-o", output], check=True, capture_output=True, text=True).stdout.strip()
    seconds = time.monotonic() - begun
    summary = json.loads(subprocess.run([kineto, "summary", "--json", trace], check=True, capture_output=True, text=True).stdout)
    page = Page(browser, output)
    load_ms = check_loading(page)
    check_figures(page, summary)
    listed, merged = check_slices(page, summary)
    tree = check_accessibility(page, summary)
    if pictures:
        height = min(page.value("document.documentElement.scrollHeight"), 9000)
        resize(browser, height)
        for theme in ("light", "dark"):
            page.browser.evaluate(f"setTheme('{theme}')")
            time.sleep(0.2)
            page.picture(pictures / f"{trace.name.split('.')[0]}-{theme}.png")
        resize(browser)
    check_keyboard(page)
    if page.value("charts.length && charts[0].start.length"):
        page.browser.evaluate("charts[0].show(0, charts[0].span); charts[0].scroller.scrollTop = 0")
        check_search(page, names_of_slices(page))
    check_narrow(page)
    page.check(not page.value("window.faults"), f"errors: {page.value('window.faults')}")
    page.check(output.stat().st_size <= 2_000_000, f"{output.stat().st_size} bytes")
    print(f"{trace.name}: {output.stat().st_size} bytes in {seconds:.1f} s, loaded in {load_ms} ms, {listed} slices listed and {merged} merged; {tree}")
    for failure in page.failures:
        print(f"  FAULT: {failure}")
    assert line.startswith(str(output)), line
    return not page.failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kineto")
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--cover", type=Path)
    arguments = parser.parse_args()
    kineto = Path(arguments.kineto).resolve()
    chromium = shutil.which("chromium")
    if not chromium:
        print("chromium is missing; pages are not opened")
        return 3
    if arguments.pictures:
        arguments.pictures.mkdir(parents=True, exist_ok=True)
    # Processes of the browser may write into its profile for a moment after it has ended.
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = MouseBrowser(chromium, profile)
        try:
            browser.call("Page.enable")
            browser.call("Runtime.enable")
            browser.call("Accessibility.enable")
            resize(browser)
            browser.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
            good = [check_trace_page(browser, kineto, trace, Path(folder), arguments.pictures) for trace in arguments.traces]
            if arguments.cover:
                browser.evaluate("setTheme('light'); document.documentElement.style.scrollBehavior = 'auto'; scrollTo(0, 0)")
                time.sleep(0.5)
                clip = {"x": 0, "y": 0, "width": 1280, "height": 1000, "scale": 0.75}
                shot = browser.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
                arguments.cover.write_bytes(base64.b64decode(shot["data"]))
            good.append(check_made_pages(browser, kineto, Path(folder)))
        finally:
            browser.close()
    return 0 if all(good) else 1


sys.exit(main())
