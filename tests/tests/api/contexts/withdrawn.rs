//! Contexts after messages were withdrawn, rewound or restored: nothing that is withdrawn is sent, a
//! break of the provider's cache names the change, and a context that was read before a change is
//! built again.

use anneal_core::{
    caller::{Caller, ConversationId, TenantId},
    context::{self, Ask, NewVersion},
    policy::PolicyOverrides,
};
use anneal_store::{ContentRead, InputTurns, ReadBudget, StoredPolicy};
use anneal_testkit::{
    Built, TestApp, TestConversation, assistant, call, pb, prose, result, sentence, user,
};
use pb::{BoundaryKind, BreakReason, Format, Reason, RepairKind, Representation, Role};

use crate::contexts::FORMATS;

/// How the manifest reports a withdrawn message of the tail.
pub(super) const WITHDRAWN: (Representation, Reason) =
    (Representation::Withdrawn, Reason::Withdrawn);

/// The caller of the store functions.
const CALLER: Caller = Caller::of(TenantId::DEFAULT);

/// The reason and the place of a context's cache break.
fn cache_break(built: &Built) -> Option<(BreakReason, i64)> {
    let broken = built.0.cache_break.as_ref()?;
    Some((broken.reason(), broken.at_message_id))
}

/// Creates a conversation of this many turns, counted. The text of message 3 contains `message-3`.
async fn conversation_of_turns(app: &TestApp, turns: usize) -> TestConversation<'_> {
    let conversation = app.conversation().await;
    append_turns(&conversation, 1, turns).await;
    conversation
}

/// Appends turns, of which the first message has the id `first`, and runs the jobs.
async fn append_turns(conversation: &TestConversation<'_>, first: usize, turns: usize) {
    for n in (first..).step_by(2).take(turns) {
        let [asked, answered] = [n, n + 1].map(|id| format!("message-{id}: {}", sentence(id)));
        conversation.turn(&asked, &answered).await;
    }
    conversation.app.run_jobs_until_idle().await;
}

#[tokio::test]
async fn a_cache_break_names_the_withdrawal_and_its_place_once() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 4).await;
    let first = conversation.context().await;
    conversation.withdraw(&[6]).await;
    let built = conversation.context().await;
    assert_eq!(cache_break(&built), Some((BreakReason::Withdrawal, 6)));
    assert_eq!(built.0.prefix_stable_until, 5);
    assert_ne!(built.0.prefix_hash, first.0.prefix_hash);
    assert_eq!(built.representation(6), WITHDRAWN);
    assert!(!built.text().contains("message-6"), "{}", built.text());
    built.assert_covers(8);
    let again = conversation.context().await;
    assert_eq!(cache_break(&again), None);
    assert_eq!(again.0.prefix_hash, built.0.prefix_hash);
    conversation.withdraw(&[8]).await;
    conversation.withdraw(&[3]).await;
    assert_eq!(
        cache_break(&conversation.context().await),
        Some((BreakReason::Withdrawal, 3)),
        "both changes are one break, at the first changed message"
    );
    conversation.restore(&[3, 6, 8]).await;
    let restored = conversation.context().await;
    assert_eq!(cache_break(&restored), Some((BreakReason::Withdrawal, 3)));
    assert_eq!(restored.0.messages, first.0.messages);
    assert_eq!(restored.0.manifest, first.0.manifest);
    conversation.verify().await;
}

#[tokio::test]
async fn a_change_before_the_first_context_breaks_nothing() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 2).await;
    conversation.withdraw(&[4]).await;
    conversation.withdraw(&[2]).await;
    let first = conversation.context().await;
    assert_eq!(cache_break(&first), None);
    conversation.turn("And now?", "Now this.").await;
    let second = conversation.context().await;
    assert_eq!(cache_break(&second), None);
    assert_eq!(second.0.prefix_hash, first.0.prefix_hash);
}

#[tokio::test]
async fn a_change_before_the_last_separator_breaks_nothing_until_the_separator_is_deleted() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 2).await;
    let separator = conversation.insert_separator().await.after_message_id;
    append_turns(&conversation, 5, 1).await;
    let separated = conversation.context().await;
    conversation.withdraw(&[2]).await;
    let built = conversation.context().await;
    assert_eq!(cache_break(&built), None);
    assert_eq!(built.0.prefix_hash, separated.0.prefix_hash);
    conversation.delete_separator(separator).await;
    let whole = conversation.context().await;
    assert_eq!(cache_break(&whole), Some((BreakReason::Separator, 0)));
    assert_eq!(whole.representation(2), WITHDRAWN);
    assert!(!whole.text().contains("message-2"), "{}", whole.text());
}

#[tokio::test]
async fn a_change_between_a_new_separator_and_its_deletion_changes_the_hash() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 2).await;
    let before = conversation.context().await;
    let separator = conversation.insert_separator().await.after_message_id;
    conversation.withdraw(&[2]).await;
    conversation.delete_separator(separator).await;
    let after = conversation.context().await;
    assert_ne!(after.0.prefix_hash, before.0.prefix_hash);
    assert_eq!(cache_break(&after), Some((BreakReason::Withdrawal, 2)));
}

#[tokio::test]
async fn a_withdrawn_message_before_the_boundary_takes_the_summary_out_of_contexts() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        max_message_count: Some(10),
        keep_recent_turns: Some(2),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    append_turns(&conversation, 1, 5).await;
    let with_summary = conversation.context().await;
    assert_eq!(with_summary.0.boundary_message_id, 6);
    let change = conversation.withdraw(&[3]).await;
    assert_eq!(change.void_checkpoints.len(), 1, "{change:?}");
    let built = conversation.context().await;
    assert_eq!(
        (built.0.boundary_kind(), built.0.boundary_message_id),
        (BoundaryKind::Unspecified, 0)
    );
    assert_eq!(cache_break(&built), Some((BreakReason::Withdrawal, 0)));
    assert_eq!(built.0.prefix_stable_until, 0);
    built.assert_covers(10);
    append_turns(&conversation, 11, 1).await;
    let summarized = conversation.context().await;
    assert_eq!(summarized.0.boundary_kind(), BoundaryKind::Checkpoint);
    for built in [built, summarized] {
        assert!(built.text().contains("message-10"), "{}", built.text());
        assert!(!built.text().contains("message-3"), "{}", built.text());
    }
    conversation.verify().await;
}

#[tokio::test]
async fn a_call_and_its_result_that_are_kept_apart_are_repaired_and_reported() {
    let app = TestApp::start().await;
    let conversation = app.conversation().await;
    conversation
        .append_all(vec![
            user("Look."),
            call("c1", "{}"),
            result("c1", "It is there."),
            assistant("It is there, I see."),
        ])
        .await;
    conversation.withdraw(&[3]).keep_tool_pairs_apart().await;
    let built = conversation.context().await;
    assert_eq!(built.repairs(), [(RepairKind::ResultAdded, 2)]);
    assert_eq!(built.representation(3), WITHDRAWN);
    built.assert_tools_paired();
    conversation.restore(&[3]).await;
    conversation.withdraw(&[2]).keep_tool_pairs_apart().await;
    let built = conversation.context().await;
    assert_eq!(built.repairs(), [(RepairKind::ResultDropped, 3)]);
    assert_eq!(
        built.representation(3),
        (Representation::Repaired, Reason::ResultWithoutCall)
    );
    conversation.restore(&[2]).await;
    conversation.withdraw(&[3]).await;
    let built = conversation.context().await;
    assert!(built.repairs().is_empty(), "{:?}", built.repairs());
    assert_eq!(
        [2, 3].map(|id| built.representation(id)),
        [WITHDRAWN; 2],
        "a result takes its call along"
    );
}

#[tokio::test]
async fn a_conversation_of_withdrawn_messages_alone_has_the_contexts_of_an_empty_one() {
    let app = TestApp::start().await;
    let (conversation, empty) = (
        conversation_of_turns(&app, 2).await,
        app.conversation().await,
    );
    conversation.rewind(0).await;
    for format in FORMATS {
        let (built, wanted) = (
            preview(&conversation, format).await,
            preview(&empty, format).await,
        );
        built.assert_covers(4);
        assert_eq!(
            (&built.0.rendered, &built.0.messages),
            (&wanted.0.rendered, &wanted.0.messages)
        );
        assert_eq!(built.0.current_turn, 0);
    }
    conversation.append("message-5.").await;
    let built = conversation.context().await;
    assert_eq!(built.0.current_turn, 1);
    assert_eq!(
        built.texts_by_role(),
        [(Role::User, "message-5.".to_owned())]
    );
}

#[tokio::test]
async fn a_large_message_cools_by_the_turns_that_are_left() {
    let app = TestApp::start().await;
    let policy = pb::Policy {
        large_message_threshold: Some(200),
        hot_zone_radius: Some(1),
        ..Default::default()
    };
    let conversation = app.conversation_with_policy(policy).await;
    conversation.turn(&prose(0, 60), "Read.").await;
    append_turns(&conversation, 3, 2).await;
    assert_eq!(
        conversation.context().await.representation(1),
        (Representation::Summary, Reason::Cool)
    );
    conversation.rewind(4).await;
    let built = conversation.context().await;
    assert_eq!(
        built.representation(1),
        (Representation::Original, Reason::Hot)
    );
    assert_eq!(cache_break(&built), Some((BreakReason::Swap, 1)));
    append_turns(&conversation, 7, 1).await;
    assert_eq!(
        conversation.context().await.representation(1),
        (Representation::Summary, Reason::Cool)
    );
}

/// Builds a context from the stored conversation, as BuildContext does, and returns the version to
/// record.
async fn read_and_build(app: &TestApp, id: ConversationId) -> NewVersion {
    let read = app
        .store
        .read_context_material(
            CALLER,
            id,
            InputTurns::default(),
            &PolicyOverrides::default(),
            &StoredPolicy::default(),
            &ReadBudget::unlimited(),
        )
        .await
        .expect("reads");
    let ContentRead::Read { value: rows, .. } = read else {
        panic!("the read has no limit");
    };
    let material = rows.into_material().expect("the rows can be read");
    let context = context::build(material, Ask::default()).expect("the context has no budget");
    context.prefix.new_version.expect("a version to record")
}

#[tokio::test]
async fn a_version_of_a_context_that_was_read_before_a_change_is_not_recorded() {
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 3).await;
    let id = ConversationId(conversation.uuid());
    let record = async |version: &NewVersion| {
        let recorded = app.store.record_prefix(CALLER, id, version).await;
        recorded.expect("the statement succeeds")
    };
    // No version is recorded before the first change, and none between the changes.
    for changed in [6, 5] {
        let before = read_and_build(&app, id).await;
        conversation.withdraw(&[changed]).await;
        assert!(!record(&before).await, "after a withdrawal of {changed}");
    }
    let first = read_and_build(&app, id).await;
    assert!(record(&first).await);
    conversation.withdraw(&[4]).await;
    let before = read_and_build(&app, id).await;
    conversation.restore(&[4]).await;
    assert!(!record(&before).await, "after a restoration");
    let newest = read_and_build(&app, id).await;
    assert!(record(&newest).await);
    assert!(!record(&newest).await, "it is recorded already");
}

#[tokio::test]
async fn a_context_that_was_read_before_a_change_is_built_again() {
    // A change in the test's own transaction: message 4 is withdrawn, and the mark is set.
    const WITHDRAW: &str = "update ai_message
        set content = '[]', content_digest = sha256('[]'), content_bytes = 0, text_bytes = 0, token_estimate = 0,
            token_count = 0, withdrawn_ts = now()
        where conversation_id = $1 and message_id = 4";
    const MARK: &str = "insert into ai_context_prefix (tenant_id, conversation_id, epoch, prefix_hash, boundary_message_id,
            system_prompt_digest, swapped_message_id, swapped_message_ids, cut, at_message_id, reason, broken_message_id,
            rewritten_tokens, saved_tokens, change_epoch)
        select tenant_id, conversation_id, 1, sha256(''), 0, sha256(''), 0, '{}', false, 4, 1, 4, 0, 0, 1
        from ai_conversation where conversation_id = $1";
    let app = TestApp::start().await;
    let conversation = conversation_of_turns(&app, 2).await;
    let mut change = app.hold_lock(WITHDRAW, conversation.uuid()).await;
    change.run(MARK, conversation.uuid()).await;
    let (built, ()) = tokio::join!(conversation.context(), async {
        app.wait_for_lock_waiters(1).await;
        change.commit().await;
    });
    assert_eq!(built.representation(4), WITHDRAWN);
    assert!(!built.text().contains("message-4"), "{}", built.text());
    let versions: i64 = sqlx::query_scalar("select count(*) from ai_context_prefix")
        .fetch_one(&mut app.db().await)
        .await
        .expect("counts");
    assert_eq!(versions, 2, "the mark, and the version of the second build");
}

/// Builds a context as a dry run.
pub(super) async fn preview(conversation: &TestConversation<'_>, format: Format) -> Built {
    conversation
        .build(pb::BuildContextRequest {
            format: format.into(),
            dry_run: true,
            ..Default::default()
        })
        .await
        .expect("builds")
}
