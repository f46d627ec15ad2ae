//! A fork begins with copies of a conversation's messages, and has nothing in common with it from
//! then on.

use anneal_core::caller::{Caller, TenantId};
use anneal_store::TenantUsage;
use anneal_testkit::{
    TestApp, TestConversation, assert_refused, assistant, pb, prose, status_details, user,
};
use pb::{Reason, Representation};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::{
    append_turns, conversation_of_turns, conversation_with_checkpoints, conversation_with_tools,
    listed_ids, listed_tokens, question,
};

/// A request for a fork at this message, with a request id.
fn repeatable(message_id: i64) -> pb::ForkConversationRequest {
    pb::ForkConversationRequest {
        message_id,
        request_id: "r".into(),
        ..Default::default()
    }
}

/// The checkpoints of a conversation, without its id.
async fn checkpoints(conversation: &TestConversation<'_>) -> Vec<pb::Checkpoint> {
    let checkpoints = conversation.checkpoints().await.into_iter();
    let without_id = checkpoints.map(|checkpoint| pb::Checkpoint {
        conversation_id: String::new(),
        ..checkpoint
    });
    without_id.collect()
}

async fn delete(conversation: &TestConversation<'_>) {
    let ask = pb::DeleteConversationRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    conversation
        .app
        .conversations()
        .delete_conversation(ask)
        .await
        .expect("deletes");
}

async fn usage(app: &TestApp) -> TenantUsage {
    let usage = app.store.read_tenant_usage(Caller::of(TenantId::DEFAULT));
    usage.await.expect("reads")
}

/// The conversation that the request id of a refused call has created.
fn created_before(refused: &Status) -> Option<String> {
    let details = refused.get_error_details();
    details
        .error_info()?
        .metadata
        .get("conversation_id")
        .cloned()
}

#[tokio::test]
async fn a_fork_has_the_messages_up_to_one_under_the_same_ids() {
    let app = TestApp::start().await;
    let source = app
        .conversation_with(pb::CreateConversationRequest {
            agent_id: "guide".into(),
            user_id: "anna".into(),
            pinned: true,
            metadata: [("k".to_owned(), "v".to_owned())].into(),
            system_prompt: "Be brief.".into(),
            encoding: "cl100k_base".into(),
            policy: Some(pb::Policy {
                max_message_count: Some(40),
                ..Default::default()
            }),
            ..Default::default()
        })
        .await;
    append_turns(&source, 1..=3).await;
    app.run_jobs_until_idle().await;
    let (messages, before) = (source.messages().await, source.conversation().await);
    let fork = source.fork(3).await;
    assert_eq!(fork.messages().await, messages[..3]);
    let forked = fork.conversation().await;
    let expected = pb::Conversation {
        conversation_id: fork.id.clone(),
        pinned: false,
        etag: forked.etag.clone(),
        message_count: 3,
        token_total: Some(pb::TokenTotal {
            tokens: listed_tokens(&fork).await,
            estimated_messages: 0,
        }),
        turn: 2,
        created_time: forked.created_time,
        last_activity_time: forked.created_time,
        forked_from_conversation_id: source.id.clone(),
        forked_message_id: 3,
        ..before.clone()
    };
    assert_eq!(forked, expected);
    assert_eq!(source.conversation().await, before);
    assert!(before.forked_from_conversation_id.is_empty());

    // Both go on, each for itself.
    let appended = fork.append("Elsewhere?").await;
    let ids_and_turns = |appended: &pb::AppendMessagesResponse| {
        (appended.messages[0].message_id, appended.messages[0].turn)
    };
    assert_eq!(
        ids_and_turns(&appended),
        (4, 2),
        "adjacent user messages belong to one turn"
    );
    let appended = source.append("Here?").await;
    assert_eq!(ids_and_turns(&appended), (7, 4));
    assert_eq!(source.messages().await[..6], messages);
    fork.verify().await;
    source.verify().await;
}

#[tokio::test]
async fn an_edited_message_is_taken_over_as_it_stands_without_its_earlier_versions() {
    let app = TestApp::start().await;
    let source = conversation_of_turns(&app, 2).await;
    source.edit(1, user("What else?")).await;
    let fork = source.fork(0).await;
    let (edited, copy) = (source.message(1).await, fork.message(1).await);
    assert_eq!(copy.parts, edited.parts);
    assert_eq!((edited.version, copy.version), (2, 1));
    assert_eq!(copy.edited_time, None);
    assert_eq!(fork.versions(1).await.len(), 1);
    // Content that is erased in one conversation stays in the other.
    source.erase(&[1]).await;
    assert_eq!(fork.message(1).await, copy);
    assert_eq!(fork.edit(1, user("And here?")).await.version, 2);
    fork.verify().await;
    source.verify().await;
}

#[tokio::test]
async fn a_fork_at_the_newest_message_has_the_same_context() {
    let app = TestApp::start().await;
    let source = app
        .conversation_with_policy(pb::Policy {
            large_message_threshold: Some(200),
            max_message_count: Some(0),
            ..Default::default()
        })
        .await;
    source.turn(&prose(0, 60), "I have read it.").await;
    source.turns(6).await;
    app.run_jobs_until_idle().await;
    let first = source.context().await;
    let as_summary = (Representation::Summary, Reason::Cool);
    assert_eq!(first.representation(1), as_summary);
    let fork = source.fork(0).await;
    assert_eq!(fork.messages().await, source.messages().await);
    let context = fork.context().await;
    assert_eq!(
        context.0,
        source.context().await.0,
        "the provider's cache serves the fork, too"
    );
    assert_eq!(context.0.prefix_hash, first.0.prefix_hash);
    assert_eq!(context.representation(1), as_summary);
    app.run_jobs_until_idle().await;
    fork.verify().await;

    let earlier = source.fork(8).await.context().await;
    assert_eq!(
        earlier.representation(1),
        (Representation::Original, Reason::Hot),
        "the message is not old enough there"
    );
    earlier.assert_covers(8);
}

#[tokio::test]
async fn a_fork_takes_over_the_checkpoints_that_end_before_it_does() {
    let app = TestApp::start().await;
    let (source, [older, newer]) = conversation_with_checkpoints(&app).await;
    let all = checkpoints(&source).await;
    for (message_id, expected) in [(0, &all[..]), (newer, &all[..]), (newer - 1, &all[1..])] {
        let fork = source.fork(message_id).await;
        assert_eq!(checkpoints(&fork).await, expected, "at {message_id}");
        fork.verify().await;
    }
    let fork = source.fork(0).await;
    assert_eq!(
        fork.context().await.texts_by_role(),
        source.context().await.texts_by_role()
    );
    let early = source.fork(older - 1).await;
    assert!(early.checkpoints().await.is_empty());
    assert_eq!(
        early.context().await.texts_by_role(),
        early.texts_by_role().await,
        "no summary stands for its messages"
    );
    app.run_jobs_until_idle().await;
    early.verify().await;
}

#[tokio::test]
async fn a_fork_takes_over_the_separators_within_it() {
    let app = TestApp::start().await;
    let source = conversation_of_turns(&app, 1).await;
    source.insert_separator().await;
    append_turns(&source, 2..=2).await;
    source.insert_separator().await;
    for (message_id, boundary) in [(1, 0), (2, 2), (3, 2), (4, 4)] {
        let context = source.fork(message_id).await.context().await;
        assert_eq!(
            context.0.boundary_message_id, boundary,
            "forked at {message_id}"
        );
    }
}

#[tokio::test]
async fn withdrawn_messages_are_empty_in_a_fork_for_good() {
    let app = TestApp::start().await;
    let source = conversation_with_tools(&app).await;
    source.withdraw(&[2, 5]).await;
    let fork = source.fork(7).await;
    assert_eq!(listed_ids(&fork).await, [1, 4, 6, 7]);
    let forked = fork.conversation().await;
    assert_eq!((forked.message_count, forked.withdrawn_messages), (7, 3));
    assert_eq!(
        forked.token_total.expect("a total").tokens,
        listed_tokens(&fork).await
    );
    fork.verify().await;
    assert_refused(
        fork.restore(&[5]).send().await,
        Code::FailedPrecondition,
        "MESSAGE_ERASED",
        "message_ids[0]",
    );
    source.restore(&[2, 5]).await;
    assert_eq!(listed_ids(&source).await, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(listed_ids(&fork).await, [1, 4, 6, 7]);
    // The fork can restore messages that it has withdrawn itself.
    fork.withdraw(&[1]).await;
    fork.restore(&[1]).await;
    assert_eq!(listed_ids(&fork).await, [1, 4, 6, 7]);
    fork.verify().await;
}

#[tokio::test]
async fn a_fork_after_a_change_of_messages_expects_nothing_in_the_providers_cache() {
    let app = TestApp::start().await;
    let source = conversation_of_turns(&app, 3).await;
    source.context().await;
    source.withdraw(&[2]).await;
    let fork = source.fork(0).await;
    let context = fork.context().await;
    assert_eq!(context.0.expected_cached_tokens, 0);
    assert!(context.0.cache_break.is_none(), "{context:?}");
    let of_source = source.context().await;
    assert_eq!(context.texts_by_role(), of_source.texts_by_role());
    // The next context of the source is recorded after the change.
    let later = source.fork(0).await;
    assert_eq!(later.context().await.0, source.context().await.0);
    later.withdraw(&[4]).await;
    let broken = later.context().await.0.cache_break.expect("a break");
    assert_eq!(
        (broken.reason(), broken.at_message_id),
        (pb::BreakReason::Withdrawal, 4)
    );
}

#[tokio::test]
async fn deleting_the_source_leaves_its_forks_and_deleting_a_fork_its_source() {
    let app = TestApp::start().await;
    let (source, [_, newer]) = conversation_with_checkpoints(&app).await;
    let (fork, other) = (source.fork(0).await, source.fork(newer).await);
    let (messages, context) = (fork.messages().await, fork.context().await.0);
    delete(&other).await;
    assert_eq!(source.messages().await, messages);
    assert_eq!(app.forks_of(&source.id).await, [fork.id.as_str()]);
    assert_eq!(app.list_tables_with_rows(other.uuid()).await, [""; 0]);
    delete(&source).await;
    assert_eq!(fork.messages().await, messages);
    assert_eq!(fork.context().await.0.messages, context.messages);
    assert_eq!(
        fork.conversation().await.forked_from_conversation_id,
        source.id
    );
    assert_eq!(
        app.forks_of(&source.id).await,
        [fork.id.as_str()],
        "a deleted conversation still has its forks"
    );
    app.run_jobs_until_idle().await;
    fork.verify().await;
    delete(&fork).await;
    assert!(app.forks_of(&source.id).await.is_empty());
    assert_eq!(usage(&app).await, TenantUsage::default());
}

#[tokio::test]
async fn a_repeated_call_returns_the_same_fork_and_another_body_is_refused() {
    let app = TestApp::start().await;
    let source = conversation_of_turns(&app, 2).await;
    let first = source.try_fork(repeatable(2)).await.expect("forks");
    assert_eq!(source.try_fork(repeatable(2)).await.expect("forks"), first);
    let others = [
        repeatable(3),
        repeatable(0),
        pb::ForkConversationRequest {
            title: Some(String::new()),
            ..repeatable(2)
        },
        pb::ForkConversationRequest {
            metadata: [("k".to_owned(), "v".to_owned())].into(),
            ..repeatable(2)
        },
    ];
    for other in others {
        let refused = source.try_fork(other).await.expect_err("another body");
        assert_eq!(
            (
                status_details(&refused).reason.as_str(),
                created_before(&refused).as_deref()
            ),
            ("REQUEST_ID_REUSED", Some(first.conversation_id.as_str()))
        );
    }
    assert_eq!(
        app.forks_of(&source.id).await,
        [first.conversation_id.as_str()]
    );
    // Calls that create a conversation have their request ids in common.
    let create = pb::CreateConversationRequest {
        request_id: "r".into(),
        ..Default::default()
    };
    let refused = app.conversations().create_conversation(create).await;
    let refused = refused.expect_err("the id has created a fork");
    assert_eq!(
        created_before(&refused),
        Some(first.conversation_id.clone())
    );
    delete(&source).await;
    assert_eq!(
        source.try_fork(repeatable(2)).await.expect("is answered"),
        first,
        "a repetition needs no source"
    );
    assert_refused(
        source
            .try_fork(pb::ForkConversationRequest::default())
            .await,
        Code::NotFound,
        "CONVERSATION_NOT_FOUND",
        "",
    );
}

#[tokio::test]
async fn a_title_that_no_caller_has_given_is_made_from_the_messages_of_the_fork() {
    let app = TestApp::start().await;
    let source = app.conversation().await;
    source
        .append_all(vec![assistant("Welcome."), user(&question(1))])
        .await;
    let title =
        async |ask: pb::ForkConversationRequest| source.try_fork(ask).await.expect("forks").title;
    let at = |message_id| pb::ForkConversationRequest {
        message_id,
        ..Default::default()
    };
    assert_eq!(title(at(1)).await, "");
    assert_eq!(title(at(2)).await, source.conversation().await.title);
    let given = pb::ForkConversationRequest {
        title: Some("Another way".into()),
        ..at(1)
    };
    assert_eq!(title(given).await, "Another way");
    let untitled = pb::ForkConversationRequest {
        title: Some(String::new()),
        ..at(2)
    };
    assert_eq!(title(untitled).await, "");
    // The fork's own messages give it a title.
    let fork = source.fork(1).await;
    fork.append(&question(2)).await;
    assert_eq!(fork.conversation().await.title, question(2));
}

#[tokio::test]
async fn labels_of_a_fork_are_those_of_its_source_unless_others_are_given() {
    let app = TestApp::start().await;
    let labels = |value: &str| [("k".to_owned(), value.to_owned())].into();
    let source = app
        .conversation_with(pb::CreateConversationRequest {
            metadata: labels("v"),
            ..Default::default()
        })
        .await;
    let fork = source
        .try_fork(pb::ForkConversationRequest::default())
        .await;
    assert_eq!(fork.expect("an empty one is forked").metadata, labels("v"));
    let other = pb::ForkConversationRequest {
        metadata: labels("w"),
        ..Default::default()
    };
    let fork = source.try_fork(other).await.expect("forks");
    assert_eq!((fork.metadata, fork.message_count), (labels("w"), 0));
}

#[tokio::test]
async fn forks_are_listed_by_their_source_newest_first() {
    let app = TestApp::start().await;
    let source = conversation_of_turns(&app, 1).await;
    let mut forks = Vec::new();
    for _ in 0..5 {
        forks.push(source.fork(0).await.id);
    }
    let of_fork = app.conversation_by_id(&forks[0]).fork(1).await;
    forks.reverse();
    // Activity does not change the order.
    app.conversation_by_id(&forks[4]).append("More?").await;
    let in_pages = pb::ListConversationsRequest {
        forked_from_conversation_id: source.id.clone(),
        page_size: 2,
        ..Default::default()
    };
    let listed = app.list(in_pages.clone()).await;
    let ids: Vec<String> = listed
        .into_iter()
        .map(|fork| fork.conversation_id)
        .collect();
    assert_eq!(ids, forks);
    assert_eq!(app.forks_of(&forks[4]).await, [of_fork.id.as_str()]);
    assert!(app.forks_of(&of_fork.id).await.is_empty());
    let token = app.conversations().list_conversations(in_pages).await;
    let token = token.expect("lists").into_inner().next_page_token;
    let elsewhere = pb::ListConversationsRequest {
        page_token: token,
        ..Default::default()
    };
    assert_refused(
        app.conversations().list_conversations(elsewhere).await,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "page_token",
    );
}

#[tokio::test]
async fn messages_that_are_not_counted_yet_are_counted_in_the_fork() {
    let app = TestApp::counted_by_workers().await;
    let source = app.conversation().await;
    source.turn(&prose(1, 9), "Yes.").await;
    app.run_jobs_until_idle().await;
    source.turn(&prose(2, 9), "No.").await;
    let fork = source.fork(0).await;
    let total = fork.conversation().await.token_total.expect("a total");
    assert_eq!(
        (total.tokens, total.estimated_messages),
        (listed_tokens(&fork).await, 2)
    );
    fork.verify().await;
    app.run_jobs_until_idle().await;
    assert_eq!(fork.messages().await, source.messages().await);
    let total = fork.conversation().await.token_total.expect("a total");
    assert_eq!(total.estimated_messages, 0);
    fork.verify().await;
}

#[tokio::test]
async fn a_fork_whose_messages_reach_a_threshold_gets_a_checkpoint() {
    let app = TestApp::start().await;
    let source = conversation_of_turns(&app, 8).await;
    app.run_jobs_until_idle().await;
    let update = pb::UpdateConversationRequest {
        conversation: Some(pb::Conversation {
            conversation_id: source.id.clone(),
            policy: Some(pb::Policy {
                max_message_count: Some(10),
                keep_recent_turns: Some(1),
                ..Default::default()
            }),
            ..Default::default()
        }),
        update_mask: Some(prost_types::FieldMask {
            paths: vec!["policy".into()],
        }),
        ..Default::default()
    };
    app.conversations()
        .update_conversation(update)
        .await
        .expect("updates");
    // Forked before the source has its checkpoint.
    let fork = source.fork(0).await;
    assert!(fork.checkpoints().await.is_empty());
    app.run_jobs_until_idle().await;
    assert_eq!(fork.checkpoints().await.len(), 1);
    fork.verify().await;
}

#[tokio::test]
async fn a_fork_counts_in_what_its_tenant_has_stored() {
    let app = TestApp::start().await;
    let source = conversation_of_turns(&app, 2).await;
    source.withdraw(&[1]).await;
    let before = usage(&app).await;
    let fork = source.fork(3).await;
    let after = usage(&app).await;
    assert_eq!(after.messages, before.messages + 3);
    let texts = fork.texts_by_role().await;
    let bytes: usize = texts.iter().map(|(_, text)| text.len()).sum();
    let added = after.content_bytes - before.content_bytes;
    assert!(
        added >= bytes as u64 && added < 200 + bytes as u64,
        "{added} for {bytes} bytes of text"
    );
    delete(&fork).await;
    assert_eq!(usage(&app).await, before);
}
