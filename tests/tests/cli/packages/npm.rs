//! The npm packages, installed without a network.

use anneal_testkit::Folder;
use tokio::process::Command;

use crate::packages::{VERSION_LINE, build_packages, find_file, is_available, run, run_to_end};

#[tokio::test]
async fn the_npm_packages_run_the_binary_and_say_when_its_package_is_missing() {
    if !is_available("npm", &["--version"]).await {
        return;
    }
    let folder = Folder::new();
    let dist = build_packages(&folder).await;
    let project = folder.path().join("project");
    std::fs::create_dir(&project).expect("a folder for the project");
    let version = env!("CARGO_PKG_VERSION");
    let mut npm = Command::new("npm");
    npm.args(["install", "--offline", "--no-audit", "--no-fund"])
        .arg(dist.join(format!("anneal-server-{version}.tgz")))
        .arg(find_file(&dist, "anneal-server-linux-", ".tgz"))
        .env("npm_config_cache", folder.path().join("cache"))
        .current_dir(&project);
    run(&mut npm).await;

    let program = project.join("node_modules/.bin/anneal");
    assert_eq!(
        run(Command::new(&program).arg("--version")).await,
        VERSION_LINE
    );
    let refused = run_to_end(Command::new(&program).arg("--no-such-argument")).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");

    std::fs::remove_dir_all(project.join("node_modules/@anneal-server"))
        .expect("the platform's package is installed");
    let refused = run_to_end(&mut Command::new(&program)).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused
            .err
            .starts_with("anneal: the package @anneal-server/linux-"),
        "{refused:?}"
    );
}
