//! `anneal models`: shows the state of the language models.

use std::process::ExitCode;

use anneal_proto::v1 as pb;

use crate::{
    client::{Client, failed_call},
    command::ModelsArguments,
    output,
    text_format::pluralize,
};

/// Runs the command.
pub(crate) async fn run(arguments: ModelsArguments) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&arguments.server).await?;
    let stats = client
        .operators()
        .get_model_stats(pb::GetModelStatsRequest {})
        .await;
    let stats = stats.map_err(|status| failed_call(&status))?.into_inner();
    if arguments.json {
        print_json(&stats);
    } else {
        print_text(&stats);
    }
    Ok(ExitCode::SUCCESS)
}

/// A line of JSON for each model, and for each conversation whose breaker has opened.
fn print_json(stats: &pb::GetModelStatsResponse) {
    for model in &stats.models {
        let record = serde_json::json!({
            "record": "model",
            "model": model.model,
            "calls_under_way": model.calls_under_way,
            "calls_today": model.calls_today,
            "failed_calls_today": model.failed_calls_today,
            "input_tokens_today": model.input_tokens_today,
            "output_tokens_today": model.output_tokens_today,
            "breaker": breaker_json(model.breaker.as_ref()),
            "tenant_breaker": breaker_json(model.tenant_breaker.as_ref()),
            "open_tenant_breakers": model.open_tenant_breakers,
        });
        output::print_json(&record.to_string());
    }
    for state in &stats.conversations {
        let record = serde_json::json!({
            "record": "conversation",
            "conversation_id": state.conversation_id,
            "model": state.model,
            "breaker": breaker_json(state.breaker.as_ref()),
        });
        output::print_json(&record.to_string());
    }
}

fn breaker_json(breaker: Option<&pb::Breaker>) -> Option<serde_json::Value> {
    breaker.map(|breaker| {
        serde_json::json!({
            "failures": breaker.failures,
            "open_for_seconds": breaker.open_for.map(|time| time.seconds.max(1)),
            "last_error": breaker.last_error,
        })
    })
}

fn print_text(stats: &pb::GetModelStatsResponse) {
    if stats.models.is_empty() {
        output::print_line("no model was called yet");
    }
    for model in &stats.models {
        output::print_line(format_args!(
            "{:<28} {} calls under way; today {} calls ({} failed), {} tokens read, {} written{}",
            model.model,
            model.calls_under_way,
            model.calls_today,
            model.failed_calls_today,
            model.input_tokens_today,
            model.output_tokens_today,
            breaker_text(model.breaker.as_ref())
        ));
        if model.open_tenant_breakers > 0 {
            let tenants = model.open_tenant_breakers.unsigned_abs() as usize;
            output::print_line(format_args!(
                "{:<28} breakers of {} open",
                model.model,
                pluralize(tenants, "tenant")
            ));
        }
        let own_breaker = breaker_text(model.tenant_breaker.as_ref());
        if !own_breaker.is_empty() {
            output::print_line(format_args!("{:<28} this tenant{own_breaker}", model.model));
        }
    }
    for state in &stats.conversations {
        output::print_line(format_args!(
            "{:<28} conversation {}{}",
            state.model,
            state.conversation_id,
            breaker_text(state.breaker.as_ref())
        ));
    }
}

/// The failures and the state of a circuit breaker; empty without failures.
fn breaker_text(breaker: Option<&pb::Breaker>) -> String {
    let Some(breaker) = breaker.filter(|breaker| breaker.failures > 0) else {
        return String::new();
    };
    let state = match &breaker.open_for {
        Some(time) => format!("breaker open for {} s", time.seconds.max(1)),
        None => "breaker not open".to_owned(),
    };
    format!(
        "; {} failures in a row, {state}, last error: {}",
        breaker.failures, breaker.last_error
    )
}
