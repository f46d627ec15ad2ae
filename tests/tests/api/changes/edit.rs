//! An edited message has its new content under its id, everywhere.

use anneal_core::caller::{Caller, TenantId};
use anneal_testkit::{
    Gate, Say, Script, ScriptedModel, TestApp, TestConversation, TurnOutcome, assert_refused,
    assistant, call, message, pb, prose, result, user,
};
use pb::{BoundaryKind, BreakReason, conversation_event::Event, part::Part};
use tonic::Code;

use super::{
    conversation_of_turns, conversation_with_checkpoints, conversation_with_tools, ids,
    listed_tokens, marked_text, question, turns_by_id,
};

/// The caller of the store functions.
const CALLER: Caller = Caller::of(TenantId::DEFAULT);

#[tokio::test]
async fn an_edited_message_keeps_its_id_and_everything_shows_its_new_content() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 2).await;
    let (before, messages) = (
        conversation.conversation().await,
        conversation.messages().await,
    );
    let turns = turns_by_id(&conversation).await;
    let change = conversation.edit(3, user("Something else?")).await;
    assert!(change.change_id > 0 && !change.replayed, "{change:?}");
    assert_eq!(ids(&change.changed), [(3, 3)]);
    assert_eq!((change.version, change.withdrawn_messages), (2, 0));
    assert!(change.void_checkpoints.is_empty(), "{change:?}");
    assert_eq!(change.boundary_kind(), BoundaryKind::Unspecified);

    let edited = conversation.message(3).await;
    assert_eq!(edited.parts, user("Something else?").parts);
    assert_eq!((edited.version, edited.text_bytes), (2, 15));
    assert_eq!(edited.created_time, messages[2].created_time);
    let moment = |time: Option<prost_types::Timestamp>| time.map(|time| (time.seconds, time.nanos));
    assert!(
        moment(edited.edited_time) > moment(edited.created_time),
        "{edited:?}"
    );
    assert_eq!(edited.withdrawn_time, None);
    let mut expected = messages.clone();
    expected[2] = edited;
    assert_eq!(
        conversation.messages().await,
        expected,
        "no other message has changed"
    );
    assert!(messages.iter().all(|message| message.version == 1));
    assert!(messages.iter().all(|message| message.edited_time.is_none()));
    assert_eq!(turns_by_id(&conversation).await, turns);

    let told = app.conversation().await;
    told.turn(&question(1), "Answer number 1.").await;
    told.turn("Something else?", "Answer number 2.").await;
    assert_eq!(
        conversation.context().await.texts_by_role(),
        told.context().await.texts_by_role()
    );
    assert_eq!(
        conversation.usage().await,
        told.usage().await,
        "the usage is that of a conversation which was only told the new content"
    );
    let after = conversation.conversation().await;
    assert_eq!(after.token_total, told.conversation().await.token_total);
    assert_eq!(change.token_total, after.token_total);
    assert_eq!(
        (after.message_count, after.turn, &after.title),
        (before.message_count, before.turn, &before.title)
    );
    assert_ne!(after.etag, before.etag);
    assert_eq!(change.etag, after.etag);
    conversation.verify().await;
}

#[tokio::test]
async fn an_edit_replaces_the_labels_unless_they_are_kept() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 1).await;
    let labelled = |value: &str| pb::NewMessage {
        metadata: [("source".to_owned(), value.to_owned())].into(),
        ..user("Labelled.")
    };
    for (version, value) in [(2, "web"), (3, "mail")] {
        let change = conversation.edit(1, labelled(value)).await;
        assert_eq!(change.version, version);
        let edited = conversation.message(1).await;
        assert_eq!(edited.metadata, labelled(value).metadata);
        assert_eq!(edited.parts, user("Labelled.").parts);
    }
    let change = conversation.edit(1, user("Kept.")).keep_metadata().await;
    assert_eq!(change.version, 4);
    let kept = conversation.message(1).await;
    assert_eq!(
        (kept.metadata, kept.parts),
        (labelled("mail").metadata, user("Kept.").parts)
    );
    let nothing = conversation.edit(1, user("Kept.")).keep_metadata().await;
    assert_eq!(nothing.change_id, 0);
    let both = conversation.edit(1, labelled("web")).keep_metadata().send();
    assert_refused(
        both.await,
        Code::InvalidArgument,
        "INVALID_FIELD",
        "message.metadata",
    );
    conversation.edit(1, user("Kept.")).await;
    assert!(conversation.message(1).await.metadata.is_empty());
    conversation.verify().await;
}

/// The same message with this label.
fn relabelled(message: pb::Message, value: &str) -> pb::NewMessage {
    pb::NewMessage {
        metadata: [("reaction".to_owned(), value.to_owned())].into(),
        ..message.into()
    }
}

#[tokio::test]
async fn an_edit_of_labels_alone_leaves_checkpoints_and_contexts_as_they_are() {
    let app = TestApp::start().await;
    let (conversation, [older, newer]) = conversation_with_checkpoints(&app).await;
    let (before, checkpoints, context) = (
        conversation.conversation().await,
        conversation.checkpoints().await,
        conversation.context().await,
    );
    let mut watch = conversation.watch().await;
    // Messages in both checkpoints, in one, and in none.
    for id in [1, older + 1, before.message_count] {
        let new = relabelled(conversation.message(id).await, "up");
        let labels = new.metadata.clone();
        let edit = conversation.edit(id, new).request_id(&format!("up {id}"));
        let change = edit.await;
        assert_eq!((ids(&change.changed), change.version), (vec![(id, id)], 2));
        assert!(change.void_checkpoints.is_empty(), "{change:?}");
        assert_eq!(
            (change.boundary_message_id, change.token_total),
            (newer, before.token_total)
        );
        let edited = conversation.message(id).await;
        assert_eq!((edited.version, edited.metadata), (2, labels));
        let versions = conversation.versions(id).await;
        assert_eq!(versions.len(), 2, "the labels before are kept");
        let event = pb::MessageEdited {
            message_id: id,
            version: 2,
            change_id: change.change_id,
        };
        assert_eq!(watch.next().await, Event::MessageChanged(event));
        let after = conversation.conversation().await;
        assert!(after.etag != before.etag && after.etag == change.etag);
    }
    assert_eq!(conversation.checkpoints().await, checkpoints);
    assert_eq!(conversation.checkpoints_with_void().await, checkpoints);
    let built = conversation.context().await;
    assert_eq!(built.0.cache_break, None);
    assert_eq!(built.0.prefix_hash, context.0.prefix_hash);
    conversation.verify().await;
}

#[tokio::test]
async fn an_edit_of_labels_alone_keeps_the_summary_and_the_count() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app
        .conversation_with_policy(pb::Policy {
            large_message_threshold: Some(200),
            large_summaries: pb::LargeSummaries::Eager.into(),
            ..Default::default()
        })
        .await;
    conversation.turn(&prose(1, 40), "I have read it.").await;
    app.run_jobs_until_idle().await;
    conversation.turn("Uncounted?", "Yes.").await;
    let before = [conversation.message(1).await, conversation.message(3).await];
    assert!(before[0].summary.is_some());
    assert!(before[1].tokens.expect("tokens").estimated);
    for old in &before {
        let id = old.message_id;
        conversation.edit(id, relabelled(old.clone(), "up")).await;
        let edited = conversation.message(id).await;
        assert_eq!((&edited.summary, edited.tokens), (&old.summary, old.tokens));
    }
    assert_usage_is_exact(&app, "after the edits").await;
    app.run_jobs_until_idle().await;
    assert!(
        !conversation
            .message(3)
            .await
            .tokens
            .expect("tokens")
            .estimated
    );
    assert_usage_is_exact(&app, "after the jobs").await;
    conversation.verify().await;
}

#[tokio::test]
async fn a_running_turn_survives_an_edit_of_labels_and_no_edit_of_content() {
    for keeps_content in [true, false] {
        let gate = Gate::default();
        let model = ScriptedModel::start({
            let gate = gate.clone();
            move |request| Script::says(request, [Say::text("Yes.")]).after(&gate)
        })
        .await;
        let app = TestApp::with_scripted_model_without_timeouts(&model).await;
        let conversation = conversation_of_turns(&app, 1).await;
        let stream = conversation.chat("Is it so?").open().await.expect("begins");
        model.wait_for_calls(1).await;
        let mut new = relabelled(conversation.message(1).await, "up");
        if !keeps_content {
            new.parts = user("Something else?").parts;
        }
        conversation.edit(1, new).await;
        gate.open_for_ever();
        let answered = TurnOutcome::read(stream).await;
        if keeps_content {
            assert_eq!(answered.done().message_ids, [3, 4]);
        } else {
            assert_refused(answered.end, Code::Unavailable, "MODEL_UNAVAILABLE", "");
        }
        conversation.verify().await;
    }
}

#[tokio::test]
async fn an_edit_by_what_the_message_holds_changes_nothing() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 1).await;
    let nothing = async |version: i32, request_id: &str| {
        let (before, message) = (
            conversation.conversation().await,
            conversation.message(1).await,
        );
        let same = pb::NewMessage::from(message.clone());
        let edited = conversation.edit(1, same).request_id(request_id).await;
        assert_eq!(
            (edited.change_id, edited.changed.len(), edited.version),
            (0, 0, version)
        );
        assert_eq!(conversation.conversation().await, before);
        assert_eq!(conversation.message(1).await, message);
    };
    nothing(1, "").await;
    nothing(1, "first").await;
    conversation.edit(1, user("Something else?")).await;
    nothing(2, "second").await;
    // The repeated call still has nothing to change, and answers with the version of now.
    let again = conversation
        .edit(1, user(&question(1)))
        .request_id("first")
        .await;
    assert_eq!(
        (again.change_id, again.replayed, again.version),
        (0, true, 2)
    );
    assert_eq!(conversation.versions(1).await.len(), 2);
}

#[tokio::test]
async fn edits_that_a_message_cannot_take_are_refused() {
    let app = TestApp::start().await;
    let conversation = conversation_with_tools(&app).await;
    let before = conversation.messages().await;
    let invalid = |field| (Code::InvalidArgument, "INVALID_FIELD", field);
    let two_calls = message(
        pb::Role::Assistant,
        ["one", "two"]
            .map(|id| {
                Part::ToolUse(pb::ToolUsePart {
                    id: id.into(),
                    name: "look".into(),
                    input: "{}".into(),
                })
            })
            .to_vec(),
    );
    for (id, new, (code, reason, field)) in [
        (1, assistant("I am another."), invalid("message.role")),
        (1, result("one", "x"), invalid("message.role")),
        (2, assistant("The call is gone."), invalid("message.parts")),
        (2, call("two", "{}"), invalid("message.parts")),
        (2, two_calls, invalid("message.parts")),
        (
            3,
            result("two", "Of another call."),
            invalid("message.parts"),
        ),
        (4, call("three", "{}"), invalid("message.parts")),
        (
            9,
            user("Nobody."),
            (Code::NotFound, "MESSAGE_NOT_FOUND", "message_id"),
        ),
    ] {
        let refused = conversation.edit(id, new).send().await;
        assert_refused(refused, code, reason, field);
    }
    assert_eq!(conversation.messages().await, before);

    conversation.withdraw(&[2]).keep_tool_pairs_apart().await;
    for (id, new, reason, field) in [
        (2, call("one", "{}"), "MESSAGE_WITHDRAWN", "message_id"),
        (
            3,
            result("one", "Without a call."),
            "TOOL_CALL_MISSING",
            "message.parts",
        ),
    ] {
        let refused = conversation.edit(id, new).send().await;
        assert_refused(refused, Code::FailedPrecondition, reason, field);
    }
    conversation.restore(&[2]).await;
    assert_eq!(conversation.messages().await, before);
    conversation.verify().await;
}

#[tokio::test]
async fn a_call_and_its_result_are_edited_one_by_one_and_stay_a_pair() {
    let app = TestApp::start().await;
    let conversation = conversation_with_tools(&app).await;
    conversation.edit(2, call("one", "{\"deep\":true}")).await;
    conversation
        .edit(3, result("one", "Something better."))
        .await;
    let built = conversation.context().await;
    built.assert_tools_paired();
    assert!(built.repairs().is_empty(), "{:?}", built.repairs());
    assert!(built.text().contains("Something better."));
    // They are still withdrawn together.
    let change = conversation.withdraw(&[3]).await;
    assert_eq!(ids(&change.changed), [(2, 3)]);
    conversation.restore(&[3]).await;
    assert_eq!(
        conversation.message(3).await.parts,
        result("one", "Something better.").parts
    );
    conversation.verify().await;
}

#[tokio::test]
async fn a_cache_break_names_the_edit_and_its_place_once() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 3).await;
    let first = conversation.context().await;
    conversation.edit(4, assistant("Another answer.")).await;
    let built = conversation.context().await;
    let broken = built.0.cache_break.as_ref().expect("a break");
    assert_eq!(
        (broken.reason(), broken.at_message_id),
        (BreakReason::Edit, 4)
    );
    assert_ne!(built.0.prefix_hash, first.0.prefix_hash);
    let again = conversation.context().await;
    assert_eq!(again.0.cache_break, None);
    assert_eq!(again.0.prefix_hash, built.0.prefix_hash);
}

#[tokio::test]
async fn checkpoints_whose_range_holds_an_edited_message_no_longer_hold() {
    let app = TestApp::start().await;
    let (conversation, [older, newer]) = conversation_with_checkpoints(&app).await;
    let newest = conversation.conversation().await.message_count;

    // A message of the tail is in no checkpoint's range.
    let change = conversation.edit(newest, assistant("The last word.")).await;
    assert!(change.void_checkpoints.is_empty(), "{change:?}");
    assert_eq!(change.boundary_message_id, newer);

    let edited = older + 1;
    let change = conversation.edit(edited, user("All new.")).await;
    assert_eq!(ids(&change.void_checkpoints), [(1, newer)]);
    assert_eq!(
        (change.boundary_message_id, change.boundary_kind()),
        (older, BoundaryKind::Checkpoint),
        "contexts start after the newest checkpoint that holds"
    );
    let text = conversation.context().await.text();
    assert!(text.contains("All new.") && !text.contains(&marked_text(edited)));
    conversation.verify().await;
    let change = conversation.edit(1, user("All new from the start.")).await;
    assert_eq!(ids(&change.void_checkpoints), [(1, older)]);
    app.run_jobs_until_idle().await;
    let checkpoints = conversation.checkpoints().await;
    assert_eq!(checkpoints.len(), 1, "a checkpoint is made of what stands");
    for id in [1, edited, newest] {
        let mark = format!("mark{id}x");
        assert!(!checkpoints[0].summary.contains(&mark), "message {id}");
    }
    conversation.verify().await;
}

#[tokio::test]
async fn the_summary_of_an_edited_message_is_made_of_its_new_content() {
    let app = TestApp::start().await;
    let conversation = app
        .conversation_with_policy(pb::Policy {
            large_message_threshold: Some(200),
            large_summaries: pb::LargeSummaries::Eager.into(),
            ..Default::default()
        })
        .await;
    conversation.turn(&prose(1, 40), "I have read it.").await;
    app.run_jobs_until_idle().await;
    let text = |message: &pb::Message| message.summary.as_ref().map(|one| one.text.clone());
    let before = text(&conversation.message(1).await);
    conversation.edit(1, user(&prose(200, 40))).await;
    assert_eq!(conversation.message(1).await.summary, None);
    app.run_jobs_until_idle().await;
    let after = text(&conversation.message(1).await);
    assert!(after.is_some() && after != before, "{after:?}");
    conversation.edit(1, user("No longer large.")).await;
    app.run_jobs_until_idle().await;
    assert_eq!(conversation.message(1).await.summary, None);
    conversation.verify().await;
}

#[tokio::test]
async fn a_title_follows_the_first_question_unless_a_caller_has_set_it() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 2).await;
    let title = async || conversation.conversation().await.title;
    conversation.edit(3, user("The second one?")).await;
    assert_eq!(title().await, question(1));
    conversation.edit(1, user("The first one?")).await;
    assert_eq!(title().await, "The first one?");

    let named = app
        .conversation_with(pb::CreateConversationRequest {
            title: "Mine".into(),
            ..Default::default()
        })
        .await;
    named.turn("Yours?", "No.").await;
    named.edit(1, user("Ours?")).await;
    assert_eq!(named.conversation().await.title, "Mine");
}

/// Bytes of content that the tenant has stored, as its usage says and as the rows have them.
async fn stored_bytes(app: &TestApp) -> (u64, i64) {
    let sum = "select (select coalesce(sum(content_bytes), 0) from ai_message where token_count is not null)::bigint
            + (select coalesce(sum(content_bytes), 0) from ai_message_version)::bigint";
    let rows: i64 = sqlx::query_scalar(sum)
        .fetch_one(&mut app.db().await)
        .await
        .expect("sums");
    let usage = app.store.read_tenant_usage(CALLER).await.expect("reads");
    (usage.content_bytes, rows)
}

async fn assert_usage_is_exact(app: &TestApp, when: &str) {
    let (usage, rows) = stored_bytes(app).await;
    assert_eq!(i64::try_from(usage), Ok(rows), "{when}");
}

async fn delete(conversation: &TestConversation<'_>) {
    let ask = pb::DeleteConversationRequest {
        conversation_id: conversation.id.clone(),
        ..Default::default()
    };
    let mut conversations = conversation.app.conversations();
    conversations
        .delete_conversation(ask)
        .await
        .expect("deletes");
}

#[tokio::test]
async fn an_edited_message_is_counted_whether_it_was_counted_before_or_not() {
    let app = TestApp::counted_by_workers().await;
    let conversation = app.conversation().await;
    conversation.turn(&prose(1, 9), "Yes.").await;
    app.run_jobs_until_idle().await;
    conversation.turn(&prose(1, 9), "No.").await;
    assert_usage_is_exact(&app, "before").await;
    let counted = conversation.edit(1, user(&prose(50, 5))).await;
    let uncounted = conversation.edit(3, user(&prose(50, 5))).await;
    assert_usage_is_exact(&app, "after the edits").await;
    let messages = conversation.messages().await;
    let estimated = |index: usize| messages[index].tokens.expect("tokens").estimated;
    assert_eq!((estimated(0), estimated(2)), (false, true));
    let tokens = |index: usize| messages[index].tokens.expect("tokens").tokens;
    assert_eq!(
        tokens(0),
        tokens(2),
        "the estimate is the count of the server"
    );
    let total = uncounted.token_total.expect("a total");
    assert_eq!(
        (total.tokens, total.estimated_messages),
        (listed_tokens(&conversation).await, 2)
    );
    assert_eq!(counted.token_total.expect("a total").estimated_messages, 2);
    conversation.verify().await;
    app.run_jobs_until_idle().await;
    let counted = conversation.message(3).await.tokens.expect("tokens");
    assert_eq!((counted.tokens, counted.estimated), (tokens(0), false));
    assert_usage_is_exact(&app, "after the jobs").await;
    conversation.verify().await;
    delete(&conversation).await;
    assert_eq!(stored_bytes(&app).await, (0, 0));
}

#[tokio::test]
async fn a_repeated_edit_is_answered_like_the_first_and_does_nothing() {
    let app = TestApp::start().await;
    let (conversation, _) = conversation_with_checkpoints(&app).await;
    let edit = || conversation.edit(1, user("New.")).request_id("e");
    let first = edit().await;
    assert_eq!(first.void_checkpoints.len(), 2);
    conversation.edit(1, user("Newer.")).await;
    let before = conversation.conversation().await;
    let again = edit().expecting(1).expecting_version(1).await;
    assert_eq!(
        (again.change_id, &again.changed, again.replayed),
        (first.change_id, &first.changed, true)
    );
    assert_eq!(
        (again.version, ids(&again.void_checkpoints)),
        (2, ids(&first.void_checkpoints)),
        "the version is the one that the first call has stored"
    );
    assert_eq!(
        (again.token_total, &again.etag),
        (before.token_total, &before.etag),
        "the figures are those of now"
    );
    assert_eq!(conversation.message(1).await.parts, user("Newer.").parts);
    for other in [
        conversation.edit(1, user("Other.")),
        conversation.edit(3, user("New.")),
    ] {
        let refused = other.request_id("e").send().await;
        assert_refused(refused, Code::AlreadyExists, "REQUEST_ID_REUSED", "");
    }
    // Request ids of other changes are other ids.
    conversation.withdraw(&[3]).request_id("e").await;
    conversation.verify().await;
}

#[tokio::test]
async fn an_edit_that_expects_another_state_is_refused() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 1).await;
    let etag = conversation.conversation().await.etag;
    conversation
        .edit(1, user("New."))
        .expecting_version(1)
        .await;
    let edit = || conversation.edit(1, user("Newer."));
    for (request, reason) in [
        (edit().expecting_version(1), "VERSION_MISMATCH"),
        (edit().expecting_version(3), "VERSION_MISMATCH"),
        (edit().expecting(1), "LAST_MESSAGE_MISMATCH"),
        (edit().etag(&etag), "ETAG_MISMATCH"),
    ] {
        let refused = request.send().await;
        assert_refused(refused, Code::Aborted, reason, "");
    }
    assert_eq!(conversation.message(1).await.version, 2);
    let etag = conversation.conversation().await.etag;
    let change = edit().expecting_version(2).expecting(2).etag(&etag).await;
    assert_eq!(change.version, 3);
}
