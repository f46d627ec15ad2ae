//! Writes every page, made of fixed values, into a folder: `pages <folder>`. Serve the folder to
//! look at the pages.

use std::{env, error::Error, fs, path::Path};

use anneal_web::{
    assets::ASSETS,
    conversation::{Composer, ConversationPage, Entry, RunningTurn},
    conversations::{ConversationsPage, Count, DeletePage, Filter, Row, Rows},
    costs::{Bill, Era, Eras, Reported, UsageTable},
    error::ErrorPage,
    format::{Time, Tokens},
    layout::{Can, Notice, NoticeKind, Page, Place},
    markdown::{MarkdownLimits, to_html},
    message::{Actions, Alternatives, Media, Message, Part, Role},
    sign_in::SignInPage,
    what_if::{Change, Control, Due, Effect, Refusal, WhatIf, WhatIfPage, label},
    xray::{
        BarSegment, Job, Jobs, Line, Mark, Original, Provenance, Run, Strip, Threshold, Timeline,
        WindowBar, XrayPage,
    },
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
        ("xray", xray().render()?),
        ("eras", eras().render()?),
        ("original", original().render()?),
        ("what-if", what_if().render()?),
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
        refresh: None,
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
        request_id: "r1".to_owned(),
        calls_models: true,
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
                not_shown: false,
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
            can_remove: true,
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
        composer: Composer::Form {
            models: vec!["large".to_owned(), "small".to_owned()],
            model: "large".to_owned(),
            has_default: true,
        },
        request_id: "r1".to_owned(),
        last: 7,
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
        messages: 902,
        checkpoints: Count {
            value: 3,
            has_more: false,
        },
        forks: Count {
            value: 1,
            has_more: false,
        },
        etag: "e1".to_owned(),
    }
}

fn error() -> ErrorPage {
    ErrorPage {
        page: page("Not found", Place::Conversations),
        status: 404,
        reason: "CONVERSATION_NOT_FOUND".to_owned(),
        detail: "There is no conversation with this id.".to_owned(),
        back: "/conversations/1".to_owned(),
        trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
    }
}

fn window() -> WindowBar {
    let segment = |name: &str, class, tokens, messages, x, width| BarSegment {
        name: name.to_owned(),
        class,
        tokens,
        messages,
        x,
        width,
    };
    let mark = |name: &str, at, x| Threshold {
        name: name.to_owned(),
        at,
        x,
    };
    WindowBar {
        segments: vec![
            segment("System prompt", "system", 3_100, 0, 0.0, 14.8),
            segment("Checkpoint summary", "checkpoint", 9_400, 0, 14.8, 44.8),
            segment("Messages", "tail", 61_240, 212, 59.6, 291.6),
        ],
        total: 73_740,
        built: None,
        window: 200_000,
        thresholds: vec![
            mark("checkpoint (tail ≥ 80\u{202f}000)", 92_500, 440.5),
            mark("model's window", 200_000, 952.4),
        ],
        tail_messages: 212,
        max_messages: 400,
        estimated: true,
        saved: 48_210,
        pending_saved: 5_100,
    }
}

fn strip() -> Strip {
    let states = [
        ("checkpoint", "in the checkpoint's summary", 1, 688),
        ("summary", "large and cool", 689, 720),
        ("original", "not large", 721, 760),
        ("clipped", "the budget required it", 761, 761),
        ("withdrawn", "withdrawn", 762, 765),
        ("repaired", "a tool result without its call", 766, 766),
        ("dropped", "the budget required it", 767, 790),
        ("original", "large, and too new for its summary", 791, 900),
    ];
    let mut x = 0.0;
    let runs = states.into_iter().map(|(state, reason, first, last)| {
        let is_long = last - first > 200;
        let width = if is_long { 400.0 } else { 600.0 / 7.0 };
        x += width;
        Run {
            first,
            last,
            state,
            reason: reason.to_owned(),
            tokens: 6_000,
            original_tokens: 11_000,
            cool: state == "summary",
            x: x - width,
            width,
            url: format!("/conversations/1/xray/messages/{first}"),
            has_strip: is_long,
        }
    });
    Strip {
        runs: runs.collect(),
        tokens: 73_740,
        original_tokens: 1_204_112,
        url: "/conversations/1/xray/strip".to_owned(),
        range: None,
        detail_url: String::new(),
    }
}

fn usage() -> UsageTable {
    let bill = |name, sent, cached, units, breaks| Bill {
        name,
        sent,
        cached,
        units,
        breaks,
    };
    UsageTable {
        bills: vec![
            bill("Whole history", 214_880_120, 208_110_000, 29_212_600.0, 1),
            bill("Strict cooling", 31_400_200, 22_100_000, 13_835_250.4, 88),
            bill("Stepped cooling", 33_912_870, 30_900_112, 6_856_000.2, 14),
        ],
        reported: Some(Reported {
            calls: 412,
            input: 33_100_240,
            cached: 29_870_110,
            written: 2_410_000,
            output: 610_334,
            cold: 3,
            cold_by_us: 14,
        }),
        summaries: 61,
        checkpoints: 4,
        summary_read: 810_000,
        summary_written: 41_200,
        health: "Summaries can be made.".to_owned(),
    }
}

fn era(number: i64, paid: Option<bool>) -> Era {
    Era {
        number,
        cause: "large messages became summaries".to_owned(),
        at: 800,
        broken_at: 689,
        boundary: 688,
        rewritten: 41_200,
        saved_per_call: 3_900,
        pays_after: paid.map(|_| 122),
        paid,
        calls: 140,
        input: 9_800_100,
        cached: 9_100_400,
        written: 610_000,
        expected: 9_204_000,
        output: 88_000,
        cold: 1,
        model: "claude-sonnet-4-5".to_owned(),
        time: time(),
    }
}

fn eras() -> Eras {
    Eras {
        eras: vec![era(14, Some(true)), era(13, Some(false)), era(11, None)],
        next_url: "/x".to_owned(),
    }
}

fn xray() -> XrayPage {
    let mark = |last, valid, void| Mark {
        last,
        kind: "written by a model".to_owned(),
        valid,
        void,
        time: time(),
        url: "/x".to_owned(),
    };
    XrayPage {
        page: page("X-ray", Place::Xray),
        row: row(1, "Port the parser to nom 8"),
        window: window(),
        strip: strip(),
        repairs: vec!["Message 766: a tool result without a call was left out".to_owned()],
        eras_url: "/eras.html".to_owned(),
        timeline: Timeline {
            marks: [(210, false), (455, true), (688, false)]
                .map(|(last, void)| mark(last, true, void))
                .into(),
            earlier_url: "/x".to_owned(),
        },
        usage: usage(),
        jobs: Some(Jobs {
            jobs: vec![Job {
                kind: "summarize_messages".to_owned(),
                state: "dead".to_owned(),
                attempts: 8,
                due: time(),
                error: "the model refused the key (HTTP 401)".to_owned(),
                worker: String::new(),
            }],
            can_requeue: true,
        }),
        policy: vec![
            (label("profile"), "agents".to_owned()),
            (label("token_threshold"), "80000".to_owned()),
        ],
    }
}

fn original() -> Original {
    let lines = [
        ("error[E0308]: mismatched types", true),
        ("  --> src/parser.rs:88:17", true),
        ("   |     expected `&str`, found `String`", false),
    ];
    let mut message = message(700, Role::Tool, vec![Part::Text("…".to_owned())]);
    message.cut = true;
    Original {
        message,
        summary: Some(Provenance {
            kind: "extracted".to_owned(),
            model: "extractive-2".to_owned(),
            prompt_version: 2,
            digest: "9f3a".repeat(16),
            tokens: 310,
            source_tokens: 11_400,
            input_tokens: 0,
            output_tokens: 0,
            calls: 0,
            duration_ms: 12,
            time: time(),
            range: (700, 700),
            generation: 0,
            trigger: String::new(),
            focus: String::new(),
            text: "error[E0308]: mismatched types\n  --> src/parser.rs:88:17".to_owned(),
        }),
        lines: lines
            .map(|(text, kept)| Line {
                text: text.to_owned(),
                kept,
            })
            .to_vec(),
        lines_are_cut: true,
        left_out_bytes: 39_100,
        checkpoint: None,
        clipped: vec![(12_000, 20_000)],
    }
}

fn what_if() -> WhatIfPage {
    WhatIfPage {
        page: page("What if", Place::Xray),
        row: row(1, "Port the parser to nom 8"),
        controls: controls(),
        models: vec!["claude-sonnet-4-5".to_owned()],
        stored: vec!["profile", "token_threshold"],
        result: WhatIf {
            window: window(),
            strip: strip(),
            usage: usage(),
            due: Some(Due {
                last: 820,
                trigger: "tokens".to_owned(),
                before: 70_000,
                kept: 20_000,
                summarized_messages: 132,
                kept_messages: 80,
            }),
            cache_break: Some(era(15, Some(false))),
            refusals: vec![Refusal {
                name: "token_threshold".to_owned(),
                label: label("token_threshold"),
                text: "must be at least 30000".to_owned(),
            }],
            differs: vec![Change {
                name: "cooling",
                label: label("cooling"),
                now: "strict (default)".to_owned(),
                then: "stepped".to_owned(),
            }],
            effects: vec![Effect {
                name: "total",
                label: "Tokens of the context",
                now: 92_100,
                then: 73_740,
            }],
        },
        etag: "7".to_owned(),
    }
}

fn controls() -> Vec<Control> {
    let controls = [
        ("profile", "agents", "default"),
        ("model", "", ""),
        ("token_threshold", "100", "where it costs least"),
        ("max_message_count", "", "0"),
        ("keep_recent", "20000 tokens", "5 turns"),
        ("large_message_threshold", "", "1000"),
        ("hot_zone_radius", "", "5"),
        ("hot_zone_calls", "", "10"),
        ("cooling", "stepped", "strict"),
        ("reset", "", ""),
        ("budget", "", "no limit"),
        ("format", "anthropic", ""),
    ];
    let error = |name| match name {
        "token_threshold" => "must be at least 30000",
        _ => "",
    };
    let made = controls.map(|(name, value, placeholder)| Control {
        name,
        label: label(name),
        value: value.to_owned(),
        placeholder: placeholder.to_owned(),
        error: error(name).to_owned(),
    });
    made.into()
}
