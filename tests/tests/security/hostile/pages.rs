//! Cases of pages: invalid sizes, and page tokens that another list issued or that are truncated,
//! altered or forged.

use anneal_testkit::{TestApp, TestConversation, pb, user};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::hostile::{
    ask, ask_about,
    case::{Case, GrpcRequest, INVALID, answered, refused},
};

/// Requests for the four lists with this token, in the order of [`NAMES`].
fn lists(id: &str, token: &str) -> [GrpcRequest; 4] {
    [
        ask_about!(
            id,
            ListMessagesRequest {
                page_token: token,
                page_size: 1
            }
        ),
        ask!(ListConversationsRequest {
            page_token: token,
            page_size: 1
        }),
        ask!(ListJobsRequest {
            page_token: token,
            page_size: 1
        }),
        ask_about!(
            id,
            ListCheckpointsRequest {
                page_token: token,
                page_size: 1
            }
        ),
    ]
}

/// The entries of the four lists, for the names of cases.
const NAMES: [&str; 4] = ["messages", "conversations", "jobs", "checkpoints"];

/// Cases of page sizes.
pub(crate) fn sizes(id: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for size in [-1, i32::MIN] {
        let requests = [
            ask_about!(id, ListMessagesRequest { page_size: size }),
            ask!(ListConversationsRequest { page_size: size }),
            ask!(ListJobsRequest { page_size: size }),
            ask_about!(id, ListCheckpointsRequest { page_size: size }),
        ];
        for (request, name) in requests.into_iter().zip(NAMES) {
            cases.push(refused(
                format!("a page of {size} {name}"),
                request,
                INVALID,
                "page_size",
            ));
        }
    }
    cases.push(answered(
        "a page of 2^31 - 1 messages",
        ask_about!(
            id,
            ListMessagesRequest {
                page_size: i32::MAX
            }
        ),
    ));
    cases
}

/// Fills a conversation. Returns its id and the tokens after the first entry of the four lists, in
/// the order of [`NAMES`].
async fn create_tokens(app: &TestApp) -> (String, [String; 4]) {
    let policy = pb::Policy {
        max_message_count: Some(6),
        keep_recent_turns: Some(1),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    while conversation.checkpoints().await.len() < 2 {
        conversation.turns(4).await;
        app.run_jobs_until_idle().await;
    }
    // Enqueues two jobs, so that the list of jobs has a second page.
    conversation.turns(1).await;
    app.conversation().await.turns(1).await;
    let [messages, conversations, jobs, checkpoints] = first_page_tokens(app, &conversation).await;
    assert!(
        ![&messages, &conversations, &jobs, &checkpoints]
            .iter()
            .any(|token| token.is_empty())
    );
    (
        conversation.id.clone(),
        [messages, conversations, jobs, checkpoints],
    )
}

/// The tokens after the first entry of the four lists.
async fn first_page_tokens(app: &TestApp, conversation: &TestConversation<'_>) -> [String; 4] {
    let id = || conversation.id.clone();
    let ask = pb::ListMessagesRequest {
        conversation_id: id(),
        page_size: 1,
        ..Default::default()
    };
    let messages = app
        .messages()
        .list_messages(ask)
        .await
        .expect("lists")
        .into_inner()
        .next_page_token;
    let ask = pb::ListConversationsRequest {
        page_size: 1,
        ..Default::default()
    };
    let conversations = app
        .conversations()
        .list_conversations(ask)
        .await
        .expect("lists")
        .into_inner();
    let ask = pb::ListJobsRequest {
        page_size: 1,
        ..Default::default()
    };
    let jobs = app
        .operators()
        .list_jobs(ask)
        .await
        .expect("lists")
        .into_inner()
        .next_page_token;
    let ask = pb::ListCheckpointsRequest {
        conversation_id: id(),
        page_size: 1,
        ..Default::default()
    };
    let checkpoints = app
        .contexts()
        .list_checkpoints(ask)
        .await
        .expect("lists")
        .into_inner()
        .next_page_token;
    [messages, conversations.next_page_token, jobs, checkpoints]
}

/// Cases of tokens of lists that show less, and of a token of messages for versions.
fn tokens_without_more(id: &str, messages_token: &str, checkpoints_token: &str) -> Vec<Case> {
    let with_withdrawn = ask_about!(
        id,
        ListMessagesRequest {
            page_token: messages_token,
            include_withdrawn: true
        }
    );
    let with_void = ask_about!(
        id,
        ListCheckpointsRequest {
            page_token: checkpoints_token,
            include_void: true
        }
    );
    let versions = ask_about!(
        id,
        ListMessageVersionsRequest {
            message_id: 1,
            page_token: messages_token
        }
    );
    [
        (
            "a token of the list without withdrawn messages",
            with_withdrawn,
        ),
        ("a token of the list without void checkpoints", with_void),
        ("a token of messages for versions", versions),
    ]
    .map(|(name, request)| refused(name, request, INVALID, "page_token"))
    .into()
}

/// Cases of tokens that another list issued, and of malformed ones.
pub(crate) async fn foreign_tokens(app: &TestApp) -> Vec<Case> {
    let (id, tokens) = create_tokens(app).await;
    let other = app.conversation().await;
    other.append_all(vec![user("a"); 3]).await;
    let mut cases = Vec::new();
    for (issued_by, token) in tokens.iter().enumerate() {
        for (sent_to, request) in lists(&id, token).into_iter().enumerate() {
            if issued_by == sent_to {
                cases.push(answered(
                    format!("a token that the list of {} issued", NAMES[sent_to]),
                    request,
                ));
            } else {
                let name = format!("a token of {} for {}", NAMES[issued_by], NAMES[sent_to]);
                cases.push(refused(name, request, INVALID, "page_token"));
            }
        }
    }
    let [messages_token, _, _, checkpoints_token] =
        [&tokens[0], &tokens[1], &tokens[2], &tokens[3]];
    let [messages, ..] = lists(&other.id, messages_token);
    cases.push(refused(
        "a token of another conversation",
        messages,
        INVALID,
        "page_token",
    ));
    let [.., checkpoints] = lists(&other.id, checkpoints_token);
    cases.push(refused(
        "a token for the checkpoints of another conversation",
        checkpoints,
        INVALID,
        "page_token",
    ));
    let backwards = ask_about!(
        id.as_str(),
        ListMessagesRequest {
            page_token: messages_token.as_str(),
            newest_first: true
        }
    );
    cases.push(refused(
        "a token of the other direction",
        backwards,
        INVALID,
        "page_token",
    ));
    cases.extend(tokens_without_more(&id, messages_token, checkpoints_token));
    let filtered = ask!(ListConversationsRequest {
        page_token: tokens[1].as_str(),
        user_id: "anna"
    });
    cases.push(refused(
        "a token of other filters",
        filtered,
        INVALID,
        "page_token",
    ));
    let long = "A".repeat(100_000);
    let malformed_tokens = [
        "x",
        "////",
        "=",
        "\0",
        // "not json" in base64.
        "bm90IGpzb24",
        &tokens[0][1..],
        "\u{202e}AAAA",
        "%00",
        "AAAA ",
        long.as_str(),
    ];
    for token in malformed_tokens {
        for (request, name) in lists(&id, token).into_iter().zip(NAMES) {
            let what: String = token.chars().take(12).collect();
            cases.push(refused(
                format!("{what:?} for {name}"),
                request,
                INVALID,
                "page_token",
            ));
        }
    }
    cases
}

/// Requests with tokens in which one bit is flipped, for each bit of every token, and with tokens
/// of forged positions. Each request may be answered, or refused for its token.
pub(crate) async fn forged_tokens(app: &TestApp) -> Vec<GrpcRequest> {
    let (id, tokens) = create_tokens(app).await;
    let mut forged = Vec::new();
    for (list, token) in tokens.iter().enumerate() {
        let text = URL_SAFE_NO_PAD.decode(token).expect("base64");
        for bit in 0..text.len() * 8 {
            let mut flipped = text.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            forged.extend(
                lists(&id, &URL_SAFE_NO_PAD.encode(flipped))
                    .into_iter()
                    .nth(list),
            );
        }
        let (scope, position): (String, serde_json::Value) =
            serde_json::from_slice(&text).expect("scope and position");
        for number in [i64::MIN, -1, 0, 9, 32_767, i64::MAX] {
            let position = match &position {
                serde_json::Value::Array(items) => {
                    let forge = |item: &serde_json::Value| {
                        if item.is_number() {
                            number.into()
                        } else {
                            item.clone()
                        }
                    };
                    items.iter().map(forge).collect()
                }
                _ => serde_json::Value::from(number),
            };
            let token =
                URL_SAFE_NO_PAD.encode(serde_json::to_vec(&(&scope, position)).expect("json"));
            forged.extend(lists(&id, &token));
        }
    }
    forged
}
