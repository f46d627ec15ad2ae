//! What a conversation shows of its messages.

use anneal_testkit::{ScriptedModel, TestApp, assistant, call, media, pb, result, user};
use pb::{
    append_large_message_request::{Frame, Header},
    part::Part,
};
use uuid::Uuid;

use super::{attributes, open};

/// A picture of one pixel.
const PICTURE: &str = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==";

async fn app() -> (ScriptedModel, TestApp) {
    let model = ScriptedModel::saying("Hello.").await;
    let app = TestApp::with_open_page_and_scripted_model(&model).await;
    (model, app)
}

#[tokio::test]
async fn each_role_is_shown_in_its_way_and_texts_run_nothing() {
    let (_model, app) = app().await;
    let conversation = app.conversation().await;
    let script = "<script>alert(1)</script>";
    let messages = vec![
        user(&format!("**as written** {script}")),
        call("c1", "{\"q\":1}"),
        result("c1", script),
        assistant(&format!("**strong** {script} [x](javascript:alert(1))")),
    ];
    conversation
        .append_all(messages)
        .send()
        .await
        .expect("is stored");
    let mut browser = app.page_client();
    let page = open(&mut browser, &format!("/conversations/{}", conversation.id)).await;
    assert_eq!(attributes(&page, "data-message"), ["1", "2", "3", "4"]);
    for shown in [
        "**as written**",
        "<strong>strong</strong>",
        "data-call=\"c1\"",
        "data-result=\"c1\"",
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    assert!(
        !page.contains(script) && !page.contains("href=\"javascript"),
        "{page}"
    );
}

#[tokio::test]
async fn earlier_messages_are_on_pages_of_their_own() {
    let (_model, app) = app().await;
    let conversation = app.conversation().await;
    for start in [0, 60] {
        let messages = (start..start + 60).map(|n| user(&format!("Message {n}.")));
        conversation
            .append_all(messages.collect())
            .send()
            .await
            .expect("is stored");
    }
    let mut browser = app.page_client();
    let mut path = format!("/conversations/{}", conversation.id);
    let mut shown = Vec::new();
    loop {
        let page = open(&mut browser, &path).await;
        let ids = attributes(&page, "data-message").into_iter();
        let ids: Vec<i64> = ids.map(|id| id.parse().expect("a number")).collect();
        shown.splice(0..0, ids);
        let Some(older) = attributes(&page, "hx-get")
            .into_iter()
            .find(|url| url.contains("before="))
        else {
            break;
        };
        let older = older.to_owned();
        let fragment = browser.request("GET", &older).header("hx-request", "true");
        assert!(!browser.send(fragment).await.body.contains("<html"));
        path = older;
    }
    assert_eq!(shown, (1..=120).collect::<Vec<i64>>());
}

#[tokio::test]
async fn a_long_message_is_cut_and_read_piece_by_piece() {
    let (_model, app) = app().await;
    let conversation = app.conversation().await;
    let text: String = (0..20_000)
        .flat_map(|n| ["世 ".to_owned(), n.to_string(), "\n".to_owned()])
        .collect();
    conversation.turn("Show me.", &text).await;
    let mut browser = app.page_client();
    let path = format!("/conversations/{}", conversation.id);
    let page = open(&mut browser, &path).await;
    assert!(page.len() < 60_000, "{} bytes", page.len());
    let mut next = format!("{path}/messages/2");
    assert!(page.contains(&format!("href=\"{next}\"")), "{page}");
    let mut read = String::new();
    loop {
        let piece = open(&mut browser, &next).await;
        let shown = piece
            .split("<pre class=\"wrap\" tabindex=\"0\" dir=\"auto\">")
            .nth(1);
        let shown = shown.and_then(|rest| rest.split("</pre>").next());
        read.push_str(shown.expect("there is a piece"));
        let Some(url) = attributes(&piece, "hx-get").first().copied() else {
            break;
        };
        next = url.replace("&#38;", "&").replace("&amp;", "&");
    }
    assert!(read == text, "the pieces are the text");
}

#[tokio::test]
async fn pictures_of_a_message_are_shown_and_nothing_else_is_served() {
    let (_model, app) = app().await;
    let conversation = app.conversation().await;
    let mut message = media(PICTURE);
    for uri in [
        "https://example.com/a.png",
        "data:image/svg+xml;base64,PHN2Zz4=",
    ] {
        message.parts.push(pb::Part {
            part: Some(Part::Media(pb::MediaPart {
                uri: uri.into(),
                media_type: "image/png".into(),
                ..Default::default()
            })),
        });
    }
    conversation
        .append_all(vec![message])
        .send()
        .await
        .expect("is stored");
    let path = format!("/conversations/{}", conversation.id);
    let mut browser = app.page_client();
    let page = open(&mut browser, &path).await;
    let picture = format!("{path}/messages/1/media/0?v=1");
    let pictures: Vec<&str> = attributes(&page, "src")
        .into_iter()
        .filter(|src| src.contains("/media/") || src.contains("://"))
        .collect();
    assert_eq!(pictures, [picture.as_str()]);
    let shown = browser.get(&picture).await;
    assert_eq!(
        (shown.status, shown.header("content-type")),
        (200, "image/gif")
    );
    assert_eq!(shown.header("cache-control"), "private, max-age=3600");
    let other_version = browser.get(&format!("{path}/messages/1/media/0?v=2")).await;
    assert_eq!(other_version.status, 404, "{other_version:?}");
    assert!(page.contains("not shown here"), "{page}");
    let policy = shown.header("content-security-policy");
    assert!(policy.contains("sandbox"), "{policy}");
    for other in ["1", "2", "3", "-1", "x"] {
        let refused = browser
            .get(&format!("{path}/messages/1/media/{other}"))
            .await;
        assert_eq!(refused.status, 404, "{other}: {refused:?}");
    }
}

#[tokio::test]
async fn unknown_and_hostile_ids_are_refused_on_every_path() {
    let (_model, app) = app().await;
    let mut browser = app.page_client();
    open(&mut browser, "/conversations").await;
    let missing = Uuid::new_v4().to_string();
    for id in [
        missing.as_str(),
        "x",
        "%00",
        "..%2F",
        "%3Cscript%3E",
        "a%27%20or%201=1",
    ] {
        let path = format!("/conversations/{id}");
        for below in [
            "",
            "/entries?after=1",
            "/events",
            "/turns/r/events",
            "/turns/%00/events",
            "/delete",
            "/messages/1",
            "/messages/1/media/0",
        ] {
            let answer = browser.get(&format!("{path}{below}")).await;
            assert!(
                [400, 404].contains(&answer.status),
                "{path}{below}: {answer:?}"
            );
            assert!(!answer.body.contains("<script>"), "{answer:?}");
        }
        for below in [
            "/turn",
            "/stop",
            "/rename",
            "/pin",
            "/archive",
            "/delete",
            "/fork",
            "/rewind",
            "/choose",
            "/separator",
            "/messages/1/edit",
            "/messages/1/regenerate",
            "/messages/1/withdraw",
            "/messages/1/restore",
        ] {
            let fields = [
                ("message", "x"),
                ("confirm", "yes"),
                ("question", "1"),
                ("number", "1"),
            ];
            let answer = browser.post(&format!("{path}{below}"), &fields).await;
            assert!(
                [400, 404].contains(&answer.status),
                "{path}{below}: {answer:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_message_has_at_most_16_pictures_and_a_large_one_none() {
    let (_model, app) = app().await;
    let conversation = app.conversation().await;
    let mut many = media(PICTURE);
    many.parts = vec![many.parts[0].clone(); 20];
    let mut large = media(PICTURE);
    large.parts.extend(user("").parts);
    let header = Header {
        conversation_id: conversation.id.clone(),
        message: Some(large),
        ..Default::default()
    };
    let chunks = (0..9).map(|_| Frame::Chunk(vec![b'x'; 1024 * 1024]));
    let frames = [Frame::Header(header)].into_iter().chain(chunks);
    let frames: Vec<_> = frames
        .map(|frame| pb::AppendLargeMessageRequest { frame: Some(frame) })
        .collect();
    app.messages()
        .append_large_message(futures::stream::iter(frames))
        .await
        .expect("is stored");
    conversation
        .append_all(vec![many])
        .send()
        .await
        .expect("is stored");
    let path = format!("/conversations/{}", conversation.id);
    let mut browser = app.page_client();
    let page = open(&mut browser, &path).await;
    assert_eq!(page.matches("/messages/1/media/").count(), 0, "{page}");
    let shown = attributes(&page, "src").into_iter();
    assert_eq!(shown.filter(|src| src.contains("/media/")).count(), 16);
    let refused = browser.get(&format!("{path}/messages/1/media/0")).await;
    assert_eq!(refused.status, 404, "{refused:?}");
}

#[tokio::test]
async fn new_messages_are_fetched_page_by_page_and_a_withdrawn_end_is_told_once() {
    let (_model, app) = app().await;
    let conversation = app.conversation().await;
    for start in [0, 60] {
        let messages = (start..start + 60).map(|n| user(&format!("Message {n}.")));
        conversation
            .append_all(messages.collect())
            .send()
            .await
            .expect("is stored");
    }
    let path = format!("/conversations/{}", conversation.id);
    let mut browser = app.page_client();
    let page = open(&mut browser, &path).await;
    assert_eq!(attributes(&page, "data-through"), ["120"]);
    let withdraw = format!("{path}/messages/120/withdraw");
    assert_eq!(
        super::location(&browser.post(&withdraw, &[]).await),
        format!("{path}#m120")
    );
    let (mut after, mut shown, mut withdrawn) = (0, 0, 0);
    loop {
        let entries = open(&mut browser, &format!("{path}/entries?after={after}")).await;
        shown += attributes(&entries, "data-message").len();
        withdrawn += entries.matches("mark withdrawn").count();
        let through = attributes(&entries, "data-through")[0];
        let through: i64 = through.parse().expect("a number");
        assert!(through > after, "{through} after {after}");
        after = through;
        if attributes(&entries, "data-more") == ["false"] {
            break;
        }
    }
    assert_eq!((after, shown, withdrawn), (120, 119, 1));
    let nothing = open(&mut browser, &format!("{path}/entries?after=120")).await;
    assert_eq!(attributes(&nothing, "data-through"), ["120"]);
    assert!(!nothing.contains("mark withdrawn"), "{nothing}");
    for (query, status) in [
        ("after=9223372036854775807", 200),
        ("after=-1", 400),
        ("after=x", 400),
    ] {
        let answer = browser.get(&format!("{path}/entries?{query}")).await;
        assert_eq!(answer.status, status, "{query}: {answer:?}");
        assert!(!answer.body.contains("mark withdrawn"), "{answer:?}");
    }
    let earlier = format!("{path}?before=9223372036854775807");
    let earlier = open(&mut browser, &earlier).await;
    assert_eq!(earlier.matches("mark withdrawn").count(), 1, "{earlier}");
    assert!(
        !earlier.contains("data-watch="),
        "an earlier page is not watched"
    );
}

#[tokio::test]
async fn a_table_that_would_be_filled_with_cells_does_not_fill_the_page() {
    let (_model, app) = app().await;
    let conversation = app.conversation().await;
    let (head, line) = ("|a".repeat(250), "|-".repeat(250));
    let table = format!("{head}|\n{line}|\n{}", "b\n".repeat(130));
    let answers = (0..20).map(|_| assistant(&table)).collect();
    conversation
        .append_all(answers)
        .send()
        .await
        .expect("is stored");
    let mut browser = app.page_client();
    let page = open(&mut browser, &format!("/conversations/{}", conversation.id)).await;
    assert_eq!(attributes(&page, "data-message").len(), 20);
    assert!(page.len() < 300_000, "{} bytes", page.len());
}
