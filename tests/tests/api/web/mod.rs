//! The pages, over HTTP without a browser and without scripts.
//!
//! - `lists`: the list of conversations: filters, pages, and what is changed from there
//! - `talking`: turns that are begun by a form and read as events; messages that are changed
//! - `reading`: what a conversation shows: roles, long messages, pictures, other answers
//! - `figures`, `what_if`: the X-ray and what-if show what the RPCs answer. `drawn`: reads figures
//!   from HTML
//! - `rows`: the row of docs/rows.md

mod drawn;
mod figures;
mod lists;
mod reading;
mod rows;
mod talking;
mod what_if;

use anneal_testkit::{PageAnswer, PageClient};

/// Opens a page that must be there.
async fn open(browser: &mut PageClient, path: &str) -> String {
    let answer = browser.get(path).await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.body
}

/// Where a form leads. Panics if it was refused.
#[track_caller]
fn location(answer: &PageAnswer) -> String {
    assert_eq!(answer.status, 303, "{answer:?}");
    answer.header("location").to_owned()
}

/// The path of the page to which a form leads, without notice and place.
#[track_caller]
fn page_path(answer: &PageAnswer) -> String {
    let location = location(answer);
    let end = location.find(['?', '#']).unwrap_or(location.len());
    location[..end].to_owned()
}

/// The values of this attribute, in the order of the page.
fn attributes<'p>(page: &'p str, name: &str) -> Vec<&'p str> {
    let start = format!(" {name}=\"");
    let values = page.split(start.as_str()).skip(1);
    values.filter_map(|rest| rest.split('"').next()).collect()
}

/// The value of the first hidden field of this name in the form that goes to `action`.
fn field<'p>(page: &'p str, action: &str, name: &str) -> Option<&'p str> {
    let form = page.split(&format!("action=\"{action}\"")).nth(1)?;
    let form = form.split("</form>").next()?;
    let field = form.split(&format!("name=\"{name}\" value=\"")).nth(1)?;
    field.split('"').next()
}
