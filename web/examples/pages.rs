//! Writes every page, made of fixed values, into a folder: `pages <folder>`. Serve the folder to
//! look at the pages.

use std::{env, error::Error, fs, path::Path};

use anneal_web::{
    assets::ASSETS,
    conversation::{Composer, ConversationPage, Entry, RunningTurn},
    conversations::{ConversationsPage, DeletePage, Filter, Row, Rows},
    error::ErrorPage,
    format::{Time, Tokens},
    layout::{Can, Notice, NoticeKind, Page, Place},
    markdown::{MarkdownLimits, to_html},
    message::{Actions, Alternatives, Media, Message, Part, Role},
    sign_in::SignInPage,
};

const ANSWER: &str = "## How the cache keeps warm\n\nA provider's cache is **prefix-based**: the \
first byte that differs ends it. So `anneal` moves the boundary rarely.\n\n1. Measure first\n2. \
Then move the boundary\n\n```rust\nfn pays_back_after(rewritten: u64, saved: u64) -> Option<u64> {\n    \
(saved > 0).then(|| rewritten.div_ceil(saved))\n}\n```\n\n| era | cause | rewritten | \
saved |\n|---|---|---|---|\n| 4 | checkpoint | 12,400 | 3,100 |\n| 3 | cooling | 2,000 | 800 |\n\n> Raw \
<b>HTML</b> stays text, and [links](https://example.org) are checked.\n\n- [x] counted\n- [ ] sent";

fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::args().nth(1).ok_or("usage: pages <folder>")?;
    let folder = Path::new(&folder);
    for asset in ASSETS {
        let path = folder.join(asset.path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().ok_or("an asset has no folder")?)?;
        fs::write(path, asset.plain)?;
    }
    let pages = [
        ("sign-in", sign_in().render()?),
        ("conversations", conversations().render()?),
        ("conversation", conversation(None).render()?),
        ("turn", conversation(Some(turn())).render()?),
        ("delete", delete().render()?),
        ("error", error().render()?),
    ];
    for (name, html) in pages {
        fs::write(folder.join(format!("{name}.html")), html)?;
    }
    Ok(())
}

fn page(title: &str, place: Place) -> Page {
    Page {
        title: title.to_owned(),
        csrf: "token".to_owned(),
        who: "key support-desk".to_owned(),
        bound: String::new(),
        tenant: "acme".to_owned(),
        can: Can {
            append: true,
            admin: true,
            operator: true,
        },
        place,
        notice: None,
        refresh_seconds: None,
    }
}

fn time() -> Time {
    Time {
        iso: "2026-11-27T18:30:00Z".to_owned(),
        text: "27 Nov, 18:30".to_owned(),
    }
}

fn row(id: u32, title: &str) -> Row {
    Row {
        id: format!("00000000-0000-7000-8000-{id:012}"),
        title: title.to_owned(),
        agent: "support".to_owned(),
        user: "u-1042".to_owned(),
        last_activity: time(),
        messages: 900,
        withdrawn: 2,
        tokens: Tokens {
            value: 184_220,
            estimated: true,
        },
        archived: id == 4,
        pinned: id == 0,
        fork_of: String::new(),
    }
}

fn sign_in() -> SignInPage {
    SignInPage {
        page: page("Sign in", Place::SignIn),
        next: "/conversations".to_owned(),
        accepts_keys: true,
        accepts_tokens: true,
    }
}

fn conversations() -> ConversationsPage {
    let titles = [
        "Why the cache went cold at night",
        "帮我规划一次从北京到成都的五天旅行",
        "東京のおすすめラーメン店 🍜",
        "كيف أعيد ضبط كلمة المرور الخاصة بي؟",
        "👩🏽‍🚀 Launch checklist: a title that is so long that it cannot fit on one line of any window, \
         not even of a wide one, and is therefore cut",
        "",
    ];
    let mut list_page = page("Conversations", Place::Conversations);
    list_page.notice = Some(Notice {
        kind: NoticeKind::Refused,
        text: "The conversation has changed since the page was loaded.".to_owned(),
        reason: "ETAG_MISMATCH".to_owned(),
    });
    ConversationsPage {
        page: list_page,
        filter: Filter {
            text: String::new(),
            agent: String::new(),
            user: String::new(),
            status: "active".to_owned(),
            user_is_fixed: false,
            agent_is_fixed: false,
        },
        pinned: vec![row(0, "Release 0.3: what is left")],
        rows: Rows {
            rows: (1..)
                .zip(titles)
                .map(|(id, title)| row(id, title))
                .collect(),
            next_url: "/conversations?page=2".to_owned(),
        },
        agents_hint: vec!["support".to_owned(), "coder".to_owned()],
    }
}

fn message(id: i64, role: Role, parts: Vec<Part>) -> Message {
    Message {
        id,
        role,
        parts,
        time: time(),
        turn: 1,
        tokens: Tokens {
            value: 412,
            estimated: false,
        },
        version: 1,
        stopped: false,
        text_bytes: 1800,
        cut: false,
        alternatives: (id == 4).then_some(Alternatives {
            question: 1,
            current: 2,
            count: 3,
        }),
        actions: Actions {
            edit: role == Role::User,
            regenerate: id == 4,
            fork: true,
            withdraw: true,
        },
    }
}

fn text(text: &str) -> Vec<Part> {
    vec![Part::Text(text.to_owned())]
}

fn markdown(text: &str) -> Vec<Part> {
    vec![Part::Markdown(to_html(text, MarkdownLimits::default()))]
}

fn conversation(turn: Option<RunningTurn>) -> ConversationPage {
    let call = vec![
        Part::Reasoning {
            text: "The user asks about the cache; the figures of the last night help.".to_owned(),
            hidden: false,
        },
        Part::Call {
            id: "c1".to_owned(),
            name: "read_metrics".to_owned(),
            input: "{\"from\": \"2026-11-26T22:00:00Z\", \"series\": [\"cache_read\", \"cache_written\"]}"
                .to_owned(),
        },
    ];
    let result = vec![
        Part::Result {
            call: "c1".to_owned(),
            text: "cache_read 0\ncache_written 12400".to_owned(),
            failed: false,
            media: Vec::new(),
        },
        Part::Result {
            call: "c2".to_owned(),
            text: "permission denied".to_owned(),
            failed: true,
            media: vec![Media {
                media_type: "image/png".to_owned(),
                bytes: 48_000,
                picture_url: String::new(),
                link: "https://example.org/a.png".to_owned(),
            }],
        },
    ];
    let mut cut = message(
        7,
        Role::Assistant,
        markdown("はい、*新宿*の店をお勧めします。🍜"),
    );
    cut.cut = true;
    cut.text_bytes = 4_194_304;
    cut.stopped = true;
    let entries = vec![
        Entry::Checkpoint {
            last: 880,
            tokens: 2_140,
            url: "#".to_owned(),
        },
        Entry::Message(message(
            1,
            Role::User,
            text("Why did the cache go cold at night?\nI only asked twice."),
        )),
        Entry::Message(message(2, Role::Assistant, call)),
        Entry::Message(message(3, Role::Tool, result)),
        Entry::Message(message(4, Role::Assistant, markdown(ANSWER))),
        Entry::Withdrawn {
            first: 5,
            last: 5,
            can_restore: true,
        },
        Entry::Separator {
            after: 5,
            time: time(),
        },
        Entry::Message(message(
            6,
            Role::User,
            text("كيف أعيد ضبط كلمة المرور؟ 你好，可以用中文回答吗？"),
        )),
        Entry::Message(cut),
    ];
    ConversationPage {
        page: page("Why the cache went cold at night", Place::Conversations),
        row: row(1, "Why the cache went cold at night"),
        etag: "e1".to_owned(),
        older_url: "?before=1".to_owned(),
        entries,
        turn,
        composer: Some(Composer {
            action: "/conversations/x/turn".to_owned(),
            request_id: "r1".to_owned(),
            expected_last: 7,
            models: vec!["large".to_owned(), "small".to_owned()],
            model: "large".to_owned(),
        }),
        watch_url: String::new(),
    }
}

fn turn() -> RunningTurn {
    RunningTurn {
        request_id: "r1".to_owned(),
        events_url: "/events".to_owned(),
        stop_url: "/stop".to_owned(),
    }
}

fn delete() -> DeletePage {
    DeletePage {
        page: page("Delete", Place::Conversations),
        row: row(1, "東京のおすすめラーメン店 🍜"),
        checkpoints: 3,
        forks: 1,
        etag: "e1".to_owned(),
    }
}

fn error() -> ErrorPage {
    ErrorPage {
        page: page("Not found", Place::Conversations),
        status: 404,
        reason: "CONVERSATION_NOT_FOUND".to_owned(),
        detail: "There is no conversation with this id.".to_owned(),
        trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
    }
}
