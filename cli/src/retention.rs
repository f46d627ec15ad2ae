//! `anneal retention --dry-run`: counts what a worker with these settings would delete now. Changes
//! nothing.

use std::process::ExitCode;

use anneal_core::caller::TenantId;
use anneal_store::{KeptDays, PlannedDeletion, RetentionLimit, TenantLimits};
use uuid::Uuid;

use crate::{
    columns::{fitted, grouped},
    command::RetentionArguments,
    config::Config,
    output::{self, OutputFormat},
    processes,
};

/// Width of the columns with tenants and agents.
const NAME_COLUMNS: usize = 20;
/// Width of the column with the limits.
const LIMIT_COLUMNS: usize = 24;

/// Runs the command.
pub(crate) async fn run(
    config: &Config,
    arguments: &RetentionArguments,
) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        arguments.dry_run,
        "workers delete by themselves what is kept no longer; --dry-run shows what they would delete now"
    );
    let format = OutputFormat::from_argument(arguments.json);
    let store = processes::open_store(config).await?;
    let settings = &config.retention;
    for name in settings.named_tenants() {
        if store.find_tenant(name).await?.is_none() {
            output::print_note(format_args!(
                "anneal: retention.rules names the tenant {name}, which does not exist"
            ));
        }
    }
    let mut last = TenantId(Uuid::nil());
    let mut deletes_nothing = true;
    loop {
        let tenants = store.list_tenants_after(last).await?;
        let Some((last_of_page, _)) = tenants.last() else {
            break;
        };
        last = *last_of_page;
        for (tenant, name) in &tenants {
            let limits = settings.limits_of(name);
            for planned in store.plan_retention(*tenant, &limits).await? {
                deletes_nothing = false;
                match format {
                    OutputFormat::Text => output::print_line(line(name, &limits, &planned)),
                    OutputFormat::Json => {
                        output::print_json(&json(name, &limits, &planned).to_string());
                    }
                }
            }
        }
    }
    if deletes_nothing && format == OutputFormat::Text {
        output::print_line("nothing would be deleted now");
    }
    Ok(ExitCode::SUCCESS)
}

/// A line of the table: tenant, agent, limit, and what it keeps no longer.
fn line(tenant: &str, limits: &TenantLimits, planned: &PlannedDeletion) -> String {
    let has_other_agents =
        days_of(limits, planned.limit).is_some_and(|days| !days.agents.is_empty());
    let agent = match &planned.agent {
        Some(agent) => format!("agent {agent:?}"),
        None if has_other_agents => "all other agents".to_owned(),
        None => "all agents".to_owned(),
    };
    let limit = format!("{} {}", planned.limit.setting(), value(limits, planned));
    let rows = grouped(planned.rows);
    let amount = if planned.limit == RetentionLimit::IdleDays {
        let messages = grouped(planned.messages);
        format!("{rows} conversations, {messages} messages")
    } else {
        format!("{rows} rows of {}", planned.limit.table())
    };
    let (tenant, agent) = (fitted(tenant, NAME_COLUMNS), fitted(&agent, NAME_COLUMNS));
    let limit = fitted(&limit, LIMIT_COLUMNS);
    format!("{tenant} {agent} {limit} {amount}")
}

fn json(tenant: &str, limits: &TenantLimits, planned: &PlannedDeletion) -> serde_json::Value {
    serde_json::json!({
        "tenant": tenant,
        "agent": planned.agent,
        "setting": planned.limit.setting(),
        "value": value(limits, planned),
        "table": planned.limit.table(),
        "rows": planned.rows,
        "messages": planned.messages,
    })
}

/// The days of a limit that agents may have for themselves.
const fn days_of(limits: &TenantLimits, limit: RetentionLimit) -> Option<&KeptDays> {
    match limit {
        RetentionLimit::IdleDays => Some(&limits.idle),
        RetentionLimit::WithdrawnDays => Some(&limits.withdrawn),
        RetentionLimit::PrefixVersions
        | RetentionLimit::ModelCallDays
        | RetentionLimit::RequestDays
        | RetentionLimit::DeadJobDays => None,
    }
}

/// The value of the limit.
fn value(limits: &TenantLimits, planned: &PlannedDeletion) -> u32 {
    let trim = &limits.trim;
    match planned.limit {
        RetentionLimit::IdleDays | RetentionLimit::WithdrawnDays => days_of(limits, planned.limit)
            .map_or(0, |days| {
                let agent = planned.agent.as_ref();
                let own = agent.and_then(|agent| days.agents.get(agent));
                own.copied().unwrap_or(days.general)
            }),
        RetentionLimit::PrefixVersions => trim.prefix_versions,
        RetentionLimit::ModelCallDays => trim.model_call_days,
        RetentionLimit::RequestDays => trim.request_days,
        RetentionLimit::DeadJobDays => trim.dead_job_days,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_tenant_agent_limit_and_amount() {
        let limits = TenantLimits {
            idle: KeptDays {
                general: 90,
                agents: [("lab".to_owned(), 7)].into(),
            },
            ..TenantLimits::default()
        };
        let planned = |limit, agent: Option<&str>| PlannedDeletion {
            limit,
            agent: agent.map(str::to_owned),
            rows: 1_200,
            messages: 34_000,
        };
        assert_eq!(
            line(
                "acme",
                &limits,
                &planned(RetentionLimit::IdleDays, Some("lab"))
            ),
            "acme                 agent \"lab\"          idle_days 7              1,200 conversations, 34,000 messages"
        );
        let of_others = planned(RetentionLimit::IdleDays, None);
        assert_eq!(json("acme", &limits, &of_others)["value"], 90);
        let requests = line("acme", &limits, &planned(RetentionLimit::RequestDays, None));
        assert!(requests.ends_with("1,200 rows of ai_request"), "{requests}");
    }
}
