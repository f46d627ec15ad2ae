//! Pages: sizes that are none, and tokens of other lists, of others, cut, altered, forged.

use anneal_tests::{House, Talk, pb, user};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::{
    ask,
    case::{Case, INVALID, Sent, answered, refused},
    of,
};

/// The four lists, with this token; in the order of [`tokens`].
fn lists(id: &str, token: &str) -> [Sent; 4] {
    [
        of!(id, ListMessagesRequest { page_token: token, page_size: 1 }),
        ask!(ListConversationsRequest { page_token: token, page_size: 1 }),
        ask!(ListJobsRequest { page_token: token, page_size: 1 }),
        of!(id, ListCheckpointsRequest { page_token: token, page_size: 1 }),
    ]
}

const NAMES: [&str; 4] = ["messages", "conversations", "jobs", "checkpoints"];

/// Sizes of pages.
pub(crate) fn sizes(id: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for size in [-1, i32::MIN] {
        let sized = [
            of!(id, ListMessagesRequest { page_size: size }),
            ask!(ListConversationsRequest { page_size: size }),
            ask!(ListJobsRequest { page_size: size }),
            of!(id, ListCheckpointsRequest { page_size: size }),
        ];
        for (sent, name) in sized.into_iter().zip(NAMES) {
            cases.push(refused(format!("{size} {name}"), sent, INVALID, "page_size"));
        }
    }
    cases.push(answered("2^31 - 1 messages", of!(id, ListMessagesRequest { page_size: i32::MAX })));
    cases
}

/// The tokens that the four lists give after their first entry, and the conversation that they are of.
async fn tokens(house: &House) -> (String, [String; 4]) {
    let policy = pb::Policy { max_message_count: Some(6), keep_recent_turns: Some(1), ..Default::default() };
    let talk = house.conversation_under(policy).await;
    while talk.checkpoints().await.len() < 2 {
        talk.turns(4).await;
        house.run_jobs_until_idle().await;
    }
    // Two jobs wait.
    talk.turns(1).await;
    house.conversation().await.turns(1).await;
    let [messages, conversations, jobs, checkpoints] = first_pages(house, &talk).await;
    assert!(![&messages, &conversations, &jobs, &checkpoints].iter().any(|token| token.is_empty()));
    (talk.id.clone(), [messages, conversations, jobs, checkpoints])
}

async fn first_pages(house: &House, talk: &Talk<'_>) -> [String; 4] {
    let id = || talk.id.clone();
    let ask = pb::ListMessagesRequest { conversation_id: id(), page_size: 1, ..Default::default() };
    let messages = house.messages().list_messages(ask).await.expect("lists").into_inner().next_page_token;
    let ask = pb::ListConversationsRequest { page_size: 1, ..Default::default() };
    let conversations = house.conversations().list_conversations(ask).await.expect("lists").into_inner();
    let ask = pb::ListJobsRequest { page_size: 1, ..Default::default() };
    let jobs = house.operators().list_jobs(ask).await.expect("lists").into_inner().next_page_token;
    let ask = pb::ListCheckpointsRequest { conversation_id: id(), page_size: 1, ..Default::default() };
    let checkpoints = house.contexts().list_checkpoints(ask).await.expect("lists").into_inner().next_page_token;
    [messages, conversations.next_page_token, jobs, checkpoints]
}

/// Tokens that this list did not give.
pub(crate) async fn strange_tokens(house: &House) -> Vec<Case> {
    let (id, tokens) = tokens(house).await;
    let other = house.conversation().await;
    other.append_all(vec![user("a"); 3]).await;
    let mut cases = Vec::new();
    for (given, token) in tokens.iter().enumerate() {
        for (asked, sent) in lists(&id, token).into_iter().enumerate() {
            if asked == given {
                cases.push(answered(format!("a token of its own for {}", NAMES[asked]), sent));
            } else {
                let name = format!("a token of {} for {}", NAMES[given], NAMES[asked]);
                cases.push(refused(name, sent, INVALID, "page_token"));
            }
        }
    }
    let [of_other, _, _, points_of_other] = [&tokens[0], &tokens[1], &tokens[2], &tokens[3]];
    let [messages, ..] = lists(&other.id, of_other);
    cases.push(refused("a token of another conversation", messages, INVALID, "page_token"));
    let [.., checkpoints] = lists(&other.id, points_of_other);
    cases.push(refused("checkpoints of another conversation", checkpoints, INVALID, "page_token"));
    let backwards = of!(id.as_str(), ListMessagesRequest { page_token: of_other.as_str(), newest_first: true });
    cases.push(refused("a token of the other direction", backwards, INVALID, "page_token"));
    let filtered = ask!(ListConversationsRequest { page_token: tokens[1].as_str(), user_id: "anna" });
    cases.push(refused("a token of other filters", filtered, INVALID, "page_token"));
    let long = "A".repeat(100_000);
    let broken =
        ["x", "////", "=", "\0", "bm90IGpzb24", &tokens[0][1..], "\u{202e}AAAA", "%00", "AAAA ", long.as_str()];
    for broken in broken {
        for (sent, name) in lists(&id, broken).into_iter().zip(NAMES) {
            let what: String = broken.chars().take(12).collect();
            cases.push(refused(format!("{what:?} for {name}"), sent, INVALID, "page_token"));
        }
    }
    cases
}

/// Every token with each of its bits turned, and with places that nothing has: each is answered or refused as a token.
pub(crate) async fn forged_tokens(house: &House) -> Vec<Sent> {
    let (id, tokens) = tokens(house).await;
    let mut forged = Vec::new();
    for (list, token) in tokens.iter().enumerate() {
        let text = URL_SAFE_NO_PAD.decode(token).expect("base64");
        for bit in 0..text.len() * 8 {
            let mut flipped = text.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            forged.extend(lists(&id, &URL_SAFE_NO_PAD.encode(flipped)).into_iter().nth(list));
        }
        let (scope, place): (String, serde_json::Value) = serde_json::from_slice(&text).expect("scope and place");
        for extreme in [i64::MIN, -1, 0, 9, 32_767, i64::MAX] {
            let place = match &place {
                serde_json::Value::Array(items) => {
                    let forge = |item: &serde_json::Value| if item.is_number() { extreme.into() } else { item.clone() };
                    items.iter().map(forge).collect()
                }
                _ => serde_json::Value::from(extreme),
            };
            let token = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&(&scope, place)).expect("json"));
            forged.extend(lists(&id, &token));
        }
    }
    forged
}
