//! Turns that cost the model, the operator or the server more than their caller.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use futures::future::join_all;
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use super::{
    attacker::Strike,
    model::{FORBIDDEN_HOSTS, Order},
    stock::AGENT,
};
use crate::{Guest, Web, media, pb, user};

/// A turn over gRPC, read to its end.
async fn chat(on: &Strike, guest: &Guest, id: &str, messages: Vec<pb::NewMessage>) {
    let ask = pb::ChatRequest { conversation_id: id.into(), messages, ..Default::default() };
    on.counted();
    let mut chats = pb::chat_service_client::ChatServiceClient::new(guest.clone());
    match chats.chat(ask).await {
        Ok(events) => {
            let mut events = events.into_inner();
            loop {
                match events.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return,
                    Err(status) => return on.refused(&status),
                }
            }
        }
        Err(status) => on.refused(&status),
    }
}

/// A turn over HTTP.
fn chat_request(on: &Strike, web: &Web, body: &Value) -> RequestBuilder {
    let request = on.request(web, "POST", &format!("/api/agents/{AGENT}/chat"));
    request.header("content-type", "application/json").body(body.to_string())
}

/// A turn over HTTP that has begun, and the id of its first event.
async fn begun(on: &Strike, web: &Web, order: Order) -> Option<(Response, String)> {
    on.counted();
    let mut response = chat_request(on, web, &json!({"message": order.words()})).send().await.ok()?;
    let mut read = String::new();
    loop {
        read.push_str(&String::from_utf8_lossy(&response.chunk().await.ok()??));
        if let Some(id) = read.lines().find_map(|line| line.strip_prefix("id: "))
            && read.contains("\n\n")
        {
            return Some((response, id.to_owned()));
        }
    }
}

/// Comes back to a turn after this event.
fn resumed(on: &Strike, web: &Web, id: &str) -> RequestBuilder {
    on.request(web, "POST", &format!("/api/agents/{AGENT}/chat")).header("last-event-id", id)
}

pub(super) async fn turn_readers(on: &Strike) {
    let web = on.web();
    let Some((turn, id)) = begun(on, &web, Order::HangAfterOne).await else { return };
    let readers = join_all((0..500).map(|_| async {
        on.pace().await;
        on.counted();
        resumed(on, &web, &id).send().await.ok()
    }));
    let readers = readers.await;
    std::future::pending::<()>().await;
    drop((turn, readers));
}

pub(super) async fn refused_turns(on: &Strike) {
    let guest = on.guest();
    let order = Order::Refuse(on.choose(&[500, 429, 403, 404, 503]));
    on.forever(4, async |_| {
        if let Some(id) = on.conversation(&guest).await {
            chat(on, &guest, &id, vec![user(&order.words())]).await;
        }
    })
    .await;
}

pub(super) async fn slow_turns(on: &Strike) {
    let guest = on.guest();
    let at_a_time = on.number(8..40);
    let order = on.choose(&[Order::Hang, Order::HangAfterOne]);
    on.forever(at_a_time, async |_| {
        if let Some(id) = on.conversation(&guest).await {
            chat(on, &guest, &id, vec![user(&order.words())]).await;
        }
    })
    .await;
}

pub(super) async fn cancelled_turns(on: &Strike) {
    let (guest, web) = (on.guest(), on.web());
    on.forever(8, async |place| {
        let patience = Duration::from_millis(on.number(5..100) as u64);
        let turn = async {
            if place % 2 == 0 {
                if let Some(id) = on.conversation(&guest).await {
                    chat(on, &guest, &id, vec![user(&Order::Hang.words())]).await;
                }
            } else {
                on.send(chat_request(on, &web, &json!({"message": Order::Hang.words()}))).await;
            }
        };
        let _ = tokio::time::timeout(patience, turn).await;
    })
    .await;
}

pub(super) async fn media_urls(on: &Strike) {
    let (guest, web) = (on.guest(), on.web());
    on.forever(2, async |place| {
        let (host, scheme) = (on.choose(&FORBIDDEN_HOSTS), on.choose(&["http", "https"]));
        let url =
            if host.contains("://") { format!("{host}/secret.png") } else { format!("{scheme}://{host}/latest.png") };
        if place == 0 {
            on.send(chat_request(on, &web, &json!({"message": "look", "images": [url]}))).await;
        } else if let Some(id) = on.conversation(&guest).await {
            chat(on, &guest, &id, vec![media(&url), user("look")]).await;
        }
    })
    .await;
}

pub(super) async fn long_answers(on: &Strike) {
    let web = on.web();
    on.forever(8, async |place| {
        let Some((turn, id)) = begun(on, &web, Order::Megabytes).await else { return };
        // Half of them are never read, the others are left and come back to.
        if place % 2 == 0 {
            std::future::pending::<()>().await;
        }
        drop(turn);
        on.send(resumed(on, &web, &id)).await;
    })
    .await;
}

/// The same id with another number in the place of each of its own.
fn forged(on: &Strike, id: &str) -> Option<String> {
    let mut place: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(id).ok()?).ok()?;
    forge(on, &mut place);
    Some(URL_SAFE_NO_PAD.encode(place.to_string()))
}

fn forge(on: &Strike, value: &mut Value) {
    match value {
        Value::Number(number) if on.number(0..2) == 0 => {
            let other = on.choose(&[0_i64, 1, 2, i64::from(i32::MAX), i64::MAX]);
            *number = other.into();
        }
        Value::Array(items) => items.iter_mut().for_each(|item| forge(on, item)),
        Value::Object(fields) => fields.values_mut().for_each(|field| forge(on, field)),
        _ => {}
    }
}

pub(super) async fn forged_event_ids(on: &Strike) {
    let web = on.web();
    let order = on.choose(&[Order::Megabytes, Order::HangAfterOne]);
    let Some((turn, id)) = begun(on, &web, order).await else { return };
    on.forever(8, async |_| {
        let id = if on.number(0..4) == 0 { on.word() } else { forged(on, &id).unwrap_or_default() };
        let patience = Duration::from_millis(500);
        let _ = tokio::time::timeout(patience, on.send(resumed(on, &web, &id))).await;
    })
    .await;
    drop(turn);
}
