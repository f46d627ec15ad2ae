// Drawings of the X-ray: a strip whose runs open below it, zoom, and the scrubber of time. Also the
// controls of what-if, and the pause of the operator's figures. Texts and numbers come from the
// server; this file only moves and marks what is drawn.

const fetchInto = (path, target, swap) => window.htmx.ajax("GET", path, { target, swap });

// Shows a strip in place of the one that stands. Who was in it stays in it.
const loadStrip = async (path) => {
  const wasInside = document.activeElement?.closest?.("#strip");
  await fetchInto(path, "#strip", "outerHTML");
  if (wasInside) document.querySelector("#strip a[data-run]")?.focus();
};

const open = async (link) => {
  const path = link.getAttribute("href");
  if ("range" in link.dataset) {
    await loadStrip(path);
  } else {
    await fetchInto(path, "#detail", "innerHTML");
    document.querySelector("#detail").scrollIntoView({ block: "nearest" });
  }
};

document.addEventListener("click", (event) => {
  const run = event.target.closest?.("a[data-run]");
  if (!run || event.ctrlKey || event.metaKey || event.shiftKey || !window.htmx) return;
  const place = "range" in run.dataset ? "#strip" : "#detail";
  if (!document.querySelector(place)) return;
  event.preventDefault();
  open(run);
});

// ---- keys: arrows walk along the strip, plus and minus zoom ----

const view = (svg) => svg.getAttribute("viewBox").split(" ").map(Number);

// A view of less than this, of 1,000, shows merged runs as the messages that they consist of.
const NARROWEST_MERGED = 100;

const edges = (link) => {
  const rect = link.querySelector("rect");
  const left = Number(rect.getAttribute("x"));
  return [left, left + Number(rect.getAttribute("width"))];
};

// The strip of the messages that are in view, if some of them are merged. Null: none is.
const visiblePart = (svg, start, end) => {
  const runs = [...svg.querySelectorAll("a[data-run]")].filter((link) => {
    const [left, right] = edges(link);
    return right > start && left < end;
  });
  if (!runs.some((link) => "range" in link.dataset)) return null;
  const url = new URL(svg.dataset.strip, location.href);
  url.searchParams.set("first", runs[0].dataset.first);
  url.searchParams.set("last", runs.at(-1).dataset.last);
  return url.pathname + url.search;
};

const zoom = (svg, factor, center) => {
  const [x, y, width, height] = view(svg);
  if ("part" in svg.dataset && width * factor > 1000) {
    loadStrip(svg.dataset.strip);
    return;
  }
  const wanted = Math.min(1000, Math.max(2, width * factor));
  const start = Math.min(1000 - wanted, Math.max(0, center - ((center - x) * wanted) / width));
  svg.setAttribute("viewBox", `${start} ${y} ${wanted} ${height}`);
  if (factor >= 1 || wanted >= NARROWEST_MERGED || !svg.dataset.strip || "loading" in svg.dataset) return;
  const part = visiblePart(svg, start, start + wanted);
  if (part) {
    svg.dataset.loading = "";
    loadStrip(part);
  }
};

const reveal = (svg, link) => {
  const [left, right] = edges(link);
  const [x, y, width, height] = view(svg);
  if (left >= x && right <= x + width) return;
  const start = Math.min(1000 - width, Math.max(0, (left + right - width) / 2));
  svg.setAttribute("viewBox", `${start} ${y} ${width} ${height}`);
};

document.addEventListener("keydown", (event) => {
  const link = event.target.closest?.("svg a[data-run]");
  if (!link || event.ctrlKey || event.metaKey || event.altKey) return;
  const svg = link.ownerSVGElement;
  const links = [...svg.querySelectorAll("a[data-run]")];
  const at = links.indexOf(link);
  const places = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: links.length - 1 };
  const [left, right] = edges(link);
  const middle = (left + right) / 2;
  if (event.key in places) {
    const next = links[places[event.key]];
    if (!next) return;
    link.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    reveal(svg, next);
    next.focus();
  } else if (event.key === "+" || event.key === "=") {
    zoom(svg, 0.5, middle);
  } else if (event.key === "-") {
    zoom(svg, 2, middle);
  } else if (event.key === "0") {
    zoom(svg, Infinity, middle);
  } else {
    return;
  }
  event.preventDefault();
});

document.addEventListener("wheel", (event) => {
  const svg = event.target.closest?.("svg[data-strip]");
  if (!svg || !event.ctrlKey) return;
  event.preventDefault();
  const box = svg.getBoundingClientRect();
  const [x, , width] = view(svg);
  zoom(svg, event.deltaY > 0 ? 1.25 : 0.8, x + ((event.clientX - box.left) * width) / box.width);
}, { passive: false });

document.addEventListener("dblclick", (event) => {
  const svg = event.target.closest?.("svg[data-strip]");
  if (svg) zoom(svg, Infinity, 0);
});

// The same with buttons, around the middle of the view.
document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-zoom]");
  const svg = button?.closest("#strip")?.querySelector("svg[data-strip]");
  if (!svg) return;
  const [x, , width] = view(svg);
  zoom(svg, { in: 0.5, out: 2, all: Infinity }[button.dataset.zoom], x + width / 2);
});

// ---- the scrubber: the context as it was ----

const scrub = document.querySelector("#scrub");
if (scrub) {
  const [range, number, go] = [scrub.elements.n, scrub.elements.number, scrub.querySelector("[data-go]")];
  let waiting;
  const choose = (from, to) => {
    to.value = from.value;
    const last = Number(scrub.dataset.last);
    const at = Math.min(last, Math.max(1, Number(from.value) || 1));
    go.href = scrub.dataset.base + at;
    clearTimeout(waiting);
    waiting = setTimeout(() => fetchInto(go.href, "#past", "innerHTML"), 150);
  };
  range.addEventListener("input", () => choose(range, number));
  number.addEventListener("input", () => choose(number, range));
  scrub.addEventListener("submit", (event) => event.preventDefault());
  go.addEventListener("click", (event) => {
    event.preventDefault();
    fetchInto(go.href, "#past", "innerHTML");
  });
}

// ---- what if: a refusal marks its control ----

document.addEventListener("htmx:afterSettle", () => {
  const form = document.querySelector(".controls");
  const result = document.querySelector("#result");
  if (!form || !result) return;
  const refused = new Set([...result.querySelectorAll("[data-refused]")].map((it) => it.dataset.refused));
  // Those of the page as it was loaded.
  for (const text of form.querySelectorAll(".wrong")) text.remove();
  for (const control of form.querySelectorAll("input:not([type=hidden]), select")) {
    if (refused.has(control.name)) {
      control.setAttribute("aria-invalid", "true");
      control.setAttribute("aria-describedby", `r-${control.name}`);
    } else {
      control.removeAttribute("aria-invalid");
      control.removeAttribute("aria-describedby");
    }
  }
});

// ---- the operator's figures stand while somebody reads them closely ----

const isRead = (figures) => {
  const selection = document.getSelection();
  const isSelected = selection && !selection.isCollapsed && selection.containsNode(figures, true);
  return Boolean(document.querySelector("#pause input")?.checked) || isSelected || figures.contains(document.activeElement);
};

for (const name of ["htmx:beforeRequest", "htmx:beforeSwap"]) {
  document.addEventListener(name, (event) => {
    const figures = document.querySelector("#figures");
    if (figures && event.detail.elt === figures && isRead(figures)) event.preventDefault();
  });
}
