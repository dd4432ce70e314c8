#!/usr/bin/env python3
"""Opens pages of `kineto report` in chromium and checks them.

  report-check.py KINETO TRACE... [--pictures FOLDER] [--cover PICTURE]

KINETO is the command. Each TRACE gets a page, which must load without errors and without requests, show the figures of `kineto summary
--json`, have headings and tables in its accessibility tree, and obey the keyboard. With --pictures, pictures of each page in light
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
KEYS = {"+": ("Equal", 187), "0": ("Digit0", 48), "n": ("KeyN", 78), "ArrowRight": ("ArrowRight", 39), "f": ("KeyF", 70), "l": ("KeyL", 76)}


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

    def check(self, condition, what):
        if not condition:
            self.failures.append(what)

    def value(self, expression):
        return json.loads(self.browser.evaluate(f"JSON.stringify({expression})") or "null")

    def press(self, key):
        code, number = KEYS[key]
        common = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        self.browser.call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": key} if len(key) == 1 else {}))
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


def resize(browser, height=900):
    browser.call("Emulation.setDeviceMetricsOverride", width=1280, height=height, deviceScaleFactor=1, mobile=False)


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
    with tempfile.TemporaryDirectory() as folder:
        browser = check_trace.Browser(chromium, str(Path(folder) / "profile"))
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
        finally:
            browser.close()
    return 0 if all(good) else 1


sys.exit(main())
