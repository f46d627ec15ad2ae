//! What a conversation shows of its messages.

use anneal_testkit::{ScriptedModel, TestApp, assistant, call, media, pb, result, user};
use pb::part::Part;
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
    let picture = format!("{path}/messages/1/media/0");
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
            let is_nothing = answer.status == 204 && id == missing;
            assert!(
                is_nothing || [400, 404].contains(&answer.status),
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
