//! Every call of the page that names a conversation, with a valid form. The list is compared with the
//! routes of the server.

use std::collections::BTreeSet;

use anneal_server::web_routes;
use anneal_testkit::{PageAnswer, PageClient};

/// A call of the page.
pub(crate) struct PageCall {
    pub(crate) method: &'static str,
    pub(crate) route: &'static str,
    /// The fields of the form, without its token; of a GET, the query.
    fields: &'static str,
}

const fn get(route: &'static str) -> PageCall {
    PageCall {
        method: "GET",
        route,
        fields: "",
    }
}

const fn post(route: &'static str, fields: &'static str) -> PageCall {
    PageCall {
        method: "POST",
        route,
        fields,
    }
}

/// All calls that name a conversation. The one that deletes it comes last.
pub(crate) const CALLS: [PageCall; 32] = [
    get("/conversations/{id}"),
    get("/conversations/{id}/entries"),
    get("/conversations/{id}/events"),
    get("/conversations/{id}/turns/{request}/events"),
    get("/conversations/{id}/delete"),
    get("/conversations/{id}/messages/{mid}"),
    get("/conversations/{id}/messages/{mid}/media/{n}"),
    get("/conversations/{id}/xray"),
    get("/conversations/{id}/xray/strip"),
    get("/conversations/{id}/xray/eras"),
    get("/conversations/{id}/xray/messages/{mid}"),
    get("/conversations/{id}/xray/checkpoints"),
    get("/conversations/{id}/xray/checkpoints/{last}"),
    get("/conversations/{id}/xray/at/{n}"),
    get("/conversations/{id}/what-if"),
    post(
        "/conversations/{id}/turn",
        "message=taken&request_id=taken-1",
    ),
    post("/conversations/{id}/stop", "request_id=taken-2&keep=true"),
    post("/conversations/{id}/rename", "title=taken"),
    post("/conversations/{id}/pin", "on=true"),
    post("/conversations/{id}/archive", "on=true"),
    post(
        "/conversations/{id}/fork",
        "message_id=1&request_id=taken-3",
    ),
    post("/conversations/{id}/separator", "request_id=taken-4"),
    post(
        "/conversations/{id}/choose",
        "question=1&number=1&request_id=taken-5",
    ),
    post(
        "/conversations/{id}/messages/{mid}/edit",
        "message=taken&request_id=taken-6",
    ),
    post(
        "/conversations/{id}/messages/{mid}/regenerate",
        "request_id=taken-7",
    ),
    post(
        "/conversations/{id}/messages/{mid}/withdraw",
        "request_id=taken-8",
    ),
    post(
        "/conversations/{id}/messages/{mid}/restore",
        "request_id=taken-9",
    ),
    post(
        "/conversations/{id}/rewind",
        "message_id=1&request_id=taken-10",
    ),
    post("/conversations/{id}/xray/requeue", "kind=checkpoint"),
    post("/conversations/{id}/xray/discard", "kind=checkpoint"),
    post("/conversations/{id}/what-if", "keep_recent=3"),
    post("/conversations/{id}/delete", "confirm=yes"),
];

impl PageCall {
    /// The path of this call for a conversation.
    pub(crate) fn path_of(&self, conversation: &str) -> String {
        self.route
            .replace("{id}", conversation)
            .replace("{request}", "r")
            .replace("{mid}", "1")
            .replace("{n}", "1")
            .replace("{last}", "1")
    }

    /// The call for a conversation, as a person makes it.
    pub(crate) fn request(
        &self,
        browser: &PageClient,
        conversation: &str,
    ) -> reqwest::RequestBuilder {
        let path = self.path_of(conversation);
        if self.method == "GET" {
            return browser.request("GET", &path);
        }
        browser.form(&path, format!("{}&csrf={}", self.fields, browser.csrf))
    }
}

/// The answer without the parts that differ with every answer.
pub(crate) fn without_chance(answer: &PageAnswer, browser: &PageClient, id: &str) -> String {
    let headers: BTreeSet<String> = answer
        .headers
        .iter()
        .filter(|(name, _)| !["date", "server-timing"].contains(&name.as_str()))
        .map(|(name, value)| format!("{name}: {value:?}"))
        .collect();
    let text = format!("{} {headers:?} {}", answer.status, answer.body);
    // `send` has kept the token of the answer, if it has one.
    let text = match browser.csrf.as_str() {
        "" => text,
        token => text.replace(token, "TOKEN"),
    };
    let text = text.replace(id, "ID");
    text.split_inclusive("<code>")
        .map(|part| match part.split_once("</code>") {
            Some((code, rest)) if code.len() == 32 => format!("TRACE</code>{rest}"),
            _ => part.to_owned(),
        })
        .collect()
}

#[test]
fn every_route_of_the_page_that_names_a_conversation_is_in_the_list() {
    let named: BTreeSet<&str> = web_routes().filter(|path| path.contains("{id}")).collect();
    let listed: BTreeSet<&str> = CALLS.iter().map(|call| call.route).collect();
    assert_eq!(named, listed);
    let others: BTreeSet<&str> = web_routes().filter(|path| !path.contains("{id}")).collect();
    let expected = [
        "/",
        "/assets/{digest}/{name}",
        "/conversations",
        "/operations",
        "/operations/figures",
        "/sign-in",
        "/sign-out",
    ];
    assert_eq!(others, expected.into());
}
