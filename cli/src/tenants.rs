//! `anneal tenants`: creates and lists tenants.

use std::process::ExitCode;

use anneal_store::ListedTenant;

use crate::{command::TenantsAction, config::Config, keys::connect_as_login, output};

/// Tenants per page.
const PAGE: i64 = 500;

/// Runs the command.
pub(crate) async fn run(config: &Config, action: TenantsAction) -> anyhow::Result<ExitCode> {
    let mut owner = connect_as_login(config).await?;
    match action {
        TenantsAction::Create { name } => {
            let fits = !name.is_empty()
                && name.len() <= 128
                && !name.chars().any(|c| c.is_control() || c.is_whitespace());
            anyhow::ensure!(
                fits,
                "a tenant's name has 1 to 128 bytes, without white space and control characters"
            );
            anyhow::ensure!(
                owner.create_tenant(&name).await?,
                "there is a tenant {name} already"
            );
            output::print_line(format_args!("made tenant {name}"));
        }
        TenantsAction::List { usage, json } => {
            let mut after = String::new();
            loop {
                let tenants = owner.list_tenants(&after, PAGE).await?;
                for ListedTenant { name, usage: used } in &tenants {
                    if json {
                        let mut record = serde_json::json!({ "tenant": name });
                        if usage {
                            record["messages"] = used.messages.into();
                            record["content_bytes"] = used.content_bytes.into();
                        }
                        output::print_json(&record.to_string());
                    } else if usage {
                        let (messages, bytes) = (used.messages, used.content_bytes);
                        output::print_line(format_args!(
                            "{name}\t{messages} messages\t{bytes} bytes"
                        ));
                    } else {
                        output::print_line(name);
                    }
                }
                match tenants.last() {
                    Some(last) if tenants.len() as i64 == PAGE => after.clone_from(&last.name),
                    _ => break,
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
