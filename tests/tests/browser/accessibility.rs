//! Every page is for everybody: axe-core finds no violation of WCAG, levels A and AA, in light and
//! dark, narrow and wide, with everything unfolded; and the keyboard reaches every control.

use anneal_testkit::{Browser, BrowserPage, Look, key};

use crate::pages::{
    create_full_conversation, newest_checkpoint, paths, start_app_with_keys, start_open_app,
};

/// Unfolds everything that is folded.
const UNFOLD: &str = "document.querySelectorAll('details').forEach(details => details.open = true)";

/// Marks the focused element as reached.
const MARK_FOCUSED: &str = "
const focused = document.activeElement;
if (focused && focused !== document.body) focused.dataset.reached = '1';
return !focused || focused === document.body";

/// The controls that a person sees and that no Tab has reached. In a drawing, Tab reaches one of the
/// messages, and the arrow keys the others.
const UNREACHED: &str = "
const controls = document.querySelectorAll(
    'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex=\"0\"]');
return [...controls]
    .filter(control => !control.disabled && control.checkVisibility() && !control.dataset.reached)
    .filter(control => !control.matches('svg [tabindex=\"-1\"]'))
    .map(control => control.outerHTML.slice(0, 200))";

#[tokio::test]
async fn axe_finds_no_violation_on_any_page() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let app = start_open_app().await;
    let conversation = create_full_conversation(&app).await;
    let checkpoint = newest_checkpoint(&conversation).await;
    assert!(checkpoint > 0, "the conversation has a checkpoint");
    for look in Look::all() {
        let page = browser.open(&app, "/operations", look).await;
        for path in paths(&conversation.id, checkpoint) {
            page.visit(&path).await;
            page.assert_accessible().await;
            page.run(UNFOLD).await;
            page.assert_accessible().await;
            assert_fits(&page, &path).await;
        }
        page.assert_no_foreign_request().await;
    }
}

#[tokio::test]
async fn axe_finds_no_violation_where_a_person_signs_in_or_asks_for_help() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let app = start_app_with_keys().await;
    for look in Look::all() {
        let page = browser.open(&app, "/sign-in", look).await;
        page.assert_accessible().await;
        page.write("[name=credential]", "nobody has this key").await;
        page.press("[name=credential]", key::ENTER).await;
        page.wait_for(".notice.refused").await;
        page.assert_accessible().await;
        page.run("document.activeElement.blur()").await;
        page.press_key("?").await;
        page.wait_for("dialog[open]").await;
        page.assert_accessible().await;
        page.assert_no_foreign_request().await;
    }
}

#[tokio::test]
async fn the_keyboard_reaches_every_control_of_every_page() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let app = start_open_app().await;
    let conversation = create_full_conversation(&app).await;
    let page = browser.open(&app, "/operations", Look::WIDE).await;
    let checkpoint = newest_checkpoint(&conversation).await;
    for path in paths(&conversation.id, checkpoint) {
        page.visit(&path).await;
        // The X-ray fetches parts of itself.
        page.wait_until(
            "the page is idle",
            "document.readyState === 'complete' && !document.querySelector('.htmx-request')",
        )
        .await;
        page.run(UNFOLD).await;
        let controls = page.run(UNREACHED).await;
        let count = controls.as_array().expect("a list").len();
        assert!(count > 2, "{path} has {count} controls");
        for _ in 0..count + 20 {
            page.press_key(key::TAB).await;
            if page.run(MARK_FOCUSED).await == true {
                break;
            }
        }
        let unreached = page.run(UNREACHED).await;
        assert_eq!(unreached, serde_json::json!([]), "{path}");
    }
}

/// Asserts that no person has to scroll sideways.
async fn assert_fits(page: &BrowserPage, path: &str) {
    let surplus = "return document.documentElement.scrollWidth - innerWidth";
    let surplus = page.run(surplus).await;
    let beyond = "return [...document.querySelectorAll('body *')]
        .filter(element => element.getBoundingClientRect().right > innerWidth + 1)
        .map(element => element.outerHTML.slice(0, 100)).slice(0, 20)";
    assert!(
        surplus.as_i64().is_some_and(|surplus| surplus <= 0),
        "{path} is {surplus} pixels too wide: {:#}",
        page.run(beyond).await
    );
}
