//! A key that is bound to a user, an agent or a conversation: every RPC answers what is foreign to
//! it like what is missing, and changes nothing of it. With what is its own, RPCs do as for a key
//! that is not bound. The list of RPCs comes from the descriptors, so that a new RPC is covered.

use std::collections::BTreeSet;

use anneal_core::caller::{Bound, BoundId, ConversationId, Verb};
use anneal_testkit::{
    AuthorizedChannel, MODEL, ScriptedModel, TestApp, assert_refused, assistant, call_raw,
    every_rpc, pb, status_details, user, valid_request,
};
use pb::{
    conversation_service_client::ConversationServiceClient,
    erasure_service_client::ErasureServiceClient, message_service_client::MessageServiceClient,
};
use sqlx::AssertSqlSafe;
use tonic::Code;
use uuid::Uuid;

use crate::isolation::{
    foreign_conversations::{Outcome, create_long_conversation, observe},
    unfiltered::{holds_secret, rows_of},
};

/// The tenant of all keys.
pub(crate) const TENANT: &str = "firm";

/// The kinds of bindings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    User,
    Agent,
    Conversation,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::User, Self::Agent, Self::Conversation];

    /// The binding to Anna, to the agent `a`, or to this conversation.
    pub(crate) fn bound(self, conversation_id: &str) -> Bound {
        let id = |text| BoundId::new(text).expect("an id");
        match self {
            Self::User => Bound::User(id("anna")),
            Self::Agent => Bound::Agent(id("a")),
            Self::Conversation => {
                let id = conversation_id.parse().expect("an id");
                Bound::Conversation(ConversationId(id))
            }
        }
    }
}

/// The attributes of a conversation of Anna with the agent `a`. Keys of each [`Kind`] see it.
fn annas() -> pb::CreateConversationRequest {
    pb::CreateConversationRequest {
        agent_id: "a".into(),
        user_id: "anna".into(),
        ..Default::default()
    }
}

/// A tenant with a conversation of Bert and his agent, which bound keys must not see.
pub(crate) struct Firm {
    pub(crate) app: TestApp,
    _model: ScriptedModel,
    /// A caller whose key is not bound.
    pub(crate) whole: AuthorizedChannel,
    /// Bert's conversation, with his agent `b`.
    pub(crate) foreign: String,
}

impl Firm {
    pub(crate) async fn start() -> Self {
        let model = ScriptedModel::saying("Quite so.").await;
        let app = TestApp::with_models_and_keys(model.settings(&[MODEL]), MODEL).await;
        let key = app.key(TENANT, &Verb::ALL).await;
        let whole = app.authorized_channel(&format!("Bearer {}", key.text));
        let berts = pb::CreateConversationRequest {
            agent_id: "b".into(),
            user_id: "bert".into(),
            title: "secret".into(),
            ..Default::default()
        };
        let foreign = create_long_conversation(&app, &whole, berts).await;
        Self {
            app,
            _model: model,
            whole,
            foreign,
        }
    }

    /// Creates a conversation of Anna with a question and an answer. Returns its id.
    pub(crate) async fn create_own(&self) -> String {
        let made = ConversationServiceClient::new(self.whole.clone())
            .create_conversation(annas())
            .await
            .expect("creates");
        let conversation_id = made.into_inner().conversation_id;
        let ask = pb::AppendMessagesRequest {
            conversation_id: conversation_id.clone(),
            messages: vec![user("What is mine?"), assistant("This.")],
            ..Default::default()
        };
        MessageServiceClient::new(self.whole.clone())
            .append_messages(ask)
            .await
            .expect("appends");
        conversation_id
    }

    /// A caller whose key is bound, and has every verb that it can have.
    pub(crate) async fn bound(&self, bound: Bound) -> AuthorizedChannel {
        let key = self.app.bound_key(TENANT, &Verb::ALL, bound).await;
        self.app.authorized_channel(&format!("Bearer {}", key.text))
    }

    /// The rows that belong to Bert's conversation.
    pub(crate) async fn berts_rows(&self) -> Vec<String> {
        let tenant = self.app.tenant(TENANT).await.0;
        let rows = rows_of(&self.app, tenant).await;
        rows.into_iter()
            .flat_map(|(table, rows)| rows.into_iter().map(move |row| format!("{table} {row}")))
            .filter(|row| row.contains(&self.foreign))
            .collect()
    }
}

/// Calls an RPC. Returns the code and the reason of a refusal.
async fn refusal_of(channel: &AuthorizedChannel, path: &str, ask: Vec<u8>) -> (Code, String) {
    match call_raw(channel.clone(), path, ask).await {
        Ok(_) => (Code::Ok, String::new()),
        Err(status) => (status.code(), status_details(&status).reason),
    }
}

/// Calls every RPC that names a conversation, with Bert's and with one that does not exist.
async fn call_with_foreign_and_missing(
    firm: &Firm,
    caller: &AuthorizedChannel,
) -> Vec<(String, Outcome, Outcome)> {
    let mut outcomes = Vec::new();
    for rpc in every_rpc().into_iter().filter(|rpc| rpc.names_conversation) {
        let ask = |id: &str| valid_request(&rpc.name, id, "r");
        let foreign = observe(caller, &rpc.path, ask(&firm.foreign)).await;
        let missing = observe(caller, &rpc.path, ask(&Uuid::now_v7().to_string())).await;
        outcomes.push((rpc.name, foreign, missing));
    }
    outcomes
}

#[tokio::test]
async fn every_rpc_answers_what_is_foreign_to_a_bound_key_exactly_as_what_is_missing() {
    let firm = Firm::start().await;
    let before = firm.berts_rows().await;
    assert!(before.len() > 20, "{before:?}");
    for kind in Kind::ALL {
        let own = firm.create_own().await;
        let caller = firm.bound(kind.bound(&own)).await;
        let outcomes = call_with_foreign_and_missing(&firm, &caller).await;
        assert!(outcomes.len() >= 20, "{} calls", outcomes.len());
        for (rpc, foreign, missing) in outcomes {
            assert_eq!(foreign, missing, "{kind:?} {rpc}");
            assert!(!holds_secret(&foreign), "{kind:?} {rpc}: {foreign:?}");
            let expected = match (rpc.as_str(), kind) {
                ("ListJobs", _) => Code::Ok,
                ("ForkConversation", Kind::Conversation) => Code::PermissionDenied,
                _ => Code::NotFound,
            };
            let code = foreign
                .as_ref()
                .map_or_else(|refused| refused.0, |_| Code::Ok);
            assert_eq!(code, expected, "{kind:?} {rpc}: {foreign:?}");
            assert!(
                code != Code::Ok || foreign == Ok(Some(Vec::new())),
                "{kind:?} {rpc}: {foreign:?}"
            );
        }
        assert_eq!(before, firm.berts_rows().await, "{kind:?}");
    }
}

#[tokio::test]
async fn without_the_policies_the_same_calls_read_and_change_what_is_foreign() {
    let firm = Firm::start().await;
    let mut db = firm.app.db().await;
    for table in firm.app.list_tables_of_conversations().await {
        let drop = format!("drop policy of_bound on {table}");
        let dropped = sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut db).await;
        dropped.expect("drops");
    }
    let before = firm.berts_rows().await;
    let caller = firm.bound(Kind::User.bound("")).await;
    let outcomes = call_with_foreign_and_missing(&firm, &caller).await;
    let revealing: Vec<&str> = outcomes
        .iter()
        .filter(|(_, foreign, _)| holds_secret(foreign))
        .map(|(rpc, ..)| rpc.as_str())
        .collect();
    for rpc in ["GetConversation", "ForkConversation"] {
        assert!(revealing.contains(&rpc), "{rpc}: {revealing:?}");
    }
    assert_ne!(before, firm.berts_rows().await);
}

#[tokio::test]
async fn rpcs_do_with_what_is_a_bound_keys_own_as_for_a_key_that_is_not_bound() {
    let firm = Firm::start().await;
    for rpc in every_rpc().into_iter().filter(|rpc| rpc.names_conversation) {
        let unbound = valid_request(&rpc.name, &firm.create_own().await, &rpc.name);
        let unbound = refusal_of(&firm.whole, &rpc.path, unbound).await;
        assert_ne!(unbound.1, "CONVERSATION_NOT_FOUND", "{}", rpc.name);
        for kind in Kind::ALL {
            let own = firm.create_own().await;
            let caller = firm.bound(kind.bound(&own)).await;
            let ask = valid_request(&rpc.name, &own, &rpc.name);
            let answered = refusal_of(&caller, &rpc.path, ask).await;
            if (rpc.name.as_str(), kind) == ("ForkConversation", Kind::Conversation) {
                let refused = (Code::PermissionDenied, "CREDENTIAL_BOUND".to_owned());
                assert_eq!(answered, refused, "{kind:?} {}", rpc.name);
            } else {
                assert_eq!(answered, unbound, "{kind:?} {}", rpc.name);
            }
        }
    }
}

#[tokio::test]
async fn calls_that_concern_more_than_a_key_is_bound_to_are_refused() {
    let firm = Firm::start().await;
    let of_all = [
        "EraseUser",
        "EraseTenant",
        "GetErasure",
        "ListErasures",
        "GetQueueStats",
        "GetModelStats",
        "GetInstallationStats",
    ];
    let creations = [
        "CreateConversation",
        "ForkConversation",
        "ResolveSession",
        "RotateSession",
    ];
    for kind in Kind::ALL {
        let own = firm.create_own().await;
        let caller = firm.bound(kind.bound(&own)).await;
        let mut refused = BTreeSet::new();
        for rpc in every_rpc() {
            let ask = valid_request(&rpc.name, &own, &rpc.name);
            let (code, reason) = refusal_of(&caller, &rpc.path, ask).await;
            if reason == "CREDENTIAL_BOUND" {
                assert_eq!(code, Code::PermissionDenied, "{}", rpc.name);
                refused.insert(rpc.name);
            }
        }
        let mut expected = of_all.to_vec();
        if kind == Kind::Conversation {
            expected.extend(creations);
        }
        let expected: BTreeSet<String> = expected.into_iter().map(str::to_owned).collect();
        assert_eq!(refused, expected, "{kind:?}");
    }
}

fn scope(agent: &str, sender: &str, group: &str) -> pb::SessionScope {
    pb::SessionScope {
        agent_id: agent.into(),
        channel: "c".into(),
        sender_id: sender.into(),
        group_id: group.into(),
        ..Default::default()
    }
}

fn resolve(scope: pb::SessionScope) -> pb::ResolveSessionRequest {
    pb::ResolveSessionRequest {
        scope: Some(scope),
        ..Default::default()
    }
}

#[tokio::test]
async fn what_a_bound_user_creates_is_that_users() {
    let firm = Firm::start().await;
    let mut caller = ConversationServiceClient::new(firm.bound(Kind::User.bound("")).await);
    let ask = |user_id: &str| pb::CreateConversationRequest {
        agent_id: "b".into(),
        user_id: user_id.into(),
        ..Default::default()
    };
    for user_id in ["", "anna"] {
        let made = caller.create_conversation(ask(user_id)).await;
        let made = made.expect("creates").into_inner();
        assert_eq!(
            (made.user_id.as_str(), made.agent_id.as_str()),
            ("anna", "b")
        );
        let fork = pb::ForkConversationRequest {
            conversation_id: made.conversation_id,
            ..Default::default()
        };
        let fork = caller.fork_conversation(fork).await.expect("forks");
        assert_eq!(fork.get_ref().user_id, "anna");
    }
    let refused = caller.create_conversation(ask("bert")).await;
    assert_refused(refused, Code::InvalidArgument, "INVALID_FIELD", "user_id");
    let session = caller
        .resolve_session(resolve(scope("b", "anna", "")))
        .await;
    let session = session.expect("resolves").into_inner();
    let conversation = session.conversation.expect("there is one");
    assert_eq!(conversation.user_id, "anna");
    let rotate = |scope| pb::RotateSessionRequest {
        scope: Some(scope),
        request_id: "r".into(),
        ..Default::default()
    };
    let rotated = caller.rotate_session(rotate(scope("b", "anna", ""))).await;
    let rotated = rotated.expect("rotates").into_inner();
    let again = caller.rotate_session(rotate(scope("b", "anna", ""))).await;
    assert_eq!(again.expect("is repeated").into_inner(), rotated);
    let rotated = rotated.conversation.expect("there is one");
    assert_eq!(rotated.user_id, "anna");
    assert_ne!(rotated.conversation_id, conversation.conversation_id);
    for foreign in [scope("b", "bert", ""), scope("b", "anna", "team")] {
        let refused = caller.resolve_session(resolve(foreign.clone())).await;
        let field = "scope.sender_id";
        assert_refused(refused, Code::InvalidArgument, "INVALID_FIELD", field);
        let refused = caller.rotate_session(rotate(foreign)).await;
        assert_refused(refused, Code::InvalidArgument, "INVALID_FIELD", field);
    }
}

#[tokio::test]
async fn what_a_bound_agent_creates_is_that_agents() {
    let firm = Firm::start().await;
    let mut caller = ConversationServiceClient::new(firm.bound(Kind::Agent.bound("")).await);
    let ask = |agent_id: &str| pb::CreateConversationRequest {
        agent_id: agent_id.into(),
        user_id: "bert".into(),
        ..Default::default()
    };
    for agent_id in ["", "a"] {
        let made = caller.create_conversation(ask(agent_id)).await;
        let made = made.expect("creates").into_inner();
        assert_eq!(
            (made.user_id.as_str(), made.agent_id.as_str()),
            ("bert", "a")
        );
    }
    let refused = caller.create_conversation(ask("b")).await;
    assert_refused(refused, Code::InvalidArgument, "INVALID_FIELD", "agent_id");
    for own in [scope("a", "bert", ""), scope("a", "", "team")] {
        let session = caller.resolve_session(resolve(own)).await;
        let session = session.expect("resolves").into_inner();
        assert_eq!(session.conversation.expect("there is one").agent_id, "a");
    }
    let refused = caller
        .resolve_session(resolve(scope("b", "bert", "")))
        .await;
    let field = "scope.agent_id";
    assert_refused(refused, Code::InvalidArgument, "INVALID_FIELD", field);
}

#[tokio::test]
async fn a_session_whose_conversation_is_foreign_is_missing() {
    let firm = Firm::start().await;
    // Anna's direct chat, whose conversation belongs to Bert.
    let berts = pb::ResolveSessionRequest {
        defaults: Some(pb::CreateConversationRequest {
            user_id: "bert".into(),
            ..Default::default()
        }),
        ..resolve(scope("a", "anna", ""))
    };
    let mut whole = ConversationServiceClient::new(firm.whole.clone());
    let made = whole.resolve_session(berts).await.expect("resolves");
    let mut caller = ConversationServiceClient::new(firm.bound(Kind::User.bound("")).await);
    let refused = caller
        .resolve_session(resolve(scope("a", "anna", "")))
        .await;
    assert_refused(refused, Code::NotFound, "CONVERSATION_NOT_FOUND", "");
    let rotate = pb::RotateSessionRequest {
        scope: Some(scope("a", "anna", "")),
        ..Default::default()
    };
    let refused = caller.rotate_session(rotate).await;
    assert_refused(refused, Code::NotFound, "CONVERSATION_NOT_FOUND", "");
    let kept = whole.resolve_session(resolve(scope("a", "anna", ""))).await;
    let id = |session: pb::Session| session.conversation.expect("one").conversation_id;
    assert_eq!(
        id(kept.expect("resolves").into_inner()),
        id(made.into_inner())
    );
}

#[tokio::test]
async fn request_ids_of_others_are_no_conflict_for_a_bound_key() {
    let firm = Firm::start().await;
    let ask = |title: &str, user_id: &str| pb::CreateConversationRequest {
        agent_id: "a".into(),
        user_id: user_id.into(),
        title: title.into(),
        request_id: "r".into(),
        ..Default::default()
    };
    let mut ids = BTreeSet::new();
    let mut callers = vec![(firm.whole.clone(), "bert")];
    for kind in [Kind::User, Kind::Agent] {
        callers.push((firm.bound(kind.bound("")).await, "anna"));
    }
    for (n, (channel, user_id)) in callers.into_iter().enumerate() {
        let mut caller = ConversationServiceClient::new(channel);
        let ask = ask(&format!("title {n}"), user_id);
        let made = caller.create_conversation(ask.clone()).await;
        let made = made.expect("creates").into_inner();
        let again = caller.create_conversation(ask).await;
        let again = again.expect("is repeated").into_inner();
        assert_eq!(made.conversation_id, again.conversation_id);
        ids.insert(made.conversation_id);
    }
    assert_eq!(ids.len(), 3);
}

#[tokio::test]
async fn lists_of_a_bound_key_have_its_own_conversations_only() {
    let firm = Firm::start().await;
    let own = firm.create_own().await;
    let berts = firm.foreign.parse().expect("an id");
    let tenant = firm.app.tenant(TENANT).await.0;
    let dead =
        "insert into ai_job_dead (tenant_id, conversation_id, kind, generation, attempts, dirty_ts)
        select $1, c, 1, 1, 1, now() from unnest($2::uuid[]) as c";
    let both: [Uuid; 2] = [berts, own.parse().expect("an id")];
    sqlx::query(dead)
        .bind(tenant)
        .bind(both.as_slice())
        .execute(&mut firm.app.db().await)
        .await
        .expect("inserts");
    for kind in Kind::ALL {
        let channel = firm.bound(kind.bound(&own)).await;
        let mut caller = ConversationServiceClient::new(channel.clone());
        let filters = [
            ("", "", 1),
            ("anna", "", 1),
            ("", "a", 1),
            ("bert", "", 0),
            ("", "b", 0),
        ];
        for (user_id, agent_id, count) in filters {
            let ask = pb::ListConversationsRequest {
                user_id: user_id.into(),
                agent_id: agent_id.into(),
                ..Default::default()
            };
            let listed = caller.list_conversations(ask).await.expect("lists");
            let listed = listed.into_inner().conversations;
            let ids: Vec<&str> = listed
                .iter()
                .map(|one| one.conversation_id.as_str())
                .collect();
            assert_eq!(
                ids,
                vec![own.as_str(); count],
                "{kind:?} {user_id} {agent_id}"
            );
        }
        let mut operators = pb::operator_service_client::OperatorServiceClient::new(channel);
        let jobs = operators.list_jobs(pb::ListJobsRequest::default()).await;
        // Beside the dead job there is one that counts its messages.
        let jobs = jobs.expect("lists").into_inner().jobs;
        let ids: BTreeSet<&str> = jobs
            .iter()
            .map(|job| job.conversation_id.as_str())
            .collect();
        assert_eq!(ids, BTreeSet::from([own.as_str()]), "{kind:?}");
    }
}

#[tokio::test]
async fn a_watch_of_a_bound_key_sees_its_own_and_not_one_that_another_watches() {
    let firm = Firm::start().await;
    let watch = |conversation_id: &str| pb::WatchConversationRequest {
        conversation_id: conversation_id.into(),
        ..Default::default()
    };
    // The server has the head of a watched conversation in memory.
    let mut whole = MessageServiceClient::new(firm.whole.clone());
    let watched = whole.watch_conversation(watch(&firm.foreign)).await;
    let mut watched = watched.expect("watches").into_inner();
    watched.message().await.expect("an event");
    for kind in Kind::ALL {
        let own = firm.create_own().await;
        let mut caller = MessageServiceClient::new(firm.bound(kind.bound(&own)).await);
        let foreign = caller.watch_conversation(watch(&firm.foreign)).await;
        let foreign = match foreign {
            Ok(events) => events.into_inner().message().await.map(|_| ()),
            Err(refused) => Err(refused),
        };
        assert_refused(foreign, Code::NotFound, "CONVERSATION_NOT_FOUND", "");
        let events = caller.watch_conversation(watch(&own)).await;
        let mut events = events.expect("watches").into_inner();
        events.message().await.expect("an event");
        let ask = pb::AppendMessagesRequest {
            conversation_id: own.clone(),
            messages: vec![user("Is it seen?")],
            ..Default::default()
        };
        caller.append_messages(ask).await.expect("appends");
        loop {
            let event = events.message().await.expect("no failure");
            if format!("{:?}", event.expect("an event")).contains("Is it seen?") {
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_bound_key_deletes_its_own_conversation_with_all_its_rows() {
    let firm = Firm::start().await;
    let before = firm.berts_rows().await;
    for kind in Kind::ALL {
        let own = create_long_conversation(&firm.app, &firm.whole, annas()).await;
        let id = own.parse().expect("an id");
        assert!(firm.app.list_tables_with_rows(id).await.len() > 4);
        let channel = firm.bound(kind.bound(&own)).await;
        let ask = pb::DeleteConversationRequest {
            conversation_id: own,
            ..Default::default()
        };
        let mut caller = ConversationServiceClient::new(channel);
        caller.delete_conversation(ask).await.expect("deletes");
        firm.app.run_jobs_until_idle().await;
        assert_eq!(
            firm.app.list_tables_with_rows(id).await,
            [""; 0],
            "{kind:?}"
        );
    }
    assert_eq!(before, firm.berts_rows().await);
}

#[tokio::test]
async fn a_bound_user_erases_itself_and_nobody_else() {
    let firm = Firm::start().await;
    let (own, before) = (firm.create_own().await, firm.berts_rows().await);
    let mut caller = ErasureServiceClient::new(firm.bound(Kind::User.bound("")).await);
    let ask = |user_id: &str| pb::EraseUserRequest {
        user_id: user_id.into(),
        ..Default::default()
    };
    for user_id in ["bert", "nobody"] {
        let refused = caller.erase_user(ask(user_id)).await;
        assert_refused(refused, Code::PermissionDenied, "CREDENTIAL_BOUND", "");
    }
    caller.erase_user(ask("anna")).await.expect("begins");
    firm.app.run_erasures().await;
    let id = own.parse().expect("an id");
    assert_eq!(firm.app.list_tables_with_rows(id).await, [""; 0]);
    assert_eq!(before, firm.berts_rows().await);
}

#[tokio::test]
async fn what_a_bound_key_reports_teaches_the_tenant_nothing_about_a_model() {
    let firm = Firm::start().await;
    let own = firm.create_own().await;
    let ask = || pb::ReportUsageRequest {
        conversation_id: own.clone(),
        model: MODEL.into(),
        input_tokens: 1_500,
        context_tokens: 1_000,
        ..Default::default()
    };
    let learned = async || {
        let mut db = firm.app.db().await;
        let count = "select count(*) from ai_model where reports > 0";
        let count = sqlx::query_scalar::<_, i64>(count).fetch_one(&mut db).await;
        count.expect("counts")
    };
    for (kind, models) in [(Some(Kind::User), 0), (None, 1)] {
        let channel = match kind {
            Some(kind) => firm.bound(kind.bound(&own)).await,
            None => firm.whole.clone(),
        };
        let mut caller = pb::context_service_client::ContextServiceClient::new(channel);
        caller.report_usage(ask()).await.expect("is accepted");
        assert_eq!(learned().await, models, "{kind:?}");
    }
}
