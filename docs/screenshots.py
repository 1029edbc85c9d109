"""Take screenshots of pages of the built site, and fail if a page is broken: ``./dev docs --screenshots``.

Each page is opened in a real browser, wide and narrow. It is broken if it scrolls sideways, if on a wide
screen a table or code block does, if a picture did not load, if the console shows an error, or if it asks
another host for anything. Screenshots of some pages, light and dark, are written to docs/_build/screenshots,
to be looked at.
"""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
SITE = DOCS / "_build" / "html"
FOLDER = DOCS / "_build" / "screenshots"

#: Pages of which screenshots are written.
SHOWN = (
    "index.html",
    "quickstart.html",
    "models.html",
    "batches.html",
    "displays.html",
    "benchmarks.html",
    "scaling.html",
    "api.html",
    "generated/skshapgpu.TreeExplainer.html",
    "auto_examples/index.html",
    "auto_examples/plot_displays.html",
)
WIDTHS = (1920, 1280, 390)
SCHEMES = ("light", "dark")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")

#: Lists what is wrong with a page. Its theme lets the article scroll sideways, which is as bad as if the page
#: does. On a wide screen, nothing inside of it may scroll sideways either; on a phone, tables and code may.
CHECK = """() => {
    const page = document.scrollingElement
    const isWide = page.clientWidth >= 1000
    const hidden = [...document.querySelectorAll("main article pre, main article *:has(> table)")]
        .filter(element => isWide && element.scrollWidth > element.clientWidth + 1)
        .filter(element => element.checkVisibility())
        .map(element => `${element.scrollWidth - element.clientWidth} pixels of ` +
            `"${element.textContent.trim().slice(0, 40)}"`)
    const scrolls = element => !element.matches("article") &&
        (["auto", "scroll"].includes(getComputedStyle(element).overflowX) || scrolls(element.parentElement))
    const wide = [...document.querySelectorAll("main article *")]
        .filter(element => element.getBoundingClientRect().right > page.clientWidth + 1)
        .filter(element => element.checkVisibility() && !scrolls(element) && !element.matches(".headerlink"))
        .map(element => `${element.tagName.toLowerCase()} "${element.textContent.trim().slice(0, 30)}"`)
    const missing = [...document.images].filter(image => !(image.complete && image.naturalWidth > 0))
    return [
        ...missing.map(image => `the picture ${image.src} did not load`),
        ...(page.scrollWidth > page.clientWidth ? [`it is ${page.scrollWidth} pixels wide`] : []),
        ...(hidden.length ? [`one must scroll to see ${hidden.slice(0, 9).join(", ")}`] : []),
        ...(wide.length ? [`these are cut off: ${wide.slice(0, 3).join(", ")}`] : []),
    ]
}"""

#: Waits for all pictures, also for those that are loaded only when they are seen, and for fonts.
LOAD = """async () => {
    for (const image of document.images) image.loading = "eager"
    await Promise.all([...document.images].map(image => image.decode().catch(() => {})))
    await document.fonts.ready
}"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine, and yield its address."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def find_browser() -> str | None:
    """Return the path of a browser: $BROWSER_PATH, or the first one on PATH."""
    return os.environ.get("BROWSER_PATH") or next(filter(None, map(shutil.which, BROWSERS)), None)


def problems(page: Any, address: str, path: Path | None) -> list[str]:
    """Open a page, write its screenshot if there is a path for it, and return what is wrong with it."""
    found: list[str] = []

    def failed(request: Any) -> None:
        found.append(f"{request.url} failed")

    def asked(request: Any) -> None:
        if not request.url.startswith((address.rpartition(":")[0], "data:")):
            found.append(f"it asks for {request.url}")

    page.on("console", lambda said: found.append(f"console: {said.text}") if said.type == "error" else None)
    page.on("pageerror", lambda error: found.append(f"error: {error}"))
    page.on("requestfailed", failed)
    page.on("request", asked)
    response = page.goto(address)
    if not response.ok:
        return [f"status {response.status}"]
    page.evaluate(LOAD)
    found += page.evaluate(CHECK)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(path), full_page=True)
    return found


def pages() -> list[str]:
    """Return the names of all pages of the site."""
    names = (path.relative_to(SITE) for path in SITE.rglob("*.html"))
    return sorted(name.as_posix() for name in names if not name.parts[0].startswith("_"))


def main() -> int:
    browser = find_browser()
    if browser is None:
        print(
            "screenshots: skipped, as there is no browser: install Chromium, or set BROWSER_PATH",
            file=sys.stderr,
        )
        return 0
    if not (SITE / "index.html").exists():
        print("screenshots: the site is not built: run ./dev docs --screenshots", file=sys.stderr)
        return 1
    from playwright.sync_api import sync_playwright

    shutil.rmtree(FOLDER, ignore_errors=True)
    broken = 0
    with served(SITE) as address, sync_playwright() as playwright:
        # Root, as whom containers run, cannot use the sandbox; only pages of this folder are opened.
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for width in WIDTHS:
            for scheme in SCHEMES:
                context = chromium.new_context(
                    viewport={"width": width, "height": 900}, color_scheme=scheme, device_scale_factor=1
                )
                for name in pages():
                    shown = FOLDER / f"{name[:-5].replace('/', '-')}-{width}-{scheme}.png"
                    if name not in SHOWN and scheme != SCHEMES[0]:
                        continue
                    page = context.new_page()
                    for problem in problems(page, f"{address}/{name}", shown if name in SHOWN else None):
                        print(f"{name}, {width} pixels, {scheme}: {problem}")
                        broken += 1
                    page.close()
                context.close()
        chromium.close()
    print(f"screenshots: {FOLDER.relative_to(DOCS.parent)}, {broken} problems")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
