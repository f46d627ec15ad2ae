//! The page shows nothing and changes nothing of another tenant, and to a bound key nothing of what it
//! is not bound to: every answer about that is the answer about what is missing. Opening a page
//! changes nothing at all.

use anneal_core::caller::{Bound, Verb};
use anneal_testkit::{PageClient, TestApp};
use uuid::Uuid;

use crate::isolation::{
    bound_keys::{Firm, Kind, TENANT},
    foreign_conversations::start_two_tenants,
    page_calls::{CALLS, without_chance},
    unfiltered::rows_of,
};

/// Asserts that every call about a conversation of others is answered like one about a conversation
/// that does not exist.
async fn assert_foreign_is_missing(browser: &mut PageClient, foreign: &str, who: &str) {
    for script in [false, true] {
        for call in &CALLS {
            let missing = Uuid::now_v7().to_string();
            let mut seen = Vec::new();
            for id in [foreign, &missing] {
                let mut request = call.request(browser, id);
                if script {
                    request = request.header("hx-request", "true");
                }
                let token = browser.csrf.clone();
                let answer = browser.send(request).await;
                let what = format!("{who} {} {}: {answer:?}", call.method, call.route);
                assert!(answer.status >= 400 || answer.status == 204, "{what}");
                assert!(!answer.body.contains("secret"), "{what}");
                seen.push(without_chance(&answer, browser, id));
                browser.csrf = token;
            }
            assert_eq!(seen[0], seen[1], "{who} {} {}", call.method, call.route);
        }
    }
}

#[tokio::test]
async fn every_page_answers_what_is_another_tenants_exactly_as_what_is_missing() {
    let tenants = start_two_tenants().await;
    let app = &tenants.app;
    let bert = app.tenant("bert").await.0;
    let before = rows_of(app, bert).await;
    let key = app.key("anna", &Verb::ALL).await;
    let mut browser = app.sign_in_to_page(&key.text).await;
    assert_foreign_is_missing(&mut browser, &tenants.foreign, "anna").await;
    let listed = browser.get("/conversations?text=secret").await;
    assert!(!listed.body.contains(&tenants.foreign), "{}", listed.body);
    assert_eq!(before, rows_of(app, bert).await);
}

#[tokio::test]
async fn every_page_answers_what_is_foreign_to_a_bound_key_exactly_as_what_is_missing() {
    let firm = Firm::start().await;
    let before = firm.berts_rows().await;
    for kind in Kind::ALL {
        let own = firm.create_own().await;
        let mut browser = sign_in(&firm.app, kind.bound(&own)).await;
        assert_foreign_is_missing(&mut browser, &firm.foreign, &format!("{kind:?}")).await;
        assert_eq!(before, firm.berts_rows().await, "{kind:?}");
    }
}

/// A browser of a key that is bound, and has every verb that it can have.
async fn sign_in(app: &TestApp, bound: Bound) -> PageClient {
    let key = app.bound_key(TENANT, &Verb::ALL, bound).await;
    app.sign_in_to_page(&key.text).await
}

#[tokio::test]
async fn a_bound_key_has_its_own_conversations_on_the_page_and_no_others() {
    let firm = Firm::start().await;
    for kind in Kind::ALL {
        let own = firm.create_own().await;
        let mut browser = sign_in(&firm.app, kind.bound(&own)).await;
        for path in [
            "/conversations",
            "/conversations?text=e&user=bert",
            "/conversations?agent=b",
        ] {
            let listed = browser.get(path).await;
            assert_eq!(listed.status, 200, "{kind:?} {path}");
            assert!(!listed.body.contains(&firm.foreign), "{kind:?} {path}");
            assert!(!listed.body.contains("secret"), "{kind:?} {path}");
        }
        let listed = browser.get("/conversations").await;
        assert!(listed.body.contains(&own), "{kind:?}: {}", listed.body);
        for path in ["/operations", "/operations/figures"] {
            let refused = browser.get(path).await;
            assert_eq!(refused.status, 403, "{kind:?} {path}");
            assert!(
                refused.body.contains("CREDENTIAL_BOUND"),
                "{}",
                refused.body
            );
        }
        let opened = browser.get(&format!("/conversations/{own}")).await;
        assert!(
            opened.body.contains("What is mine?"),
            "{kind:?}: {opened:?}"
        );
        let question = [("message", "And this?"), ("request_id", "r1")];
        let answer = browser
            .post(&format!("/conversations/{own}/turn"), &question)
            .await;
        assert_eq!(answer.status, 303, "{kind:?}: {answer:?}");
        let made = browser
            .post("/conversations", &[("agent", ""), ("request_id", "r2")])
            .await;
        let expected = match kind {
            Kind::User | Kind::Agent => 303,
            Kind::Conversation => 403,
        };
        assert_eq!(made.status, expected, "{kind:?}: {made:?}");
        let delete = format!("/conversations/{own}/delete");
        let deleted = browser.post(&delete, &[("confirm", "yes")]).await;
        assert_eq!(deleted.status, 303, "{kind:?}: {deleted:?}");
        assert_eq!(browser.get(&delete).await.status, 404, "{kind:?}");
    }
}

#[tokio::test]
async fn opening_pages_changes_no_row() {
    let firm = Firm::start().await;
    firm.app.run_jobs_until_idle().await;
    let tenant = firm.app.tenant(TENANT).await.0;
    let key = firm.app.key(TENANT, &Verb::ALL).await;
    let mut browser = firm.app.sign_in_to_page(&key.text).await;
    let before = rows_of(&firm.app, tenant).await;
    let mut paths: Vec<String> = ["/", "/conversations", "/operations", "/operations/figures"]
        .map(str::to_owned)
        .into();
    let gets = CALLS.iter().filter(|call| call.method == "GET");
    paths.extend(gets.map(|call| call.path_of(&firm.foreign)));
    for path in &paths {
        for script in [false, true] {
            let mut request = browser.request("GET", path);
            if script {
                request = request.header("hx-request", "true");
            }
            if path.ends_with("/events") {
                // It does not end.
                let stream = request.send().await.expect("is answered");
                assert!(stream.status().is_success(), "{path}: {stream:?}");
                continue;
            }
            let answer = browser.send(request).await;
            assert!(answer.status < 500, "{path}: {answer:?}");
        }
    }
    assert_eq!(before, rows_of(&firm.app, tenant).await);
}
