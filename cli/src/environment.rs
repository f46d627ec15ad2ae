//! The environment variables `ANNEAL_…`: settings, a whole settings file (`ANNEAL_CONFIG_TOML`),
//! variables of other uses, and the service links that Kubernetes adds to every container for
//! services named `anneal` or `anneal-…`. Everything else is a mistyped setting and refused.

use std::net::IpAddr;

use figment::{Metadata, providers::Env};
use tracing::info;

use crate::toml_settings::TomlSettings;

/// The prefix of the names of all our variables.
const PREFIX: &str = "ANNEAL_";

/// The variable whose value is the text of a settings file.
const CONFIG_TOML: &str = "ANNEAL_CONFIG_TOML";

/// The sections that variables of one setting can set. Models, providers and agents have free names,
/// so only [`CONFIG_TOML`] can set them.
const SECTIONS: [&str; 15] = [
    "database",
    "append",
    "server",
    "limits",
    "auth",
    "worker",
    "retention",
    "session",
    "summarizer",
    "chat",
    "breaker",
    "budget",
    "log",
    "metrics",
    "tracing",
];

/// Environment variables that are no settings: those of arguments, examples, builds and tests.
const OTHER_VARIABLES: [&str; 13] = [
    "ANNEAL_CONFIG",
    "ANNEAL_ADDRESS",
    "ANNEAL_TOKEN",
    "ANNEAL_CA_FILE",
    "ANNEAL_GRPC",
    "ANNEAL_HTTP",
    "ANNEAL_COMMIT",
    "ANNEAL_PG_BIN",
    "ANNEAL_TEST_DATA",
    "ANNEAL_TEST_DATA_REQUIRED",
    "ANNEAL_TEST_EVERY",
    "ANNEAL_DRAW_SKETCHES",
    "ANNEAL_GATE",
];

/// Protocols of a service's ports.
const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

/// The variables `ANNEAL_…` of the environment, checked.
#[derive(Debug)]
pub(crate) struct Environment {
    /// The names of variables that are service links.
    pub(crate) service_links: Vec<String>,
    /// The value of [`CONFIG_TOML`]; empty if the variable is not set.
    config_toml: String,
}

impl Environment {
    /// Checks the variables of this process. An error names a variable without a known section: a
    /// mistyped one would be ignored silently. An unknown key of a known section is refused later,
    /// when the settings are read.
    pub(crate) fn read() -> anyhow::Result<Self> {
        Self::check(std::env::vars())
    }

    fn check(variables: impl Iterator<Item = (String, String)>) -> anyhow::Result<Self> {
        let mut service_links = Vec::new();
        let mut config_toml = String::new();
        for (name, value) in variables {
            let Some(key) = name.strip_prefix(PREFIX) else {
                continue;
            };
            if name == CONFIG_TOML {
                config_toml = value;
                continue;
            }
            if is_service_link(&name, &value) {
                service_links.push(name);
                continue;
            }
            anyhow::ensure!(
                OTHER_VARIABLES.contains(&name.as_str()) || has_section(key),
                "{name} names no setting: write ANNEAL_SECTION_KEY, with one of the sections {}",
                SECTIONS.join(", ")
            );
        }
        service_links.sort_unstable();
        Ok(Self {
            service_links,
            config_toml,
        })
    }

    /// The settings in the text of `ANNEAL_CONFIG_TOML`; none if the variable is not set. Errors
    /// name the variable.
    pub(crate) fn config_toml(&self) -> TomlSettings {
        let metadata = Metadata::named(format!("the variable {CONFIG_TOML}"));
        TomlSettings::new(metadata, self.config_toml.clone())
    }

    /// The variables of one setting each: `ANNEAL_DATABASE_URL` sets `database.url`.
    pub(crate) fn settings(&self) -> Env {
        let service_links: Vec<String> = self
            .service_links
            .iter()
            .map(|name| name[PREFIX.len()..].to_owned())
            .collect();
        let env = Env::prefixed(PREFIX).filter(move |key| {
            has_section(key.as_str())
                && !service_links
                    .iter()
                    .any(|link| key.as_str().eq_ignore_ascii_case(link))
        });
        env.map(|key| key.as_str().replacen('_', ".", 1).into())
    }
}

/// Says in the log which service links were ignored, if any.
pub(crate) fn log_service_links(names: &[String]) {
    if let Some(first) = names.first() {
        info!(
            variables = names.len(),
            "ignored {} environment variables that Kubernetes adds for services ({first}, …); \
             enableServiceLinks: false in the pod's specification removes them",
            names.len()
        );
    }
}

/// Whether the name without its prefix begins with a section.
fn has_section(key: &str) -> bool {
    key.split_once('_').is_some_and(|(section, _)| {
        SECTIONS
            .iter()
            .any(|known| section.eq_ignore_ascii_case(known))
    })
}

/// Whether a variable has the name and the kind of value that Kubernetes gives it for a service, for
/// example `ANNEAL_SERVER_PORT_8080_TCP_ADDR=10.0.0.7`. The value decides where a mistyped setting
/// could have the same name: `ANNEAL_SERVER_PORT=8080` is none.
fn is_service_link(name: &str, value: &str) -> bool {
    let is_number = |text: &str| text.parse::<u16>().is_ok();
    let is_url = |text: &str| {
        text.split_once("://")
            .is_some_and(|(protocol, _)| is_protocol(&protocol.to_ascii_uppercase()))
    };
    if name.ends_with("_SERVICE_HOST") {
        return value.parse::<IpAddr>().is_ok();
    }
    // With a suffix: the port's name.
    if name.ends_with("_SERVICE_PORT") || name.contains("_SERVICE_PORT_") {
        return is_number(value);
    }
    if name.ends_with("_PORT") && is_url(value) {
        return true;
    }
    let Some((_, port)) = name.split_once("_PORT_") else {
        return false;
    };
    match port.split('_').collect::<Vec<_>>()[..] {
        [number, protocol] => is_number(number) && is_protocol(protocol) && is_url(value),
        [number, protocol, what] => {
            is_number(number)
                && is_protocol(protocol)
                && match what {
                    "PROTO" => is_protocol(&value.to_ascii_uppercase()),
                    "PORT" => is_number(value),
                    "ADDR" => value.parse::<IpAddr>().is_ok(),
                    _ => false,
                }
        }
        _ => false,
    }
}

fn is_protocol(name: &str) -> bool {
    PROTOCOLS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, value: &str) -> anyhow::Result<Environment> {
        Environment::check([(name.to_owned(), value.to_owned())].into_iter())
    }

    #[test]
    fn a_variable_that_names_no_setting_is_refused() {
        for name in [
            "ANNEAL_DATABASE_URL",
            "ANNEAL_COMMIT",
            "ANNEAL_PG_BIN",
            "ANNEAL_GRPC",
            "ANNEAL_GATE",
            "HOME",
        ] {
            let environment = check(name, "x").expect("the name is known");
            assert!(environment.service_links.is_empty(), "{name}");
        }
        for name in ["ANNEAL_INSECURE", "ANNEAL_GRPC_ADDRESS"] {
            check(name, "x").expect_err("the name is unknown");
        }
    }

    #[test]
    fn the_text_of_a_settings_file_is_no_setting_of_its_own() {
        let environment = check("ANNEAL_CONFIG_TOML", "[log]").expect("the name is known");
        assert_eq!(environment.config_toml, "[log]");
        check("ANNEAL_CONFIG_TOM", "[log]").expect_err("the name is mistyped");
    }

    #[test]
    fn service_links_of_kubernetes_are_ignored_and_mistyped_settings_are_not() {
        // Copied from a container beside the services anneal, anneal-server and anneal-worker.
        for (name, value) in [
            ("ANNEAL_SERVICE_HOST", "10.96.0.7"),
            ("ANNEAL_SERVICE_PORT", "50051"),
            ("ANNEAL_SERVICE_PORT_GRPC", "50051"),
            ("ANNEAL_PORT", "tcp://10.96.0.7:50051"),
            ("ANNEAL_PORT_50051_TCP", "tcp://10.96.0.7:50051"),
            ("ANNEAL_PORT_50051_TCP_PROTO", "tcp"),
            ("ANNEAL_PORT_50051_TCP_PORT", "50051"),
            ("ANNEAL_PORT_50051_TCP_ADDR", "10.96.0.7"),
            ("ANNEAL_SERVER_SERVICE_HOST", "fd00::7"),
            ("ANNEAL_SERVER_PORT", "tcp://[fd00::7]:8080"),
            ("ANNEAL_WORKER_PORT_9090_UDP", "udp://10.96.0.8:9090"),
        ] {
            let environment = check(name, value).expect(name);
            assert_eq!(environment.service_links, [name]);
        }
        for (name, value) in [
            ("ANNEAL_PORT", "50051"),
            ("ANNEAL_SERVICE_HOST", "localhost"),
            ("ANNEAL_PORT_50051_TCP_HOST", "10.96.0.7"),
        ] {
            check(name, value).expect_err("no service link");
        }
        // The section is known, so the unknown key is refused when the settings are read.
        let mistyped = check("ANNEAL_SERVER_PORT", "8080").expect("the section is known");
        assert!(mistyped.service_links.is_empty());
    }
}
