//! The verbs (read, append, admin, operator) that a credential needs for each RPC. The gRPC and the
//! HTTP edge check them before they read a request's body.

use anneal_core::caller::{Caller, Verb};

use crate::{audit, failure::Failure, identity::Identity};

/// Beginning of the paths of the health service, which needs no credential.
pub(crate) const UNAUTHENTICATED_PATH_PREFIX: &str = "/grpc.health.v1.Health/";

/// An RPC and the verbs that it needs.
#[derive(Debug)]
pub(crate) struct Rpc {
    /// The name in metrics and spans.
    pub(crate) name: &'static str,
    /// The path over gRPC: `/package.Service/Method`.
    pub(crate) path: &'static str,
    /// All of these verbs are needed. A request may need more, depending on its fields.
    pub(crate) verbs: &'static [Verb],
    /// Whether it concerns the whole tenant, or the whole installation. Callers that are bound to a
    /// user, an agent or a conversation are refused.
    pub(crate) whole_tenant: bool,
}

const fn rpc(name: &'static str, path: &'static str, verbs: &'static [Verb]) -> Rpc {
    Rpc {
        name,
        path,
        verbs,
        whole_tenant: false,
    }
}

/// An RPC that concerns the whole tenant, or the whole installation.
const fn rpc_of_tenant(name: &'static str, path: &'static str, verbs: &'static [Verb]) -> Rpc {
    Rpc {
        whole_tenant: true,
        ..rpc(name, path, verbs)
    }
}

/// Every RPC.
#[rustfmt::skip]
pub(crate) static RPCS: [Rpc; 45] = [
    rpc("create_conversation", "/anneal.v1.ConversationService/CreateConversation", &[Verb::Append]),
    rpc("fork_conversation", "/anneal.v1.ConversationService/ForkConversation", &[Verb::Append]),
    rpc("get_conversation", "/anneal.v1.ConversationService/GetConversation", &[Verb::Read]),
    rpc("list_conversations", "/anneal.v1.ConversationService/ListConversations", &[Verb::Read]),
    rpc("update_conversation", "/anneal.v1.ConversationService/UpdateConversation", &[Verb::Append]),
    rpc("delete_conversation", "/anneal.v1.ConversationService/DeleteConversation", &[Verb::Admin]),
    rpc("resolve_session", "/anneal.v1.ConversationService/ResolveSession", &[Verb::Append]),
    rpc("rotate_session", "/anneal.v1.ConversationService/RotateSession", &[Verb::Append]),
    rpc("append_messages", "/anneal.v1.MessageService/AppendMessages", &[Verb::Append]),
    rpc("append_large_message", "/anneal.v1.MessageService/AppendLargeMessage", &[Verb::Append]),
    rpc("list_messages", "/anneal.v1.MessageService/ListMessages", &[Verb::Read]),
    rpc("get_message", "/anneal.v1.MessageService/GetMessage", &[Verb::Read]),
    rpc("insert_separator", "/anneal.v1.MessageService/InsertSeparator", &[Verb::Append]),
    rpc("delete_separator", "/anneal.v1.MessageService/DeleteSeparator", &[Verb::Append]),
    rpc("withdraw_messages", "/anneal.v1.MessageService/WithdrawMessages", &[Verb::Append]),
    rpc("rewind", "/anneal.v1.MessageService/Rewind", &[Verb::Append]),
    rpc("restore_messages", "/anneal.v1.MessageService/RestoreMessages", &[Verb::Append]),
    rpc("edit_message", "/anneal.v1.MessageService/EditMessage", &[Verb::Append]),
    rpc("list_message_versions", "/anneal.v1.MessageService/ListMessageVersions", &[Verb::Read]),
    rpc("erase_messages", "/anneal.v1.MessageService/EraseMessages", &[Verb::Admin]),
    rpc("watch_conversation", "/anneal.v1.MessageService/WatchConversation", &[Verb::Read]),
    rpc("build_context", "/anneal.v1.ContextService/BuildContext", &[Verb::Read]),
    rpc("stream_context", "/anneal.v1.ContextService/StreamContext", &[Verb::Read]),
    rpc("get_context_usage", "/anneal.v1.ContextService/GetContextUsage", &[Verb::Read]),
    rpc("compact", "/anneal.v1.ContextService/Compact", &[Verb::Append]),
    rpc("list_checkpoints", "/anneal.v1.ContextService/ListCheckpoints", &[Verb::Read]),
    rpc("list_cache_eras", "/anneal.v1.ContextService/ListCacheEras", &[Verb::Read]),
    rpc("list_token_runs", "/anneal.v1.ContextService/ListTokenRuns", &[Verb::Read]),
    rpc("import_checkpoint", "/anneal.v1.ContextService/ImportCheckpoint", &[Verb::Append]),
    rpc("report_usage", "/anneal.v1.ContextService/ReportUsage", &[Verb::Append]),
    rpc("classify_error", "/anneal.v1.ContextService/ClassifyError", &[Verb::Read]),
    // The model answers from the whole conversation, so the caller needs the verb read, too.
    rpc("chat", "/anneal.v1.ChatService/Chat", &[Verb::Append, Verb::Read]),
    rpc("cancel_turn", "/anneal.v1.ChatService/CancelTurn", &[Verb::Append]),
    rpc("choose_alternative", "/anneal.v1.ChatService/ChooseAlternative", &[Verb::Append]),
    rpc("erase_user", "/anneal.v1.ErasureService/EraseUser", &[Verb::Admin]),
    rpc_of_tenant("erase_tenant", "/anneal.v1.ErasureService/EraseTenant", &[Verb::Admin]),
    rpc_of_tenant("get_erasure", "/anneal.v1.ErasureService/GetErasure", &[Verb::Admin]),
    rpc_of_tenant("list_erasures", "/anneal.v1.ErasureService/ListErasures", &[Verb::Admin]),
    rpc("list_jobs", "/anneal.v1.OperatorService/ListJobs", &[Verb::Admin]),
    rpc("requeue_job", "/anneal.v1.OperatorService/RequeueJob", &[Verb::Admin]),
    rpc("discard_job", "/anneal.v1.OperatorService/DiscardJob", &[Verb::Admin]),
    rpc_of_tenant("get_queue_stats", "/anneal.v1.OperatorService/GetQueueStats", &[Verb::Operator]),
    rpc_of_tenant("get_model_stats", "/anneal.v1.OperatorService/GetModelStats", &[Verb::Operator]),
    rpc_of_tenant("get_installation_stats", "/anneal.v1.OperatorService/GetInstallationStats", &[Verb::Operator]),
    rpc("verify_conversation", "/anneal.v1.OperatorService/VerifyConversation", &[Verb::Admin]),
];

impl Rpc {
    /// The RPC of this name. Panics if there is none: at compile time, if it is called in a
    /// constant.
    pub(crate) const fn named(name: &str) -> &'static Self {
        let mut index = 0;
        while index < RPCS.len() {
            if is_same(RPCS[index].name.as_bytes(), name.as_bytes()) {
                return &RPCS[index];
            }
            index += 1;
        }
        panic!("no RPC has this name")
    }

    /// The RPC at this path. None: `RPCS` has no such RPC.
    pub(crate) fn by_path(path: &str) -> Option<&'static Self> {
        RPCS.iter().find(|rpc| rpc.path == path)
    }

    /// Refuses a caller who lacks a verb, and a bound caller if the RPC concerns the whole tenant.
    /// Writes the refusal to the audit log.
    pub(crate) fn check(&self, caller: Caller, identity: &Identity) -> Result<(), Failure> {
        if self.whole_tenant && caller.bound().is_some() {
            audit::log_bound_credential(caller.tenant(), identity, self.name);
            return Err(Failure::CredentialBound);
        }
        let Some(missing) = self.verbs.iter().find(|verb| !caller.may(**verb)) else {
            return Ok(());
        };
        audit::log_missing_verb(caller.tenant(), identity, self.name, *missing);
        Err(Failure::VerbMissing(*missing))
    }
}

/// Compares byte by byte, because a constant function cannot compare slices with `==`.
const fn is_same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut index = 0;
    while index < a.len() {
        if a[index] != b[index] {
            return false;
        }
        index += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use anneal_proto::DESCRIPTORS;
    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::*;

    #[test]
    fn every_rpc_of_the_descriptors_is_in_the_table_with_its_name_and_a_verb() {
        let set = FileDescriptorSet::decode(DESCRIPTORS).expect("descriptors");
        let services = set
            .file
            .iter()
            .filter(|file| file.package() == "anneal.v1")
            .flat_map(|file| &file.service);
        let paths = services.flat_map(|service| {
            let name = service.name();
            service
                .method
                .iter()
                .map(move |method| format!("/anneal.v1.{name}/{}", method.name()))
        });
        let paths: Vec<String> = paths.collect();
        assert_eq!(paths.len(), RPCS.len());
        for path in paths {
            let rpc = Rpc::by_path(&path).unwrap_or_else(|| panic!("{path} is not in the table"));
            assert!(!rpc.verbs.is_empty());
            let method_name: String = rpc
                .name
                .split('_')
                .map(|word| word[..1].to_uppercase() + &word[1..])
                .collect();
            assert!(
                path.ends_with(&format!("/{method_name}")),
                "{path} has the name {}",
                rpc.name
            );
        }
    }
}
