//! The six services. Each RPC is admitted, run and answered in the same way. `rpc/` has one file
//! per RPC, with its work.

use anneal_proto::v1::{
    self as pb, chat_service_server::ChatService, context_service_server::ContextService,
    conversation_service_server::ConversationService, erasure_service_server::ErasureService,
    message_service_server::MessageService, operator_service_server::OperatorService,
};
use tonic::{Request, Response, Status, Streaming};

use crate::{
    grpc::{encoded_response, rpc},
    rpc_call::{NewRequestId, RpcCall},
    state::ServerState,
    usecases::{
        chat_turn,
        unstored_summary::{self, SummaryRequest, UnstoredSummary},
        watch,
    },
    verbs::Rpc,
};

/// Implements all six services. The HTTP edge calls it too.
#[derive(Clone)]
pub(crate) struct GrpcServices {
    pub(crate) state: ServerState,
    /// Whether answers are sent as protobuf, so that long ones are encoded on the CPU pool. False
    /// for the HTTP edge.
    pub(crate) encodes_answers: bool,
}

/// Admits and runs an RPC. With `audited`, a line in the audit log names the call and its
/// conversation. Calls that need the verb admin or operator get a line in any case
/// (`RpcCall::begin`). With `named`, the work gets the caller's name in logs, for a receipt.
macro_rules! run {
    ($self:ident, $request:ident, $rpc:ident) => {{
        const RPC: &Rpc = Rpc::named(stringify!($rpc));
        let call = RpcCall::begin(&$self.state, RPC, &$request)?;
        let work = rpc::$rpc::$rpc(&$self.state, call.caller, $request.into_inner());
        call.run(Box::pin(work)).await
    }};
    ($self:ident, $request:ident, $rpc:ident, audited) => {{
        const RPC: &Rpc = Rpc::named(stringify!($rpc));
        let call = RpcCall::begin(&$self.state, RPC, &$request)?;
        let call = call.with_audit_log_line(&$request.get_ref().conversation_id);
        let work = rpc::$rpc::$rpc(&$self.state, call.caller, $request.into_inner());
        call.run(Box::pin(work)).await
    }};
    ($self:ident, $request:ident, $rpc:ident, named) => {{
        const RPC: &Rpc = Rpc::named(stringify!($rpc));
        let call = RpcCall::begin(&$self.state, RPC, &$request)?;
        let (caller, name) = (call.caller, call.caller_name());
        let work = rpc::$rpc::$rpc(&$self.state, (caller, &name), $request.into_inner());
        call.run(Box::pin(work)).await
    }};
    ($self:ident, $request:ident, $rpc:ident, audited, named) => {{
        const RPC: &Rpc = Rpc::named(stringify!($rpc));
        let call = RpcCall::begin(&$self.state, RPC, &$request)?;
        let call = call.with_audit_log_line(&$request.get_ref().conversation_id);
        let (caller, name) = (call.caller, call.caller_name());
        let work = rpc::$rpc::$rpc(&$self.state, (caller, &name), $request.into_inner());
        call.run(Box::pin(work)).await
    }};
}

/// Admits and runs an RPC that reads content, and encodes a long answer on the CPU pool. The answer
/// keeps the reservation of its content (`RpcCall::run_with_reservation`) until it has been sent.
macro_rules! run_and_encode {
    ($self:ident, $request:ident, $rpc:ident) => {{
        const RPC: &Rpc = Rpc::named(stringify!($rpc));
        let call = RpcCall::begin(&$self.state, RPC, &$request)?;
        let work = rpc::$rpc::$rpc(&$self.state, call.caller, $request.into_inner());
        encoded_response::run_and_encode(
            call,
            Box::pin(work),
            $self.encodes_answers.then_some(&$self.state.cpu),
        )
        .await
    }};
}

#[tonic::async_trait]
impl ConversationService for GrpcServices {
    async fn create_conversation(
        &self,
        request: Request<pb::CreateConversationRequest>,
    ) -> Result<Response<pb::Conversation>, Status> {
        run!(self, request, create_conversation)
    }

    async fn fork_conversation(
        &self,
        request: Request<pb::ForkConversationRequest>,
    ) -> Result<Response<pb::Conversation>, Status> {
        run!(self, request, fork_conversation, audited)
    }

    async fn get_conversation(
        &self,
        request: Request<pb::GetConversationRequest>,
    ) -> Result<Response<pb::Conversation>, Status> {
        run!(self, request, get_conversation)
    }

    async fn list_conversations(
        &self,
        request: Request<pb::ListConversationsRequest>,
    ) -> Result<Response<pb::ListConversationsResponse>, Status> {
        run!(self, request, list_conversations)
    }

    async fn update_conversation(
        &self,
        request: Request<pb::UpdateConversationRequest>,
    ) -> Result<Response<pb::Conversation>, Status> {
        run!(self, request, update_conversation)
    }

    async fn delete_conversation(
        &self,
        request: Request<pb::DeleteConversationRequest>,
    ) -> Result<Response<pb::DeleteConversationResponse>, Status> {
        run!(self, request, delete_conversation, audited, named)
    }

    async fn resolve_session(
        &self,
        request: Request<pb::ResolveSessionRequest>,
    ) -> Result<Response<pb::Session>, Status> {
        run!(self, request, resolve_session)
    }

    async fn rotate_session(
        &self,
        request: Request<pb::RotateSessionRequest>,
    ) -> Result<Response<pb::Session>, Status> {
        run!(self, request, rotate_session)
    }
}

#[tonic::async_trait]
impl MessageService for GrpcServices {
    async fn append_messages(
        &self,
        request: Request<pb::AppendMessagesRequest>,
    ) -> Result<Response<pb::AppendMessagesResponse>, Status> {
        run!(self, request, append_messages)
    }

    async fn append_large_message(
        &self,
        request: Request<Streaming<pb::AppendLargeMessageRequest>>,
    ) -> Result<Response<pb::AppendMessagesResponse>, Status> {
        run!(self, request, append_large_message)
    }

    async fn list_messages(
        &self,
        request: Request<pb::ListMessagesRequest>,
    ) -> Result<Response<pb::ListMessagesResponse>, Status> {
        run_and_encode!(self, request, list_messages)
    }

    async fn get_message(
        &self,
        request: Request<pb::GetMessageRequest>,
    ) -> Result<Response<pb::GetMessageResponse>, Status> {
        run_and_encode!(self, request, get_message)
    }

    async fn insert_separator(
        &self,
        request: Request<pb::InsertSeparatorRequest>,
    ) -> Result<Response<pb::Separator>, Status> {
        run!(self, request, insert_separator)
    }

    async fn delete_separator(
        &self,
        request: Request<pb::DeleteSeparatorRequest>,
    ) -> Result<Response<pb::DeleteSeparatorResponse>, Status> {
        run!(self, request, delete_separator, audited)
    }

    async fn withdraw_messages(
        &self,
        request: Request<pb::WithdrawMessagesRequest>,
    ) -> Result<Response<pb::MessageChange>, Status> {
        run!(self, request, withdraw_messages, audited)
    }

    async fn rewind(
        &self,
        request: Request<pb::RewindRequest>,
    ) -> Result<Response<pb::MessageChange>, Status> {
        run!(self, request, rewind, audited)
    }

    async fn restore_messages(
        &self,
        request: Request<pb::RestoreMessagesRequest>,
    ) -> Result<Response<pb::MessageChange>, Status> {
        run!(self, request, restore_messages, audited)
    }

    async fn edit_message(
        &self,
        request: Request<pb::EditMessageRequest>,
    ) -> Result<Response<pb::MessageChange>, Status> {
        run!(self, request, edit_message, audited)
    }

    async fn list_message_versions(
        &self,
        request: Request<pb::ListMessageVersionsRequest>,
    ) -> Result<Response<pb::ListMessageVersionsResponse>, Status> {
        run!(self, request, list_message_versions)
    }

    async fn erase_messages(
        &self,
        request: Request<pb::EraseMessagesRequest>,
    ) -> Result<Response<pb::MessageChange>, Status> {
        run!(self, request, erase_messages, audited, named)
    }

    type WatchConversationStream = watch::EventStream;

    async fn watch_conversation(
        &self,
        request: Request<pb::WatchConversationRequest>,
    ) -> Result<Response<Self::WatchConversationStream>, Status> {
        let call = RpcCall::begin_watch(
            &self.state,
            const { Rpc::named("watch_conversation") },
            &request,
        )?;
        rpc::watch_conversation::watch_conversation(&self.state, call, request.into_inner())
    }
}

#[tonic::async_trait]
impl ContextService for GrpcServices {
    async fn build_context(
        &self,
        request: Request<pb::BuildContextRequest>,
    ) -> Result<Response<pb::BuildContextResponse>, Status> {
        run_and_encode!(self, request, build_context)
    }

    type StreamContextStream = rpc::stream_context::Pieces;

    async fn stream_context(
        &self,
        request: Request<pb::BuildContextRequest>,
    ) -> Result<Response<Self::StreamContextStream>, Status> {
        let call = RpcCall::begin(
            &self.state,
            const { Rpc::named("stream_context") },
            &request,
        )?;
        let work =
            rpc::stream_context::stream_context(&self.state, call.caller, request.into_inner());
        call.run_with_reservation(Box::pin(work)).await
    }

    async fn get_context_usage(
        &self,
        request: Request<pb::GetContextUsageRequest>,
    ) -> Result<Response<pb::GetContextUsageResponse>, Status> {
        run!(self, request, get_context_usage)
    }

    async fn compact(
        &self,
        request: Request<pb::CompactRequest>,
    ) -> Result<Response<pb::CompactResponse>, Status> {
        let wait = rpc::compact::requested_wait(request.get_ref());
        let call = RpcCall::begin(&self.state, const { Rpc::named("compact") }, &request)?
            .extend_deadline(wait);
        let work = rpc::compact::compact(&self.state, call.caller, request.into_inner());
        call.run(Box::pin(work)).await
    }

    async fn list_checkpoints(
        &self,
        request: Request<pb::ListCheckpointsRequest>,
    ) -> Result<Response<pb::ListCheckpointsResponse>, Status> {
        run_and_encode!(self, request, list_checkpoints)
    }

    async fn list_cache_eras(
        &self,
        request: Request<pb::ListCacheErasRequest>,
    ) -> Result<Response<pb::ListCacheErasResponse>, Status> {
        run!(self, request, list_cache_eras)
    }

    async fn list_token_runs(
        &self,
        request: Request<pb::ListTokenRunsRequest>,
    ) -> Result<Response<pb::ListTokenRunsResponse>, Status> {
        run!(self, request, list_token_runs)
    }

    async fn import_checkpoint(
        &self,
        request: Request<pb::ImportCheckpointRequest>,
    ) -> Result<Response<pb::Checkpoint>, Status> {
        run!(self, request, import_checkpoint)
    }

    async fn report_usage(
        &self,
        request: Request<pb::ReportUsageRequest>,
    ) -> Result<Response<pb::ReportUsageResponse>, Status> {
        run!(self, request, report_usage)
    }

    async fn classify_error(
        &self,
        request: Request<pb::ClassifyErrorRequest>,
    ) -> Result<Response<pb::ClassifyErrorResponse>, Status> {
        run!(self, request, classify_error)
    }
}

#[tonic::async_trait]
impl ChatService for GrpcServices {
    type ChatStream = chat_turn::Events;

    async fn chat(
        &self,
        request: Request<pb::ChatRequest>,
    ) -> Result<Response<Self::ChatStream>, Status> {
        let call = RpcCall::begin_turn(&self.state, const { Rpc::named("chat") }, &request)?;
        let new_id = request.extensions().get::<NewRequestId>().copied();
        rpc::chat::chat(&self.state, call, request.into_inner(), new_id).await
    }

    async fn cancel_turn(
        &self,
        request: Request<pb::CancelTurnRequest>,
    ) -> Result<Response<pb::CancelTurnResponse>, Status> {
        let wait = rpc::cancel_turn::requested_wait(request.get_ref());
        let call = RpcCall::begin(&self.state, const { Rpc::named("cancel_turn") }, &request)?
            .with_audit_log_line(&request.get_ref().conversation_id)
            .extend_deadline(wait);
        let work = rpc::cancel_turn::cancel_turn(&self.state, call.caller, request.into_inner());
        call.run(Box::pin(work)).await
    }

    async fn choose_alternative(
        &self,
        request: Request<pb::ChooseAlternativeRequest>,
    ) -> Result<Response<pb::MessageChange>, Status> {
        run!(self, request, choose_alternative, audited)
    }
}

impl GrpcServices {
    /// Runs a turn of which nothing is stored. It is a call of Chat in all else: `messages` are all
    /// that the model gets, those of the assistant included. `conversation_id` must be empty, and
    /// `request_id` is ignored. The events name no conversation and no message.
    pub(crate) async fn chat_without_storing(
        &self,
        request: Request<pb::ChatRequest>,
    ) -> Result<Response<chat_turn::Events>, Status> {
        let call = RpcCall::begin_turn(&self.state, const { Rpc::named("chat") }, &request)?;
        rpc::chat::chat_without_storing(&self.state, call, request.into_inner()).await
    }

    /// Summarizes messages that are not stored. It is a call of Compact in all else, but it waits
    /// for a model, so the limit and the deadline of turns apply.
    pub(crate) async fn summarize_without_storing(
        &self,
        request: Request<SummaryRequest>,
    ) -> Result<Response<UnstoredSummary>, Status> {
        let call = RpcCall::begin_turn(&self.state, const { Rpc::named("compact") }, &request)?;
        let work = unstored_summary::summarize(&self.state, call.caller, request.into_inner());
        call.run(Box::pin(work)).await
    }
}

#[tonic::async_trait]
impl ErasureService for GrpcServices {
    async fn erase_user(
        &self,
        request: Request<pb::EraseUserRequest>,
    ) -> Result<Response<pb::Erasure>, Status> {
        run!(self, request, erase_user, named)
    }

    async fn erase_tenant(
        &self,
        request: Request<pb::EraseTenantRequest>,
    ) -> Result<Response<pb::Erasure>, Status> {
        run!(self, request, erase_tenant, named)
    }

    async fn get_erasure(
        &self,
        request: Request<pb::GetErasureRequest>,
    ) -> Result<Response<pb::Erasure>, Status> {
        run!(self, request, get_erasure)
    }

    async fn list_erasures(
        &self,
        request: Request<pb::ListErasuresRequest>,
    ) -> Result<Response<pb::ListErasuresResponse>, Status> {
        run!(self, request, list_erasures)
    }
}

#[tonic::async_trait]
impl OperatorService for GrpcServices {
    async fn list_jobs(
        &self,
        request: Request<pb::ListJobsRequest>,
    ) -> Result<Response<pb::ListJobsResponse>, Status> {
        run!(self, request, list_jobs)
    }

    async fn requeue_job(
        &self,
        request: Request<pb::RequeueJobRequest>,
    ) -> Result<Response<pb::Job>, Status> {
        run!(self, request, requeue_job, audited)
    }

    async fn discard_job(
        &self,
        request: Request<pb::DiscardJobRequest>,
    ) -> Result<Response<()>, Status> {
        run!(self, request, discard_job, audited)
    }

    async fn get_queue_stats(
        &self,
        request: Request<pb::GetQueueStatsRequest>,
    ) -> Result<Response<pb::GetQueueStatsResponse>, Status> {
        run!(self, request, get_queue_stats)
    }

    async fn get_model_stats(
        &self,
        request: Request<pb::GetModelStatsRequest>,
    ) -> Result<Response<pb::GetModelStatsResponse>, Status> {
        run!(self, request, get_model_stats)
    }

    async fn get_installation_stats(
        &self,
        request: Request<pb::GetInstallationStatsRequest>,
    ) -> Result<Response<pb::GetInstallationStatsResponse>, Status> {
        run!(self, request, get_installation_stats)
    }

    async fn verify_conversation(
        &self,
        request: Request<pb::VerifyConversationRequest>,
    ) -> Result<Response<pb::VerifyConversationResponse>, Status> {
        run!(self, request, verify_conversation, audited)
    }
}
