// Drawings of the X-ray: a strip whose runs open below it, zoom, and the scrubber of time. Texts and
// numbers come from the server; this file only moves what is drawn.

const open = (link) => {
  window.htmx.ajax("GET", link.getAttribute("href"), { target: "#detail", swap: "innerHTML" });
};

document.addEventListener("click", (event) => {
  const run = event.target.closest?.("a[data-run]");
  if (!run || event.ctrlKey || event.metaKey || event.shiftKey || !window.htmx) return;
  event.preventDefault();
  if (document.querySelector("#detail")) open(run);
});

// ---- keys: arrows walk along the strip, plus and minus zoom ----

const view = (svg) => svg.getAttribute("viewBox").split(" ").map(Number);

const zoom = (svg, factor, center) => {
  const [x, y, width, height] = view(svg);
  const wanted = Math.min(1000, Math.max(2, width * factor));
  const start = Math.min(1000 - wanted, Math.max(0, center - ((center - x) * wanted) / width));
  svg.setAttribute("viewBox", `${start} ${y} ${wanted} ${height}`);
};

const reveal = (svg, link) => {
  const rect = link.querySelector("rect");
  const left = Number(rect.getAttribute("x"));
  const right = left + Number(rect.getAttribute("width"));
  const [x, y, width, height] = view(svg);
  if (left >= x && right <= x + width) return;
  const start = Math.min(1000 - width, Math.max(0, (left + right - width) / 2));
  svg.setAttribute("viewBox", `${start} ${y} ${width} ${height}`);
};

document.addEventListener("keydown", (event) => {
  const link = event.target.closest?.("a[data-run]");
  if (!link || event.ctrlKey || event.metaKey || event.altKey) return;
  const svg = link.ownerSVGElement;
  const links = [...svg.querySelectorAll("a[data-run]")];
  const at = links.indexOf(link);
  const places = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: links.length - 1 };
  const rect = link.querySelector("rect");
  const middle = Number(rect.getAttribute("x")) + Number(rect.getAttribute("width")) / 2;
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
    waiting = setTimeout(() => {
      window.htmx.ajax("GET", go.href, { target: "#past", swap: "innerHTML" });
    }, 150);
  };
  range.addEventListener("input", () => choose(range, number));
  number.addEventListener("input", () => choose(number, range));
  scrub.addEventListener("submit", (event) => event.preventDefault());
  go.addEventListener("click", (event) => {
    event.preventDefault();
    window.htmx.ajax("GET", go.href, { target: "#past", swap: "innerHTML" });
  });
}
