"""A page in Chromium that asks the server from another origin.

    python browser.py --browser /usr/bin/chromium --node HOST:PORT --router HOST:PORT

The page is `browser.html` beside this file, served by this process; it reports back to it.
"""

import functools
import http.server
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import checks

FOLDER = Path(__file__).parent
PATIENCE = 60
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
]


class Page(http.server.SimpleHTTPRequestHandler):
    """The page, and the place for its report."""

    def __init__(self, *arguments, reports, **options):
        self.reports = reports
        super().__init__(*arguments, directory=FOLDER, **options)

    def do_POST(self):
        report = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()
        self.reports.put(json.loads(report))

    def log_message(self, *_):
        pass


def end(running):
    """Asks first, so that it ends its helper processes; what is left of the group is killed."""
    running.terminate()
    try:
        running.wait(10)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(running.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    running.wait()


def visit(browser, page, server, reports, folder):
    """Opens the page for one server; its report. Ends the browser, and only that."""
    errors = Path(folder, "errors")
    with errors.open("wb") as sink:
        running = subprocess.Popen(
            [
                browser,
                *FLAGS,
                f"--user-data-dir={folder}/profile",
                f"{page}?server=http://{server}",
            ],
            stdout=sink,
            stderr=sink,
            env=os.environ | {"HOME": folder},
            start_new_session=True,
        )
        try:
            return reports.get(timeout=PATIENCE)
        except queue.Empty:
            state = running.poll()
            tail = errors.read_text(errors="replace")[-2000:]
            sys.exit(f"no report within {PATIENCE} s; the browser's state: {state}\n{tail}")
        finally:
            end(running)


def main():
    arguments = checks.parser(__doc__.splitlines()[0])
    arguments.add_argument("--browser", required=True, help="a Chromium")
    options = arguments.parse_args()
    reports = queue.Queue()
    handler = functools.partial(Page, reports=reports)
    failed = 0
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as pages:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        page = f"http://127.0.0.1:{pages.server_port}/browser.html"
        for label, address in checks.servers(options):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                seen = visit(options.browser, page, address, reports, folder)
            for one in seen:
                failed += one["wrong"] is not None
                print(
                    f"ok   {label:6} {one['title']}"
                    if one["wrong"] is None
                    else f"FAIL {label:6} {one['title']}\n    {one['wrong']}",
                    flush=True,
                )
        pages.shutdown()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
