// What the page does beyond HTML: the stream of a turn, the stream of changes, the composer and
// keys. Texts enter the page as text; HTML of the server enters it through htmx only.

const talk = document.getElementById("talk");
const said = document.getElementById("said");
const find = (css, root = document) => root.querySelector(css);
const findAll = (css, root = document) => [...root.querySelectorAll(css)];

const say = (text) => { if (said) said.textContent = text; };

const isNearEnd = () => innerHeight + scrollY > document.documentElement.scrollHeight - 200;
const showEnd = () => scrollTo({ top: document.documentElement.scrollHeight });

function make(name, className, text = "") {
  const element = document.createElement(name);
  if (className) element.className = className;
  element.textContent = text;
  return element;
}

// A notice that stays in sight, with a link that loads the page again.
function notify(id, text, link) {
  if (document.getElementById(id)) return;
  const notice = make("p", "notice lasting", `${text} `);
  notice.id = id;
  const anchor = make("a", "", link);
  anchor.href = location.pathname + location.search;
  notice.append(anchor);
  document.getElementById("notices").append(notice);
}

// ---- what is kept in this tab: drafts, and what the next page is to show ----

// Somebody else who signs in does not get the drafts of the one before.
const who = find(".who .name")?.textContent.trim() ?? "";
const kept = (kind, name = location.pathname) => `${kind} ${who} ${name}`;
const keep = (key, value) => sessionStorage.setItem(key, JSON.stringify(value));
const read = (key) => JSON.parse(sessionStorage.getItem(key) ?? "null");
function take(key) {
  const value = read(key);
  sessionStorage.removeItem(key);
  return value;
}

// ---- streams: one at a time, closed while the tab is hidden ----

// Seconds before a stream that was refused is opened again. After the last, the reader is asked.
const WAITS = [1, 2, 4, 8, 15, 30];

let wanted = null; // { url, take, begin }: the stream that the page needs
let source = null;
let opened = 0, tries = 0, retry = 0;

function close() {
  clearTimeout(retry);
  source?.close();
  source = null;
}

function open() {
  close();
  wanted.begin();
  opened = Date.now();
  const stream = (source = new EventSource(wanted.url));
  stream.onmessage = (event) => {
    if (source !== stream) return;
    document.getElementById("lost")?.remove();
    try { wanted.take(JSON.parse(event.data)); } catch (error) { console.error(error); }
  };
  stream.onerror = () => {
    // The browser itself opens a broken stream again, but not one that was refused.
    if (source === stream && stream.readyState === EventSource.CLOSED) lose();
  };
}

function listen(url, begin, take) {
  wanted = { url, begin, take };
  if (!document.hidden) open();
}

function lose() {
  close();
  if (Date.now() - opened > 10000) tries = 0;
  if (tries === WAITS.length) {
    say("The connection has ended.");
    notify("lost", "The connection has ended.", "Load the page again");
    return;
  }
  retry = setTimeout(() => { if (wanted && !document.hidden) open(); }, WAITS[tries] * 1000);
  tries += 1;
}

function finish() {
  wanted = null;
  close();
}

function comeBack() {
  if (!wanted || source) return;
  tries = 0;
  open();
}

document.addEventListener("visibilitychange", () => { document.hidden ? close() : comeBack(); });
addEventListener("pagehide", close);
addEventListener("pageshow", (event) => { if (event.persisted) comeBack(); });

// ---- loading the page again: never under the hands of somebody who writes ----

function isWriting() {
  const fields = findAll("main textarea, main input:not([type=hidden])");
  const isChanged = (field) => (field.type === "file" ? field.files.length > 0 : field.value !== field.defaultValue);
  return fields.some((field) => isChanged(field) || (field === document.activeElement && field.closest("details[open]")));
}

function loadAgain() {
  if (isWriting()) {
    notify("changed", "Messages have changed.", "Show them");
    return;
  }
  keep(kept("place"), { end: isNearEnd(), top: scrollY });
  location.replace(location.pathname + location.search);
}

// ---- a turn ----

function followTurn(live) {
  const body = find(".body", live);
  const status = find(".status", live);
  let answer, reasoning;
  // Text is drawn once a frame, however often it arrives.
  let pending = [], drawn = true;
  // The stream begins from its first event when it is opened again: what stands is emptied.
  const begin = () => {
    pending = [];
    answer = make("div", "plain");
    answer.dir = "auto";
    body.replaceChildren(answer);
    reasoning = null;
  };
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
  listen(live.dataset.events, begin, (event) => {
    switch (event.type) {
      case "started":
        begin();
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
        begin();
        status.textContent = "begins anew";
        break;
      case "done":
        finish();
        say(event.stopped ? "The answer was stopped." : "The answer is complete.");
        // The server's page has the answer as Markdown, a new composer and the state after it.
        loadAgain();
        break;
      case "ended":
        // Answered on another server, or never: the server's page shows which.
        finish();
        loadAgain();
        break;
      case "error":
        finish();
        status.textContent = "has failed";
        // The next page has the composer and “Answer anew”, and says why.
        keep(kept("problem"), event.problem ?? {});
        loadAgain();
        break;
    }
  });
}

function problem(what) {
  const notice = make("p", "notice refused");
  notice.id = "problem";
  notice.append(make("strong", "", "The answer has failed"), " ", make("span", "", what.detail ?? what.title ?? ""), " ", make("code", "", what.reason ?? ""));
  return notice;
}

// ---- changes of the conversation, by whomever ----

function watch() {
  let through = Number(talk.dataset.through); // the last message that the page knows of
  let isDue = false, isFetching = false, wasOpen = false;
  const catchUp = async () => {
    isDue = true;
    if (isFetching) return;
    isFetching = true;
    try {
      while (isDue && wanted) {
        isDue = false;
        // Several changes come together.
        await new Promise((resolve) => { setTimeout(resolve, 150); });
        await fetchNew();
      }
    } catch (error) {
      console.warn(error);
      if (wanted) lose();
    } finally {
      isFetching = false;
    }
  };
  const fetchNew = async () => {
    const answer = await fetch(`${talk.dataset.entries}?after=${through}`, { headers: { "HX-Request": "true" } });
    if (!answer.ok) throw new Error(`The new messages were refused with ${answer.status}.`);
    const html = await answer.text();
    const follow = isNearEnd();
    const before = findAll("[data-message]", talk).length;
    htmx.swap(talk, html, { swapStyle: "beforeend" });
    const progress = find(".progress", talk);
    if (!progress) return;
    progress.remove();
    through = Number(progress.dataset.through);
    isDue ||= progress.dataset.more === "true";
    for (const field of findAll("[name=expected_last]")) field.value = through;
    forgetSent();
    if (findAll("[data-message]", talk).length > before) say("There are new messages.");
    if (follow) showEnd();
    if (progress.dataset.etag !== talk.dataset.etag) loadAgain();
  };
  listen(talk.dataset.watch, () => {}, (event) => {
    switch (event.type) {
      case "started":
        // Stored after the page was made, or changed while nobody watched.
        if (wasOpen || event.lastMessageId > through) catchUp();
        wasOpen = true;
        break;
      case "message_appended":
        if ((event.message?.id ?? Infinity) > through) catchUp();
        break;
      case "messages_withdrawn":
      case "messages_restored":
      case "message_changed":
      case "messages_erased":
        loadAgain();
        break;
      case "error":
        lose();
        break;
    }
  });
}

// ---- forms: each is sent once, and a draft stays until a page shows that it was stored ----

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post" || event.defaultPrevented) return;
  if (form.dataset.sent) { event.preventDefault(); return; }
  if (form.getAttribute("action") === "/sign-out") { sessionStorage.clear(); return; }
  form.dataset.sent = "yes";
  // After the browser has read the form.
  setTimeout(() => { for (const button of findAll("button", form)) button.disabled = true; });
});
// A page from the browser's cache may be sent again.
addEventListener("pageshow", (event) => {
  if (!event.persisted) return;
  for (const form of findAll("form[data-sent]")) {
    delete form.dataset.sent;
    for (const button of findAll("button", form)) button.disabled = false;
  }
});

function keepDraft(form, name) {
  const text = find("textarea", form);
  text.value ||= read(kept("draft", name)) ?? "";
  text.addEventListener("input", () => keep(kept("draft", name), text.value));
  form.addEventListener("submit", () => {
    keep(kept("sent", name), { text: text.value, after: Number(form.elements.expected_last?.value ?? 0) });
  });
}

// Forgets drafts that stand on this page as messages.
function forgetSent() {
  for (const name of [location.pathname, "new"]) {
    const sent = read(kept("sent", name));
    if (!sent) continue;
    const questions = findAll("article.user[data-message]").filter((at) => Number(at.dataset.message) > sent.after);
    const texts = questions.map((at) => findAll(".plain", at).map((part) => part.textContent).join("\n"));
    // A long message is cut.
    if (!texts.some((text) => text === sent.text || (text !== "" && sent.text.startsWith(text)))) continue;
    sessionStorage.removeItem(kept("sent", name));
    if (read(kept("draft", name)) === sent.text) sessionStorage.removeItem(kept("draft", name));
  }
}

const composer = document.getElementById("composer");
const beginning = document.getElementById("begin");
if (talk) forgetSent();
if (composer) keepDraft(composer, location.pathname);
if (beginning) {
  keepDraft(beginning, "new");
  if (find("textarea", beginning).value !== "") beginning.closest("details").open = true;
}

// ---- pictures, which the composer sends as data: URIs ----

// Most characters of all pictures: a request has at most 4 MiB, and some characters become three.
const PICTURE_CHARACTERS = 3500000;

function readPicture(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

const pictures = document.getElementById("pictures");
if (pictures && composer) {
  pictures.hidden = false;
  const input = find("input", pictures);
  const name = find("span", pictures);
  const attach = async () => {
    const uris = await Promise.all([...input.files].map(readPicture));
    const images = uris.join(" ");
    const isTooLarge = images.length > PICTURE_CHARACTERS;
    if (isTooLarge) input.value = "";
    composer.elements.images.value = isTooLarge ? "" : images;
    find("textarea", composer).required = composer.elements.images.value === "";
    name.textContent = isTooLarge ? "Too large: 2.6 MB in all" : uris.length === 0 ? "Pictures" : uris.length === 1 ? "1 picture" : `${uris.length} pictures`;
    say(name.textContent);
  };
  input.addEventListener("change", attach);
  // The browser fills the field again when it comes back to the page.
  if (input.files.length > 0) attach();
}

// A picture that cannot be shown is a text.
document.addEventListener("error", (event) => {
  if (event.target.matches?.("img.picture")) {
    event.target.closest("a").replaceWith(make("span", "small soft", `${event.target.alt}: it cannot be shown.`));
  }
}, true);

// ---- times as they are at this place ----

const two = (number) => String(number).padStart(2, "0");
function showLocalTimes(root) {
  for (const element of findAll("time[datetime]", root)) {
    const time = new Date(element.dateTime);
    if (element.title || Number.isNaN(time.getTime())) continue;
    element.title = element.dateTime;
    element.textContent = `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ${two(time.getHours())}:${two(time.getMinutes())}`;
  }
}
showLocalTimes(document);
document.addEventListener("htmx:load", (event) => showLocalTimes(event.target));

// ---- where the page begins ----

const hasNotice = Boolean(find("#notices .notice"));
const address = new URL(location.href);
if (address.searchParams.has("notice")) {
  // Loaded again, the page says nothing of what was done before.
  address.searchParams.delete("notice");
  history.replaceState(history.state, "", address);
}

function showPlace() {
  const place = take(kept("place"));
  if (place) {
    if (place.end) showEnd(); else scrollTo({ top: place.top });
    return;
  }
  const number = Number(/^#m(\d+)$/.exec(location.hash)?.[1] ?? 0);
  if (number > 0 && !find(location.hash)) {
    const mark = findAll(".withdrawn[data-first]", talk).find((at) => at.dataset.first <= number && number <= at.dataset.last);
    mark?.scrollIntoView();
  } else if (!hasNotice && (!location.hash || location.hash === "#end")) {
    showEnd();
  }
}

if (talk) {
  const failed = take(kept("problem"));
  const live = document.getElementById("live");
  if (failed && !live) {
    talk.append(problem(failed));
    say("The answer has failed.");
  }
  showPlace();
  if (live) followTurn(live);
  else if (talk.dataset.watch) watch();
}

// ---- keys ----

function move(by) {
  const all = findAll(".rows .row, article.message");
  if (all.length === 0) return;
  const at = all.findIndex((one) => one.contains(document.activeElement));
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by))];
  if (!next.matches("a")) next.tabIndex = -1;
  next.focus();
}

const help = document.getElementById("help");
const keys = document.getElementById("keys");
keys.hidden = false;
keys.addEventListener("click", () => help.showModal());
const singleKeys = document.getElementById("single-keys");
singleKeys.checked = localStorage.getItem("single-keys") !== "off";
singleKeys.addEventListener("change", () => localStorage.setItem("single-keys", singleKeys.checked ? "on" : "off"));

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
    if (field) field.blur();
    else document.getElementById("stop")?.requestSubmit();
    return;
  }
  if (field || event.ctrlKey || event.metaKey || event.altKey || !singleKeys.checked || find("dialog[open]")) return;
  const pressed = previous + event.key;
  previous = event.key === "g" ? "g" : "";
  if (pressed === "gx") { document.getElementById("xray")?.click(); return; }
  if (event.key === "/") {
    const filter = document.getElementById("filter");
    if (filter) { event.preventDefault(); filter.focus(); }
  } else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "?") help.showModal();
});

// ---- htmx: every request has the token of the page; the operator's figures are fetched anew ----

document.addEventListener("htmx:configRequest", (event) => {
  const token = find("meta[name=csrf]")?.content;
  if (token && event.detail.verb !== "get") event.detail.headers["X-CSRF-Token"] = token;
});
// Earlier messages that come late are forms of the same page.
document.addEventListener("htmx:afterSwap", () => {
  const newest = find("#composer [name=expected_last]")?.value;
  if (newest) for (const field of findAll("[name=expected_last]")) field.value = newest;
});
setInterval(() => {
  if (!document.hidden) document.body.dispatchEvent(new Event("refresh"));
}, 10000);
