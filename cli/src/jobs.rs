//! `anneal jobs`: lists, requeues and discards background jobs.

use std::process::ExitCode;

use anneal_proto::{convert::job, v1 as pb};
use tonic::Code;

use crate::{
    client::{Client, failed_call},
    command::{JobArguments, JobKind, JobState, JobsAction, JobsArguments},
    output,
};

/// Runs the command.
pub(crate) async fn run(arguments: JobsArguments) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&arguments.server).await?;
    match arguments.action.unwrap_or(JobsAction::List { state: None }) {
        JobsAction::List { state } => list_jobs(&client, state).await?,
        JobsAction::Requeue(job) => {
            let ask = pb::RequeueJobRequest {
                kind: kind(&job).into(),
                conversation_id: job.conversation,
                request_id: String::new(),
            };
            let job = client
                .operators()
                .requeue_job(ask)
                .await
                .map_err(|status| failed_call(&status))?
                .into_inner();
            output::print_line(format_args!("requeued {}", job_line(&job)));
        }
        JobsAction::Discard(job) => {
            let ask = pb::DiscardJobRequest {
                kind: kind(&job).into(),
                conversation_id: job.conversation,
                request_id: String::new(),
            };
            client
                .operators()
                .discard_job(ask)
                .await
                .map_err(|status| failed_call(&status))?;
            output::print_line("discarded");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the queues' figures over all tenants, if the caller may see them, and then the jobs.
async fn list_jobs(client: &Client, state: Option<JobState>) -> anyhow::Result<()> {
    match client
        .operators()
        .get_queue_stats(pb::GetQueueStatsRequest {})
        .await
    {
        Ok(figures) => figures.into_inner().queues.iter().for_each(print_queue),
        Err(status) if status.code() == Code::PermissionDenied => {}
        Err(status) => return Err(failed_call(&status)),
    }
    let state = state.map_or(pb::JobState::Unspecified, |state| match state {
        JobState::Waiting => pb::JobState::Waiting,
        JobState::Running => pb::JobState::Running,
        JobState::Dead => pb::JobState::Dead,
    });
    let (mut page_token, mut listed) = (String::new(), 0);
    loop {
        let ask = pb::ListJobsRequest {
            state: state.into(),
            page_token,
            ..Default::default()
        };
        let page = client
            .operators()
            .list_jobs(ask)
            .await
            .map_err(|status| failed_call(&status))?
            .into_inner();
        for job in &page.jobs {
            output::print_line(job_line(job));
        }
        listed += page.jobs.len();
        if page.next_page_token.is_empty() {
            break;
        }
        page_token = page.next_page_token;
    }
    if listed == 0 {
        output::print_line("no jobs");
    }
    Ok(())
}

fn print_queue(queue: &pb::QueueStats) {
    let oldest = queue
        .oldest_ready
        .map_or(0.0, |age| age.seconds as f64 + f64::from(age.nanos) / 1e9);
    output::print_line(format_args!(
        "{:<20} {} waiting ({} ready, oldest {oldest:.1} s), {} running, {} dead",
        kind_name(queue.kind),
        queue.waiting,
        queue.ready,
        queue.running,
        queue.dead
    ));
}

fn job_line(job: &pb::Job) -> String {
    let state = match job.state() {
        pb::JobState::Waiting => "waiting",
        pb::JobState::Running => "running",
        pb::JobState::Dead => "dead",
        pb::JobState::Unspecified => "?",
    };
    let error = if job.last_error.is_empty() {
        String::new()
    } else {
        format!(", last error: {}", job.last_error)
    };
    format!(
        "{:<20} {} {state}, {} attempts{error}",
        kind_name(job.kind),
        job.conversation_id,
        job.attempts
    )
}

const fn kind(job: &JobArguments) -> pb::JobKind {
    match job.kind {
        JobKind::CountTokens => pb::JobKind::CountTokens,
        JobKind::Checkpoint => pb::JobKind::Checkpoint,
        JobKind::SummarizeMessages => pb::JobKind::SummarizeMessages,
    }
}

fn kind_name(kind: i32) -> &'static str {
    job::parse_required_kind(kind).map_or("?", |kind| kind.name())
}
