// What the page does beyond HTML: the stream of a turn, the stream of changes, the composer and
// keys. Texts enter the page as text; HTML of the server enters it through htmx only.

const talk = document.getElementById("talk");
const said = document.getElementById("said");
const find = (css, root = document) => root.querySelector(css);

const say = (text) => { if (said) said.textContent = text; };

const isNearEnd = () => innerHeight + scrollY > document.documentElement.scrollHeight - 200;
const showEnd = () => scrollTo({ top: document.documentElement.scrollHeight });

// The number of the newest message that stands on the page.
const newest = () =>
  Math.max(0, ...[...document.querySelectorAll("[data-message]")].map((at) => Number(at.dataset.message)));

// ---- streams: one at a time, closed while the tab is hidden ----

let source = null;
let open = null; // opens the stream that the page needs, or null
let lastId = "";

const close = () => { source?.close(); source = null; };

function listen(url, take) {
  open = () => {
    close();
    const stream = (source = new EventSource(url));
    stream.onmessage = (event) => {
      if (event.lastEventId) lastId = event.lastEventId;
      try { take(JSON.parse(event.data)); } catch (error) { console.error(error); }
    };
    stream.onerror = () => {
      if (stream.readyState === EventSource.CLOSED && source === stream) {
        // Refused for good: the page of the server says why.
        source = null;
        say("The connection has ended. Load the page again.");
      }
    };
  };
  if (!document.hidden) open();
}

// A turn's stream begins from its first event when it is opened again: what stands is emptied.
let reset = () => {};
document.addEventListener("visibilitychange", () => {
  if (!open) return;
  if (document.hidden) close();
  else if (!source) { reset(); open(); }
});
addEventListener("pagehide", close);
addEventListener("pageshow", (event) => { if (event.persisted && open) { reset(); open(); } });

// ---- a turn ----

function make(name, className, text = "") {
  const element = document.createElement(name);
  if (className) element.className = className;
  element.textContent = text;
  return element;
}

function followTurn(live) {
  const body = find(".body", live);
  const status = find(".status", live);
  let answer, reasoning;
  reset = () => {
    body.replaceChildren();
    answer = make("div", "plain");
    answer.dir = "auto";
    body.append(answer);
    reasoning = null;
  };
  reset();
  // Text is drawn once a frame, however often it arrives.
  let pending = [], drawn = true;
  const add = (target, text) => {
    pending.push([target, text]);
    if (!drawn) return;
    drawn = false;
    requestAnimationFrame(() => {
      drawn = true;
      const follow = isNearEnd();
      for (const [at, piece] of pending) at.append(piece);
      pending = [];
      if (follow) showEnd();
    });
  };
  listen(live.dataset.events, (event) => {
    switch (event.type) {
      case "started":
        reset();
        pending = [];
        break;
      case "text":
        add(answer, event.text);
        break;
      case "reasoning":
        if (!reasoning) {
          const fold = make("details", "fold");
          reasoning = make("div", "plain soft");
          reasoning.dir = "auto";
          fold.append(make("summary", "", "Reasoning"), reasoning);
          body.prepend(fold);
        }
        add(reasoning, event.text);
        break;
      case "tool_call": {
        const fold = make("details", "fold");
        const title = make("summary", "", "Call ");
        title.append(make("code", "", event.name ?? ""));
        fold.append(title, make("pre", "wrap", event.input ?? ""));
        body.append(fold);
        break;
      }
      case "attempt":
        reset();
        pending = [];
        status.textContent = "begins anew";
        break;
      case "done":
        finish();
        say(event.stopped ? "The answer was stopped." : "The answer is complete.");
        // The server's page has the answer as Markdown, a new composer and the state after it.
        location.replace(location.pathname + location.search);
        break;
      case "error":
        finish();
        status.textContent = "has failed";
        body.append(problem(event.problem));
        say("The answer has failed.");
        break;
    }
  });
}

function finish() {
  open = null;
  close();
}

function problem(what = {}) {
  const notice = make("p", "notice refused");
  notice.append(make("strong", "", "Refused"), " ", make("span", "", what.detail ?? what.title ?? ""), " ", make("code", "", what.reason ?? ""));
  return notice;
}

// ---- changes of the conversation, by whomever ----

function watch() {
  let due = false;
  const fetchNew = () => {
    if (due) return;
    due = true;
    setTimeout(async () => {
      due = false;
      const follow = isNearEnd();
      await htmx.ajax("GET", `${talk.dataset.entries}?after=${newest()}`, { target: "#talk", swap: "beforeend" });
      const composer = find("#composer [name=expected_last]");
      if (composer) composer.value = newest();
      if (follow) showEnd();
      say("There are new messages.");
    }, 150);
  };
  listen(talk.dataset.watch, (event) => {
    switch (event.type) {
      case "started":
        // Stored after the page was made, and before the watch began.
        if (event.lastMessageId > Number(find("#composer [name=expected_last]")?.value ?? newest())) fetchNew();
        break;
      case "message_appended":
        if ((event.message?.id ?? Infinity) > newest()) fetchNew();
        break;
      case "messages_withdrawn":
      case "messages_restored":
      case "message_changed":
      case "messages_erased":
        offerReload();
        break;
      case "error":
        finish();
        break;
    }
  });
}

// A change of messages that are shown: loading at once could discard what is being written.
function offerReload() {
  const draft = find("#composer textarea");
  if (!draft || draft.value === "") { location.reload(); return; }
  if (find("#changed")) return;
  const notice = make("p", "notice", "Messages have changed. ");
  notice.id = "changed";
  const link = make("a", "", "Show them");
  link.href = location.pathname;
  notice.append(link);
  document.getElementById("notices").append(notice);
}

if (talk) {
  const live = document.getElementById("live");
  if (live) followTurn(live);
  else if (talk.dataset.watch) watch();
  if (!location.hash || location.hash === "#end") showEnd();
}

// ---- the composer ----

const composer = document.getElementById("composer");
if (composer) {
  const text = find("textarea", composer);
  const key = `draft ${location.pathname}`;
  text.value ||= sessionStorage.getItem(key) ?? "";
  text.addEventListener("input", () => sessionStorage.setItem(key, text.value));
  composer.addEventListener("submit", () => {
    sessionStorage.removeItem(key);
    // After the browser has read the form.
    setTimeout(() => { find("button", composer).disabled = true; });
  });
}
// A page from the browser's cache may be sent again.
addEventListener("pageshow", () => { if (composer) find("button", composer).disabled = false; });

// ---- keys ----

function move(by) {
  const all = [...document.querySelectorAll(".rows .row, article.message")];
  if (all.length === 0) return;
  const at = all.findIndex((one) => one.contains(document.activeElement));
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by))];
  if (!next.matches("a")) next.tabIndex = -1;
  next.focus();
}

let previous = "";
addEventListener("keydown", (event) => {
  const field = event.target.closest?.("input, textarea, select");
  if (event.isComposing) return;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && field?.form) {
    event.preventDefault();
    field.form.requestSubmit();
    return;
  }
  if (event.key === "Escape" && !find("dialog[open]")) {
    const stop = document.getElementById("stop");
    if (stop) stop.requestSubmit();
    else field?.blur();
    return;
  }
  if (field || event.ctrlKey || event.metaKey || event.altKey) return;
  const keys = previous + event.key;
  previous = event.key === "g" ? "g" : "";
  if (keys === "gx") { document.getElementById("xray")?.click(); return; }
  if (event.key === "/") {
    const filter = document.getElementById("filter");
    if (filter) { event.preventDefault(); filter.focus(); }
  } else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "?") document.getElementById("help").showModal();
});

// ---- htmx: every request has the token of the page; the operator's figures are fetched anew ----

document.addEventListener("htmx:configRequest", (event) => {
  const token = find("meta[name=csrf]")?.content;
  if (token && event.detail.verb !== "get") event.detail.headers["X-CSRF-Token"] = token;
});
setInterval(() => {
  if (!document.hidden) document.body.dispatchEvent(new Event("refresh"));
}, 10000);
