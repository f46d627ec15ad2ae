//! Attacks with turns that cost the model, the operator or the server more than their caller.
//! `kind.rs` says what each attack does.

use std::time::Duration;

use futures::future::join_all;
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use super::{
    model::{FORBIDDEN_HOSTS, Instruction},
    running_attack::RunningAttack,
    stored_conversations::AGENT,
};
use crate::{AuthorizedChannel, HttpClient, media, pb, user};

/// Runs a turn over gRPC to its end.
async fn chat(
    attack: &RunningAttack,
    channel: &AuthorizedChannel,
    id: &str,
    messages: Vec<pb::NewMessage>,
) {
    let ask = pb::ChatRequest {
        conversation_id: id.into(),
        messages,
        ..Default::default()
    };
    attack.count_call();
    let mut chats = pb::chat_service_client::ChatServiceClient::new(channel.clone());
    match chats.chat(ask).await {
        Ok(events) => {
            let mut events = events.into_inner();
            loop {
                match events.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return,
                    Err(status) => return attack.count_refusal(&status),
                }
            }
        }
        Err(status) => attack.count_refusal(&status),
    }
}

/// A request of a turn over HTTP.
fn chat_request(attack: &RunningAttack, web: &HttpClient, body: &Value) -> RequestBuilder {
    let request = attack.request(web, "POST", &format!("/api/agents/{AGENT}/chat"));
    request
        .header("content-type", "application/json")
        .body(body.to_string())
}

/// Starts a turn over HTTP. Returns its response and the id of its first event.
async fn begin_turn(
    attack: &RunningAttack,
    web: &HttpClient,
    instruction: Instruction,
) -> Option<(Response, String)> {
    attack.count_call();
    let mut response = chat_request(attack, web, &json!({"message": instruction.prompt()}))
        .send()
        .await
        .ok()?;
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

/// A request that resumes a turn after this event.
fn resume_request(attack: &RunningAttack, web: &HttpClient, id: &str) -> RequestBuilder {
    attack
        .request(web, "POST", &format!("/api/agents/{AGENT}/chat"))
        .header("last-event-id", id)
}

pub(super) async fn turn_readers(attack: &RunningAttack) {
    let web = attack.http_client();
    let Some((turn, id)) = begin_turn(attack, &web, Instruction::HangAfterOne).await else {
        return;
    };
    let readers = join_all((0..500).map(|_| async {
        attack.pace().await;
        attack.count_call();
        resume_request(attack, &web, &id).send().await.ok()
    }));
    let readers = readers.await;
    std::future::pending::<()>().await;
    drop((turn, readers));
}

pub(super) async fn refused_turns(attack: &RunningAttack) {
    let channel = attack.channel();
    let instruction = Instruction::Refuse(attack.choose(&[500, 429, 403, 404, 503]));
    attack
        .loop_concurrently(4, async |_| {
            if let Some(id) = attack.create_conversation(&channel).await {
                chat(attack, &channel, &id, vec![user(&instruction.prompt())]).await;
            }
        })
        .await;
}

pub(super) async fn slow_turns(attack: &RunningAttack) {
    let channel = attack.channel();
    let at_a_time = attack.number(8..40);
    let instruction = attack.choose(&[Instruction::Hang, Instruction::HangAfterOne]);
    attack
        .loop_concurrently(at_a_time, async |_| {
            if let Some(id) = attack.create_conversation(&channel).await {
                chat(attack, &channel, &id, vec![user(&instruction.prompt())]).await;
            }
        })
        .await;
}

pub(super) async fn cancelled_turns(attack: &RunningAttack) {
    let (channel, web) = (attack.channel(), attack.http_client());
    attack
        .loop_concurrently(8, async |place| {
            let cancel_after = Duration::from_millis(attack.number(5..100) as u64);
            let turn = async {
                if place % 2 == 0 {
                    if let Some(id) = attack.create_conversation(&channel).await {
                        chat(
                            attack,
                            &channel,
                            &id,
                            vec![user(&Instruction::Hang.prompt())],
                        )
                        .await;
                    }
                } else {
                    attack
                        .send(chat_request(
                            attack,
                            &web,
                            &json!({"message": Instruction::Hang.prompt()}),
                        ))
                        .await;
                }
            };
            let _ = tokio::time::timeout(cancel_after, turn).await;
        })
        .await;
}

pub(super) async fn media_urls(attack: &RunningAttack) {
    let (channel, web) = (attack.channel(), attack.http_client());
    attack
        .loop_concurrently(2, async |place| {
            let (host, scheme) = (
                attack.choose(&FORBIDDEN_HOSTS),
                attack.choose(&["http", "https"]),
            );
            let url = if host.contains("://") {
                format!("{host}/secret.png")
            } else {
                format!("{scheme}://{host}/latest.png")
            };
            if place == 0 {
                attack
                    .send(chat_request(
                        attack,
                        &web,
                        &json!({"message": "look", "images": [url]}),
                    ))
                    .await;
            } else if let Some(id) = attack.create_conversation(&channel).await {
                chat(attack, &channel, &id, vec![media(&url), user("look")]).await;
            }
        })
        .await;
}

pub(super) async fn long_answers(attack: &RunningAttack) {
    let web = attack.http_client();
    attack
        .loop_concurrently(8, async |place| {
            let Some((turn, id)) = begin_turn(attack, &web, Instruction::Megabytes).await else {
                return;
            };
            // Half of the answers are never read; the others are abandoned and then resumed.
            if place % 2 == 0 {
                std::future::pending::<()>().await;
            }
            drop(turn);
            attack.send(resume_request(attack, &web, &id)).await;
        })
        .await;
}

/// An event id of the same session with random numbers, tags and checks. Some of these ids are
/// well-formed (`server/src/http/resumable_turns/resume_point.rs`).
fn forged_id(attack: &RunningAttack, id: &str) -> String {
    /// Characters of the session at the beginning of an id.
    const SESSION_CHARACTERS: usize = 11;
    let mut forged = id.get(..SESSION_CHARACTERS).unwrap_or_default().to_owned();
    for tag in ["", "a", "tAAAA", "rAAAA", "cAAAA"] {
        if tag.is_empty() || attack.number(0..2) == 0 {
            forged.push_str(tag);
            forged.push_str(attack.choose(&["1", "2", "0", "2147483647", "1099511627776"]));
        }
    }
    if attack.number(0..8) == 0 {
        forged.push('e');
    }
    forged
}

pub(super) async fn forged_event_ids(attack: &RunningAttack) {
    let web = attack.http_client();
    let instruction = attack.choose(&[Instruction::Megabytes, Instruction::HangAfterOne]);
    let Some((turn, id)) = begin_turn(attack, &web, instruction).await else {
        return;
    };
    attack
        .loop_concurrently(8, async |_| {
            let id = if attack.number(0..4) == 0 {
                attack.word()
            } else {
                forged_id(attack, &id)
            };
            let cancel_after = Duration::from_millis(500);
            let _ =
                tokio::time::timeout(cancel_after, attack.send(resume_request(attack, &web, &id)))
                    .await;
        })
        .await;
    drop(turn);
}
