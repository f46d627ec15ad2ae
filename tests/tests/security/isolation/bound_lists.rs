//! Filters of lists show a bound key nothing that is foreign to it.

use anneal_core::caller::Bound;
use anneal_testkit::pb;
use pb::conversation_service_client::ConversationServiceClient;

use crate::isolation::bound_keys::{Firm, Kind};

type Conversations = ConversationServiceClient<anneal_testkit::AuthorizedChannel>;

async fn list(caller: &mut Conversations, ask: pb::ListConversationsRequest) -> Vec<String> {
    let listed = caller.list_conversations(ask).await.expect("lists");
    let listed = listed.into_inner();
    assert_eq!(listed.next_page_token, "");
    let ids = listed.conversations.into_iter();
    ids.map(|one| one.conversation_id).collect()
}

/// Gives a conversation this title, and pins it.
async fn pin(caller: &mut Conversations, id: &str, title: &str) {
    let conversation = pb::Conversation {
        conversation_id: id.to_owned(),
        title: title.to_owned(),
        pinned: true,
        ..Default::default()
    };
    let ask = pb::UpdateConversationRequest {
        conversation: Some(conversation),
        update_mask: Some(prost_types::FieldMask {
            paths: vec!["title".into(), "pinned".into()],
        }),
        ..Default::default()
    };
    caller.update_conversation(ask).await.expect("updates");
}

async fn fork(caller: &mut Conversations, id: &str) -> String {
    let ask = pb::ForkConversationRequest {
        conversation_id: id.to_owned(),
        ..Default::default()
    };
    let forked = caller.fork_conversation(ask).await.expect("forks");
    forked.into_inner().conversation_id
}

#[tokio::test]
async fn every_filter_of_a_list_leaves_out_what_is_foreign_to_a_bound_key() {
    let firm = Firm::start().await;
    let mut whole = ConversationServiceClient::new(firm.whole.clone());
    let own = firm.create_own().await;
    pin(&mut whole, &own, "The harbor").await;
    pin(&mut whole, &firm.foreign, "The secret harbor").await;
    let (own_fork, _) = (
        fork(&mut whole, &own).await,
        fork(&mut whole, &firm.foreign).await,
    );
    for kind in Kind::ALL {
        let mut caller = ConversationServiceClient::new(firm.bound(kind.bound(&own)).await);
        let titled = |text: &str| pb::ListConversationsRequest {
            title_contains: text.into(),
            ..Default::default()
        };
        let pinned = |user: &str, agent: &str| pb::ListConversationsRequest {
            pinned_only: true,
            user_id: user.into(),
            agent_id: agent.into(),
            ..Default::default()
        };
        let forks_of = |id: &str| pb::ListConversationsRequest {
            forked_from_conversation_id: id.into(),
            ..Default::default()
        };
        let harbors = list(&mut caller, titled("HARBOR")).await;
        assert!(harbors.contains(&own), "{kind:?} {harbors:?}");
        assert!(!harbors.contains(&firm.foreign), "{kind:?} {harbors:?}");
        for ask in [titled("secret"), pinned("bert", ""), pinned("", "b")] {
            assert_eq!(
                list(&mut caller, ask.clone()).await,
                [""; 0],
                "{kind:?} {ask:?}"
            );
        }
        for ask in [pinned("", ""), pinned("anna", ""), pinned("", "a")] {
            assert_eq!(
                list(&mut caller, ask.clone()).await,
                [own.as_str()],
                "{kind:?} {ask:?}"
            );
        }
        assert_eq!(
            list(&mut caller, forks_of(&firm.foreign)).await,
            [""; 0],
            "{kind:?}"
        );
        let expected: &[&str] = match kind.bound(&own) {
            Bound::Conversation(_) => &[],
            Bound::User(_) | Bound::Agent(_) => &[own_fork.as_str()],
        };
        assert_eq!(
            list(&mut caller, forks_of(&own)).await,
            expected,
            "{kind:?}"
        );
    }
}
