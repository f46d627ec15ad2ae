//! Hostile texts stay texts on every page, and the HTML is well-formed.

use anneal_web::{
    conversation::{Composer, ConversationPage, Entries, Entry, Progress, RunningTurn},
    conversations::{ConversationsPage, Count, DeletePage, Filter, Row, Rows},
    error::{ErrorFragment, ErrorPage},
    format::{Time, Tokens},
    layout::{Can, Notice, NoticeKind, Page, Place, Refresh},
    markdown::{MarkdownLimits, to_html},
    message::{Actions, Alternatives, Media, Message, MessagePiece, Part, Role},
    sign_in::SignInPage,
};

const HOSTILE: &str = "'\"><script>alert(1)</script><img src=x onerror=alert(1)></textarea>&amp;";

/// Elements without an end.
const VOID: &[&str] = &["br", "hr", "img", "input", "link", "meta"];

fn hostile() -> String {
    HOSTILE.to_owned()
}

fn page() -> Page {
    Page {
        title: hostile(),
        csrf: hostile(),
        who: hostile(),
        bound: hostile(),
        tenant: hostile(),
        can: Can {
            append: true,
            admin: true,
            operator: true,
        },
        place: Place::Conversations,
        notice: Some(Notice {
            kind: NoticeKind::Refused,
            text: hostile(),
            reason: hostile(),
        }),
        refresh: Some(Refresh {
            seconds: 2,
            path: hostile(),
        }),
    }
}

fn time() -> Time {
    Time {
        iso: hostile(),
        text: hostile(),
    }
}

fn tokens() -> Tokens {
    Tokens {
        value: 12,
        estimated: true,
    }
}

fn row() -> Row {
    Row {
        id: hostile(),
        title: hostile(),
        agent: hostile(),
        user: hostile(),
        last_activity: time(),
        messages: 1,
        withdrawn: 1,
        tokens: tokens(),
        archived: true,
        pinned: true,
        fork_of: hostile(),
    }
}

fn media(is_picture: bool) -> Media {
    Media {
        media_type: hostile(),
        bytes: 1,
        picture_url: if is_picture { hostile() } else { String::new() },
        link: hostile(),
        not_shown: !is_picture,
    }
}

fn entries() -> Vec<Entry> {
    let parts = vec![
        Part::Markdown(to_html(HOSTILE, MarkdownLimits::default())),
        Part::Text(hostile()),
        Part::Call {
            id: hostile(),
            name: hostile(),
            input: hostile(),
        },
        Part::Result {
            call: hostile(),
            text: hostile(),
            failed: true,
            media: vec![media(true), media(false)],
        },
        Part::Reasoning {
            text: hostile(),
            hidden: true,
        },
        Part::Media(media(true)),
    ];
    let message = Message {
        id: 1,
        role: Role::User,
        parts,
        time: time(),
        turn: 1,
        tokens: tokens(),
        version: 2,
        stopped: true,
        text_bytes: 9,
        cut: true,
        alternatives: Some(Alternatives {
            question: 1,
            current: 2,
            count: 3,
        }),
        actions: Actions {
            edit: true,
            regenerate: true,
            fork: true,
            withdraw: true,
        },
    };
    vec![
        Entry::Message(message),
        Entry::Separator {
            after: 1,
            time: time(),
            can_remove: true,
        },
        Entry::Checkpoint {
            last: 1,
            tokens: 2,
            url: hostile(),
        },
        Entry::Withdrawn {
            first: 1,
            last: 2,
            can_restore: true,
        },
    ]
}

fn conversation(turn: Option<RunningTurn>, composer: Composer) -> ConversationPage {
    ConversationPage {
        page: page(),
        row: row(),
        etag: hostile(),
        older_url: hostile(),
        entries: entries(),
        turn,
        composer,
        request_id: hostile(),
        last: 1,
        watch_url: hostile(),
    }
}

fn rendered() -> Vec<String> {
    let turn = RunningTurn {
        request_id: hostile(),
        events_url: hostile(),
        stop_url: hostile(),
    };
    let list = ConversationsPage {
        page: page(),
        filter: Filter {
            text: hostile(),
            agent: hostile(),
            user: hostile(),
            status: hostile(),
            user_is_fixed: false,
            agent_is_fixed: false,
        },
        pinned: vec![row()],
        rows: Rows {
            rows: vec![row()],
            next_url: hostile(),
        },
        agents_hint: vec![hostile()],
        request_id: hostile(),
        calls_models: true,
    };
    let delete = DeletePage {
        page: page(),
        row: row(),
        messages: 1,
        checkpoints: Count {
            value: 1,
            has_more: true,
        },
        forks: Count {
            value: 1,
            has_more: false,
        },
        etag: hostile(),
    };
    let sign_in = SignInPage {
        page: page(),
        next: hostile(),
        accepts_keys: true,
        accepts_tokens: true,
    };
    let error = ErrorPage {
        page: page(),
        status: 404,
        reason: hostile(),
        detail: hostile(),
        back: hostile(),
        trace_id: hostile(),
    };
    let fragment = ErrorFragment {
        reason: hostile(),
        detail: hostile(),
    };
    let some = Entries {
        id: hostile(),
        csrf: hostile(),
        etag: hostile(),
        request_id: hostile(),
        older_url: hostile(),
        entries: entries(),
        last: 2,
        progress: Some(Progress {
            through: 2,
            has_more: true,
        }),
    };
    let piece = MessagePiece {
        conversation: hostile(),
        id: 1,
        version: 1,
        offset: 0,
        text: hostile(),
        next_offset: Some(2),
        total: 3,
    };
    let form = Composer::Form {
        models: vec![hostile()],
        model: hostile(),
        has_default: true,
    };
    let all = [
        conversation(None, form).render(),
        conversation(None, Composer::ReadOnly).render(),
        conversation(None, Composer::NoModel).render(),
        conversation(Some(turn), Composer::ReadOnly).render(),
        list.render(),
        delete.render(),
        sign_in.render(),
        error.render(),
        fragment.render(),
        some.render(),
        piece.render(),
    ];
    all.map(|html| html.expect("every value can be rendered"))
        .into()
}

#[test]
fn hostile_texts_stay_texts() {
    for html in rendered() {
        for forbidden in [
            "<script>",
            "<img src=x",
            "alert(1)></textarea>",
            "&amp;amp;amp;",
        ] {
            assert!(!html.contains(forbidden), "{forbidden}: {html}");
        }
        assert!(html.contains("alert(1)"), "a text is missing: {html}");
    }
}

#[test]
fn pages_have_no_inline_script_or_style() {
    for html in rendered() {
        for tag in html.split('<').filter_map(|rest| rest.split('>').next()) {
            assert!(!tag.contains(" style="), "{tag}");
            assert!(!tag.contains(" onclick="), "{tag}");
            assert!(
                !tag.starts_with("script") || tag.contains(" src=\"/assets/"),
                "{tag}"
            );
        }
    }
}

#[test]
fn elements_are_nested_and_attributes_quoted() {
    for html in rendered() {
        let mut open: Vec<&str> = Vec::new();
        for piece in html.split('<').skip(1) {
            let (tag, _) = piece.split_once('>').expect("a tag ends");
            let name = tag.split_ascii_whitespace().next().unwrap_or_default();
            if let Some(name) = name.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name), "{html}");
            } else if name != "!doctype" && !VOID.contains(&name) {
                open.push(name);
            }
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        }
        assert!(open.is_empty(), "{open:?}");
    }
}

#[test]
fn what_goes_with_a_conversation_is_named_in_the_right_number() {
    let page = |value, has_more| DeletePage {
        page: page(),
        row: row(),
        messages: value as i64,
        checkpoints: Count { value, has_more },
        forks: Count { value, has_more },
        etag: String::new(),
    };
    let one = page(1, false).render().expect("is rendered");
    for shown in [
        "<li>1 message, of which 1 is withdrawn",
        "<li>1 checkpoint<",
        "1 copy of it stays.",
    ] {
        assert!(one.contains(shown), "{shown}: {one}");
    }
    let many = page(500, true).render().expect("is rendered");
    for shown in [
        "<li>500 messages",
        "<li>at least 500 checkpoints<",
        "at least 500 copies of it stay.",
    ] {
        assert!(many.contains(shown), "{shown}: {many}");
    }
}

#[test]
fn texts_say_in_which_language_their_characters_are_to_be_drawn() {
    let mut shown = conversation(None, Composer::ReadOnly);
    shown.row.title = "東京のラーメン".to_owned();
    let mut entries = entries();
    if let Some(Entry::Message(message)) = entries.first_mut() {
        message.parts = vec![
            Part::Text("안녕".to_owned()),
            Part::Markdown(to_html("你好", MarkdownLimits::default())),
        ];
    }
    shown.entries = entries;
    let html = shown.render().expect("is rendered");
    for lang in [
        "<h1 dir=\"auto\" lang=\"ja\"><bdi>",
        "lang=\"ko\">안녕",
        "lang=\"zh\"><p",
    ] {
        assert!(html.contains(lang), "{lang}: {html}");
    }
}
