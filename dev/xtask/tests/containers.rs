//! Checks the contents of docker-compose.yml, of the files that it mounts, and of Dockerfile. They
//! are only parsed; no container engine is needed.

use std::path::{Path, PathBuf};

use serde_yaml_ng::Value;

fn root() -> PathBuf {
    let crate_folder =
        std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo names the crate's folder");
    Path::new(&crate_folder)
        .ancestors()
        .nth(2)
        .expect("dev/xtask/ is in the workspace")
        .to_path_buf()
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).expect("the file is in the workspace's root")
}

fn services() -> Value {
    let mut compose: Value =
        serde_yaml_ng::from_str(&read("docker-compose.yml")).expect("it is YAML");
    compose.apply_merge().expect("merge keys name mappings");
    compose["services"].clone()
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_sequence()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

fn each_service(services: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let services = services.as_mapping().into_iter().flatten();
    services.map(|(name, service)| (name.as_str().expect("names are strings"), service))
}

/// The Dockerfile's instructions, with continuation lines joined.
fn instructions() -> Vec<String> {
    let joined = read("Dockerfile").replace("\\\n", " ");
    let lines = joined
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

/// The services that start only with the profile `monitoring`.
const MONITORING: [&str; 2] = ["prometheus", "grafana"];

#[test]
fn the_services_are_postgres_migrate_server_and_two_workers() {
    let services = services();
    let (monitoring, default): (Vec<_>, Vec<_>) =
        each_service(&services).partition(|(_, service)| !service["profiles"].is_null());
    let names = |services: &[(&str, &Value)]| -> Vec<String> {
        services
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect()
    };
    assert_eq!(names(&default), ["postgres", "migrate", "server", "worker"]);
    assert_eq!(names(&monitoring), MONITORING);
    for (name, service) in monitoring {
        assert_eq!(strings(&service["profiles"]), ["monitoring"], "{name}");
    }
    for name in ["migrate", "server", "worker"] {
        assert_eq!(strings(&services[name]["command"]), [name]);
    }
    assert_eq!(services["worker"]["deploy"]["replicas"], 2);
}

#[test]
fn long_running_services_have_health_checks_and_are_restarted() {
    let services = services();
    for name in ["postgres", "server", "worker"]
        .into_iter()
        .chain(MONITORING)
    {
        assert_eq!(
            strings(&services[name]["healthcheck"]["test"])[0],
            "CMD",
            "{name}"
        );
        assert_eq!(services[name]["restart"], "unless-stopped", "{name}");
    }
    assert_eq!(services["migrate"]["healthcheck"]["disable"], true);
}

#[test]
fn server_and_worker_start_on_a_migrated_database() {
    let services = services();
    for name in ["server", "worker"] {
        let after = &services[name]["depends_on"];
        assert_eq!(
            after["migrate"]["condition"], "service_completed_successfully",
            "{name}"
        );
        assert_eq!(after["postgres"]["condition"], "service_healthy", "{name}");
    }
    assert_eq!(
        services["migrate"]["depends_on"]["postgres"]["condition"],
        "service_healthy"
    );
}

#[test]
fn ports_are_published_on_loopback_only_and_the_database_not_at_all() {
    let services = services();
    for (name, service) in each_service(&services) {
        let ports = service["ports"].as_sequence().cloned().unwrap_or_default();
        for port in &ports {
            let port = port.as_str().expect("ports are written in the short form");
            assert!(port.starts_with("127.0.0.1:"), "{name} publishes {port}");
        }
        let is_published = name == "server" || MONITORING.contains(&name);
        assert_eq!(!ports.is_empty(), is_published, "{name}");
        assert!(service["network_mode"].is_null(), "{name}");
    }
}

#[test]
fn only_postgres_may_run_as_root_with_capabilities_on_a_writable_file_system() {
    let services = services();
    for (name, service) in each_service(&services) {
        assert_eq!(strings(&service["cap_drop"]), ["ALL"], "{name}");
        assert_eq!(
            strings(&service["security_opt"]),
            ["no-new-privileges:true"],
            "{name}"
        );
        assert!(service["privileged"].is_null(), "{name}");
        if name == "postgres" {
            continue;
        }
        let user = service["user"].as_str().expect("the user is a string");
        assert!(
            user.split(':')
                .all(|id| id.parse::<u32>().is_ok_and(|id| id > 0)),
            "{name} runs as {user}"
        );
        assert_eq!(service["read_only"], true, "{name}");
        assert_eq!(strings(&service["tmpfs"]), ["/tmp"], "{name}");
        assert!(service["cap_add"].is_null(), "{name}");
    }
}

/// How docker-compose.yml refers to a variable that must be set, because it has no default.
fn required_variable(name: &str) -> String {
    format!("${{{name}:?set {name}}}")
}

/// Every string in the service's description.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Sequence(items) => items.iter().flat_map(texts).collect(),
        Value::Mapping(entries) => entries.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn passwords_are_required_variables_and_each_service_has_only_its_own() {
    let services = services();
    let environment = &services["postgres"]["environment"];
    for name in [
        "POSTGRES_PASSWORD",
        "POSTGRES_OWNER_PASSWORD",
        "POSTGRES_LOGIN_PASSWORD",
    ] {
        assert_eq!(environment[name], required_variable(name));
    }
    for (service, login, password) in [
        ("migrate", "anneal_owner", "POSTGRES_OWNER_PASSWORD"),
        ("server", "anneal_login", "POSTGRES_LOGIN_PASSWORD"),
        ("worker", "anneal_login", "POSTGRES_LOGIN_PASSWORD"),
    ] {
        let url = services[service]["environment"]["ANNEAL_DATABASE_URL"]
            .as_str()
            .expect("the address is a string");
        assert_eq!(
            url,
            format!(
                "postgres://{login}:{}@postgres:5432/anneal",
                required_variable(password)
            ),
            "{service}"
        );
        let secrets: Vec<String> = texts(&services[service])
            .into_iter()
            .filter(|text| text.contains("PASSWORD"))
            .collect();
        assert_eq!(secrets, [url], "{service} must know no other password");
    }
}

#[test]
fn the_database_creates_its_roles_and_has_a_network_of_its_own_without_tls() {
    let compose: Value = serde_yaml_ng::from_str(&read("docker-compose.yml")).expect("it is YAML");
    assert_eq!(compose["networks"]["database"]["internal"], true);
    let services = services();
    let roles = strings(&services["postgres"]["volumes"])
        .into_iter()
        .find(|volume| volume.contains("initdb.d"));
    let (file, place) = roles
        .and_then(|volume| volume.split_once(':'))
        .expect("the roles are mounted");
    assert_eq!(
        (file, place),
        (
            "./docker/postgres/roles.sql",
            "/docker-entrypoint-initdb.d/roles.sql:ro"
        )
    );
    let sql = read(file);
    for role in [
        "anneal_app nologin",
        "anneal_owner login",
        "anneal_login login",
    ] {
        assert!(sql.contains(&format!("create role {role}")), "{role}");
    }
    for (name, service) in each_service(&services) {
        let reaches_providers = ["server", "worker"].contains(&name);
        let is_monitoring = MONITORING.contains(&name);
        let networks = if reaches_providers {
            &["database", "outside"][..]
        } else if is_monitoring {
            &["outside"]
        } else {
            &["database"]
        };
        assert_eq!(strings(&service["networks"]), networks, "{name}");
        let insecure = &service["environment"]["ANNEAL_DATABASE_INSECURE"];
        assert!(
            if name == "postgres" || is_monitoring {
                insecure.is_null()
            } else {
                insecure == "true"
            },
            "{name}"
        );
    }
}

#[test]
fn every_mounted_file_exists_and_is_mounted_read_only() {
    for (name, service) in each_service(&services()) {
        for volume in service["volumes"].as_sequence().into_iter().flatten() {
            let (source, is_read_only) = match volume.as_str() {
                Some(short) => (
                    short.split(':').next().expect("a mount has a source"),
                    short.ends_with(":ro"),
                ),
                None => (
                    volume["source"].as_str().expect("a mount has a source"),
                    volume["read_only"] == true,
                ),
            };
            // A source with a default: `${VARIABLE:-FILE}`.
            let file = source
                .split_once(":-")
                .map_or(source, |(_, default)| default.trim_end_matches('}'));
            if file.starts_with("./") {
                assert!(root().join(file).exists(), "{name} mounts {file}");
                assert!(is_read_only, "{name} mounts {file}");
            }
        }
    }
}

#[test]
fn settings_come_from_a_mounted_file_and_a_variable_and_only_callers_of_models_have_their_keys() {
    let services = services();
    for name in ["migrate", "server", "worker"] {
        let service = &services[name];
        assert_eq!(
            service["volumes"][0]["source"],
            "${ANNEAL_CONFIG:-./deploy/compose/anneal.toml}"
        );
        assert_eq!(
            service["environment"]["ANNEAL_CONFIG"],
            service["volumes"][0]["target"]
        );
        assert_eq!(
            service["environment"]["ANNEAL_CONFIG_TOML"],
            "${ANNEAL_CONFIG_TOML:-}"
        );
        for key in ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"] {
            let value = &service["environment"][key];
            if name == "migrate" {
                assert!(value.is_null(), "{name} calls no models");
            } else {
                assert_eq!(*value, format!("${{{key}:-}}"), "{name}");
            }
        }
    }
}

#[test]
fn prometheus_scrapes_the_probe_ports_of_servers_and_workers_and_has_the_alert_rules() {
    let services = services();
    let config: Value =
        serde_yaml_ng::from_str(&read("deploy/prometheus/prometheus.yml")).expect("it is YAML");
    let jobs = config["scrape_configs"].as_sequence().expect("a list");
    let mut scraped = Vec::new();
    for job in jobs {
        let target = &job["dns_sd_configs"][0];
        let port = target["port"].as_u64().expect("a port");
        for service in strings(&target["names"]) {
            let address = match service {
                "server" => "ANNEAL_SERVER_PROBE_ADDRESS",
                _ => "ANNEAL_WORKER_HTTP_ADDRESS",
            };
            assert_eq!(
                services[service]["environment"][address],
                format!("0.0.0.0:{port}"),
                "{service}"
            );
            scraped.push(service);
        }
    }
    assert_eq!(scraped, ["server", "worker"]);
    let mounted = strings(&services["prometheus"]["volumes"]);
    for rules in strings(&config["rule_files"]) {
        assert!(
            mounted.contains(&format!("./docs/alerts.yml:{rules}:ro").as_str()),
            "{rules}"
        );
    }
}

#[test]
fn grafana_reads_the_dashboards_that_are_mounted_from_the_prometheus_that_runs() {
    let services = services();
    let provisioned = |name: &str| -> Value {
        let text = read(&format!("deploy/grafana/provisioning/{name}"));
        serde_yaml_ng::from_str(&text).expect("it is YAML")
    };
    let dashboards = provisioned("dashboards/anneal.yml");
    let folder = dashboards["providers"][0]["options"]["path"]
        .as_str()
        .expect("a path");
    let mounted = strings(&services["grafana"]["volumes"]);
    for mount in [
        format!("./deploy/grafana:{folder}:ro"),
        "./deploy/grafana/provisioning:/etc/grafana/provisioning:ro".to_owned(),
    ] {
        assert!(mounted.contains(&mount.as_str()), "{mount}");
    }
    let sources = provisioned("datasources/prometheus.yml");
    assert_eq!(sources["datasources"][0]["url"], "http://prometheus:9090");
}

#[test]
fn every_service_has_resource_limits() {
    for (name, service) in each_service(&services()) {
        let memory = service["mem_limit"]
            .as_str()
            .and_then(|limit| limit.strip_suffix('g')?.parse::<u32>().ok());
        assert!(
            memory.is_some_and(|gigabytes| (1..=4).contains(&gigabytes)),
            "{name}"
        );
        assert!(
            service["pids_limit"]
                .as_u64()
                .is_some_and(|pids| (1..=1_024).contains(&pids)),
            "{name}"
        );
    }
}

#[test]
fn only_the_server_listens_without_credentials() {
    let services = services();
    let insecure = each_service(&services)
        .filter(|(_, service)| !service["environment"]["ANNEAL_SERVER_INSECURE"].is_null());
    assert_eq!(
        insecure.map(|(name, _)| name).collect::<Vec<_>>(),
        ["server"]
    );
}

#[test]
fn files_copied_to_the_image_exist() {
    let mut stages = Vec::new();
    for instruction in instructions() {
        let words: Vec<&str> = instruction.split_whitespace().collect();
        match words.as_slice() {
            ["FROM", _, "AS", stage] => stages.push((*stage).to_owned()),
            ["COPY", from, ..] if from.starts_with("--from=") => {
                assert!(
                    stages
                        .iter()
                        .any(|stage| from.ends_with(&format!("={stage}"))),
                    "{instruction}"
                );
            }
            ["COPY", sources @ .., _] => {
                for source in sources {
                    assert!(root().join(source).exists(), "{instruction}");
                }
            }
            _ => {}
        }
    }
    assert_eq!(stages, ["build"]);
}

#[test]
fn the_image_runs_the_binary_as_a_numeric_user_with_a_health_check() {
    let instructions = instructions();
    let has = |line: &str| instructions.iter().any(|instruction| instruction == line);
    assert!(has("USER 10001:10001") && has("ENTRYPOINT [\"anneal\"]") && has("EXPOSE 50051 8080"));
    // Without a base image only this line says where programs are.
    assert!(has("FROM scratch") && has("ENV PATH=/usr/local/bin"));
    let health = instructions
        .iter()
        .find(|line| line.starts_with("HEALTHCHECK"))
        .expect("the image has a health check");
    assert!(health.ends_with("CMD [\"anneal\", \"health\"]"));
}

#[test]
fn the_image_is_built_with_the_commit_that_the_caller_names() {
    let instructions = instructions();
    let position = |start: &str| {
        let found = instructions.iter().position(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("no instruction {start}"))
    };
    let build = position("RUN");
    assert!(position("ARG ANNEAL_COMMIT") < build);
    assert!(position("ENV ANNEAL_COMMIT=$ANNEAL_COMMIT") < build);
    assert_eq!(
        services()["server"]["build"]["args"]["ANNEAL_COMMIT"],
        "${ANNEAL_COMMIT:-}"
    );
}

#[test]
fn the_image_builds_with_the_rust_version_of_the_workspace() {
    let manifest: toml::Table = read("Cargo.toml").parse().expect("it is TOML");
    let version = manifest["workspace"]["package"]["rust-version"]
        .as_str()
        .expect("the version is a string");
    assert!(
        instructions()[0].starts_with(&format!("FROM rust:{version}-slim-")),
        "{version}"
    );
}
