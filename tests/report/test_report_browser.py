"""Reports in a real browser: charts that answer, pages that fit, and names that stay text whatever they say.

Each page is opened in headless Chromium; where there is none these tests are skipped.
"""

import json
import re
import subprocess
from html import escape
from urllib.parse import unquote

import numpy as np
import pytest
from test_report import make_record

from sdefit.report import write_fit
from sdefit.report.comparison import comparison_page
from sdefit.report.html import write_page
from sdefit.store import Record


def runs(browser):
    """Whether it is there and starts: a command that only says what to install instead is none."""
    try:
        return subprocess.run([browser, "--version"], capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


CHROMIUM = next((browser for browser in ("chromium", "chromium-browser") if runs(browser)), None)


def browse(path, profile, *options):
    """The page's DOM after its scripts ran, and what the browser wrote to its console."""
    quiet = "--disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update"
    command = [CHROMIUM, "--headless", "--no-sandbox", *quiet.split(), "--disable-sync", "--enable-logging=stderr"]
    command += [f"--user-data-dir={profile}", *options, "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def drive(text, script, folder, width=1000):
    """What `script` finds on the page, as JSON, and the console; the page's own policy would not run a script of ours.

    The page is shown in a frame, and the script runs outside of it, with `page` and `view`, its document and window.
    """
    outer = folder / "outer.html"
    outer.write_text(
        f"""<!doctype html><meta charset="utf-8"><iframe width="{width}" height="900" srcdoc="{escape(text)}"></iframe>
        <script>
        const frame = document.querySelector("iframe");
        frame.onload = async () => {{
          const page = frame.contentDocument, view = frame.contentWindow;
          const wait = (ms) => new Promise((done) => setTimeout(done, ms));
          let found;
          try {{ found = await (async () => {{ {script} }})(); }}
          catch (problem) {{ found = {{problem: String(problem)}}; }}
          frame.remove();
          const said = document.createElement("pre");
          said.textContent = "FOUND" + encodeURIComponent(JSON.stringify(found)) + "END";
          document.body.append(said);
        }};</script>""",
        encoding="utf-8",
        errors="replace",
    )
    dom, console = browse(outer, folder / "profile", "--virtual-time-budget=5000", "--window-size=1300,1000")
    return json.loads(unquote(re.findall(r"FOUND([^<]*?)END<", dom)[-1])), console


needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")


@needs_browser
def test_in_a_browser_the_page_is_silent_and_sorts(tmp_path):
    record = make_record()
    text = write_fit(record, tmp_path / "report.html").read_text(encoding="utf-8")
    script = """
      const head = page.querySelectorAll("#parameters thead button")[1];
      head.click(); head.click();
      const rows = [...page.querySelectorAll("#parameters tbody tr")];
      return [rows.map((row) => Number(row.cells[1].dataset.value)), head.parentNode.getAttribute("aria-sort")];"""
    (shown, order), console = drive(text, script, tmp_path)
    assert console == []
    np.testing.assert_array_equal(shown, np.sort(record["params"])[::-1])
    assert order == "descending"


@needs_browser
def test_in_a_browser_the_page_is_no_wider_than_a_phone(tmp_path):
    text = write_fit(make_record(states=("susceptible", "infectious", "recovered")), tmp_path / "r.html").read_text()
    script = """
      const charts = [...page.querySelectorAll("svg.chart")].map((chart) => chart.clientWidth).filter((width) => width);
      return [page.documentElement.scrollWidth, Math.min(...charts)];"""
    (page, chart), console = drive(text, script, tmp_path, width=360)
    assert console == [] and page <= 360 and chart > 280


# Pointer events at the place of the i-th dot of the first chart that shows any.
POINT = """
  const dots = page.querySelector("#states .dots path"), chart = dots.closest("svg");
  const at = [...dots.getAttribute("d").matchAll(/M([\\d.]+) ([\\d.]+)/g)].map((m) => m.slice(1).map(Number));
  const fire = (kind, [x, y]) => {
    const p = new view.DOMPoint(x, y).matrixTransform(chart.getScreenCTM());
    const facts = {clientX: p.x, clientY: p.y, bubbles: true, pointerId: 1, pointerType: "mouse", button: 0};
    chart.dispatchEvent(new view.PointerEvent(kind, facts));
  };
  view.SVGElement.prototype.setPointerCapture = () => {};
  const tip = page.querySelector(".tip"), said = () => tip.hidden ? "" : tip.textContent;
"""


@needs_browser
def test_in_a_browser_charts_tell_their_values_and_zoom(tmp_path):
    record = make_record(lengths=(12,))
    text = write_fit(record, tmp_path / "r.html").read_text(encoding="utf-8")
    script = (
        POINT
        + """
      const found = {tips: at.map((place) => { fire("pointermove", place); return said(); })};
      fire("pointerleave", at[0]);
      found.left = said();
      const box = chart.querySelector("clipPath rect");
      const [bx, by, bw, bh] = ["x", "y", "width", "height"].map((n) => Number(box.getAttribute(n)));
      const visible = (tick) => view.getComputedStyle(tick).display !== "none";
      const ticks = () => [...chart.querySelectorAll(".xtick")].filter(visible).map((tick) => tick.textContent);
      found.before = ticks();
      const end = [bx + bw / 2, by + bh];
      fire("pointerdown", [bx + bw / 4, by]); fire("pointermove", end); fire("pointerup", end);
      found.zoomed = ticks();
      found.scale = chart.querySelector(".marks").getAttribute("transform");
      chart.dispatchEvent(new view.MouseEvent("dblclick"));
      found.after = ticks();
      chart.dispatchEvent(new view.KeyboardEvent("keydown", {key: "+"}));
      found.keyed = chart.classList.contains("zoomed");
      return found;"""
    )
    found, console = drive(text, script, tmp_path)
    assert console == [] and "problem" not in found
    values = record["values"][0, :, 0]
    seen = np.isfinite(values)
    for tip, t, value in zip(found["tips"], record["times"][0][seen], values[seen], strict=True):
        word, rest = tip.split(": ")
        y, x = rest.replace("−", "-").split("\ntime ")
        if word == "observations":  # where a smoothed state lies on the dot, it may speak in its place
            assert abs(float(x) - t) < 0.02 and abs(float(y) - value) < 0.03
    assert sum(tip.startswith("observations") for tip in found["tips"]) > len(found["tips"]) / 2
    assert found["left"] == "" and found["before"] == found["after"] and found["keyed"]
    assert found["scale"].startswith("matrix(4 0 0 1 ")
    low, high = (
        float(end) for end in re.search(r'data-x="(\S+) (\S+)"', text.split('id="states"')[1])[0][8:-1].split()
    )
    zoomed = [float(tick.replace("−", "-")) for tick in found["zoomed"]]
    quarter = (high - low) / 4
    assert len(zoomed) >= 3 and low + quarter - 1e-3 <= min(zoomed) <= max(zoomed) <= low + 2 * quarter + 1e-3


HOSTILE = [
    "<script>top.pwned=1;parent.pwned=1</script>",
    '"><img src=x onerror="top.pwned=1">',
    "'><svg onload=top.pwned=1>",
    "</style></title></textarea></script><script>top.pwned=1</script>",
    "{{ 7*7 }}{% for x in y %}",
    "`<b>`</code><iframe srcdoc='<script>top.pwned=1</script>'>",
    "javascript:top.pwned=1",
    '" onmouseover="top.pwned=1" x="',
    "]]><!-- $\\frac{x}{y}$ &lt;script&gt;",
    "url(#a)\u2028\u202e\x00\x1b[31m",
]

# All that a page may consist of, whatever it shows, and what a name may not become.
CENSUS = """
  const seen = {pwned: window.pwned ?? 0, scripts: page.scripts.length};
  const foreign = "img,iframe,object,embed,form,input,base,b,style~style,link:not([rel=icon])";
  seen.foreign = page.querySelectorAll(foreign).length;
  const all = [...page.querySelectorAll("*")], names = all.flatMap((e) => e.getAttributeNames());
  seen.handlers = names.filter((name) => name.startsWith("on") || name === "style").length;
  const ids = all.map((e) => e.id).filter(Boolean);
  seen.odd = ids.filter((id) => !/^[A-Za-z][A-Za-z0-9_-]*$/.test(id));
  seen.twice = ids.length - new Set(ids).size;
  const ours = /^(#section-\\d+|[\\w%.-]+\\/[\\w-]+\\.csv)$/;
  seen.links = [...page.querySelectorAll("a")].map((a) => a.getAttribute("href")).filter((h) => !ours.test(h));
  for (const chart of page.querySelectorAll("svg.chart")) {
    const box = chart.getBoundingClientRect();
    for (let i = 1; i < 20; i++) {
      const place = {clientX: box.left + box.width * i / 20, clientY: box.top + box.height / 2};
      chart.dispatchEvent(new view.PointerEvent("pointermove", place));
    }
  }
  seen.charts = page.querySelectorAll("svg.chart").length;
  seen.tip = page.querySelectorAll(".tip *").length;
  for (const button of page.querySelectorAll("thead button")) button.click();
  const blocked = [];
  page.addEventListener("securitypolicyviolation", (event) => blocked.push(event.effectiveDirective));
  const made = page.createElement("script"); made.textContent = "top.pwned = 2"; page.body.append(made);
  const img = page.createElement("img"); img.setAttribute("onerror", "top.pwned = 3"); img.src = "data:,";
  const sheet = page.createElement("style"); sheet.textContent = "body { display: none }";
  const far = page.createElement("img"); far.src = "http://127.0.0.1:9/x.png";
  page.body.append(img, sheet, far);
  await wait(500);
  seen.after = window.pwned ?? 0;
  seen.blocked = [...new Set(blocked)].sort();
  return seen;
"""
KEPT_OUT = ["img-src", "script-src-attr", "script-src-elem", "style-src-elem"]


def check_harmless(text, folder):
    found, console = drive(text, CENSUS, folder)
    assert "problem" not in found, found
    charts = found.pop("charts")
    expected = {"pwned": 0, "scripts": 1, "foreign": 0, "handlers": 0, "odd": [], "twice": 0, "links": [], "tip": 0}
    assert found == expected | {"after": 0, "blocked": KEPT_OUT} and charts > 0
    # Our own four attempts are all that the console speaks of.
    assert all("Content Security Policy" in line or "127.0.0.1:9" in line for line in console), console
    assert "unsafe" not in text.partition("<title>")[0]


def hostile_record(i):
    """A record with a hostile text in every field that holds one."""
    text = HOSTILE[i:] + HOSTILE[:i]
    states = (text[0], text[1])
    params = text[2:5]
    record = make_record(seed=i, states=states)
    facts = record.facts
    facts["params"] = params
    for row, name in zip(facts["summary"], params, strict=True):
        row["quantity"] = name
    facts["parameters"] = dict(zip(params, facts["parameters"].values(), strict=True))
    facts["truth"]["params"] = {params[0]: 1.0}
    residuals = [np.zeros((12, 2)).tolist(), np.zeros((9, 2)).tolist()]
    facts |= {
        "name": text[5], "equations": text[6], "latex": text[7], "diffusion": text[8], "time_unit": text[9],
        "series": [{"name": text[0], "origin": text[1]}] * 2, "notes": text, "assumed": text,
        "method": {"name": text[2], "title": text[3], "settings": {text[4]: text[5], text[6]: [text[7]]}},
        "status": {"name": text[4], "message": text[5], "remedy": text[6],
                   "checks": [{"ok": False, "message": text[7]}]},
        "provenance": {"data": text[8], "sdefit": text[9], text[0]: text[1]},
        "model": {"name": text[0], "equations": text[1], "function": text[2], "states": text},
        "intervals": {"names": params, "identifiability": ["identified", "not identified", text[0]], "sentences": text,
                      "notes": text, "level": 0.9,
                      **{end: [1.0, 2.0, 3.0] for end in ("estimate", "lower", "upper", "std")}},
        "profiles": {text[3]: {"values": [0.0, 1, 2], "log_likelihood": [-1.0, 0, -1], "estimate": 1.0, "level": 0.9}},
        "diagnosis": {
            "checks": [{"name": text[0], "state": text[1], "value": 1.0, "p": 0.1, "ok": False}], "hints": text,
            "residuals": residuals, "quantiles": {text[2]: [[0.0, 1], [0.0, 1]]},
            "drift": {text[3]: {"state": [0.0, 1], "fitted": [0.0, 1], "found": [0.0, 1], "std": [1.0, 1]}},
        },
    }  # fmt: skip
    return Record(record.arrays, facts, {"state": list(states), "series": text[8:10]})


@needs_browser
@pytest.mark.parametrize("i", range(0, len(HOSTILE), 2))
def test_in_a_browser_hostile_names_in_every_field_stay_text(tmp_path, i):
    path = write_fit(hostile_record(i), tmp_path / "r & <b>.html")
    text = path.read_text(encoding="utf-8")
    assert all(escape(name) in text.replace("&#39;", "&#x27;").replace("&#34;", "&quot;") for name in HOSTILE[:4])
    check_harmless(text, tmp_path)


@needs_browser
def test_in_a_browser_a_comparison_of_hostile_fits_stays_text(tmp_path):
    page = comparison_page({HOSTILE[1]: hostile_record(0), HOSTILE[2]: hostile_record(0)}, {HOSTILE[3]: HOSTILE[5]})
    check_harmless(write_page(page, tmp_path / "r.html").read_text(encoding="utf-8"), tmp_path)
