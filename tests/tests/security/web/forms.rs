//! Forms have a size that fits what they are for.

use anneal_core::caller::Verb;

use super::{app_with_keys, open_app};

const KIB: usize = 1_024;

#[tokio::test]
async fn only_forms_with_a_message_may_be_large() {
    let app = open_app().await;
    let mut browser = app.page_client();
    browser.get("/conversations").await;
    let made = browser
        .post("/conversations", &[("agent", "a"), ("request_id", "r1")])
        .await;
    let location = made.header("location").to_owned();
    let path = location.split(['?', '#']).next().expect("a path");
    let large = "x".repeat(100 * KIB);
    for (form, field) in [
        ("rename", "title"),
        ("pin", "on"),
        ("stop", "request_id"),
        ("fork", "request_id"),
        ("delete", "confirm"),
        ("what-if", "profile"),
    ] {
        let answer = browser
            .post(&format!("{path}/{form}"), &[(field, &large)])
            .await;
        assert_eq!(answer.status, 413, "{form}: {answer:?}");
    }
    // This app has no model, so the turn is refused, but not its form.
    for form in [format!("{path}/turn"), format!("{path}/messages/1/edit")] {
        let answer = browser.post(&form, &[("message", &large)]).await;
        assert_ne!(answer.status, 413, "{form}: {answer:?}");
        let answer = browser.post(&form, &[("message", &large.repeat(50))]).await;
        assert_eq!(answer.status, 413, "{form}");
    }
}

#[tokio::test]
async fn a_form_has_at_most_a_thousand_fields() {
    let app = open_app().await;
    let mut browser = app.page_client();
    browser.get("/conversations").await;
    for (fields, status) in [(900, 303), (1_100, 400), (1_000_000, 400)] {
        let body = format!(
            "agent=a&message=&request_id=r{fields}&csrf={}{}",
            browser.csrf,
            "&a".repeat(fields)
        );
        let request = browser.form("/conversations", body);
        assert_eq!(browser.send(request).await.status, status, "{fields}");
    }
}

#[tokio::test]
async fn how_long_a_page_took_is_shown_to_operators_alone() {
    let app = app_with_keys().await;
    for verbs in [&Verb::ALL[..], &[Verb::Read]] {
        let key = app.key("a", verbs).await;
        let mut browser = app.sign_in_to_page(&key.text).await;
        let missing = format!("/conversations/{}", uuid::Uuid::new_v4());
        for path in ["/conversations", &missing] {
            let answer = browser.get(path).await;
            let is_shown = answer.headers.contains_key("server-timing");
            assert_eq!(is_shown, verbs.contains(&Verb::Operator), "{path}");
        }
    }
}
