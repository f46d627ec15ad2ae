//! `anneal jobs`: lists, requeues and discards background jobs.

use std::process::ExitCode;

use anneal_proto::{convert::job, v1 as pb};
use tonic::Code;

use crate::{
    client::{Client, failed_call},
    command::{JobArguments, JobKind, JobState, JobsAction, JobsArguments},
    conversation_ids,
    output::{self, OutputFormat},
};

/// Runs the command.
pub(crate) async fn run(arguments: JobsArguments) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&arguments.server).await?;
    let output_format = OutputFormat::from_argument(arguments.json);
    match arguments.action.unwrap_or(JobsAction::List { state: None }) {
        JobsAction::List { state } => list_jobs(&client, state, output_format).await?,
        JobsAction::Requeue(job) => {
            let ask = pb::RequeueJobRequest {
                kind: kind(&job).into(),
                conversation_id: conversation_ids::resolve_for_change(&client, &job.conversation)
                    .await?,
                request_id: String::new(),
            };
            let job = client
                .operators()
                .requeue_job(ask)
                .await
                .map_err(|status| failed_call(&status))?
                .into_inner();
            match output_format {
                OutputFormat::Text => {
                    output::print_line(format_args!("requeued {}", job_line(&job)));
                }
                OutputFormat::Json => output::print_json(&job_json(&job).to_string()),
            }
        }
        JobsAction::Discard(job) => {
            let ask = pb::DiscardJobRequest {
                kind: kind(&job).into(),
                conversation_id: conversation_ids::resolve_for_change(&client, &job.conversation)
                    .await?,
                request_id: String::new(),
            };
            let discarded = serde_json::json!({
                "record": "job",
                "kind": kind_name(ask.kind),
                "conversation_id": ask.conversation_id,
                "state": "discarded",
            });
            client
                .operators()
                .discard_job(ask)
                .await
                .map_err(|status| failed_call(&status))?;
            match output_format {
                OutputFormat::Text => output::print_line("discarded"),
                OutputFormat::Json => output::print_json(&discarded.to_string()),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the queues' figures over all tenants, if the caller may see them, and then the jobs.
async fn list_jobs(
    client: &Client,
    state: Option<JobState>,
    output_format: OutputFormat,
) -> anyhow::Result<()> {
    match client
        .operators()
        .get_queue_stats(pb::GetQueueStatsRequest {})
        .await
    {
        Ok(figures) => {
            for queue in &figures.into_inner().queues {
                match output_format {
                    OutputFormat::Text => print_queue(queue),
                    OutputFormat::Json => output::print_json(&queue_json(queue).to_string()),
                }
            }
        }
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
            match output_format {
                OutputFormat::Text => output::print_line(job_line(job)),
                OutputFormat::Json => output::print_json(&job_json(job).to_string()),
            }
        }
        listed += page.jobs.len();
        if page.next_page_token.is_empty() {
            break;
        }
        page_token = page.next_page_token;
    }
    if listed == 0 && output_format == OutputFormat::Text {
        output::print_line("no jobs");
    }
    Ok(())
}

fn oldest_ready_seconds(queue: &pb::QueueStats) -> f64 {
    queue
        .oldest_ready
        .map_or(0.0, |age| age.seconds as f64 + f64::from(age.nanos) / 1e9)
}

fn queue_json(queue: &pb::QueueStats) -> serde_json::Value {
    serde_json::json!({
        "record": "queue",
        "kind": kind_name(queue.kind),
        "waiting": queue.waiting,
        "ready": queue.ready,
        "oldest_ready_seconds": oldest_ready_seconds(queue),
        "running": queue.running,
        "dead": queue.dead,
    })
}

fn print_queue(queue: &pb::QueueStats) {
    let oldest = oldest_ready_seconds(queue);
    output::print_line(format_args!(
        "{:<20} {} waiting ({} ready, oldest {oldest:.1} s), {} running, {} dead",
        kind_name(queue.kind),
        queue.waiting,
        queue.ready,
        queue.running,
        queue.dead
    ));
}

const fn state_name(state: pb::JobState) -> &'static str {
    match state {
        pb::JobState::Waiting => "waiting",
        pb::JobState::Running => "running",
        pb::JobState::Dead => "dead",
        pb::JobState::Unspecified => "?",
    }
}

fn job_json(job: &pb::Job) -> serde_json::Value {
    serde_json::json!({
        "record": "job",
        "kind": kind_name(job.kind),
        "conversation_id": job.conversation_id,
        "state": state_name(job.state()),
        "attempts": job.attempts,
        "due_time": job.due_time.map(|time| time.to_string()),
        "last_error": job.last_error,
        "worker": job.worker,
    })
}

fn job_line(job: &pb::Job) -> String {
    let state = state_name(job.state());
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
