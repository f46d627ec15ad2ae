//! Lists of conversations: the totals that they show, their order and their pages. The last test is
//! about pages of messages.

#![expect(non_snake_case, reason = "test names begin with a row of docs/rows.md")]

use anneal_core::caller::{Caller, TenantId};
use anneal_proto::convert::time;
use anneal_store::ConversationFilter;
use anneal_testkit::{
    TestApp, TestConversation, assistant, call, direct_scope, pb, result, sentence, user,
};
use sqlx::Row as _;
use uuid::Uuid;

/// Pseudo-random numbers of a linear congruential generator, the same in every run.
struct SeededRandom(u64);

impl SeededRandom {
    /// A number from 0 to `bound - 1`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A conversation as a list shows it.
#[derive(Debug, PartialEq)]
struct ListedConversation {
    id: String,
    messages: i64,
    tokens: u64,
    /// Number of messages whose tokens are estimated.
    estimated_messages: i64,
    last_activity_us: i64,
    title: String,
}

fn listed_conversation(row: &pb::Conversation) -> ListedConversation {
    let total = row.token_total.expect("a total");
    ListedConversation {
        id: row.conversation_id.clone(),
        messages: row.message_count,
        tokens: total.tokens,
        estimated_messages: total.estimated_messages,
        last_activity_us: time::micros(row.last_activity_time.expect("a time")),
        title: row.title.clone(),
    }
}

/// Computes from the stored messages what a list must show. `titles`: conversation ids with the
/// titles that the test has recorded.
async fn compute_expected_list(
    app: &TestApp,
    titles: &[(String, String)],
) -> Vec<ListedConversation> {
    let rows = sqlx::query(
        "select c.conversation_id, count(m.message_id) as messages,
                coalesce(sum(coalesce(m.token_count, m.token_estimate)), 0)::bigint as tokens,
                count(m.message_id) filter (where m.token_count is null) as uncounted,
                (extract(epoch from coalesce(max(m.created_ts), c.created_ts)) * 1000000)::bigint as last_us
         from ai_conversation as c left join ai_message as m using (conversation_id)
         group by c.conversation_id order by coalesce(max(m.created_ts), c.created_ts) desc, c.conversation_id desc",
    )
    .fetch_all(&mut app.db().await)
    .await
    .expect("computes");
    let figures = rows.iter().map(|row| {
        let id = row.get::<Uuid, _>("conversation_id").to_string();
        let title = titles
            .iter()
            .find(|(titled, _)| *titled == id)
            .map_or_else(String::new, |(_, title)| title.clone());
        ListedConversation {
            id,
            messages: row.get("messages"),
            tokens: row.get::<i64, _>("tokens") as u64,
            estimated_messages: row.get("uncounted"),
            last_activity_us: row.get("last_us"),
            title,
        }
    });
    figures.collect()
}

async fn append_large(conversation: &TestConversation<'_>, text: String, request_id: &str) {
    use pb::append_large_message_request::{Frame, Header};
    let header = Header {
        conversation_id: conversation.id.clone(),
        request_id: request_id.into(),
        message: Some(user("")),
        ..Default::default()
    };
    let frames = [Frame::Header(header), Frame::Chunk(text.into_bytes())];
    let frames = frames.map(|frame| pb::AppendLargeMessageRequest { frame: Some(frame) });
    conversation
        .app
        .messages()
        .append_large_message(futures::stream::iter(frames))
        .await
        .expect("appends");
}

async fn rename(conversation: &TestConversation<'_>, title: &str) {
    let changed = pb::Conversation {
        conversation_id: conversation.id.clone(),
        title: title.into(),
        ..Default::default()
    };
    let ask = pb::UpdateConversationRequest {
        conversation: Some(changed),
        update_mask: Some(prost_types::FieldMask {
            paths: vec!["title".into()],
        }),
        ..Default::default()
    };
    conversation
        .app
        .conversations()
        .update_conversation(ask)
        .await
        .expect("renames");
}

/// Applies one random change to a conversation. Returns the new title if the change is a
/// rename.
async fn apply_random_change(
    conversation: &TestConversation<'_>,
    random: &mut SeededRandom,
    step: usize,
) -> Option<String> {
    let (kind, text) = (random.below(11), format!("{step} {}", sentence(step)));
    let request_id = format!("r{step}");
    match kind {
        0 | 1 => {
            conversation
                .append_all(vec![user(&text), assistant(&text)])
                .await;
        }
        2 => {
            conversation.append(&text).request_id(&request_id).await;
            assert!(
                conversation
                    .append(&text)
                    .request_id(&request_id)
                    .await
                    .replayed
            );
        }
        3 => append_large(conversation, text.repeat(200), &request_id).await,
        4 => {
            append_large(conversation, text.clone(), &request_id).await;
            append_large(conversation, text, &request_id).await;
        }
        5 => {
            let messages = vec![
                user(&text),
                call("c", "{}"),
                result("c", &text),
                assistant(&text),
            ];
            conversation.append_all(messages).await;
        }
        6 => {
            conversation
                .append_all(vec![call("c", "{}"), result("c", &text)])
                .request_id(&request_id)
                .await;
        }
        7 => {
            conversation.insert_separator().await;
        }
        8 => {
            conversation.app.run_jobs_until_idle().await;
        }
        9 => {
            // Append while earlier messages are counted.
            tokio::join!(
                conversation.append_all(vec![user(&text)]).into_future(),
                conversation.app.run_jobs_until_idle()
            );
        }
        _ => {
            rename(conversation, &text).await;
            return Some(text);
        }
    }
    None
}

#[tokio::test]
async fn row_P4_listed_totals_and_titles_always_equal_the_stored_messages() {
    let app = TestApp::start().await;
    let no_tools = pb::Policy {
        store_tool_messages: Some(false),
        ..Default::default()
    };
    let mut conversations = vec![
        app.conversation().await,
        app.conversation_with_policy(no_tools).await,
    ];
    let mut titles: Vec<(String, String)> = Vec::new();
    let mut random = SeededRandom(20_261_121);
    for step in 0..160 {
        let index = random.below(conversations.len() as u64 + 1) as usize;
        if step % 40 == 39 {
            let deleted = conversations.remove(0).id;
            let ask = pb::DeleteConversationRequest {
                conversation_id: deleted.clone(),
                ..Default::default()
            };
            app.conversations()
                .delete_conversation(ask)
                .await
                .expect("deletes");
            titles.retain(|(titled, _)| *titled != deleted);
            continue;
        }
        if index == conversations.len() {
            // A rotation creates a conversation. Six conversations are enough.
            if conversations.len() < 6 {
                let session = app
                    .rotate(&direct_scope("anna"), &format!("r{step}"))
                    .await
                    .expect("rotates");
                conversations.push(app.conversation_of(&session));
            }
            continue;
        }
        let new_title = apply_random_change(&conversations[index], &mut random, step).await;
        let id = conversations[index].id.clone();
        if let Some(title) = new_title {
            titles.retain(|(titled, _)| *titled != id);
            titles.push((id, title));
        } else if titles.iter().all(|(titled, _)| *titled != id)
            && let Some(first_question) = conversations[index]
                .texts_by_role()
                .await
                .into_iter()
                .find(|(role, _)| *role == pb::Role::User)
        {
            // Without a title of its own, a conversation has the first 30 characters of its first
            // question.
            let title = first_question.1.chars().take(30).collect::<String>();
            titles.push((id, title.trim_end().to_owned()));
        }
        let shown = app
            .list(pb::ListConversationsRequest {
                page_size: 2,
                ..Default::default()
            })
            .await;
        let shown: Vec<_> = shown.iter().map(listed_conversation).collect();
        assert_eq!(
            shown,
            compute_expected_list(&app, &titles).await,
            "after step {step}"
        );
    }
    assert!(titles.len() >= 5, "most conversations have a title");
    app.run_jobs_until_idle().await;
    let shown = app.list(pb::ListConversationsRequest::default()).await;
    for row in &shown {
        assert_eq!(
            row.token_total.expect("a total").estimated_messages,
            0,
            "everything is counted"
        );
    }
    for conversation in &conversations {
        conversation.verify().await;
    }
}

#[tokio::test]
async fn row_C6_conversations_are_listed_by_agent_and_by_user() {
    let app = TestApp::start().await;
    for (agent, user) in [
        ("cook", "anna"),
        ("cook", "bert"),
        ("guide", "anna"),
        ("cook", "anna"),
        ("guide", ""),
    ] {
        let ask = pb::CreateConversationRequest {
            agent_id: agent.into(),
            user_id: user.into(),
            title: format!("{agent} {user}"),
            ..Default::default()
        };
        app.conversation_with(ask).await;
    }
    let ask = pb::ListConversationsRequest::default;
    let titles = async |ask: pb::ListConversationsRequest| {
        let rows = app
            .list(pb::ListConversationsRequest {
                page_size: 1,
                ..ask
            })
            .await;
        rows.into_iter().map(|row| row.title).collect::<Vec<_>>()
    };
    let of_cook = pb::ListConversationsRequest {
        agent_id: "cook".into(),
        ..ask()
    };
    assert_eq!(
        titles(of_cook.clone()).await,
        ["cook anna", "cook bert", "cook anna"]
    );
    let of_anna = pb::ListConversationsRequest {
        user_id: "anna".into(),
        ..ask()
    };
    assert_eq!(
        titles(of_anna.clone()).await,
        ["cook anna", "guide anna", "cook anna"]
    );
    let of_both = pb::ListConversationsRequest {
        user_id: "anna".into(),
        ..of_cook
    };
    assert_eq!(titles(of_both.clone()).await, ["cook anna", "cook anna"]);
    let of_anna_and_guide = pb::ListConversationsRequest {
        title_prefix: "guide".into(),
        ..of_anna
    };
    assert_eq!(titles(of_anna_and_guide).await, ["guide anna"]);
    let archived = pb::ListConversationsRequest {
        status: pb::ConversationStatus::Archived.into(),
        ..of_both
    };
    assert_eq!(titles(archived).await.len(), 0);
    assert_eq!(
        titles(pb::ListConversationsRequest {
            agent_id: "nobody".into(),
            ..ask()
        })
        .await
        .len(),
        0
    );
}

#[tokio::test]
async fn lists_show_no_conversation_of_another_tenant() {
    let app = TestApp::start().await;
    let ask = pb::CreateConversationRequest {
        agent_id: "a".into(),
        user_id: "u".into(),
        ..Default::default()
    };
    app.conversation_with(ask).await;
    let other = Caller::of(TenantId(Uuid::now_v7()));
    let (agent, user) = (Some("a".to_owned()), Some("u".to_owned()));
    for (agent_id, user_id) in [
        (None, None),
        (agent.clone(), None),
        (None, user.clone()),
        (agent, user),
    ] {
        let filter = ConversationFilter {
            agent_id,
            user_id,
            limit: 50,
            ..ConversationFilter::default()
        };
        let mine = app
            .store
            .list_conversations(Caller::of(TenantId::DEFAULT), &filter)
            .await
            .expect("lists");
        assert_eq!(mine.conversations.len(), 1);
        let theirs = app
            .store
            .list_conversations(other, &filter)
            .await
            .expect("lists");
        assert_eq!(theirs.conversations.len(), 0);
    }
}

#[tokio::test]
async fn pages_are_in_order_of_activity_although_the_sort_column_lags_behind() {
    let app = TestApp::start().await;
    let mut db = app.db().await;
    for _ in 0..120 {
        app.conversation().await;
    }
    // The indexed sort column `listed_ts` is up to 120 seconds older than the last activity, which
    // is what lists allow for. Up to three rows share a `last_activity_ts`.
    sqlx::query(
        "update ai_conversation as c
         set last_activity_ts = now() - (n / 3) * interval '1 second',
             listed_ts = now() - (n / 3) * interval '1 second' - (n * 7 % 121) * interval '1 second'
         from (select conversation_id, row_number() over (order by conversation_id) as n from ai_conversation) as numbered
         where numbered.conversation_id = c.conversation_id",
    )
    .execute(&mut db)
    .await
    .expect("moves");
    let ordered: Vec<Uuid> = sqlx::query_scalar(
        "select conversation_id from ai_conversation order by last_activity_ts desc, conversation_id desc",
    )
    .fetch_all(&mut db)
    .await
    .expect("reads");
    let ordered: Vec<String> = ordered.iter().map(Uuid::to_string).collect();
    for page_size in [1, 7, 50] {
        let listed = app
            .list(pb::ListConversationsRequest {
                page_size,
                ..Default::default()
            })
            .await;
        let listed: Vec<String> = listed.into_iter().map(|row| row.conversation_id).collect();
        assert_eq!(listed, ordered, "in pages of {page_size}");
    }
}

#[tokio::test]
async fn a_clock_set_back_hides_no_conversation() {
    let app = TestApp::start().await;
    let mut conversations = Vec::new();
    for _ in 0..5 {
        let conversation = app.conversation().await;
        conversation.append("before").await;
        conversations.push(conversation);
    }
    // As if the clock had been an hour ahead during the append to conversation 2.
    let ahead =
        "update ai_conversation set last_activity_ts = now() + interval '1 hour', listed_ts = now() + interval '1 hour'
        where conversation_id = $1";
    let id: Uuid = conversations[2].id.parse().expect("an id");
    sqlx::query(ahead)
        .bind(id)
        .execute(&mut app.db().await)
        .await
        .expect("moves");
    conversations[2].append("after").await;
    conversations[4].append("after").await;
    let (mut found, mut page_token) = (Vec::new(), String::new());
    loop {
        let ask = pb::ListConversationsRequest {
            page_size: 1,
            page_token,
            ..Default::default()
        };
        let page = app
            .conversations()
            .list_conversations(ask)
            .await
            .expect("lists")
            .into_inner();
        found.extend(
            page.conversations
                .into_iter()
                .map(|conversation| conversation.conversation_id),
        );
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    let expected = [2, 4, 3, 1, 0].map(|index: usize| conversations[index].id.clone());
    assert_eq!(found, expected, "each conversation once, in order");
}

#[tokio::test]
async fn the_default_page_size_is_50_and_the_largest_is_500() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    for _ in 0..6 {
        conversation.append_all(vec![user("a"); 100]).await;
    }
    for (page_size, answered) in [(0, 50), (1, 1), (500, 500), (i32::MAX, 500)] {
        let ask = pb::ListMessagesRequest {
            conversation_id: conversation.id.clone(),
            page_size,
            ..Default::default()
        };
        let page = app
            .messages()
            .list_messages(ask)
            .await
            .expect("lists")
            .into_inner();
        assert_eq!(page.messages.len(), answered);
    }
}

#[tokio::test]
async fn a_list_finds_titles_by_a_part_in_any_case_and_pinned_conversations() {
    let app = TestApp::start().await;
    for (title, user_id) in [
        ("Résumé of May", "anna"),
        ("résumé of June", "bert"),
        ("100 % done", "anna"),
        ("Other", "anna"),
    ] {
        let ask = pb::CreateConversationRequest {
            title: title.into(),
            user_id: user_id.into(),
            ..Default::default()
        };
        let conversation = app.conversation_with(ask).await;
        if title != "Other" {
            let ask = pb::UpdateConversationRequest {
                conversation: Some(pb::Conversation {
                    conversation_id: conversation.id.clone(),
                    pinned: true,
                    ..Default::default()
                }),
                update_mask: Some(prost_types::FieldMask {
                    paths: vec!["pinned".into()],
                }),
                ..Default::default()
            };
            let pinned = app.conversations().update_conversation(ask).await;
            pinned.expect("pins");
        }
    }
    let titles = async |title_contains: &str, user_id: &str, pinned_only: bool| {
        let rows = app
            .list(pb::ListConversationsRequest {
                title_contains: title_contains.into(),
                user_id: user_id.into(),
                pinned_only,
                ..Default::default()
            })
            .await;
        rows.into_iter().map(|row| row.title).collect::<Vec<_>>()
    };
    for pinned_only in [false, true] {
        assert_eq!(
            titles("OF", "", pinned_only).await,
            ["résumé of June", "Résumé of May"]
        );
        assert_eq!(titles("of", "anna", pinned_only).await, ["Résumé of May"]);
        assert_eq!(titles("%", "", pinned_only).await, ["100 % done"]);
        assert_eq!(titles("_", "", pinned_only).await.len(), 0);
    }
    assert_eq!(titles("", "", true).await.len(), 3);
    assert_eq!(titles("", "anna", true).await.len(), 2);
    assert_eq!(titles("", "", false).await.len(), 4);
}
